//! Pointers that C passes, checked for NULL, and the objects behind them.

use std::ffi::c_void;
use std::sync::Arc;

use super::guard::Fault;
use crate::pool::Pool;
use crate::resource::buffer::Buffer;
use crate::resource::memory_resource::MemoryResource;
use crate::units::{Address, StreamHandle};

/// A reference to a pool, which has one part for each device of its driver. Several objects may refer to one pool, as
/// all objects from `forebay_pool_shared` do.
pub struct ForebayPool {
    pool: Arc<Pool>,
}

impl ForebayPool {
    pub(crate) fn into_raw(pool: Arc<Pool>) -> *mut Self {
        Box::into_raw(Box::new(Self { pool }))
    }

    /// # Safety
    /// `object` came from [`ForebayPool::into_raw`] and was not dropped.
    pub(crate) unsafe fn drop_raw(object: *mut Self) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(object) });
    }

    /// # Safety
    /// `object` is NULL or came from [`ForebayPool::into_raw`], and outlives the returned reference.
    #[inline]
    pub(crate) unsafe fn get<'a>(object: *const Self) -> Result<&'a Pool, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        unsafe { object.as_ref() }.map(|object| &*object.pool).ok_or(Fault::Null("pool"))
    }

    /// A counted reference to the pool.
    ///
    /// # Safety
    /// `object` is NULL or came from [`ForebayPool::into_raw`] and is alive.
    pub(crate) unsafe fn share(object: *const Self) -> Result<Arc<Pool>, Fault> {
        // SAFETY: as the caller promises.
        unsafe { object.as_ref() }.map(|object| Arc::clone(&object.pool)).ok_or(Fault::Null("pool"))
    }
}

/// A reference to a memory resource. Several objects may refer to one resource.
pub struct ForebayResource {
    resource: Arc<dyn MemoryResource>,
}

impl ForebayResource {
    pub(crate) fn into_raw(resource: Arc<dyn MemoryResource>) -> *mut Self {
        Box::into_raw(Box::new(Self { resource }))
    }

    /// # Safety
    /// `object` is NULL, or came from [`ForebayResource::into_raw`] and was not dropped.
    pub(crate) unsafe fn drop_raw(object: *mut Self) {
        if !object.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(object) });
        }
    }

    /// # Safety
    /// `object` is NULL or came from [`ForebayResource::into_raw`], and outlives the returned reference.
    #[inline]
    pub(crate) unsafe fn get<'a>(object: *const Self) -> Result<&'a Arc<dyn MemoryResource>, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        unsafe { object.as_ref() }.map(|object| &object.resource).ok_or(Fault::Null("resource"))
    }
}

/// A buffer: memory, together with the way to free it.
pub struct ForebayBuffer {
    buffer: Buffer,
}

impl ForebayBuffer {
    pub(crate) fn into_raw(buffer: Buffer) -> *mut Self {
        Box::into_raw(Box::new(Self { buffer }))
    }

    /// # Safety
    /// `object` is NULL, or came from [`ForebayBuffer::into_raw`] and was not dropped.
    pub(crate) unsafe fn drop_raw(object: *mut Self) {
        if !object.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(object) });
        }
    }

    /// # Safety
    /// `object` is NULL or came from [`ForebayBuffer::into_raw`], and outlives the returned reference.
    #[inline]
    pub(crate) unsafe fn get<'a>(object: *const Self) -> Result<&'a Buffer, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        unsafe { object.as_ref() }.map(|object| &object.buffer).ok_or(Fault::Null("buffer"))
    }
}

/// # Safety
/// `out` is NULL or may be written.
#[inline]
pub(crate) unsafe fn output<'a, T>(out: *mut T, name: &'static str) -> Result<&'a mut std::mem::MaybeUninit<T>, Fault> {
    // SAFETY: as the caller promises; nothing is read through it.
    unsafe { out.cast::<std::mem::MaybeUninit<T>>().as_mut() }.ok_or(Fault::Null(name))
}

#[inline]
pub(crate) fn stream(stream: *mut c_void) -> StreamHandle {
    StreamHandle(stream as u64)
}

#[inline]
pub(crate) fn address(pointer: *const c_void) -> Address {
    Address(pointer as u64)
}

#[inline]
pub(crate) fn pointer(address: Address) -> *mut c_void {
    address.0 as *mut c_void
}
