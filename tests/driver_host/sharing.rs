//! Sharing inside one process: descriptors, what is refused, and that nothing is left open.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use forebay::driver::host::{Clock, HostDriver};
use forebay::driver::{
    Access, Driver, ErrorKind, PhysicalOptions, Place, PoolOptions, Pools, Share, Sharing, VirtualMemory,
};
use forebay::units::Address;

use crate::{DEVICE, GRANULE, LEGACY, PEER, byte, chunk, driver, invalid, put, shareable};

const SHARED: PoolOptions =
    PoolOptions { place: Some(Place::Device(DEVICE)), managed: false, share: true, max_size: 0 };

fn closes_on_exec(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: asks about an open descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

/// How many descriptors this process has open on memory of host drivers: other tests may have others meanwhile, so
/// only those at `inode` count.
fn open_on(inode: u64) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter(|entry| std::fs::metadata(entry.path()).is_ok_and(|found| found.ino() == inode)).count()
}

fn inode(fd: &OwnedFd) -> u64 {
    File::from(fd.try_clone().unwrap()).metadata().unwrap().ino()
}

#[test]
fn a_handle_exported_and_imported_here_is_the_same_memory() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let (at, physical) = chunk(&driver);
    let fd = driver.export_fd(DEVICE, physical).unwrap();
    assert!(closes_on_exec(fd.as_fd()));
    let again = driver.import_fd(DEVICE, fd.as_fd()).unwrap();
    let room = driver.reserve(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, room, GRANULE, again).unwrap();
    driver.grant(DEVICE, room, GRANULE).unwrap();
    put(at.plus(4096), 7);
    assert_eq!(byte(room.plus(4096)), 7);
    // The one goes entirely, the other stays, and so does what is in it.
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.unreserve(DEVICE, at, GRANULE).unwrap();
    driver.release(DEVICE, physical).unwrap();
    assert_eq!(byte(room.plus(4096)), 7);
    let third = driver.import_fd(DEVICE, fd.as_fd()).unwrap();
    driver.unmap(DEVICE, room, GRANULE).unwrap();
    driver.release(DEVICE, again).unwrap();
    driver.map(DEVICE, room, GRANULE, third).unwrap();
    driver.grant(DEVICE, room, GRANULE).unwrap();
    assert_eq!(byte(room.plus(4096)), 7, "the descriptor alone held it");
    driver.unmap(DEVICE, room, GRANULE).unwrap();
    driver.release(DEVICE, third).unwrap();
    driver.unreserve(DEVICE, room, GRANULE).unwrap();
    assert_eq!(driver.usage(), before);
}

#[test]
fn an_imported_handle_can_be_handed_on() {
    let driver = driver(Clock::Immediate);
    let (at, physical) = chunk(&driver);
    let first = driver.export_fd(DEVICE, physical).unwrap();
    let imported = driver.import_fd(DEVICE, first.as_fd()).unwrap();
    drop(first);
    let second = driver.export_fd(DEVICE, imported).unwrap();
    let room = driver.reserve(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, room, GRANULE, driver.import_fd(DEVICE, second.as_fd()).unwrap()).unwrap();
    driver.grant(DEVICE, room, GRANULE).unwrap();
    put(at, 3);
    assert_eq!(byte(room), 3);
}

#[test]
fn each_descriptor_has_its_own_place_in_the_file() {
    let driver = driver(Clock::Immediate);
    let handles: Vec<_> = (0..4).map(|_| driver.create(DEVICE, GRANULE).unwrap()).collect();
    let fds: Vec<_> = handles.iter().map(|&handle| driver.export_fd(DEVICE, handle).unwrap()).collect();
    let room = driver.reserve(DEVICE, 8 * GRANULE).unwrap();
    for (index, (&handle, fd)) in handles.iter().zip(&fds).enumerate() {
        let (ours, theirs) = (room.plus(index as u64 * GRANULE), room.plus((index as u64 + 4) * GRANULE));
        driver.map(DEVICE, ours, GRANULE, handle).unwrap();
        driver.map(DEVICE, theirs, GRANULE, driver.import_fd(DEVICE, fd.as_fd()).unwrap()).unwrap();
    }
    driver.grant(DEVICE, room, 8 * GRANULE).unwrap();
    for index in 0..4u8 {
        put(room.plus(u64::from(index) * GRANULE), index + 1);
    }
    for index in 0..4u8 {
        assert_eq!(byte(room.plus((u64::from(index) + 4) * GRANULE)), index + 1);
    }
}

