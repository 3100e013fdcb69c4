//! Checks of memory that leaves the process. What another process sees of it, tests with two processes say.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use forebay::driver::{Driver, ErrorKind, PhysicalOptions, Place, Share};

use super::kit::{Chunk, DEVICE, granule, ok, pattern, read, refused, write};

pub(super) fn closes_on_exec(fd: &OwnedFd) -> bool {
    // SAFETY: asks about an open descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

/// Descriptors that no driver made.
pub(super) fn garbage() -> Vec<(&'static str, OwnedFd)> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let own = std::env::current_exe().and_then(File::open);
    let mut found: Vec<(&str, OwnedFd)> = Vec::new();
    found.extend(null.map(|file| ("/dev/null", file.into())));
    found.extend(own.map(|file| ("an ordinary file", file.into())));
    if let Ok((reader, writer)) = std::io::pipe() {
        found.extend([("a pipe's end", reader.into()), ("a pipe's other end", writer.into())]);
    }
    found
}

/// Whether physical memory can be shared by descriptor; if not, after a note.
fn by_descriptor(driver: &dyn Driver) -> bool {
    let found = ok("capabilities", driver.capabilities(DEVICE));
    if !found.posix_fd {
        eprintln!("skipped: device 0 cannot share memory by descriptor");
    }
    found.posix_fd
}

pub(super) fn exported_memory_comes_back_as_the_same(driver: &dyn Driver) {
    let Some(granule) = granule(driver).filter(|_| by_descriptor(driver)) else { return };
    let chunk = Chunk::new(driver, 2 * granule);
    let fd = ok("export_fd", driver.export_fd(DEVICE, chunk.physical));
    assert!(closes_on_exec(&fd), "a handle's descriptor stays open across exec");
    let imported = ok("import_fd", driver.import_fd(DEVICE, fd.as_fd()));
    let at = ok("reserve", driver.reserve(DEVICE, 2 * granule));
    assert!(driver.map(DEVICE, at, granule, imported).is_err(), "mapped half of an imported handle");
    ok("map of the import", driver.map(DEVICE, at, 2 * granule, imported));
    ok("grant", driver.grant(DEVICE, at, 2 * granule));
    let data = pattern(0x81, 4096);
    write(driver, chunk.at, &data);
    assert!(read(driver, at, 4096) == data, "the import is another memory");
    let data = pattern(0x82, 4096);
    write(driver, at, &data);
    assert!(read(driver, chunk.at, 4096) == data, "the import is another memory");
    ok("unmap", driver.unmap(DEVICE, at, 2 * granule));
    ok("release of the import", driver.release(DEVICE, imported));
    assert!(read(driver, chunk.at, 4096) == data, "releasing the import disturbed the original");
    ok("unreserve", driver.unreserve(DEVICE, at, 2 * granule));
}

pub(super) fn a_descriptor_holds_its_memory(driver: &dyn Driver) {
    let Some(granule) = granule(driver).filter(|_| by_descriptor(driver)) else { return };
    let data = pattern(0x83, 4096);
    let chunk = Chunk::new(driver, granule);
    write(driver, chunk.at, &data);
    let fd = ok("export_fd", driver.export_fd(DEVICE, chunk.physical));
    drop(chunk);
    // The descriptor stays the caller's, and can be imported again and again.
    for _ in 0..2 {
        let imported = ok("import_fd", driver.import_fd(DEVICE, fd.as_fd()));
        let at = ok("reserve", driver.reserve(DEVICE, granule));
        ok("map", driver.map(DEVICE, at, granule, imported));
        ok("release", driver.release(DEVICE, imported));
        ok("grant", driver.grant(DEVICE, at, granule));
        assert!(read(driver, at, 4096) == data, "the descriptor did not hold the memory");
        ok("unmap", driver.unmap(DEVICE, at, granule));
        ok("unreserve", driver.unreserve(DEVICE, at, granule));
    }
}

pub(super) fn what_cannot_leave_is_refused(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let options = PhysicalOptions { place: Place::Device(DEVICE), share: Share::None, rdma: false };
    let physical = ok("create_with", driver.create_with(DEVICE, granule, &options));
    assert!(driver.export_fd(DEVICE, physical).is_err(), "memory was exported that was not made for it");
    assert!(driver.export_fabric(DEVICE, physical).is_err(), "memory was exported that was not made for it");
    ok("release", driver.release(DEVICE, physical));
    if !ok("capabilities", driver.capabilities(DEVICE)).fabric {
        assert!(driver.import_fabric(DEVICE, &[0x5a; 64]).is_err(), "garbage was imported as a fabric handle");
    }
}

pub(super) fn garbage_is_not_imported(driver: &dyn Driver) {
    if granule(driver).is_none() || !by_descriptor(driver) {
        return;
    }
    for (what, fd) in garbage() {
        assert!(driver.import_fd(DEVICE, fd.as_fd()).is_err(), "{what} was imported as memory");
    }
}

pub(super) fn plain_memory_is_named_for_others_alone(driver: &dyn Driver) {
    let at = ok("allocate", driver.allocate(DEVICE, 1 << 20));
    if ok("capabilities", driver.capabilities(DEVICE)).legacy_ipc {
        let blob = ok("ipc_export", driver.ipc_export(DEVICE, at));
        assert_ne!(blob, [0; 64], "an exported allocation says nothing");
        assert!(driver.ipc_open(DEVICE, &blob).is_err(), "a process opened its own allocation");
        assert!(driver.ipc_close(DEVICE, at).is_err(), "closed what was not opened");
        write(driver, at, &pattern(0x84, 4096));
        assert!(read(driver, at, 4096) == pattern(0x84, 4096), "a refused call disturbed the allocation");
    } else {
        eprintln!("skipped: device 0 has no legacy sharing");
        refused("ipc_export", ErrorKind::Unsupported, driver.ipc_export(DEVICE, at));
    }
    ok("free", driver.free(DEVICE, at));
}
