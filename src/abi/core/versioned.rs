//! Structs that cross the ABI. Each begins with its size and version as the caller was compiled, and ends in reserved
//! words.

use super::guard::Fault;
use super::handle::output;
use crate::error::Error;

/// A struct that begins with `size` and `version`.
///
/// # Safety
/// The first two fields are `u32`: the size and the version.
pub(crate) unsafe trait Versioned: Sized {
    /// The version of the layout that this library knows.
    const VERSION: u32;
    /// The struct's name in C, and an advice how to fill it, for error texts.
    const NAME_AND_ADVICE: (&'static str, &'static str);

    /// Whether the reserved words are zero.
    fn is_clean(&self) -> bool;
}

fn check<T: Versioned>((size, version): (u32, u32)) -> Result<(), Fault> {
    let expected = size_of::<T>() as u32;
    if (size, version) == (expected, T::VERSION) {
        return Ok(());
    }
    let (name, fill) = T::NAME_AND_ADVICE;
    Err(Error::invalid(format_args!(
        "{name} has size {size} and version {version}; this library takes size {expected} and version {}: {fill}",
        T::VERSION
    ))
    .into())
}

/// The caller's options, checked; `None` for NULL.
///
/// # Safety
/// `options` is NULL or points to a readable struct of the size that it names.
pub(crate) unsafe fn options<'a, T: Versioned>(options: *const T) -> Result<Option<&'a T>, Fault> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the first two words are there in every version of the struct.
    check::<T>(unsafe { *options.cast::<(u32, u32)>() })?;
    // SAFETY: its size was just checked.
    let options = unsafe { &*options };
    if options.is_clean() {
        return Ok(Some(options));
    }
    let (name, fill) = T::NAME_AND_ADVICE;
    Err(Error::invalid(format_args!("reserved words of {name} are not zero: {fill}")).into())
}

/// Writes a result into the caller's struct, after a check of the size and version that the caller has set in it.
///
/// # Safety
/// `out` is NULL or points to a struct of the size that it names, which may be written.
pub(crate) unsafe fn answer<T: Versioned>(out: *mut T, value: impl FnOnce() -> Result<T, Fault>) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    let place = unsafe { output(out, "out")? };
    // SAFETY: the first two words are there in every version of the struct, and the caller has set them.
    check::<T>(unsafe { *out.cast::<(u32, u32)>() })?;
    place.write(value()?);
    Ok(())
}

/// A C truth value: 0 or 1.
pub(crate) fn flag(name: &str, value: u32) -> Result<bool, Fault> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::invalid(format_args!("{name} is {other}; it takes 0 or 1")).into()),
    }
}

/// A NUMA node; `None` for -1.
pub(crate) fn node(name: &str, number: i32) -> Result<Option<u32>, Fault> {
    match number {
        -1 => Ok(None),
        node => u32::try_from(node)
            .map(Some)
            .map_err(|_| Error::invalid(format_args!("{name} is {node}; it takes a NUMA node, or -1")).into()),
    }
}
