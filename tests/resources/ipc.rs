//! Memory between real processes: both sides write, both sides read.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use forebay::abi::resource::ipc::forebay_ipc_export_foreign;
use forebay::units::{Address, DeviceId};

use crate::kit::resources::*;
use crate::other::{Other, descriptor_of, shareable};

/// What an import says that went well.
fn came(path: Path, bytes: u64) -> String {
    format!("path {} bytes {bytes} mapped 1", path as u32)
}

fn starts(answer: &str, status: Status) {
    assert!(answer.starts_with(&format!("{status:?}:")), "{status:?} expected: {answer}");
}

#[test]
fn a_pool_goes_by_its_descriptor_and_its_buffers_by_their_own() {
    for kind in ["device", "pinned"] {
        let Some(resource) = had(kind, shareable(kind, &mut None)) else { continue };
        let (fd, uuid) = resource.allocation_handle().unwrap();
        assert_eq!(resource.allocation_handle().unwrap(), (fd, uuid), "cached");
        assert_eq!((resource.info().has_uuid, resource.info().uuid), (1, uuid));
        let buffer = resource.allocate(3 * MIB, LEGACY).unwrap();
        buffer.write_pattern(1);
        let descriptor = buffer.descriptor().unwrap();
        let other = Other::start();
        starts(&other.import(&descriptor), Status::NotFound);
        let ours = unsafe { BorrowedFd::borrow_raw(fd) };
        let mapped = other.ask_with(&format!("map {kind}"), &uuid, Some(ours)).words;
        assert_eq!(mapped, "mapped 1 uuid 1 allocate NotPermitted");
        // The registry finds the pool by the name in the descriptor; it can be given as well.
        assert_eq!(other.import(&descriptor), came(Path::Pool, 3 * MIB));
        other.does("check 1 0");
        other.does("close");
        assert_eq!(other.ask_with("import-mapped", &descriptor.bytes, None).words, came(Path::Pool, 3 * MIB));
        other.does("write 2");
        buffer.holds_pattern(2, 3 * MIB);
        other.does("close");
        // What was let go there is still here.
        buffer.holds_pattern(2, 3 * MIB);
        other.finish();
        buffer.close().unwrap();
        resource.close().unwrap();
        refused(resource.allocation_handle(), Status::Closed, &[]);
    }
}

#[test]
fn a_mapped_pool_is_registered_once_under_its_key() {
    let other = Other::start();
    let exported = other.ask("export device 1048576 1");
    if exported.words.starts_with("Unsupported") {
        println!("skipped: {}", exported.words);
        return;
    }
    let (uuid, fd): (Uuid, OwnedFd) = (
        exported.bytes[256..].try_into().unwrap(),
        exported.fd.as_ref().unwrap().as_fd().try_clone_to_owned().unwrap(),
    );
    let map = |uuid| Resource::from_fd(Kind::Device as u32, fd.as_raw_fd(), uuid);
    refused(Resource::from_registry(&uuid), Status::NotFound, &["registered"]);
    let first = map(None).unwrap();
    assert_eq!((first.info().is_mapped, first.info().has_uuid, first.info().is_handle_owned), (1, 0, 1));
    refused(first.allocate(1, LEGACY), Status::NotPermitted, &["another process"]);
    refused(first.allocation_handle(), Status::NotPermitted, &[]);
    let registered = first.register(&uuid).unwrap();
    let handle = first.info().handle;
    assert_eq!((registered.info().handle, registered.info().uuid), (handle, uuid));
    // The key again: the pool that has it is given, and the descriptor is not looked at.
    assert_eq!(first.register(&uuid).unwrap().info().handle, handle);
    assert_eq!(map(Some(&uuid)).unwrap().info().handle, handle);
    assert_eq!(Resource::from_registry(&uuid).unwrap().info().handle, handle);
    refused(first.register(&[9; 16]), Status::InvalidArgument, &["uuid is"]);
    let kind = Resource::from_fd(Kind::Pinned as u32, fd.as_raw_fd(), Some(&uuid));
    refused(kind, Status::InvalidArgument, &["uuid"]);
    if !on_cuda() {
        // A second mapping of one pool finds the first one under the key. libcuda may refuse to map it twice.
        let second = map(None).unwrap();
        assert_ne!(second.info().handle, handle);
        assert_eq!(second.register(&uuid).unwrap().info().handle, handle);
    }
    let descriptor = descriptor_of(&exported);
    let buffer = Buffer::from_descriptor(None, &descriptor).unwrap();
    assert_eq!((buffer.info().ipc_path, buffer.info().is_mapped), (Path::Pool as u32, 1));
    buffer.holds_pattern(1, MIB);
    refused(buffer.descriptor(), Status::NotPermitted, &[]).clear();
    drop((first, registered));
    assert_eq!(Resource::from_registry(&uuid).unwrap().info().handle, handle, "its buffer has it");
    buffer.close().unwrap();
    buffer.close().unwrap();
    drop(buffer);
    refused(Resource::from_registry(&uuid), Status::NotFound, &["registered"]);
    refused(Buffer::from_descriptor(None, &descriptor), Status::NotFound, &["map it"]);
    let own = Resource::of_pool(shared()).unwrap();
    refused(Buffer::from_descriptor(Some(&own), &descriptor), Status::InvalidArgument, &["pool"]);
    other.finish();
}

