//! The pool that all frameworks of the process share.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::options::Options;
use super::pool::Pool;
use crate::driver::process::is_forked;
use crate::error::{Error, Result};

static SHARED: OnceLock<Arc<Pool>> = OnceLock::new();
/// The options from [`configure`], for a pool that is not made yet.
static WANTED: Mutex<Option<Options>> = Mutex::new(None);

/// The shared pool, made on first use with the options of [`configure`], else of the environment. It lives until the
/// process ends.
///
/// # Errors
/// It could not be made; the next call tries again.
pub fn shared() -> Result<&'static Arc<Pool>> {
    if is_forked() {
        return Err(Error::Forked);
    }
    if let Some(pool) = SHARED.get() {
        return Ok(pool);
    }
    let wanted = WANTED.lock();
    if let Some(pool) = SHARED.get() {
        return Ok(pool);
    }
    let options = match &*wanted {
        Some(options) => options.clone(),
        None => Options::from_environment()?,
    };
    let pool = Pool::new(options)?;
    Ok(SHARED.get_or_init(|| pool))
}

/// The shared pool, if it was made.
#[must_use]
pub fn existing() -> Option<&'static Arc<Pool>> {
    SHARED.get()
}

/// Sets the options of the shared pool before it is made. A second call replaces the first.
///
/// # Errors
/// [`Error::Busy`] once the pool exists, [`Error::Invalid`] for an option out of range.
pub fn configure(options: Options) -> Result<()> {
    options.validate()?;
    let mut wanted = WANTED.lock();
    if SHARED.get().is_some() {
        return Err(Error::Busy(
            "the shared pool exists already: configure it before the first allocation, or change its limits with \
             forebay_pool_set_limit"
                .into(),
        ));
    }
    *wanted = Some(options);
    Ok(())
}
