//! Page-locked and managed memory, pointers, patterns, and what devices are to one another.

use forebay::driver::{Choice, ErrorKind, HostFlags, PointerInfo, PointerKind, open};
use forebay::units::{Address, DeviceId};

use crate::fake::Fake;
use crate::{DEVICE, STREAM};

#[test]
#[ignore = "host_memory_pointers_and_devices runs it in a process of its own"]
fn child_host_memory() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let pinned = Address(0xb000);

    // The name needs no context.
    assert_eq!(driver.device_uuid(DeviceId(1)).unwrap(), std::array::from_fn(|byte| 171 + byte as u8));
    assert!(driver.can_access_peer(DEVICE, DeviceId(1)).unwrap(), "it is the peer that reaches");
    assert_eq!(fake.said(), "device=71 peer=70");
    assert!(!driver.can_access_peer(DeviceId(1), DEVICE).unwrap());
    assert!(driver.can_access_peer(DEVICE, DEVICE).unwrap());
    assert_eq!(driver.can_access_peer(DEVICE, DeviceId(2)).unwrap_err().kind, ErrorKind::Invalid);
    assert!(!fake.calls().iter().any(|call| call.contains("Retain")), "a question made a context");

    let flags = HostFlags { portable: true, mapped: true, write_combined: true };
    assert_eq!(driver.host_allocate(DEVICE, 4096, flags).unwrap(), pinned);
    assert_eq!(fake.said(), "bytes=4096 flags=7");
    driver.host_register(DEVICE, pinned, 4096, HostFlags { mapped: true, ..HostFlags::default() }).unwrap();
    assert_eq!(fake.said(), "at=0xb000 bytes=4096 flags=2");
    fake.calls();
    assert_eq!(driver.host_register(DEVICE, pinned, 4096, flags).unwrap_err().kind, ErrorKind::Invalid);
    assert!(fake.calls().is_empty(), "4 means another thing to cuMemHostRegister");
    assert_eq!(driver.host_device_address(DEVICE, pinned).unwrap(), Address(0xb001));
    assert_eq!(fake.said(), "at=0xb000 flags=0");
    driver.host_unregister(DEVICE, pinned).unwrap();
    driver.host_free(DEVICE, pinned).unwrap();
    assert_eq!(fake.said(), "at=0xb000");
    assert_eq!(driver.managed_allocate(DEVICE, 64).unwrap(), Address(0xd000));
    assert_eq!(fake.said(), "bytes=64 flags=1");
    fake.answer(c"cuMemHostRegister_v2", 712);
    let error = driver.host_register(DEVICE, pinned, 4096, HostFlags::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");

    let range = |at| Some((Address(at), 0x1000));
    let device = Some(DeviceId(1));
    for (at, kind, device, range, legacy_ipc) in [
        (0xa000, PointerKind::Device, device, range(0x9f00), true),
        (0xb000, PointerKind::Host, None, range(0xaf00), false),
        (0xd000, PointerKind::Managed, device, range(0xcf00), false),
        (0x1234, PointerKind::Unknown, None, None, false),
    ] {
        let found = driver.pointer(DEVICE, Address(at)).unwrap();
        assert_eq!(found, PointerInfo { kind, device, range, legacy_ipc }, "{at:#x}");
    }
    fake.answer(c"cuPointerGetAttributes", 1);
    assert_eq!(driver.pointer(DEVICE, Address(0xa000)).unwrap().kind, PointerKind::Unknown);
    fake.answer(c"cuPointerGetAttributes", 700);
    assert_eq!(driver.pointer(DEVICE, Address(0xa000)).unwrap_err().kind, ErrorKind::Failed);

    for (width, seen) in [(1, "8: 78 8"), (2, "16: 5678 4"), (4, "32: 12345678 2")] {
        driver.fill_pattern(DEVICE, Address(0xa000), 0x1234_5678, width, 8, STREAM).unwrap();
        assert_eq!(fake.said(), seen);
    }
    fake.calls();
    for (at, width, bytes) in [(0xa000, 3, 6), (0xa000, 0, 8), (0xa000, 8, 8), (0xa001, 2, 8), (0xa000, 4, 6)] {
        let error = driver.fill_pattern(DEVICE, Address(at), 1, width, bytes, STREAM).unwrap_err();
        assert_eq!((error.kind, error.code), (ErrorKind::Invalid, 0), "{error}");
    }
    assert!(fake.calls().is_empty(), "libcuda was asked");
}