#[test]
fn a_virtual_buffer_goes_again_after_each_growth() {
    for kind in ["virtual", "virtual-host"] {
        let Some(resource) = had(kind, shareable(kind, &mut None)) else { continue };
        let Some(buffer) = had(kind, resource.allocate(1, LEGACY)) else { continue };
        let other = Other::start();
        for seed in [1, 3, 5, 7] {
            let size = buffer.bytes();
            buffer.write_pattern(seed);
            let descriptor = buffer.descriptor().unwrap();
            assert_eq!(other.import(&descriptor), came(Path::Fd, size));
            other.does(&format!("check {seed} 0"));
            other.does(&format!("write {}", seed + 1));
            buffer.holds_pattern(seed + 1, size);
            resource.modify(&buffer, 2 * size, None).unwrap();
            buffer.holds_pattern(seed + 1, size);
            // What was mapped stays; the descriptor ended with the change.
            other.does(&format!("check {} 0", seed + 1));
            starts(&other.import(&descriptor), Status::NotFound);
            other.does("close");
        }
        let last = buffer.descriptor().unwrap();
        buffer.close().unwrap();
        starts(&other.import(&last), Status::NotFound);
        other.finish();
    }
}

#[test]
fn any_pointer_into_a_live_block_of_a_forebay_pool_goes() {
    for kind in ["pool", "pinned-pool"] {
        let mut pool = None;
        let Some(_resource) = had(kind, shareable(kind, &mut pool)) else { continue };
        let pool = pool.unwrap();
        let other = Other::start();
        // Small ones, beside others in a chunk, and one over many chunks.
        let before = pool.malloc(700, LEGACY).unwrap();
        for (bytes, inside) in
            [(700, 0), (5000, 0), (5000, 4097), (3 * MIB, MIB + 13), (100 * MIB, 0), (100 * MIB, 70 * MIB + 12_345)]
        {
            let block = pool.malloc(bytes, LEGACY).unwrap();
            let size = pool.block_size(block).unwrap();
            let data = pattern(inside, size);
            pool.copy(block, data.as_ptr() as Block, size, LEGACY).unwrap();
            pool.synchronize(LEGACY).unwrap();
            let descriptor = exported(&pool, block + inside as usize).unwrap();
            assert_eq!(other.import(&descriptor), came(Path::Fd, size - inside), "to the block's end");
            other.does(&format!("check {inside} {inside}"));
            other.does("write 99");
            let rest = pool.read(block, size, LEGACY);
            assert!(rest[..inside as usize] == data[..inside as usize], "what lies before is untouched");
            assert!(rest[inside as usize..] == pattern(99, size - inside));
            other.does("close");
            pool.free(block, LEGACY).unwrap();
            starts(&other.import(&descriptor), Status::NotFound);
        }
        assert!(pool.stats().live == 1024, "{before:#x} alone");
        pool.check();
        other.finish();
    }
}

#[test]
fn a_buffer_of_a_forebay_pool_goes_with_its_own_size() {
    let resource = Resource::of_pool(shared()).unwrap();
    let buffer = resource.allocate(5000, LEGACY).unwrap();
    buffer.write_pattern(1);
    let other = Other::start();
    let descriptor = buffer.descriptor().unwrap();
    assert_eq!(other.import(&descriptor), came(Path::Fd, 5000));
    other.does("check 1 0");
    buffer.close().unwrap();
    // The memory may be anybody's now; what was mapped is still mapped.
    starts(&other.import(&descriptor), Status::NotFound);
    other.does("close");
    other.finish();
}

#[test]
fn plain_device_memory_goes_the_legacy_way() {
    shared();
    let driver = std::sync::Arc::clone(forebay::pool::shared().unwrap().driver());
    let (home, bytes) = (DeviceId(0), 4 * MIB);
    let at = driver.allocate(home, bytes).unwrap();
    let data = pattern(1, bytes);
    shared().copy(at.0 as Block, data.as_ptr() as Block, bytes, LEGACY).unwrap();
    synchronize();
    let foreign = |inside: u64, bytes: u64| {
        let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
        outcome(unsafe { forebay_ipc_export_foreign((at.0 + inside) as *const _, bytes, &raw mut descriptor) })
            .map(|()| descriptor)
    };
    let Some(descriptor) = had("legacy handles", foreign(MIB + 8, 2 * MIB)) else { return };
    refused(foreign(MIB, 4 * MIB), Status::InvalidArgument, &["beyond"]);
    refused(foreign(0, u64::MAX), Status::InvalidArgument, &["beyond"]);
    let other = Other::start();
    assert_eq!(other.import(&descriptor), came(Path::Legacy, 2 * MIB));
    let expected = &data[(MIB + 8) as usize..(3 * MIB + 8) as usize];
    other.does("write 2");
    let now = shared().read(at.0 as Block, bytes, LEGACY);
    assert!(now[(MIB + 8) as usize..(3 * MIB + 8) as usize] == pattern(2, 2 * MIB));
    assert!(now[..(MIB + 8) as usize] == data[..(MIB + 8) as usize] && expected.len() == 2 << 20);
    other.does("close");
    other.finish();
    Buffer::from_descriptor(None, &descriptor).expect_err("not in the process that exported it");
    driver.free(home, Address(at.0)).unwrap();
    refused(foreign(0, MIB), Status::Unsupported, &["legacy"]);
}

