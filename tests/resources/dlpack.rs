//! Tensors of buffers, and buffers of tensors: DLPack 1.x and the struct before it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use forebay::abi::resource::dlpack::*;

use crate::buffers::every_kind;
use crate::kit::resources::*;

fn exported(buffer: &Buffer) -> Outcome<*mut DLManagedTensorVersioned> {
    let mut out = std::ptr::null_mut();
    outcome(unsafe { forebay_buffer_to_dlpack(buffer.0, &raw mut out) }).map(|()| out)
}

fn exported_legacy(buffer: &Buffer) -> Outcome<*mut DLManagedTensor> {
    let mut out = std::ptr::null_mut();
    outcome(unsafe { forebay_buffer_to_dlpack_legacy(buffer.0, &raw mut out) }).map(|()| out)
}

fn delete(tensor: *mut DLManagedTensorVersioned) {
    unsafe { (*tensor).deleter.unwrap()(tensor) };
}

fn delete_legacy(tensor: *mut DLManagedTensor) {
    unsafe { (*tensor).deleter.unwrap()(tensor) };
}

fn imported(tensor: *mut DLManagedTensorVersioned) -> Outcome<Buffer> {
    Buffer::made(|out| unsafe { forebay_buffer_from_dlpack(tensor, std::ptr::null_mut(), out) })
}

fn imported_legacy(tensor: *mut DLManagedTensor) -> Outcome<Buffer> {
    Buffer::made(|out| unsafe { forebay_buffer_from_dlpack_legacy(tensor, std::ptr::null_mut(), out) })
}

/// One dimension of signed bytes, where the buffer is.
#[track_caller]
fn describes(tensor: &DLTensor, buffer: &Buffer, device: DLDeviceType) {
    assert_eq!((tensor.data as usize, tensor.byte_offset, tensor.ndim), (buffer.at(), 0, 1));
    assert_eq!(tensor.dtype, DLDataType { code: DLDataTypeCode::INT, bits: 8, lanes: 1 });
    assert_eq!((tensor.device.device_type, tensor.device.device_id), (device, 0));
    assert_eq!(unsafe { *tensor.shape } as u64, buffer.bytes());
    assert!(tensor.strides.is_null() || unsafe { *tensor.strides } == 1);
}

#[test]
fn a_buffer_goes_out_and_comes_back_with_its_memory() {
    for (name, resource) in every_kind() {
        let device = match name {
            "device" | "virtual" | "pool" => DLDeviceType::CUDA,
            "managed" => DLDeviceType::CUDAMANAGED,
            _ => DLDeviceType::CUDAHOST,
        };
        let buffer = resource.allocate(2 * MIB, LEGACY).unwrap();
        buffer.write_pattern(1);
        let (tensor, legacy) = (exported(&buffer).unwrap(), exported_legacy(&buffer).unwrap());
        describes(unsafe { &(*tensor).dl_tensor }, &buffer, device);
        describes(unsafe { &(*legacy).dl_tensor }, &buffer, device);
        assert_eq!(unsafe { (*tensor).version.major }, 1);
        assert!(unsafe { (*tensor).flags }.is_empty(), "neither read-only nor a copy");
        let (back, back_legacy) = (imported(tensor).unwrap(), imported_legacy(legacy).unwrap());
        for one in [&back, &back_legacy] {
            let (info, first) = (one.info(), buffer.info());
            assert_eq!((info.handle, info.bytes, info.device_id), (first.handle, first.bytes, first.device_id));
            assert_eq!(
                (info.is_device_accessible, info.is_host_accessible, info.is_managed, info.has_resource),
                (first.is_device_accessible, first.is_host_accessible, first.is_managed, 0)
            );
        }
        // The memory stays while any of the three has it.
        buffer.close().unwrap();
        back.holds_pattern(1, 2 * MIB);
        back.write_pattern(2);
        back.close().unwrap();
        back.close().unwrap();
        back_legacy.holds_pattern(2, 2 * MIB);
        drop(back_legacy);
    }
}

#[test]
fn a_tensor_outlives_its_buffer_and_its_resource() {
    let pool = Pool::new();
    let live = || pool.stats().live;
    let resource = Resource::of_pool(&pool).unwrap();
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    buffer.write_pattern(5);
    let (first, second) = (exported(&buffer).unwrap(), exported_legacy(&buffer).unwrap());
    buffer.close().unwrap();
    assert_eq!(buffer.info().is_closed, 1);
    refused(exported(&buffer), Status::Closed, &[]);
    refused(exported_legacy(&buffer), Status::Closed, &[]);
    drop(buffer);
    drop(resource);
    assert_eq!(live(), MIB, "the tensors have it");
    let data = unsafe { (*first).dl_tensor.data } as Block;
    assert!(pool.read(data, MIB, LEGACY) == pattern(5, MIB));
    std::thread::spawn({
        let second = second as usize;
        move || delete_legacy(second as *mut DLManagedTensor)
    })
    .join()
    .unwrap();
    assert_eq!(live(), MIB);
    delete(first);
    assert_eq!(live(), 0, "with the last of them");
    pool.check();
}

