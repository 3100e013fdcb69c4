//! Buffers: memory with what it takes to give it back.

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

/// Told once when memory that it lent is given back. May be called on any thread; must not throw.
pub type ForebayReleaseFn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// What is known of a buffer. Set `size` and `version` before asking.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayBufferInfo {
    /// sizeof(forebay_buffer_info).
    pub size: u32,
    /// FOREBAY_INFO_VERSION.
    pub version: u32,
    /// Where the memory begins.
    pub handle: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream that the memory goes back on.
    pub stream: u64,
    /// The device that it belongs to; -1 for memory of the host.
    pub device_id: i32,
    /// 1: kernels can use it.
    pub is_device_accessible: u32,
    /// 1: the host can use it.
    pub is_host_accessible: u32,
    /// 1: it is managed memory.
    pub is_managed: u32,
    /// 1: it is another process's memory.
    pub is_mapped: u32,
    /// 1: it was closed.
    pub is_closed: u32,
    /// A FOREBAY_IPC_PATH_*: how the memory came into this process.
    pub ipc_path: u32,
    /// 1: it is of a resource.
    pub has_resource: u32,
    /// The device whose stream `stream` is if it is a default one. Not -1 for memory of the host either.
    pub stream_device: i32,
    /// Zero.
    pub reserved0: u32,
    /// Zero.
    pub reserved: [u64; 3],
}

// SAFETY: the struct is `repr(C)` and begins with `size` and `version`.
unsafe impl Versioned for ForebayBufferInfo {
    const VERSION: u32 = FOREBAY_INFO_VERSION;
    const NAMES: (&'static str, &'static str) = ("forebay_buffer_info", "set its size and version before the call");

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

/// A C owner's context may be handed from thread to thread: that is part of the contract.
struct Context(*mut c_void);

// SAFETY: the pointer is not looked through here, and the callback's contract is that any thread may call it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A buffer around memory that is there already. With a resource, closing gives `ptr` back through it, on `stream`;
/// with `release`, closing calls that with `context`, once; with neither, closing does nothing. The caller owns the
/// object and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for both a resource and a release function, and for NULL with a size.
/// Nothing is taken over then.
///
/// # Safety
/// `resource` is NULL or a live resource object that `ptr` came from; `bytes` bytes at `ptr` stay valid until the buffer
/// is closed; `release` is NULL or may be called with `context` on any thread; `out` is NULL or may be written.
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
                return Err(Error::invalid(
                    "both a resource and a release function: the memory goes back to one of them",
                )
                .into());
            }
            // SAFETY: as the caller promises.
            (false, None) => Origin::Resource(unsafe { ForebayResource::get(resource)? }.clone()),
            (true, None) => Origin::Nobody,
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

/// Frees the object; closes the buffer if it is open. NULL is fine.
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

/// Gives the memory back in the order of the stream of its allocation. Twice is harmless. While DLPack tensors of the
/// buffer are alive its memory stays, and goes back with the last of them. Any thread.
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

/// `forebay_buffer_close` on the fast path alone, as `forebay_pool_try_free` frees. For callers that hold a lock which
/// others need meanwhile, such as an interpreter's. Any thread.
///
/// Returns 1 if the buffer is closed, or 0: nothing happened then, and `forebay_buffer_close` does it or says why not.
///
/// # Safety
/// As `forebay_buffer_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_try_close(buffer: *mut ForebayBuffer) -> u32 {
    // SAFETY: as the caller promises.
    guard::result(|| Ok(unsafe { ForebayBuffer::get(buffer)? }.try_close())).unwrap_or(false).into()
}

/// Closes as `forebay_buffer_close` does, in the order of `stream`.
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

/// What is known of the buffer, also after it was closed. Any thread.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `out` is NULL or points to a forebay_buffer_info whose `size` and `version`
/// are set.
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

/// The resource that the buffer is of, as a new object that the caller owns. Any thread.
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
        let resource = buffer.resource().ok_or_else(|| Error::NotFound("the buffer is of no resource".into()))?;
        out.write(ForebayResource::into_raw(resource.clone()));
        Ok(())
    })
}

/// Copies all of `src` into `dst`, on `stream`. Both stay open until the copy is done. Any thread.
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

/// Copies `src` into a new buffer that the resource of `src` allocates, on `stream`. The caller owns it. Any thread.
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

/// Repeats the low `width` bytes of `value` (1, 2 or 4; little end first) over the buffer, on `stream`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another width, a value with more bytes, and a size that is no multiple
/// of the width.
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
