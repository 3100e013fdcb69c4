//! Buffers: memory, together with the way to free it.

use std::ffi::c_void;

use super::create::driver;
use super::object::FOREBAY_INFO_VERSION;
use crate::abi::core::enums::ForebayIpcPath;
use crate::abi::core::guard;
use crate::abi::core::handle::{ForebayBuffer, ForebayResource, address, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::{Versioned, answer};
use crate::error::Error;
use crate::resource::buffer::{Buffer, BufferInfo, From as Origin, Owner};
use crate::resource::ipc::Path;

/// Called once, when the buffer around the memory is closed. Any thread may call it; it must not throw.
pub type ForebayReleaseFn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Properties of a buffer, from `forebay_buffer_get_info`. The caller sets `size` and `version` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayBufferInfo {
    /// sizeof(forebay_buffer_info).
    pub size: u32,
    /// FOREBAY_INFO_VERSION.
    pub version: u32,
    /// The address of the memory.
    pub handle: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream in whose order the memory is freed.
    pub stream: u64,
    /// The device of the memory; -1 for host memory.
    pub device_id: i32,
    /// 1: kernels can use the memory.
    pub is_device_accessible: u32,
    /// 1: the host can use the memory.
    pub is_host_accessible: u32,
    /// 1: it is managed memory.
    pub is_managed: u32,
    /// 1: it is memory of another process.
    pub is_mapped: u32,
    /// 1: the buffer is closed.
    pub is_closed: u32,
    /// A FOREBAY_IPC_PATH_*: the path by which the memory came into this process.
    pub ipc_path: u32,
    /// 1: it has a resource.
    pub has_resource: u32,
    /// The device of `stream` if that is a default stream. Never -1, also for host memory.
    pub stream_device: i32,
    /// Zero.
    pub reserved0: u32,
    /// Zero.
    pub reserved: [u64; 3],
}

// SAFETY: the struct is `repr(C)` and begins with `size` and `version`.
unsafe impl Versioned for ForebayBufferInfo {
    const VERSION: u32 = FOREBAY_INFO_VERSION;
    const NAME_AND_ADVICE: (&'static str, &'static str) =
        ("forebay_buffer_info", "set its size and version before the call");

    fn is_clean(&self) -> bool {
        self.reserved0 == 0 && self.reserved == [0; 3]
    }
}

fn info(buffer: &Buffer) -> ForebayBufferInfo {
    let BufferInfo { at, bytes, stream, device_id, path, .. } = buffer.info();
    let info = buffer.info();
    let path = match path {
        Path::None => ForebayIpcPath::None,
        Path::Pool => ForebayIpcPath::Pool,
        Path::Fd => ForebayIpcPath::Fd,
        Path::Fabric => ForebayIpcPath::Fabric,
        Path::Legacy => ForebayIpcPath::Legacy,
    };
    ForebayBufferInfo {
        size: size_of::<ForebayBufferInfo>() as u32,
        version: FOREBAY_INFO_VERSION,
        handle: at.0,
        bytes,
        stream: stream.0,
        device_id: device_id.map_or(-1, |device| device.0 as i32),
        is_device_accessible: info.is_device_accessible.into(),
        is_host_accessible: info.is_host_accessible.into(),
        is_managed: info.is_managed.into(),
        is_mapped: (path != ForebayIpcPath::None).into(),
        is_closed: info.is_closed.into(),
        ipc_path: path as u32,
        has_resource: buffer.resource().is_some().into(),
        stream_device: info.context.0 as i32,
        reserved0: 0,
        reserved: [0; 3],
    }
}

/// The `context` of a [`ForebayReleaseFn`], which any thread may pass.
struct Context(*mut c_void);

// SAFETY: the pointer is not dereferenced here, and any thread may call the callback by its contract.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Makes a buffer of `bytes` bytes of existing memory at `ptr`. With a resource, closing the buffer frees `ptr` to it
/// in the order of `stream`; with `release`, closing calls `release(context)` once; with neither, closing frees
/// nothing. The caller owns the object and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for both a resource and a release function, and for NULL `ptr` with a size.
/// The caller then keeps the memory.
///
/// # Safety
/// `resource` is NULL or a live resource object that `ptr` came from; `bytes` bytes at `ptr` stay valid until the
/// buffer is closed; `release` is NULL or may be called with `context` on any thread; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_from_handle(
    ptr: *mut c_void,
    bytes: u64,
    resource: *mut ForebayResource,
    release: ForebayReleaseFn,
    context: *mut c_void,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        let origin = match (resource.is_null(), release) {
            (false, Some(_)) => {
                return Err(Error::invalid("both a resource and a release function are given: pass one of them").into());
            }
            // SAFETY: as the caller promises.
            (false, None) => Origin::Resource(unsafe { ForebayResource::get(resource)? }.clone()),
            (true, None) => Origin::Unowned,
            (true, Some(release)) => {
                let context = Context(context);
                Origin::Owner(Owner::new(move || {
                    let Context(context) = { context };
                    // SAFETY: as the caller promises; called once.
                    unsafe { release(context) };
                }))
            }
        };
        let buffer = Buffer::from_handle(&driver()?, address(ptr), bytes, origin, handle(stream))?;
        out.write(ForebayBuffer::into_raw(buffer));
        Ok(())
    })
}

