//! Exports buffers as DLPack tensors and imports tensors of other libraries, with the structs of DLPack 1.x and of the
//! versions before 1.0: <https://dmlc.github.io/dlpack/latest/>.
//!
//! A buffer is exported as one dimension of int8, as in `cuda.core`. An imported tensor may have any shape and type,
//! but must be contiguous.

use std::ffi::c_void;
use std::sync::Arc;

use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};

use super::memory::{Hold, Memory};
use super::{Buffer, Facts, Owner};
use crate::driver::{Driver, process};
use crate::error::{Error, Result};
use crate::log;
use crate::resource::ipc::Path;
use crate::resource::memory_resource::Reach;
use crate::units::{Address, DeviceId, StreamHandle};

/// The version of exported tensors; its major number is the only one accepted on import.
const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// An exported tensor, with the data that it points to. `tensor` is the first field, so it has the address of the
/// struct.
#[repr(C)]
struct Lent<T> {
    tensor: T,
    shape: [i64; 1],
    strides: [i64; 1],
    /// Dropped with the tensor; the last reference frees the memory.
    _memory: Arc<Memory>,
}

/// Exports a buffer as a tensor. The consumer calls its deleter once; until then the memory stays.
///
/// # Errors
/// [`Error::Closed`].
pub fn export(buffer: &Buffer) -> Result<*mut DLManagedTensorVersioned> {
    unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
        // SAFETY: the consumer calls the deleter once, with the pointer that it was given: a `Lent`'s first field.
        unsafe { end(tensor.cast::<Lent<DLManagedTensorVersioned>>()) };
    }
    lend(buffer, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
        version: VERSION,
        manager_ctx,
        deleter: Some(delete),
        flags: dlpark::DlpackFlags::empty(),
        dl_tensor,
    })
    .map(|lent| lent.cast())
}

/// [`export`] with the struct of DLPack before 1.0.
///
/// # Errors
/// [`Error::Closed`].
pub fn export_legacy(buffer: &Buffer) -> Result<*mut DLManagedTensor> {
    unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
        // SAFETY: the consumer calls the deleter once, with the pointer that it was given: a `Lent`'s first field.
        unsafe { end(tensor.cast::<Lent<DLManagedTensor>>()) };
    }
    lend(buffer, |dl_tensor, manager_ctx| DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) })
        .map(|lent| lent.cast())
}

/// The body of the deleters. In a child of `fork` it does nothing: the memory is the parent's, and locks below may be
/// held.
///
/// # Safety
/// `lent` came from [`lend`], and this is the only call.
unsafe fn end<T>(lent: *mut Lent<T>) {
    if !process::is_forked() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(lent) });
        // The program calls the deleter directly, so no guard delivers the log.
        if log::is_waiting() {
            log::deliver();
        }
    }
}

fn lend<T>(buffer: &Buffer, make: impl FnOnce(DLTensor, *mut c_void) -> T) -> Result<*mut Lent<T>> {
    let memory = buffer.open()?;
    memory.mark_lent();
    let (at, bytes) = (memory.at, memory.bytes);
    let mut lent = Box::<Lent<T>>::new_uninit();
    let place = lent.as_mut_ptr();
    // SAFETY: addresses of fields inside the box; nothing is read.
    let (shape, strides) = unsafe { (&raw mut (*place).shape, &raw mut (*place).strides) };
    let tensor = DLTensor {
        data: at.0 as *mut c_void,
        device: buffer.facts.lock().reach.dlpack(),
        ndim: 1,
        dtype: DLDataType { code: DLDataTypeCode::INT, bits: 8, lanes: 1 },
        shape: shape.cast(),
        strides: strides.cast(),
        byte_offset: 0,
    };
    let tensor = make(tensor, place.cast());
    lent.write(Lent { tensor, shape: [bytes as i64], strides: [1], _memory: memory });
    // SAFETY: written just now.
    Ok(Box::into_raw(unsafe { lent.assume_init() }))
}

impl Reach {
    /// The device in DLPack's terms.
    fn dlpack(self) -> DLDevice {
        let device_type = match (self.managed, self.by_device, self.by_host) {
            (true, ..) => DLDeviceType::CUDAMANAGED,
            (_, true, false) => DLDeviceType::CUDA,
            (_, true, true) => DLDeviceType::CUDAHOST,
            (_, false, _) => DLDeviceType::CPU,
        };
        DLDevice { device_type, device_id: self.device.map_or(0, |device| device.0 as i32) }
    }

    fn from_dlpack(device: DLDevice, count: u32) -> Result<Self> {
        let none = Self { device: None, by_device: true, by_host: true, managed: false };
        match device.device_type {
            DLDeviceType::CPU => Ok(Self { by_device: false, ..none }),
            DLDeviceType::CUDAHOST => Ok(none),
            DLDeviceType::CUDAMANAGED => Ok(Self { managed: true, ..none }),
            DLDeviceType::CUDA => match u32::try_from(device.device_id) {
                Ok(ordinal) if ordinal < count => Ok(Self { device: Some(DeviceId(ordinal)), by_host: false, ..none }),
                _ => Err(Error::BadDevice { asked: device.device_id.into(), count }),
            },
            other => Err(Error::Unsupported(
                format!("the tensor lies on a DLPack device of type {}, which is neither CUDA nor the host", other.0)
                    .into(),
            )),
        }
    }
}

