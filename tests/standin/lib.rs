//! A libcuda on RAM: the functions of `src/driver/cuda/api.rs`, each as the call of the host driver with the same
//! meaning.
//!
//! So memory, streams, events, pools and captures are real, and whatever runs on a GPU through `driver/cuda` runs
//! without one, with this library first in the search path of the process as `libcuda.so` (see `tests/kit/standin.rs`).
//!
//! It is stricter than libcuda where that finds mistakes: a call for a device needs that device's context, not any; a
//! call that a capture may forbid is refused while there is one, unless the thread is in the relaxed mode; in a child
//! of `fork`, and once the process ends, every call is refused.
//!
//! | variable | what it says |
//! |---|---|
//! | `STANDIN_DEVICES`, `STANDIN_CAPACITY` | how many devices, and the bytes of each |
//! | `STANDIN_VERSION` | the version that the driver reports, 13000 unless set |
//! | `STANDIN_ATTRIBUTES` | device attributes that differ, as `102=0,134=-1` |
//! | `STANDIN_REFUSE` | calls that fail, as `cuMemCreate:3=2`: the third one, with code 2 |
//!
//! `FOREBAY_HOST_LATE` says how late work is, as on the host driver. A function that an older libcuda lacks is taken
//! out of a copy of the file, since the loader must not find it.

#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: callers pass pointers and handles as cuda.h demands"
)]

mod control;
mod data;
mod devices;
mod host_memory;
mod pools;
mod state;
mod streams;
mod virtual_memory;

use std::ffi::c_int;

use forebay::driver::{Access, DriverError, ErrorKind, Place};
use forebay::units::DeviceId;

use self::state::{device_of, handle_of};

/// A `CUresult`.
type Code = c_int;

/// What the functions answer before it becomes a code.
type Answer<T = ()> = Result<T, Code>;

const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const NOT_INITIALIZED: Code = 3;
const DEINITIALIZED: Code = 4;
const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;
const INVALID_CONTEXT: Code = 201;
const INVALID_HANDLE: Code = 400;
const NOT_READY: Code = 600;
const NOT_REGISTERED: Code = 713;
const NOT_SUPPORTED: Code = 801;
const CAPTURE_UNSUPPORTED: Code = 900;
const UNKNOWN: Code = 999;

/// Declares functions of libcuda by what they need:
/// `nothing`, `always` that `cuInit` was called, `context` a current context,
/// `uncaptured` that and no capture that forbids the call.
/// `here` is the device of the current context, in functions that need one.
macro_rules! functions {
    ($($needs:ident $name:ident($($argument:ident: $type:ty),* $(,)?) |$here:ident| $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of cuda.h.")]
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::Code {
            $crate::state::answer(stringify!($name), $crate::state::Needs::$needs, |$here| $body)
        }
    )*};
}
use functions;

/// The code of an error of the host driver.
fn code(error: &DriverError) -> Code {
    match error.kind {
        ErrorKind::OutOfMemory => OUT_OF_MEMORY,
        ErrorKind::Invalid => INVALID_VALUE,
        ErrorKind::Unsupported => NOT_SUPPORTED,
        ErrorKind::Capturing => CAPTURE_UNSUPPORTED,
        ErrorKind::NoDriver => NO_DEVICE,
        ErrorKind::Deinitialized => DEINITIALIZED,
        ErrorKind::Failed => UNKNOWN,
    }
}

/// The host driver's answer as libcuda's.
fn said<T>(result: forebay::driver::Result<T>) -> Answer<T> {
    result.map_err(|error| code(&error))
}

/// Writes an output.
fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Location {
    kind: u32,
    id: c_int,
}

const AT_DEVICE: u32 = 1;
const AT_HOST: u32 = 2;
const AT_NODE: u32 = 3;

impl Location {
    /// `None` for no place in particular.
    fn place(self) -> Answer<Option<Place>> {
        Ok(Some(match self.kind {
            0 => return Ok(None),
            AT_DEVICE => Place::Device(device_of(self.id)?),
            AT_HOST => Place::Host,
            AT_NODE => Place::HostNuma(u32::try_from(self.id).map_err(|_| INVALID_VALUE)?),
            _ => return Err(INVALID_VALUE),
        }))
    }

    fn of(place: Place) -> Self {
        match place {
            Place::Device(device) => Self { kind: AT_DEVICE, id: handle_of(device) },
            Place::HostNuma(node) => Self { kind: AT_NODE, id: node as c_int },
            Place::Host | Place::HostNumaCurrent => Self { kind: AT_HOST, id: 0 },
        }
    }
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AccessDescriptor {
    location: Location,
    flags: u32,
}

impl AccessDescriptor {
    fn read(self) -> Answer<(Place, Access)> {
        let access = match self.flags {
            0 => Access::None,
            1 => Access::Read,
            3 => Access::ReadWrite,
            _ => return Err(INVALID_VALUE),
        };
        Ok((self.location.place()?.ok_or(INVALID_VALUE)?, access))
    }
}

/// The device of whatever is current; the functions that need none never read it.
const NOWHERE: DeviceId = DeviceId(u32::MAX);
