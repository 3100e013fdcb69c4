//! Versions, as numbers and as text.

use std::ffi::c_char;

/// First part of the version.
pub const FOREBAY_VERSION_MAJOR: u32 = 0;
/// Second part of the version.
pub const FOREBAY_VERSION_MINOR: u32 = 1;
/// Third part of the version.
pub const FOREBAY_VERSION_PATCH: u32 = 0;
/// All parts in one: major * 10000 + minor * 100 + patch.
pub const FOREBAY_VERSION_NUMBER: u32 = 100;

/// The version of the library in use, packed as `FOREBAY_VERSION_NUMBER` is. Any thread; cannot fail.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version_number() -> u32 {
    FOREBAY_VERSION_MAJOR * 10_000 + FOREBAY_VERSION_MINOR * 100 + FOREBAY_VERSION_PATCH
}

/// The version of the library in use as text, e.g. "0.1.0". Static; never NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