/// Frees the object, and closes the buffer if it is open. NULL does nothing. Any thread, but no other call may use the
/// object.
///
/// # Safety
/// `buffer` is NULL or came from this library, is not used after this call, and no other call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_destroy(buffer: *mut ForebayBuffer) {
    let _ = guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { ForebayBuffer::drop_raw(buffer) };
        Ok(())
    });
}

/// Frees the buffer's memory in the order of the stream of its allocation. If DLPack tensors of the buffer are alive,
/// the memory is freed with the last of them. A second call does nothing. Any thread.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; the stream of the allocation is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_close(buffer: *mut ForebayBuffer) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { ForebayBuffer::get(buffer)? }.close(None)?)
    })
}

/// `forebay_buffer_close` without waiting, under the rules of `forebay_pool_try_free`. Any thread.
///
/// Returns 1 if the buffer is closed; or returns 0 and changes nothing: then call `forebay_buffer_close`.
///
/// # Safety
/// As `forebay_buffer_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_try_close(buffer: *mut ForebayBuffer) -> u32 {
    // SAFETY: as the caller promises.
    guard::result(|| Ok(unsafe { ForebayBuffer::get(buffer)? }.try_close())).unwrap_or(false).into()
}

/// `forebay_buffer_close` in the order of `stream`, which must be alive in this call. Any thread.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_close_on(buffer: *mut ForebayBuffer, stream: *mut c_void) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { ForebayBuffer::get(buffer)? }.close(Some(handle(stream)))?)
    })
}

/// Gives the properties of the buffer, also after it was closed. Set `size` and `version` of `out` before the call. Any
/// thread.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `out` is NULL or points to a forebay_buffer_info whose `size` and
/// `version` are set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_get_info(
    buffer: *const ForebayBuffer,
    out: *mut ForebayBufferInfo,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let buffer = unsafe { ForebayBuffer::get(buffer)? };
        // SAFETY: as the caller promises.
        unsafe { answer(out, || Ok(info(buffer))) }
    })
}

/// Gives the buffer's resource, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for a buffer without one.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_get_resource(
    buffer: *const ForebayBuffer,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (buffer, out) = unsafe { (ForebayBuffer::get(buffer)?, output(out, "out")?) };
        let resource = buffer.resource().ok_or_else(|| Error::NotFound("the buffer has no resource".into()))?;
        out.write(ForebayResource::into_raw(resource.clone()));
        Ok(())
    })
}

/// Queues a copy of all of `src` to `dst` on `stream`. Keep both open until the copy is done. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for sizes that differ.
///
/// # Safety
/// The buffers are NULL or live; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_copy(
    dst: *mut ForebayBuffer,
    src: *const ForebayBuffer,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (dst, src) = unsafe { (ForebayBuffer::get(dst)?, ForebayBuffer::get(src)?) };
        Ok(dst.copy_from(src, handle(stream))?)
    })
}

/// Allocates a new buffer from the resource of `src` and queues a copy of `src` to it, both on `stream`. The caller
/// owns the new buffer and frees it with `forebay_buffer_destroy`. Any thread.
///
/// # Safety
/// `src` is NULL or a live buffer object; `stream` names a living stream; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_clone(
    src: *const ForebayBuffer,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (src, out) = unsafe { (ForebayBuffer::get(src)?, output(out, "out")?) };
        out.write(ForebayBuffer::into_raw(src.copy(handle(stream))?));
        Ok(())
    })
}

/// Queues a fill of the buffer on `stream` with the low `width` bytes of `value`, repeated: 1, 2 or 4 bytes, in
/// little-endian order. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another width, for a value that does not fit, and if the buffer's size
/// is not a multiple of the width.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_fill(
    buffer: *mut ForebayBuffer,
    value: u32,
    width: u32,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let buffer = unsafe { ForebayBuffer::get(buffer)? };
        Ok(buffer.fill(value, width, handle(stream))?)
    })
}