/// A tensor of another library.
#[derive(Clone, Copy, Debug)]
pub enum Tensor {
    /// Of DLPack 1.x.
    Versioned(*mut DLManagedTensorVersioned),
    /// Of DLPack before 1.0.
    Legacy(*mut DLManagedTensor),
}

/// Calls a tensor's deleter, once.
struct Deleter(Tensor);

// SAFETY: DLPack lets a consumer call the deleter from any thread.
unsafe impl Send for Deleter {}
// SAFETY: nothing is read through it.
unsafe impl Sync for Deleter {}

impl Deleter {
    fn call(self) {
        // SAFETY: the producer passed the tensor to this consumer, and this is the only call.
        unsafe {
            match self.0 {
                Tensor::Versioned(tensor) => {
                    if let Some(delete) = (*tensor).deleter {
                        delete(tensor);
                    }
                }
                Tensor::Legacy(tensor) => {
                    if let Some(delete) = (*tensor).deleter {
                        delete(tensor);
                    }
                }
            }
        }
    }
}

impl Buffer {
    /// A buffer of a tensor's memory. The buffer owns the tensor: closing the buffer calls the deleter.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a tensor that is not contiguous or whose sizes are invalid, [`Error::Unsupported`] for
    /// another major version, a read-only tensor, or a device that is not CUDA's. The tensor is then still the
    /// caller's.
    ///
    /// # Safety
    /// The tensor is valid by DLPack's rules, and only the buffer calls its deleter if this succeeds.
    pub unsafe fn from_dlpack(driver: &Arc<dyn Driver>, tensor: Tensor, stream: StreamHandle) -> Result<Self> {
        let inside = match tensor {
            // SAFETY: valid as the caller promises; the version comes first in every version.
            Tensor::Versioned(tensor) => unsafe {
                let version = (*tensor).version;
                if version.major != VERSION.major {
                    return Err(Error::Unsupported(
                        format!("the tensor is of DLPack {}.{}: 1.x is understood", version.major, version.minor)
                            .into(),
                    ));
                }
                if (*tensor).flags.contains(dlpark::DlpackFlags::READ_ONLY) {
                    return Err(Error::Unsupported("the tensor is read-only, and buffers can be written".into()));
                }
                (*tensor).dl_tensor
            },
            // SAFETY: as above.
            Tensor::Legacy(tensor) => unsafe { (*tensor).dl_tensor },
        };
        let reach = Reach::from_dlpack(inside.device, driver.device_count())?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { contiguous_bytes(&inside)? };
        let at = (inside.data as u64).checked_add(inside.byte_offset);
        let at = at.filter(|&at| at != 0 || bytes == 0).map(Address);
        let at = at.ok_or_else(|| Error::invalid(format_args!("the tensor has {bytes} bytes, and no memory")))?;
        let deleter = Deleter(tensor);
        let owner = Owner::new(move || deleter.call());
        let facts = Facts { at, bytes, reach, path: Path::None };
        Ok(Self::elsewhere(driver, reach.device.unwrap_or_default(), None, Hold::Owner(Some(owner)), stream, facts))
    }
}

/// The size in bytes of a tensor that is contiguous in C order.
///
/// # Safety
/// `shape`, and `strides` unless NULL, hold `ndim` numbers.
unsafe fn contiguous_bytes(tensor: &DLTensor) -> Result<u64> {
    let wrong = |what: String| Error::invalid(format_args!("the tensor {what}"));
    let dimensions = usize::try_from(tensor.ndim).map_err(|_| wrong(format!("has {} dimensions", tensor.ndim)))?;
    if dimensions > 0 && tensor.shape.is_null() {
        return Err(wrong("has dimensions and no shape".into()));
    }
    let bits = u64::from(tensor.dtype.bits) * u64::from(tensor.dtype.lanes);
    if bits == 0 {
        return Err(wrong("has elements of 0 bits".into()));
    }
    let mut elements: u64 = 1;
    let mut contiguous = true;
    for dimension in (0..dimensions).rev() {
        // SAFETY: below `ndim`, as the caller promises.
        let length = unsafe { *tensor.shape.add(dimension) };
        // SAFETY: as above.
        let stride = (!tensor.strides.is_null()).then(|| unsafe { *tensor.strides.add(dimension) });
        contiguous &= length == 1 || stride.is_none_or(|stride| u64::try_from(stride).is_ok_and(|s| s == elements));
        let length = u64::try_from(length).map_err(|_| wrong(format!("has a dimension of {length} elements")))?;
        elements = elements.checked_mul(length).ok_or_else(|| wrong("has more elements than there are".into()))?;
    }
    if !contiguous && elements > 0 {
        return Err(wrong("is not contiguous in C order: make it so first".into()));
    }
    let bytes = elements.checked_mul(bits).map(|bits| bits.div_ceil(8));
    bytes.filter(|&bytes| bytes <= i64::MAX as u64).ok_or_else(|| wrong("has more bytes than there are".into()))
}
