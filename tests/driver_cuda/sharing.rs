//! Handles between processes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use forebay::driver::{Blob, Choice, ErrorKind, Physical, PoolHandle, open};
use forebay::units::Address;

use crate::DEVICE;
use crate::calls::POOL;
use crate::fake::Fake;

fn is_close_on_exec(fd: &OwnedFd) -> bool {
    // SAFETY: reads the flags of an open descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

fn counting_from(first: u8) -> Blob {
    std::array::from_fn(|byte| first.wrapping_add(byte as u8))
}

#[test]
#[ignore = "sharing runs it in a process of its own"]
fn child_sharing() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();

    // Descriptors: ours, and not inherited by programs that the process starts.
    let fd = driver.export_fd(DEVICE, Physical(0x77)).unwrap();
    assert_eq!(fake.said(), "handle=77 type=1 flags=0");
    assert!(is_close_on_exec(&fd));
    assert_eq!(driver.import_fd(DEVICE, fd.as_fd()).unwrap(), Physical(0x78));
    assert_eq!(fake.said(), format!("fd={}", fd.as_raw_fd()));
    let fd = driver.pool_export_fd(DEVICE, POOL).unwrap();
    assert_eq!(fake.said(), "pool=0xb2 type=1 flags=0");
    assert!(is_close_on_exec(&fd));
    assert_eq!(driver.pool_import_fd(DEVICE, fd.as_fd()).unwrap(), PoolHandle(0xb3));
    assert_eq!(fake.said(), format!("fd={} type=1 flags=0", fd.as_raw_fd()));
    assert!(is_close_on_exec(&fd), "the caller's descriptor is as it was");
    fake.set(b"fake_no_fd", 1);
    for error in
        [driver.export_fd(DEVICE, Physical(0x77)).unwrap_err(), driver.pool_export_fd(DEVICE, POOL).unwrap_err()]
    {
        assert_eq!(error.kind, ErrorKind::Failed, "{error}");
        assert!(error.detail.contains("descriptor -1"), "{error}");
    }

    // Blobs come and go byte by byte.
    assert_eq!(driver.export_fabric(DEVICE, Physical(0x77)).unwrap(), counting_from(1));
    assert_eq!(fake.said(), "handle=77 type=8 flags=0");
    assert_eq!(driver.import_fabric(DEVICE, &counting_from(10)).unwrap(), Physical(0x78));
    assert_eq!(fake.said(), "fabric=10..73");
    assert_eq!(driver.pool_export_pointer(DEVICE, Address(0xa100)).unwrap(), counting_from(100));
    assert_eq!(fake.said(), "at=a100");
    assert_eq!(driver.pool_import_pointer(DEVICE, PoolHandle(0xb3), &counting_from(150)).unwrap(), Address(0xa200));
    assert_eq!(fake.said(), "pool=0xb3 blob=150..213");
    assert_eq!(driver.ipc_export(DEVICE, Address(0xa000)).unwrap(), counting_from(200));
    assert_eq!(fake.said(), "at=a000");
    assert_eq!(driver.ipc_open(DEVICE, &counting_from(180)).unwrap(), Address(0xf000));
    assert_eq!(fake.said(), "blob=180..243 flags=1");
    driver.ipc_close(DEVICE, Address(0xf000)).unwrap();
    assert_eq!(fake.said(), "at=f000");

    // What is no handle is an error, and a fabric handle that is not permitted says what is missing.
    fake.answer(c"cuMemImportFromShareableHandle", 1);
    let error = driver.import_fd(DEVICE, std::io::stdin().as_fd()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.detail.contains("descriptor 0"), "{error}");
    fake.answer(c"cuMemImportFromShareableHandle", 800);
    let error = driver.import_fabric(DEVICE, &[0; 64]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert!(error.detail.contains("IMEX channel"), "{error}");
}