#[test]
fn a_buffer_cannot_grow_under_a_tensor() {
    let resource = Resource::virtual_memory(|_| ()).unwrap();
    let buffer = resource.allocate(1, LEGACY).unwrap();
    let size = buffer.bytes();
    let tensor = exported(&buffer).unwrap();
    refused(resource.modify(&buffer, 2 * size, None), Status::Busy, &["DLPack"]);
    assert_eq!(buffer.bytes(), size);
    delete(tensor);
    resource.modify(&buffer, 2 * size, None).unwrap();
}

#[test]
fn no_bytes_make_a_tensor_too() {
    let buffer = Resource::of_pool(shared()).unwrap().allocate(0, LEGACY).unwrap();
    let tensor = exported(&buffer).unwrap();
    assert_eq!(unsafe { (*(*tensor).dl_tensor.shape, (*tensor).dl_tensor.data) }, (0, std::ptr::null_mut()));
    let back = imported(tensor).unwrap();
    assert_eq!((back.at(), back.bytes()), (0, 0));
    back.close().unwrap();
}

// ---- tensors of others ---------------------------------------------------------------------------------

/// A tensor as another library makes it, which counts how often it is deleted.
struct Foreign {
    tensor: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    deleted: AtomicU32,
    data: Vec<u8>,
}

impl Foreign {
    fn new(shape: &[i64]) -> Box<Self> {
        unsafe extern "C" fn deleted(tensor: *mut DLManagedTensorVersioned) {
            unsafe { &*(*tensor).manager_ctx.cast::<Foreign>() }.deleted.fetch_add(1, Ordering::Relaxed);
        }
        let mut data = pattern(1, 4096);
        let tensor = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(deleted),
            flags: DlpackFlags::empty(),
            dl_tensor: DLTensor {
                data: data.as_mut_ptr().cast(),
                device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
                ndim: shape.len() as i32,
                dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        };
        let strides = Vec::new();
        let mut foreign = Box::new(Self { tensor, shape: shape.to_vec(), strides, deleted: AtomicU32::new(0), data });
        foreign.tensor.manager_ctx = (&raw mut *foreign).cast::<c_void>();
        foreign.tensor.dl_tensor.shape = foreign.shape.as_mut_ptr();
        foreign
    }

    fn strided(shape: &[i64], strides: &[i64]) -> Box<Self> {
        let mut foreign = Self::new(shape);
        foreign.strides = strides.to_vec();
        foreign.tensor.dl_tensor.strides = foreign.strides.as_mut_ptr();
        foreign
    }

    fn deleted(&self) -> u32 {
        self.deleted.load(Ordering::Relaxed)
    }

    /// It is taken over, with this size, and deleted once.
    #[track_caller]
    fn is_taken(&mut self, bytes: u64) {
        let buffer = imported(&raw mut self.tensor).unwrap();
        let offset = self.tensor.dl_tensor.byte_offset;
        assert_eq!((buffer.bytes(), self.deleted()), (bytes, 0));
        assert_eq!(buffer.info().handle, self.tensor.dl_tensor.data as u64 + offset);
        if bytes > 0 && bytes + offset <= 4096 {
            assert!(buffer.read(0, bytes) == self.data[offset as usize..(offset + bytes) as usize]);
        }
        buffer.close().unwrap();
        buffer.close().unwrap();
        drop(buffer);
        assert_eq!(self.deleted(), 1);
    }

    /// It is refused, and still its producer's.
    #[track_caller]
    fn is_refused(&mut self, status: Status, words: &[&str]) {
        refused(imported(&raw mut self.tensor), status, words);
        assert_eq!(self.deleted(), 0);
    }
}

#[test]
fn any_shape_and_type_is_taken_whose_bytes_lie_together() {
    for (shape, bytes) in
        [(vec![16], 64), (vec![4, 4], 64), (vec![2, 3, 4], 96), (vec![], 4), (vec![0], 0), (vec![7, 0, 3], 0)]
    {
        Foreign::new(&shape).is_taken(bytes);
    }
    for (shape, strides) in [
        (&[4, 5][..], &[5, 1][..]),
        // What has one element may have any stride.
        (&[1, 5], &[77, 1]),
        (&[5, 1], &[1, -3]),
        (&[20], &[1]),
    ] {
        Foreign::strided(shape, strides).is_taken(4 * shape.iter().product::<i64>() as u64);
    }
    Foreign::strided(&[0, 5], &[9, 9]).is_taken(0);
    let mut offset = Foreign::new(&[8]);
    offset.tensor.dl_tensor.byte_offset = 256;
    offset.is_taken(32);
    for (bits, lanes, elements, bytes) in [(8, 1, 9, 9), (64, 2, 3, 48), (4, 1, 3, 2), (1, 1, 9, 2), (16, 4, 2, 16)] {
        let mut typed = Foreign::new(&[elements]);
        (typed.tensor.dl_tensor.dtype.bits, typed.tensor.dl_tensor.dtype.lanes) = (bits, lanes);
        typed.is_taken(bytes);
    }
    let mut copied = Foreign::new(&[4]);
    copied.tensor.flags = DlpackFlags::IS_COPIED;
    copied.is_taken(16);
    let mut undeleted = Foreign::new(&[4]);
    undeleted.tensor.deleter = None;
    imported(&raw mut undeleted.tensor).unwrap().close().unwrap();
}