#[test]
fn memory_that_was_not_made_for_it_cannot_leave() {
    let driver = HostDriver::new(shareable()).unwrap();
    let create = |share| {
        let options = PhysicalOptions { place: Place::Device(DEVICE), share, rdma: false };
        driver.create_with(DEVICE, GRANULE, &options).unwrap()
    };
    let (none, fd, fabric) = (create(Share::None), create(Share::Fd), create(Share::Fabric));
    for (handle, share) in [(none, "Share::None"), (fabric, "Share::Fabric")] {
        invalid(driver.export_fd(DEVICE, handle), share);
    }
    invalid(driver.export_fabric(DEVICE, fd), "Share::Fd");
    invalid(driver.export_fd(PEER, fd), "belongs to device 0");
    driver.release(DEVICE, fd).unwrap();
    invalid(driver.export_fd(DEVICE, fd), "is not held");
    let alone = driver.pool_create(DEVICE, &PoolOptions { share: false, ..SHARED }).unwrap();
    invalid(driver.pool_export_fd(DEVICE, alone), "not created to be shared");
    let block = driver.pool_allocate(DEVICE, alone, 4096, LEGACY).unwrap();
    invalid(driver.pool_export_pointer(DEVICE, block), "not created to be shared");
    let default = driver.pool_default(DEVICE, Some(Place::Device(DEVICE)), false).unwrap();
    invalid(driver.pool_export_fd(DEVICE, default), "not created to be shared");
}

/// A memfd of `bytes`, all holes.
fn memfd(bytes: u64, seals: i32) -> OwnedFd {
    // SAFETY: a new descriptor that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"forebay-host".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    File::from(fd.try_clone().unwrap()).set_len(bytes).unwrap();
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    fd
}

#[test]
fn a_descriptor_of_anything_else_is_refused() {
    let driver = driver(Clock::Immediate);
    let (_, physical) = chunk(&driver);
    let pool = driver.pool_create(DEVICE, &SHARED).unwrap();
    let before = driver.usage();
    let sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let (pipe, _other_end) = std::io::pipe().unwrap();
    let own = File::open(std::env::current_exe().unwrap()).unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    // All that ours have, but for the seals; and ours, but not to be written.
    let ours = File::from(driver.export_fd(DEVICE, physical).unwrap());
    let (mut header, forged) = ([0; 4096], memfd(1 << 60, 0));
    ours.read_exact_at(&mut header, 1 << 59).unwrap();
    File::from(forged.try_clone().unwrap()).write_all_at(&header, 1 << 59).unwrap();
    let readable = File::open(format!("/proc/self/fd/{}", ours.as_raw_fd())).unwrap();
    for (what, fd) in [
        ("a pipe", OwnedFd::from(pipe)),
        ("an ordinary file", own.into()),
        ("/dev/null", null.into()),
        ("a socket", socket.into()),
        ("a short memfd", memfd(4096, sealed)),
        ("a long memfd without a header", memfd(1 << 60, sealed)),
        ("a memfd that can be truncated", forged),
        ("a handle opened for reading", readable.into()),
    ] {
        for error in [
            driver.import_fd(DEVICE, fd.as_fd()).expect_err(what),
            driver.pool_import_fd(DEVICE, fd.as_fd()).expect_err(what),
        ] {
            assert_eq!(error.kind, ErrorKind::Invalid, "{what}: {error}");
            assert!(error.detail.contains("memory of a host driver"), "{what}: {error}");
        }
    }
    // Ours, and not what was asked for.
    invalid(driver.pool_import_fd(DEVICE, driver.export_fd(DEVICE, physical).unwrap().as_fd()), "expected Pool");
    let pool_fd = driver.pool_export_fd(DEVICE, pool).unwrap();
    invalid(driver.import_fd(DEVICE, pool_fd.as_fd()), "nothing is shared");
    assert_eq!(driver.usage(), before);
}

#[test]
fn a_descriptor_moved_to_another_place_names_nothing_there() {
    use std::io::Seek;
    let driver = driver(Clock::Immediate);
    let (physical, _private) = (driver.create(DEVICE, GRANULE).unwrap(), driver.create(DEVICE, GRANULE).unwrap());
    let mut file = File::from(driver.export_fd(DEVICE, physical).unwrap());
    for wrong in [1, 4096, GRANULE, 1 << 59, (1 << 60) - 8] {
        file.seek(std::io::SeekFrom::Start(wrong)).unwrap();
        invalid(driver.import_fd(DEVICE, file.as_fd()), "nothing is shared");
    }
}

