//! The version of the header and of the library.

use std::ffi::c_char;

/// Major version of this header.
pub const FOREBAY_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const FOREBAY_VERSION_MINOR: u32 = 1;
/// Patch version of this header.
pub const FOREBAY_VERSION_PATCH: u32 = 0;
/// Version of this header as one number: major * 10000 + minor * 100 + patch.
pub const FOREBAY_VERSION_NUMBER: u32 = 100;

/// The version of the loaded library, encoded as `FOREBAY_VERSION_NUMBER` is. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version_number() -> u32 {
    FOREBAY_VERSION_MAJOR * 10_000 + FOREBAY_VERSION_MINOR * 100 + FOREBAY_VERSION_PATCH
}

/// The version of the loaded library as text, such as "0.1.0". Static; never NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