#[test]
fn the_rest_is_refused_and_stays_its_producers() {
    use Status::{BadDevice, InvalidArgument, Unsupported};
    for (shape, strides) in [
        (&[4, 5][..], &[1, 4][..]),
        (&[4, 5], &[10, 1]),
        (&[20], &[2]),
        (&[20], &[-1]),
        (&[20], &[0]),
        (&[2, 3, 4], &[12, 1, 3]),
        (&[4], &[i64::MAX]),
    ] {
        Foreign::strided(shape, strides).is_refused(InvalidArgument, &["contiguous"]);
    }
    for shape in [&[i64::MAX][..], &[i64::MAX, 2], &[1 << 31, 1 << 31, 1 << 31], &[1 << 61], &[1 << 33, 1 << 33]] {
        Foreign::new(shape).is_refused(InvalidArgument, &["more"]);
    }
    Foreign::new(&[-1]).is_refused(InvalidArgument, &["-1"]);
    Foreign::new(&[4, i64::MIN]).is_refused(InvalidArgument, &["dimension"]);
    let changed = |change: fn(&mut DLManagedTensorVersioned)| {
        let mut foreign = Foreign::new(&[16]);
        change(&mut foreign.tensor);
        foreign
    };
    changed(|t| t.version.major = 0).is_refused(Unsupported, &["0.3"]);
    changed(|t| t.version.major = 2).is_refused(Unsupported, &["2.3"]);
    changed(|t| t.version.major = u32::MAX).is_refused(Unsupported, &["DLPack"]);
    changed(|t| t.flags = DlpackFlags::READ_ONLY).is_refused(Unsupported, &["read-only"]);
    changed(|t| t.dl_tensor.ndim = -1).is_refused(InvalidArgument, &["-1 dimensions"]);
    changed(|t| t.dl_tensor.shape = std::ptr::null_mut()).is_refused(InvalidArgument, &["no shape"]);
    changed(|t| t.dl_tensor.dtype.bits = 0).is_refused(InvalidArgument, &["0 bits"]);
    changed(|t| t.dl_tensor.dtype.lanes = 0).is_refused(InvalidArgument, &["0 bits"]);
    changed(|t| t.dl_tensor.data = std::ptr::null_mut()).is_refused(InvalidArgument, &["no memory"]);
    changed(|t| t.dl_tensor.byte_offset = u64::MAX).is_refused(InvalidArgument, &[]);
    for device in [DLDeviceType::ROCM, DLDeviceType::METAL, DLDeviceType(0), DLDeviceType(99)] {
        let mut elsewhere = Foreign::new(&[16]);
        elsewhere.tensor.dl_tensor.device.device_type = device;
        elsewhere.is_refused(Unsupported, &[&device.0.to_string()]);
    }
    for ordinal in [-1, 64, i32::MAX] {
        let mut elsewhere = Foreign::new(&[16]);
        elsewhere.tensor.dl_tensor.device = DLDevice { device_type: DLDeviceType::CUDA, device_id: ordinal };
        elsewhere.is_refused(BadDevice, &[&ordinal.to_string()]);
    }
}

#[test]
fn a_legacy_tensor_is_taken_and_refused_alike() {
    unsafe extern "C" fn deleted(tensor: *mut DLManagedTensor) {
        unsafe { &*(*tensor).manager_ctx.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let (count, foreign) = (AtomicU32::new(0), Foreign::new(&[4, 4]));
    let mut legacy = DLManagedTensor {
        dl_tensor: foreign.tensor.dl_tensor,
        manager_ctx: std::ptr::from_ref(&count).cast_mut().cast(),
        deleter: Some(deleted),
    };
    let buffer = imported_legacy(&raw mut legacy).unwrap();
    assert!(buffer.read(0, 64) == foreign.data[..64]);
    drop(buffer);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    legacy.dl_tensor.dtype.bits = 0;
    refused(imported_legacy(&raw mut legacy), Status::InvalidArgument, &[]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    refused(imported_legacy(std::ptr::null_mut()), Status::NullPointer, &["tensor"]);
    refused(imported(std::ptr::null_mut()), Status::NullPointer, &["tensor"]);
}