#[test]
fn blobs_of_another_purpose_and_garbage_are_refused() {
    let driver = HostDriver::new(shareable()).unwrap();
    let before = driver.usage();
    let plain = driver.allocate(DEVICE, 4096).unwrap();
    let legacy = driver.ipc_export(DEVICE, plain).unwrap();
    let pool = driver.pool_create(DEVICE, &SHARED).unwrap();
    let imported = driver.pool_import_fd(DEVICE, driver.pool_export_fd(DEVICE, pool).unwrap().as_fd()).unwrap();
    let block = driver.pool_allocate(DEVICE, pool, 4096, LEGACY).unwrap();
    let pointer = driver.pool_export_pointer(DEVICE, block).unwrap();
    for blob in [[0; 64], [0xff; 64], legacy] {
        invalid(driver.import_fabric(DEVICE, &blob), "was not made by");
        invalid(driver.pool_import_pointer(DEVICE, imported, &blob), "was not made by");
    }
    for blob in [[0; 64], [0xff; 64], pointer] {
        invalid(driver.ipc_open(DEVICE, &blob), "was not made by");
    }
    // Where it was not imported, its own address is good enough.
    invalid(driver.pool_import_pointer(DEVICE, pool, &pointer), "not imported");
    let other = driver.pool_create(DEVICE, &SHARED).unwrap();
    let elsewhere = driver.pool_import_fd(DEVICE, driver.pool_export_fd(DEVICE, other).unwrap().as_fd()).unwrap();
    invalid(driver.pool_import_pointer(DEVICE, elsewhere, &pointer), "names no memory of pool");
    let mapped = driver.pool_import_pointer(DEVICE, imported, &pointer).unwrap();
    put(block, 4);
    assert_eq!(byte(mapped), 4);
    invalid(driver.pool_export_pointer(DEVICE, mapped), "not created to be shared");
    driver.pool_free(DEVICE, mapped, LEGACY).unwrap();
    assert_eq!(byte(block), 4, "freed here only");
    driver.pool_free(DEVICE, block, LEGACY).unwrap();
    invalid(driver.pool_import_pointer(DEVICE, imported, &pointer), "nothing is shared");
    for pool in [pool, other, imported, elsewhere] {
        driver.pool_destroy(DEVICE, pool).unwrap();
    }
    driver.free(DEVICE, plain).unwrap();
    assert_eq!(driver.usage(), before);
}

#[test]
fn nothing_stays_open() {
    let driver = driver(Clock::Immediate);
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    let fd = driver.export_fd(DEVICE, physical).unwrap();
    let inode = inode(&fd);
    let before = open_on(inode);
    let handles: Vec<_> = (0..50).map(|_| driver.import_fd(DEVICE, fd.as_fd()).unwrap()).collect();
    assert_eq!(open_on(inode), before + 1, "one descriptor for all handles of one process");
    handles.into_iter().for_each(|handle| driver.release(DEVICE, handle).unwrap());
    assert_eq!(open_on(inode), before);
    drop(fd);
    let pool = driver.pool_create(DEVICE, &SHARED).unwrap();
    let fd = driver.pool_export_fd(DEVICE, pool).unwrap();
    assert!(closes_on_exec(fd.as_fd()));
    let inode = self::inode(&fd);
    let imported = driver.pool_import_fd(DEVICE, fd.as_fd()).unwrap();
    drop(fd);
    assert_eq!(open_on(inode), 2);
    driver.pool_destroy(DEVICE, imported).unwrap();
    driver.pool_destroy(DEVICE, pool).unwrap();
    assert_eq!(open_on(inode), 0);
}

#[test]
fn imported_memory_is_reached_by_whom_it_is_granted() {
    let driver = driver(Clock::Immediate);
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    let fd = driver.export_fd(DEVICE, physical).unwrap();
    let imported = driver.import_fd(PEER, fd.as_fd()).unwrap();
    let room = driver.reserve(PEER, GRANULE).unwrap();
    driver.map(PEER, room, GRANULE, imported).unwrap();
    invalid(driver.fill(PEER, room, 1, 512, LEGACY), "has no access");
    driver.grant_access(PEER, room, GRANULE, &[(Place::Device(PEER), Access::ReadWrite)]).unwrap();
    driver.fill(PEER, room, 1, 512, LEGACY).unwrap();
    assert_eq!(byte(Address(room.0 + 511)), 1);
    driver.release(PEER, imported).unwrap();
}
