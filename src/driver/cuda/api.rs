//! The functions of libcuda that this driver calls: one list, loaded once when the driver is opened.
//!
//! cudarc finds the library and gives the types. Its functions are not called, for two reasons: each panics
//! when an older libcuda lacks it, and each returns a closed `enum`, for which a code that only a newer
//! libcuda knows is undefined behaviour. Codes are integers here, and so are enums that libcuda writes.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUipcMemHandle, CUmemAccessDesc};
use cudarc::driver::sys::{CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemPoolProps};
use cudarc::driver::sys::{CUmemPoolPtrExportData, CUmemoryPool, CUstream, CUuuid};

use crate::driver::{DriverError, ErrorKind};

/// A `CUresult` of any value.
pub(super) type Code = c_int;

/// Declares a group of functions that libcuda has all or not at all. Fields are named by their symbols.
macro_rules! functions {
    ($(#[$text:meta])* $name:ident { $($symbol:ident($($argument:ty),*),)* }) => {
        $(#[$text])*
        #[derive(Clone, Copy)]
        #[expect(non_snake_case, reason = "the names are libcuda's")]
        pub(super) struct $name {
            $(pub(super) $symbol: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl $name {
            /// All of them, or the name of the first that libcuda lacks.
            fn load() -> Result<Self, &'static str> {
                // SAFETY: the callers have probed that libcuda can be loaded, and it is never unloaded.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($symbol: {
                        let name = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: the type is the function's declaration in cuda.h.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> Code>(name) };
                        *found.map_err(|_| stringify!($symbol))?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of every driver from CUDA 10.2 on.
    Base {
        cuInit(c_uint),
        cuDriverGetVersion(*mut c_int),
        cuGetErrorName(Code, *mut *const c_char),
        cuDeviceGet(*mut CUdevice, c_int),
        cuDeviceGetCount(*mut c_int),
        cuDeviceGetAttribute(*mut c_int, c_int, CUdevice),
        cuDeviceGetUuid(*mut CUuuid, CUdevice),
        cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice),
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice),
        cuCtxGetCurrent(*mut CUcontext),
        cuCtxGetDevice(*mut CUdevice),
        cuCtxPushCurrent_v2(CUcontext),
        cuCtxPopCurrent_v2(*mut CUcontext),
        cuCtxSynchronize(),
        cuThreadExchangeStreamCaptureMode(*mut c_uint),
        cuMemGetInfo_v2(*mut usize, *mut usize),
        cuMemAlloc_v2(*mut CUdeviceptr, usize),
        cuMemFree_v2(CUdeviceptr),
        cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint),
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint),
        cuMemFreeHost(*mut c_void),
        cuMemHostRegister_v2(*mut c_void, usize, c_uint),
        cuMemHostUnregister(*mut c_void),
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint),
        cuPointerGetAttributes(c_uint, *mut c_uint, *mut *mut c_void, CUdeviceptr),
        cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream),
        cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream),
        cuMemsetD16Async(CUdeviceptr, u16, usize, CUstream),
        cuMemsetD32Async(CUdeviceptr, c_uint, usize, CUstream),
        cuStreamCreate(*mut CUstream, c_uint),
        cuStreamDestroy_v2(CUstream),
        cuStreamSynchronize(CUstream),
        cuStreamQuery(CUstream),
        cuStreamGetCtx(CUstream, *mut CUcontext),
        cuStreamWaitEvent(CUstream, CUevent, c_uint),
        cuStreamIsCapturing(CUstream, *mut c_uint),
        cuEventCreate(*mut CUevent, c_uint),
        cuEventDestroy_v2(CUevent),
        cuEventRecord(CUevent, CUstream),
        cuEventQuery(CUevent),
        cuEventSynchronize(CUevent),
    }
}

functions! {
    /// Virtual memory management, from 10.2.
    Vmm {
        cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_uint),
        cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong),
        cuMemAddressFree(CUdeviceptr, usize),
        cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong),
        cuMemRelease(CUmemGenericAllocationHandle),
        cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong),
        cuMemUnmap(CUdeviceptr, usize),
        cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize),
        cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, c_uint, c_ulonglong),
        cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, c_uint),
    }
}

functions! {
    /// Legacy handles (`cuIpc*`), in this form from 11.0.
    Ipc {
        cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr),
        cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint),
        cuIpcCloseMemHandle(CUdeviceptr),
    }
}

functions! {
    /// The driver's stream-ordered pools, from 11.2.
    Pools {
        cuDeviceGetDefaultMemPool(*mut CUmemoryPool, CUdevice),
        cuDeviceGetMemPool(*mut CUmemoryPool, CUdevice),
        cuMemPoolCreate(*mut CUmemoryPool, *const CUmemPoolProps),
        cuMemPoolDestroy(CUmemoryPool),
        cuMemPoolGetAttribute(CUmemoryPool, c_uint, *mut c_void),
        cuMemPoolSetAttribute(CUmemoryPool, c_uint, *mut c_void),
        cuMemPoolGetAccess(*mut c_uint, CUmemoryPool, *mut CUmemLocation),
        cuMemPoolSetAccess(CUmemoryPool, *const CUmemAccessDesc, usize),
        cuMemPoolTrimTo(CUmemoryPool, usize),
        cuMemAllocFromPoolAsync(*mut CUdeviceptr, usize, CUmemoryPool, CUstream),
        cuMemFreeAsync(CUdeviceptr, CUstream),
        cuMemPoolExportToShareableHandle(*mut c_void, CUmemoryPool, c_uint, c_ulonglong),
        cuMemPoolImportFromShareableHandle(*mut CUmemoryPool, *mut c_void, c_uint, c_ulonglong),
        cuMemPoolExportPointer(*mut CUmemPoolPtrExportData, CUdeviceptr),
        cuMemPoolImportPointer(*mut CUdeviceptr, CUmemoryPool, *mut CUmemPoolPtrExportData),
    }
}

