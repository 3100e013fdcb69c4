//! The one pool of the process that every framework's hook uses.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::options::Options;
use super::pool::Pool;
use crate::driver::process::is_forked;
use crate::error::{Error, Result};

static SHARED: OnceLock<Arc<Pool>> = OnceLock::new();
/// What [`configure`] was told, for the pool that is yet to be made.
static WANTED: Mutex<Option<Options>> = Mutex::new(None);

/// The shared pool, made on first use from what [`configure`] was told, else from the environment.
/// It lives until the process ends.
///
/// # Errors
/// It cannot be made; the next call tries again.
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

/// Says how the shared pool is to be made. A second call before that replaces the first.
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
