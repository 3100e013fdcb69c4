//! Choosing and opening a driver. The user chooses; the library never falls back from one driver to the other.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Driver;
use super::cuda::CudaDriver;
use super::error::{DriverError, ErrorKind, Result};
use super::host::{HostDriver, HostOptions};
use super::process::{is_forked, watch_fork};

/// The variable that chooses the driver.
const VARIABLE: &str = "FOREBAY_DRIVER";

/// Which driver to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// NVIDIA GPUs through libcuda.
    Cuda,
    /// The host driver, on RAM.
    Host,
}

impl Choice {
    /// The value of `FOREBAY_DRIVER`, `cuda` or `host`; `cuda` if it is not set.
    pub fn from_environment() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::Cuda),
            Some(value) => Self::parse(&value.to_string_lossy()),
        }
    }

    /// The driver with this name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "cuda" => Ok(Self::Cuda),
            "host" => Ok(Self::Host),
            _ => Err(DriverError::new(
                ErrorKind::Invalid,
                "open",
                format!("{VARIABLE}={name:?} is not a driver: cuda and host are"),
            )),
        }
    }
}

/// Opens the chosen driver. The host driver takes its size from the environment when it is first opened, see
/// [`HostOptions::from_environment`]. While a reference to it lives, all callers share it, with its memory and streams,
/// as they share a GPU.
///
/// errors: [`ErrorKind::NoDriver`] if CUDA cannot be used here; the text says what is missing.
pub fn open(choice: Choice) -> Result<Arc<dyn Driver>> {
    // First: from here on a forked child could find locks held, and the driver's state does not work in it.
    watch_fork();
    match choice {
        Choice::Cuda => Ok(Arc::new(CudaDriver::open()?)),
        Choice::Host => Ok(host()?),
    }
}

fn host() -> Result<Arc<HostDriver>> {
    static OPEN: Mutex<Weak<HostDriver>> = Mutex::new(Weak::new());
    let fresh = || Ok(Arc::new(HostDriver::new(HostOptions::from_environment()?)?));
    // In a child of `fork` the lock may stay held, and the devices are the parent's.
    if is_forked() {
        return fresh();
    }
    let mut open = OPEN.lock();
    if let Some(driver) = open.upgrade() {
        return Ok(driver);
    }
    let driver = fresh()?;
    *open = Arc::downgrade(&driver);
    Ok(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_driver_is_refused_by_name() {
        assert_eq!(Choice::parse("cuda").unwrap(), Choice::Cuda);
        assert_eq!(Choice::parse("host").unwrap(), Choice::Host);
        let error = Choice::parse("rocm").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.to_string().contains("\"rocm\""), "{error}");
        assert!(error.to_string().contains("cuda and host"), "{error}");
        assert!(Choice::parse("").is_err());
    }
}