#[test]
fn what_is_mapped_survives_its_exporter() {
    for kind in ["virtual", "pool", "pinned-pool"] {
        let mut other = Other::start();
        let exported = other.ask(&format!("export {kind} {} 4", 9 * MIB));
        if exported.words != "exported" {
            assert!(on_cuda() && exported.words.starts_with("Unsupported"), "{}", exported.words);
            println!("skipped: {}", exported.words);
            continue;
        }
        let descriptor = descriptor_of(&exported);
        let buffer = Buffer::from_descriptor(None, &descriptor).unwrap();
        other.kill();
        let bytes = buffer.bytes();
        buffer.holds_pattern(4, 9 * MIB);
        buffer.write_pattern(5);
        buffer.holds_pattern(5, bytes);
        refused(Buffer::from_descriptor(None, &descriptor), Status::Peer, &[]);
        buffer.close().unwrap();
        buffer.close().unwrap();
        assert_eq!(buffer.info().is_closed, 1);
    }
}

#[test]
fn an_importer_that_dies_takes_nothing_with_it() {
    let pool = Pool::new();
    let resource = Resource::of_pool(&pool).unwrap();
    let buffer = resource.allocate(20 * MIB, LEGACY).unwrap();
    buffer.write_pattern(1);
    let descriptor = buffer.descriptor().unwrap();
    for _ in 0..3 {
        let mut other = Other::start();
        assert_eq!(other.import(&descriptor), came(Path::Fd, 20 * MIB));
        other.does("write 2");
        other.kill();
    }
    buffer.holds_pattern(2, 20 * MIB);
    let other = Other::start();
    assert_eq!(other.import(&descriptor), came(Path::Fd, 20 * MIB));
    other.does("check 2 0");
    other.finish();
    buffer.close().unwrap();
    pool.synchronize(LEGACY).unwrap();
    assert_eq!(pool.trim(0).unwrap() + pool.stats().physical, 20 * MIB);
    assert_eq!(pool.stats().physical, 0);
    pool.check();
}

#[test]
fn an_exported_buffer_can_be_imported_where_it_was_exported() {
    for kind in ["virtual", "virtual-host", "pool", "pinned-pool"] {
        let Some(resource) = had(kind, shareable(kind, &mut None)) else { continue };
        let Some(buffer) = had(kind, resource.allocate(6 * MIB, LEGACY)) else { continue };
        buffer.write_pattern(1);
        let descriptor = buffer.descriptor().unwrap();
        let (first, second) =
            (Buffer::from_descriptor(None, &descriptor).unwrap(), Buffer::from_descriptor(None, &descriptor).unwrap());
        assert_eq!((first.info().is_mapped, first.info().ipc_path), (1, Path::Fd as u32));
        assert_ne!(first.at(), buffer.at());
        first.holds_pattern(1, 6 * MIB);
        first.write_pattern(2);
        second.holds_pattern(2, 6 * MIB);
        buffer.holds_pattern(2, 6 * MIB);
        refused(first.copy(), Status::InvalidArgument, &["no memory resource"]);
        first.close().unwrap();
        first.close().unwrap();
        buffer.close().unwrap();
        second.holds_pattern(2, 6 * MIB);
        drop(second);
        refused(Buffer::from_descriptor(None, &descriptor), Status::NotFound, &["exported"]);
        let wrong = Resource::of_pool(shared()).unwrap();
        refused(Buffer::from_descriptor(Some(&wrong), &descriptor), Status::InvalidArgument, &["pieces"]);
    }
    // A virtual memory resource says who may use what comes in.
    let (resource, readers) =
        (Resource::virtual_memory(|_| ()).unwrap(), Resource::virtual_memory(|options| options.self_access = 1));
    let Some(readers) = had("memory to read", readers) else { return };
    let buffer = resource.allocate(1, LEGACY).unwrap();
    buffer.write_pattern(3);
    let Some(read) =
        had_or_not("memory to read", Buffer::from_descriptor(Some(&readers), &buffer.descriptor().unwrap()))
    else {
        return;
    };
    read.holds_pattern(3, read.bytes());
    assert_eq!(read.info().has_resource, 1);
    if !on_cuda() {
        read.fill(0, 1).expect_err("it may only be read");
    }
    refused(readers.modify(&read, 2 * read.bytes(), None), Status::BadFree, &[]);
    read.close().unwrap();
}
