//! Virtual memory with its options, as libcuda is told of them.

use forebay::driver::{Access, Choice, ErrorKind, PhysicalOptions, Place, Share, open};
use forebay::units::{Address, DeviceId};

use crate::fake::Fake;
use crate::{DEVICE, MIB};

const PLAIN: PhysicalOptions = PhysicalOptions { place: Place::Device(DEVICE), share: Share::None, rdma: false };
const OTHER: Place = Place::Device(DeviceId(1));

#[test]
#[ignore = "virtual_memory_with_its_options runs it in a process of its own"]
fn child_options() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();

    for (options, handles, place, rdma) in [
        (PLAIN, 0, "1:70", 0),
        (PhysicalOptions { place: OTHER, share: Share::Fd, rdma: true }, 1, "1:71", 1),
        (PhysicalOptions { share: Share::Fabric, ..PLAIN }, 8, "1:70", 0),
        (PhysicalOptions { place: Place::Host, ..PLAIN }, 0, "2:0", 0),
        (PhysicalOptions { place: Place::HostNuma(3), share: Share::Fd, ..PLAIN }, 1, "3:3", 0),
    ] {
        driver.create_with(DEVICE, 4 * MIB, &options).unwrap();
        let text = format!("bytes=4194304 type=1 handles={handles} place={place} compression=0 rdma={rdma} usage=0");
        assert_eq!(fake.said(), text, "{options:?}");
        for (recommended, granularity) in [(false, 2 * MIB), (true, 4 * MIB)] {
            assert_eq!(driver.granularity(DEVICE, &options, recommended).unwrap(), granularity);
            let which = u32::from(recommended);
            assert_eq!(fake.said(), format!("place={place} handles={handles} which={which}"), "{options:?}");
        }
    }
    // The current node is settled here: libcuda creates nothing at a place by that name.
    driver.create_with(DEVICE, 2 * MIB, &PhysicalOptions { place: Place::HostNumaCurrent, ..PLAIN }).unwrap();
    assert!(fake.said().contains(" place=3:"), "{}", fake.said());

    for (alignment, hint, seen) in [(0, 0, 2 * MIB), (512, 0, 2 * MIB), (64 * MIB, 0x4000_0000, 64 * MIB)] {
        driver.reserve_at(DEVICE, 4 * MIB, alignment, Address(hint)).unwrap();
        assert_eq!(fake.said(), format!("bytes=4194304 alignment={seen} hint={hint:x} flags=0"));
    }

    let everybody = [
        (Place::Device(DEVICE), Access::ReadWrite),
        (OTHER, Access::Read),
        (Place::Host, Access::None),
        (Place::HostNuma(2), Access::ReadWrite),
    ];
    driver.grant_access(DEVICE, Address(2 * MIB), 2 * MIB, &everybody).unwrap();
    assert_eq!(fake.said(), "1:70=3 1:71=1 2:0=0 3:2=3 ");
    fake.calls();
    driver.grant_access(DEVICE, Address(2 * MIB), 2 * MIB, &[]).unwrap();
    assert!(!fake.calls().iter().any(|call| call.starts_with("cuMemSetAccess")));

    // Refused before libcuda is asked.
    let absent = PhysicalOptions { place: Place::Device(DeviceId(2)), ..PLAIN };
    for (error, kind) in [
        (driver.create_with(DEVICE, 2 * MIB + 1, &PLAIN).unwrap_err(), ErrorKind::Invalid),
        (driver.create_with(DEVICE, 0, &PLAIN).unwrap_err(), ErrorKind::Invalid),
        (driver.create_with(DEVICE, 2 * MIB, &absent).unwrap_err(), ErrorKind::Invalid),
        (driver.reserve_at(DEVICE, 2 * MIB, 3 * MIB, Address(0)).unwrap_err(), ErrorKind::Invalid),
        (driver.reserve_at(DEVICE, 1, 0, Address(0)).unwrap_err(), ErrorKind::Invalid),
        (driver.grant_access(DEVICE, Address(0), 1, &[(absent.place, Access::Read)]).unwrap_err(), ErrorKind::Invalid),
        (
            driver
                .create_with(DEVICE, 2 * MIB, &PhysicalOptions { place: Place::HostNuma(u32::MAX), ..PLAIN })
                .unwrap_err(),
            ErrorKind::Invalid,
        ),
        (
            driver
                .create_with(DEVICE, 2 * MIB, &PhysicalOptions { place: Place::Host, share: Share::Fd, ..PLAIN })
                .unwrap_err(),
            ErrorKind::Unsupported,
        ),
    ] {
        assert_eq!((error.kind, error.code), (kind, 0), "{error}");
    }
    let calls = fake.calls();
    let asked = ["cuMemCreate", "cuMemAddressReserve", "cuMemSetAccess"];
    assert!(!calls.iter().any(|call| asked.iter().any(|name| call.starts_with(name))), "{calls:?}");

    // Two codes that say too little by themselves.
    fake.answer(c"cuMemCreate", 800);
    let error = driver.create_with(DEVICE, 2 * MIB, &PhysicalOptions { share: Share::Fabric, ..PLAIN }).unwrap_err();
    assert_eq!((error.kind, error.code), (ErrorKind::Unsupported, 800), "{error}");
    assert!(error.detail.contains("IMEX channel"), "{error}");
    assert_eq!(driver.create_with(DEVICE, 2 * MIB, &PLAIN).unwrap_err().kind, ErrorKind::Failed);
    fake.answer(c"cuMemCreate", 1);
    let error = driver.create_with(DEVICE, 2 * MIB, &PhysicalOptions { place: Place::Host, ..PLAIN }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert!(error.detail.contains("on the host") && error.detail.contains("named NUMA node"), "{error}");
    fake.answer(c"cuMemSetAccess", 1);
    let error = driver.grant_access(DEVICE, Address(2 * MIB), 2 * MIB, &everybody[..2]).unwrap_err();
    assert!(error.detail.contains("ReadWrite for device 0, Read for device 1"), "{error}");
}

#[test]
#[ignore = "virtual_memory_of_a_device_that_can_do_little runs it in a process of its own"]
fn child_lacking() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.vmm && !found.posix_fd && !found.fabric && !found.rdma && !found.host_numa, "{found:?}");
    assert_eq!(found.numa_node, None);
    driver.create(DEVICE, 2 * MIB).unwrap();
    assert_eq!(fake.said(), "bytes=2097152 type=1 handles=0 place=1:70 compression=0 rdma=0 usage=0");
    fake.calls();
    for (options, text) in [
        (PhysicalOptions { share: Share::Fd, ..PLAIN }, "file descriptor"),
        (PhysicalOptions { share: Share::Fabric, ..PLAIN }, "fabric"),
        (PhysicalOptions { rdma: true, ..PLAIN }, "network cards"),
        (PhysicalOptions { place: Place::HostNuma(0), ..PLAIN }, "host"),
    ] {
        for error in [
            driver.create_with(DEVICE, 2 * MIB, &options).unwrap_err(),
            driver.granularity(DEVICE, &options, false).unwrap_err(),
        ] {
            assert_eq!((error.kind, error.code), (ErrorKind::Unsupported, 0), "{error}");
            assert!(error.detail.contains(text), "{error}");
        }
    }
    assert_eq!(driver.import_fabric(DEVICE, &[0; 64]).unwrap_err().kind, ErrorKind::Unsupported);
    assert!(fake.calls().is_empty(), "libcuda was asked");
}
