//! DLPack: exports buffers as tensors, and imports tensors of other libraries as buffers. The structs are those of
//! dlpack.h, of version 1.x and of the versions before 1.0.

use std::ffi::c_void;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};

use super::create::driver;
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayBuffer, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::python::exception;
use crate::resource::buffer::{Buffer, Tensor, export, export_legacy};

/// Exports the buffer as a tensor of one dimension and type int8. The caller owns the tensor and calls its deleter
/// once, or passes it to a library that does; until then the memory stays, also if the buffer is closed. The caller
/// orders the work of both sides. Any thread.
///
/// Returns FOREBAY_STATUS_CLOSED for a closed buffer.
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

/// `forebay_buffer_to_dlpack` with the struct of DLPack before 1.0.
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

/// Imports a tensor as a buffer: CUDA, pinned, managed or host memory of any shape and type, contiguous in C order. On
/// success the buffer owns the tensor and calls its deleter when it is closed, in the order of `stream`; on failure the
/// caller keeps the tensor. The caller owns the buffer and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for another major version of DLPack, another kind of device and a read-only
/// tensor; FOREBAY_STATUS_INVALID_ARGUMENT for a tensor that is not contiguous.
///
/// # Safety
/// `tensor` is NULL or valid, and only the buffer calls its deleter if this succeeds; `out` is NULL or may be written.
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

/// `forebay_buffer_from_dlpack` with the struct of DLPack before 1.0.
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

/// Destructor of Python capsules that hold a tensor of this library and are named "dltensor" or "dltensor_versioned";
/// pass its address to PyCapsule_New. It calls the tensor's deleter, unless a consumer took the tensor and renamed the
/// capsule. It runs with the GIL held, as every capsule destructor does.
///
/// # Safety
/// `capsule` is a Python capsule, and the GIL is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_dlpack_capsule_delete(capsule: *mut c_void) {
    let _ = guard::status(|| {
        // SAFETY: as the caller promises.
        let versioned =
            unsafe { exception::capsule(capsule, c"dltensor_versioned") }.cast::<DLManagedTensorVersioned>();
        // SAFETY: as the caller promises.
        let legacy = unsafe { exception::capsule(capsule, c"dltensor") }.cast::<DLManagedTensor>();
        // SAFETY: a capsule that still has such a name holds a live tensor, which no consumer has taken.
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
