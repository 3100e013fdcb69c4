//! DLPack: tensors of other libraries made of buffers, and buffers made of theirs. The structs are DLPack's own
//! (dlpack.h), 1.x and the one before.

use std::ffi::c_void;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};

use super::create::driver;
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayBuffer, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::python::exception;
use crate::resource::buffer::{Buffer, Tensor, export, export_legacy};

/// A tensor of the buffer: one dimension of signed bytes. Whoever takes it calls its deleter once; until then the
/// memory stays, also when the buffer is closed. Ordering the work of both sides is the caller's. Any thread.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_to_dlpack(
    buffer: *mut ForebayBuffer,
    out: *mut *mut DLManagedTensorVersioned,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (buffer, out) = unsafe { (ForebayBuffer::get(buffer)?, output(out, "out")?) };
        out.write(export(buffer)?);
        Ok(())
    })
}

/// The same as the struct of DLPack before 1.0.
///
/// # Safety
/// As `forebay_buffer_to_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_to_dlpack_legacy(
    buffer: *mut ForebayBuffer,
    out: *mut *mut DLManagedTensor,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (buffer, out) = unsafe { (ForebayBuffer::get(buffer)?, output(out, "out")?) };
        out.write(export_legacy(buffer)?);
        Ok(())
    })
}

/// A buffer of a tensor's memory: CUDA, pinned, managed or host memory, any shape and type, contiguous in C order. On
/// success it takes the tensor over and calls its deleter when it is closed; else the tensor stays the caller's.
/// `stream` is what close is ordered by. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for another major version of DLPack, another kind of device, and read-only
/// tensors; FOREBAY_STATUS_INVALID_ARGUMENT for one that is not contiguous.
///
/// # Safety
/// `tensor` is NULL or valid, and nobody else calls its deleter if this succeeds; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_from_dlpack(
    tensor: *mut DLManagedTensorVersioned,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { take(Tensor::Versioned(tensor), tensor.is_null(), stream, out) }
    })
}

/// The same for the struct of DLPack before 1.0.
///
/// # Safety
/// As `forebay_buffer_from_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_from_dlpack_legacy(
    tensor: *mut DLManagedTensor,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { take(Tensor::Legacy(tensor), tensor.is_null(), stream, out) }
    })
}

/// # Safety
/// As `forebay_buffer_from_dlpack`.
unsafe fn take(tensor: Tensor, is_null: bool, stream: *mut c_void, out: *mut *mut ForebayBuffer) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    let out = unsafe { output(out, "out")? };
    if is_null {
        return Err(Fault::Null("tensor"));
    }
    // SAFETY: as the caller promises.
    let buffer = unsafe { Buffer::from_dlpack(&driver()?, tensor, handle(stream))? };
    out.write(ForebayBuffer::into_raw(buffer));
    Ok(())
}

/// A destructor for Python capsules that hold a tensor of this library and are named "dltensor" or
/// "dltensor_versioned": calls the tensor's deleter, unless somebody has consumed it and renamed the capsule. Holds
/// Python's lock, as every destructor of a capsule does. Pass its address to PyCapsule_New.
///
/// # Safety
/// `capsule` is a Python capsule, and Python's lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_dlpack_capsule_delete(capsule: *mut c_void) {
    let _ = guard::status(|| {
        // SAFETY: as the caller promises.
        let versioned =
            unsafe { exception::capsule(capsule, c"dltensor_versioned") }.cast::<DLManagedTensorVersioned>();
        // SAFETY: as the caller promises.
        let legacy = unsafe { exception::capsule(capsule, c"dltensor") }.cast::<DLManagedTensor>();
        // SAFETY: a capsule of such a name that was not renamed holds a live tensor, which nobody else deletes.
        unsafe {
            if let Some(delete) = versioned.as_ref().and_then(|tensor| tensor.deleter) {
                delete(versioned);
            }
            if let Some(delete) = legacy.as_ref().and_then(|tensor| tensor.deleter) {
                delete(legacy);
            }
        }
        Ok(())
    });
}
