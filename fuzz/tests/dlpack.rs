//! Tensors with any numbers: taken as a buffer of the right size whose end calls the deleter once, or refused and left
//! alone. What the numbers mean is worked out here a second time.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: tensors and buffers are locals, and wrong numbers are what is tested"
)]

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

use bolero::TypeGenerator;
use bolero::generator::*;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use forebay::abi::core::status::ForebayStatus as Status;
use forebay::abi::resource::buffer::*;
use forebay::abi::resource::dlpack::*;
use forebay::abi::resource::object::FOREBAY_INFO_VERSION;

const DIMENSIONS: usize = 6;

#[derive(Clone, Debug, TypeGenerator)]
struct Tensor {
    is_legacy: bool,
    major: u8,
    minor: u32,
    flags: u8,
    device: (u8, i32),
    dimensions: u8,
    has_shape: bool,
    strides: Strides,
    lengths: [(u8, i64); DIMENSIONS],
    bits: u8,
    lanes: u16,
    offset: (u8, u64),
    has_data: bool,
    has_deleter: bool,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Strides {
    None,
    Contiguous,
    Changed(u8, i64),
}

thread_local! {
    static DELETED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn delete<T>(_: *mut T) {
    DELETED.set(DELETED.get() + 1);
}

/// The bytes of a tensor that may be taken.
fn right(tensor: &DLTensor, shape: &[i64], strides: Option<&[i64]>) -> Option<u64> {
    let bits = i128::from(tensor.dtype.bits) * i128::from(tensor.dtype.lanes);
    if bits == 0 || shape.iter().any(|&length| length < 0) {
        return None;
    }
    // From the last dimension on, as the library does: a zero ends what can be too many.
    let mut elements = 1i128;
    for &length in shape.iter().rev() {
        elements *= i128::from(length);
        if elements > i128::from(u64::MAX) {
            return None;
        }
    }
    if let Some(strides) = strides
        && elements > 0
    {
        let mut right = 1;
        for (&length, &stride) in shape.iter().zip(strides).rev() {
            if length != 1 && i128::from(stride) != right {
                return None;
            }
            right *= i128::from(length);
        }
    }
    let all = elements * bits;
    if all > i128::from(u64::MAX) {
        return None;
    }
    let bytes = u64::try_from((all + 7) / 8).ok().filter(|&bytes| bytes <= i64::MAX as u64)?;
    let at = (tensor.data as u64).checked_add(tensor.byte_offset)?;
    (at != 0 || bytes == 0).then_some(bytes)
}

fn check(given: &Tensor) {
    let dimensions = match given.dimensions {
        0..=239 => i32::from(given.dimensions % (DIMENSIONS as u8 + 1)),
        other => -i32::from(other),
    };
    let length = |&(kind, any): &(u8, i64)| if kind < 240 { i64::from(kind % 5) } else { any };
    let mut shape: Vec<i64> = given.lengths.iter().map(length).collect();
    let rank = dimensions.max(0) as usize;
    let mut strides = vec![1i64; DIMENSIONS];
    for dimension in (0..rank.saturating_sub(1)).rev() {
        strides[dimension] = strides[dimension + 1].wrapping_mul(shape[dimension + 1]);
    }
    if let Strides::Changed(at, stride) = given.strides {
        strides[usize::from(at) % DIMENSIONS] = stride;
    }
    let has_strides = !matches!(given.strides, Strides::None);
    let mut memory = [0u8; 64];
    let tensor = DLTensor {
        data: if given.has_data { memory.as_mut_ptr().cast() } else { std::ptr::null_mut() },
        device: DLDevice {
            device_type: match given.device.0 % 6 {
                0 => DLDeviceType::CPU,
                1 => DLDeviceType::CUDA,
                2 => DLDeviceType::CUDAHOST,
                3 => DLDeviceType::CUDAMANAGED,
                _ => DLDeviceType(u32::from(given.device.0) as _),
            },
            device_id: if given.device.0 < 200 { i32::from(given.device.0 % 3) } else { given.device.1 },
        },
        ndim: dimensions,
        dtype: DLDataType { code: DLDataTypeCode::INT, bits: given.bits, lanes: given.lanes },
        shape: if given.has_shape { shape.as_mut_ptr() } else { std::ptr::null_mut() },
        strides: if has_strides { strides.as_mut_ptr() } else { std::ptr::null_mut() },
        byte_offset: if given.offset.0 < 240 { u64::from(given.offset.0 % 9) } else { given.offset.1 },
    };
    let kind = tensor.device.device_type;
    let is_cuda = kind == DLDeviceType::CUDA;
    let is_known = is_cuda || [DLDeviceType::CPU, DLDeviceType::CUDAHOST, DLDeviceType::CUDAMANAGED].contains(&kind);
    let is_there = !is_cuda || (0..2).contains(&tensor.device.device_id);
    let major = if given.major < 200 { 1 } else { u32::from(given.major % 4) };
    let is_read_only = given.flags & 1 == 1;
    let is_taken = given.is_legacy || (major == 1 && !is_read_only);
    let has_dimensions = dimensions >= 0 && (dimensions == 0 || given.has_shape);
    let right = if is_known && is_there && is_taken && has_dimensions {
        right(&tensor, &shape[..rank], has_strides.then_some(&strides[..rank]))
    } else {
        None
    };

    DELETED.set(0);
    let mut buffer = std::ptr::null_mut();
    let stream: *mut c_void = std::ptr::null_mut();
    let mut legacy = DLManagedTensor {
        dl_tensor: tensor,
        manager_ctx: std::ptr::null_mut(),
        deleter: given.has_deleter.then_some(delete::<DLManagedTensor> as _),
    };
    let mut versioned = DLManagedTensorVersioned {
        version: DLPackVersion { major, minor: given.minor },
        manager_ctx: std::ptr::null_mut(),
        deleter: given.has_deleter.then_some(delete::<DLManagedTensorVersioned> as _),
        flags: dlpark::DlpackFlags::from_bits_retain(u64::from(given.flags)),
        dl_tensor: tensor,
    };
    let status = if given.is_legacy {
        unsafe { forebay_buffer_from_dlpack_legacy(&raw mut legacy, stream, &raw mut buffer) }
    } else {
        unsafe { forebay_buffer_from_dlpack(&raw mut versioned, stream, &raw mut buffer) }
    };
    assert_ne!(status, Status::Panic);
    assert_eq!(status == Status::Ok, right.is_some(), "{status:?}, {right:?}");
    assert_eq!(buffer.is_null(), right.is_none());
    assert_eq!(DELETED.get(), 0);
    if let Some(bytes) = right {
        let mut info = MaybeUninit::<ForebayBufferInfo>::zeroed();
        unsafe {
            (*info.as_mut_ptr()).size = size_of::<ForebayBufferInfo>() as u32;
            (*info.as_mut_ptr()).version = FOREBAY_INFO_VERSION;
        }
        assert_eq!(unsafe { forebay_buffer_get_info(buffer, info.as_mut_ptr()) }, Status::Ok);
        let info = unsafe { info.assume_init() };
        assert_eq!((info.bytes, info.handle), (bytes, tensor.data as u64 + tensor.byte_offset));
        assert_eq!(unsafe { forebay_buffer_close(buffer) }, Status::Ok);
        unsafe { forebay_buffer_destroy(buffer) };
        assert_eq!(DELETED.get(), given.has_deleter.into());
    }
}

#[test]
fn dlpack() {
    forebay_fuzz::set_up();
    bolero::check!(name = "dlpack").with_type::<Tensor>().for_each(check);
}