functions! {
    /// Pools of any location, and managed pools, from 13.0.
    PlacePools {
        cuMemGetDefaultMemPool(*mut CUmemoryPool, *mut CUmemLocation, c_uint),
        cuMemGetMemPool(*mut CUmemoryPool, *mut CUmemLocation, c_uint),
    }
}

functions! {
    /// A device's UUID that differs between the parts of a divided GPU (MIG), from 11.4.
    PartUuid {
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice),
    }
}

functions! {
    /// The number of a capture, from 11.3. The last three arguments may be null: graph, dependencies, their count.
    CaptureInfo {
        cuStreamGetCaptureInfo_v2(CUstream, *mut c_uint, *mut u64, *mut c_void, *mut c_void, *mut usize),
    }
}

functions! {
    /// A stream's identity, from 12.0.
    StreamId {
        cuStreamGetId(CUstream, *mut c_ulonglong),
    }
}

functions! {
    /// An event for all work of a context, from 12.5.
    ContextEvents {
        cuCtxRecordEvent(CUcontext, CUevent),
    }
}

/// The loaded functions. A group that is `None` is missing from this libcuda.
pub(super) struct Api {
    pub(super) base: Base,
    pub(super) vmm: Option<Vmm>,
    pub(super) ipc: Option<Ipc>,
    pub(super) pools: Option<Pools>,
    pub(super) place_pools: Option<PlacePools>,
    pub(super) part_uuid: Option<PartUuid>,
    pub(super) capture_info: Option<CaptureInfo>,
    pub(super) stream_id: Option<StreamId>,
    pub(super) context_events: Option<ContextEvents>,
    /// The result of `cuDriverGetVersion`; 0 before that call.
    pub(super) version: u32,
}

impl Api {
    /// Finds libcuda and loads the functions, without a call of them.
    pub(super) fn load() -> crate::driver::Result<Self> {
        // SAFETY: loading libcuda runs its initialisers, as in every CUDA program.
        if !unsafe { sys::is_culib_present() } {
            return Err(no_driver("dlopen", 0, &why_not_loaded()));
        }
        let base = Base::load().map_err(|symbol| {
            no_driver("dlsym", 0, &format!("libcuda lacks {symbol}: the NVIDIA driver is older than CUDA 10.2"))
        })?;
        Ok(Self {
            base,
            vmm: Vmm::load().ok(),
            ipc: Ipc::load().ok(),
            pools: Pools::load().ok(),
            place_pools: PlacePools::load().ok(),
            part_uuid: PartUuid::load().ok(),
            capture_info: CaptureInfo::load().ok(),
            stream_id: StreamId::load().ok(),
            context_events: ContextEvents::load().ok(),
            version: 0,
        })
    }

    /// The group, or an error that names the first driver version with it.
    pub(super) fn need<'a, T>(
        &self,
        group: &'a Option<T>,
        call: &'static str,
        since: u32,
    ) -> crate::driver::Result<&'a T> {
        group.as_ref().ok_or_else(|| {
            let detail = format!("needs driver API {} or newer, this is {}", version(since), version(self.version));
            DriverError::new(ErrorKind::Unsupported, call, detail)
        })
    }
}

/// The loader's error for libcuda.
fn why_not_loaded() -> String {
    let reasons = ["libcuda.so.1", "libcuda.so"].map(|name| {
        // SAFETY: as in `load`.
        let error = unsafe { libloading::Library::new(name) }.err()?;
        // The error itself does not repeat what the loader said.
        let error = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        let is_missing = error.starts_with(name) && error.contains("No such file or directory");
        (!is_missing).then_some(error)
    });
    match reasons.into_iter().flatten().next() {
        Some(reason) => format!("libcuda cannot be loaded: {reason}"),
        None => "libcuda was not found: no NVIDIA driver is installed here".into(),
    }
}

/// `12040` is 12.4.
pub(super) fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The error for an unusable CUDA: the missing part, and what to do.
pub(super) fn no_driver(call: &'static str, code: i32, missing: &str) -> DriverError {
    let detail = format!("{missing}; FOREBAY_DRIVER=host runs on RAM instead");
    DriverError { kind: ErrorKind::NoDriver, call, code, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version(12_000), "12.0");
        assert_eq!(version(11_040), "11.4");
        assert_eq!(version(13_010), "13.1");
    }

    #[test]
    fn a_missing_driver_names_the_other_one() {
        let error = no_driver("cuInit", 100, "no device");
        assert_eq!(error.kind, ErrorKind::NoDriver);
        assert_eq!(error.to_string(), "cuInit: no device; FOREBAY_DRIVER=host runs on RAM instead (code 100)");
    }
}
