//! The errors for an address that is not the start of a live block.

use crate::error::Error;
use crate::units::Address;

/// `ours`: the address may have been memory of the pool. `around`: the live block that it lies in, and its length.
#[cold]
pub(crate) fn bad_free(at: Address, ours: bool, around: Option<(Address, u64)>) -> Error {
    let text = match around {
        _ if !ours => format!("{at} is not memory of this pool: free it where it was allocated"),
        Some((start, bytes)) => format!(
            "{at} lies {} bytes inside the live block of {bytes} bytes at {start}: only its start can be freed",
            at.0 - start.0
        ),
        None => format!("{at} is not live: it was freed before, or never given out"),
    };
    Error::BadFree(text.into())
}

/// The error for a live block of another framework.
pub(crate) fn of_another_framework(at: Address) -> Error {
    Error::BadFree(format!("{at} is a block of another framework: free it where it was allocated").into())
}
