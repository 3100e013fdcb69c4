//! Descriptors that were damaged on the way: refused, or the memory that they named, and never anything else.

use forebay::abi::resource::ipc::forebay_buffer_from_ipc_descriptor;
use forebay::units::DeviceId;

use crate::kit::resources::*;
use crate::other::{Other, descriptor_of, shareable};

/// Where the driver's own 64 bytes are. Those of libcuda are not this library's to judge.
const BLOB: std::ops::Range<usize> = 88..152;

/// Every byte with every one of its bits flipped. What still opens must be `bytes` bytes at most of the memory that
/// holds this pattern.
fn damaged(descriptor: &ForebayIpcDescriptor, resource: Option<&Resource>, seed: u64, bytes: u64) {
    let (mut opened, mut blob_is_driver) = (0, on_cuda());
    if Buffer::from_descriptor(resource, descriptor).is_ok_and(|b| b.info().ipc_path == Path::Fd as u32) {
        blob_is_driver = false;
    }
    for at in 0..256 {
        if blob_is_driver && BLOB.contains(&at) {
            continue;
        }
        for bit in 0..8 {
            let mut changed = *descriptor;
            changed.bytes[at] ^= 1 << bit;
            match Buffer::from_descriptor(resource, &changed) {
                Err(failure) => assert_ne!(failure.status, Status::Panic, "byte {at}, bit {bit}: {}", failure.text),
                Ok(buffer) => {
                    opened += 1;
                    assert!(buffer.bytes() <= bytes, "byte {at}, bit {bit}: {} bytes", buffer.bytes());
                    let (found, right) = (buffer.read(0, buffer.bytes()), pattern(seed, buffer.bytes()));
                    assert!(found == right, "byte {at}, bit {bit} gives other memory");
                }
            }
        }
    }
    println!("{opened} of 2048 opened");
}

#[test]
fn of_physical_memory() {
    for kind in ["virtual", "virtual-host", "pool"] {
        let Some(resource) = had(kind, shareable(kind, &mut None)) else { continue };
        let Some(buffer) = had(kind, resource.allocate(2 * MIB, LEGACY)) else { continue };
        buffer.write_pattern(1);
        damaged(&buffer.descriptor().unwrap(), None, 1, 2 * MIB);
        buffer.holds_pattern(1, 2 * MIB);
    }
}

#[test]
fn of_a_pool() {
    let other = Other::start();
    let exported = other.ask(&format!("export device {} 1", 2 * MIB));
    if exported.words != "exported" {
        println!("skipped: {}", exported.words);
        return;
    }
    use std::os::fd::AsRawFd;
    let (descriptor, uuid) = (descriptor_of(&exported), exported.bytes[256..].try_into().unwrap());
    let mapped =
        Resource::from_fd(Kind::Device as u32, exported.fd.as_ref().unwrap().as_raw_fd(), Some(&uuid)).unwrap();
    damaged(&descriptor, Some(&mapped), 1, 2 * MIB);
    damaged(&descriptor, None, 1, 2 * MIB);
    let buffer = Buffer::from_descriptor(None, &descriptor).unwrap();
    buffer.holds_pattern(1, 2 * MIB);
    drop(buffer);
    other.does("check 1 0");
    other.finish();
}

#[test]
fn of_plain_memory() {
    // Memory of this process's own, before and behind, that a wrong offset must not reach.
    shared();
    let driver = std::sync::Arc::clone(forebay::pool::shared().unwrap().driver());
    let around: Vec<_> = (0..4).map(|_| driver.allocate(DeviceId(0), 32 * MIB).unwrap()).collect();
    let other = Other::start();
    let exported = other.ask(&format!("export plain {} 1", 2 * MIB));
    if exported.words != "exported" {
        println!("skipped: {}", exported.words);
        return;
    }
    damaged(&descriptor_of(&exported), None, 1, 2 * MIB);
    other.finish();
    around.into_iter().for_each(|at| driver.free(DeviceId(0), at).unwrap());
}

#[test]
fn of_another_length() {
    let buffer = Resource::of_pool(shared()).unwrap().allocate(MIB, LEGACY).unwrap();
    let mut long = [0u8; 600];
    long[..256].copy_from_slice(&buffer.descriptor().unwrap().bytes);
    for bytes in [0, 1, 8, 255, 257, 512, 600] {
        let made = Buffer::made(|out| unsafe {
            let (resource, stream) = (std::ptr::null_mut(), std::ptr::null_mut());
            forebay_buffer_from_ipc_descriptor(resource, long.as_ptr().cast(), bytes, stream, out)
        });
        refused(made, Status::InvalidArgument, &["256"]);
    }
    let mut random = crate::kit::random::Random(1);
    for _ in 0..500 {
        let mut bytes = [0; 256];
        bytes.fill_with(|| random.next() as u8);
        bytes[..8].copy_from_slice(&long[..8]);
        if random.below(2) == 0 {
            bytes[..24].copy_from_slice(&long[..24]);
        }
        Buffer::from_descriptor(None, &ForebayIpcDescriptor { bytes }).expect_err("random bytes");
    }
}
