//! Memory of the host driver, mapped in another process and in the same.

use std::sync::Arc;

use forebay::driver::host::Call;
use forebay::driver::{Driver, Place, Share};
use forebay::error::Error;
use forebay::resource::ipc::{
    Descriptor, Exported, Form, Handle, Imported, Location, Path, Pieces, Route, fetch, offer, withdraw,
};

use crate::kit::exports::*;
use crate::kit::process::{say, told};
use crate::process::{given_descriptor, start};

const KINDS: [(u64, u64, Place, Share); 5] = [
    (1, 0, Place::Device(DEVICE), Share::Fd),
    (1, 512, Place::Device(DEVICE), Share::Fd),
    (130, 1024, Place::Device(DEVICE), Share::Fd),
    (4, 0, Place::HostNuma(1), Share::Fd),
    (3, 0, Place::Device(DEVICE), Share::Fabric),
];

/// Role: maps the memory, says so, changes it when told, and unmaps it when told again.
pub fn import_and_change() {
    let (driver, descriptor) = (host_driver(), given_descriptor());
    let before = driver.usage();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let imported = Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH).unwrap();
    let (at, bytes) = (imported.address(), imported.bytes());
    holds(at, bytes, 1000);
    say("mapped");
    assert_eq!(told(), "change");
    write(at, bytes, 5000);
    say("changed");
    assert_eq!(told(), "look again");
    holds(at, bytes, 9000);
    imported.close().unwrap();
    imported.close().unwrap();
    settles(&driver, before);
    say("closed");
}

#[test]
fn each_process_sees_what_the_other_writes_also_after_the_exporter_has_freed_it() {
    let driver = host_driver();
    let before = driver.usage();
    for (pieces, offset, place, share) in KINDS {
        // A fabric handle of the host driver leads through the exporter.
        let outlives = share == Share::Fd;
        let buffer = Buffer::new(&driver, pieces, offset, place, share);
        let (descriptor, ticket) = buffer.offer();
        write(buffer.at(), buffer.bytes, 1000);
        let mut other = start("import and change", Some(&descriptor));
        assert_eq!(other.hear(), "mapped");
        other.tell("change");
        assert_eq!(other.hear(), "changed");
        holds(buffer.at(), buffer.bytes, 5000);
        write(buffer.at(), buffer.bytes, 9000);
        withdraw(ticket.key);
        if outlives {
            drop(buffer);
        }
        other.tell("look again");
        assert_eq!(other.hear(), "closed");
        other.finish();
    }
    settles(&driver, before);
}

#[test]
fn the_exporting_process_gets_the_same_memory_at_another_address() {
    let driver = host_driver();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let before = driver.usage();
    for (pieces, offset, place, share) in KINDS {
        let buffer = Buffer::new(&driver, pieces, offset, place, share);
        let (descriptor, ticket) = buffer.offer();
        let path = if share == Share::Fd { Path::Fd } else { Path::Fabric };
        let (one, two) = [(); 2]
            .map(|()| Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH).unwrap())
            .into();
        assert!(one.address() != buffer.at() && one.address() != two.address());
        assert_eq!((one.bytes(), one.path(), one.location()), (buffer.bytes, path, descriptor.location()));
        write(buffer.at(), buffer.bytes, 1);
        holds(one.address(), one.bytes(), 1);
        write(one.address(), one.bytes(), 7);
        holds(two.address(), two.bytes(), 7);
        one.close().unwrap();
        one.close().unwrap();
        holds(two.address(), two.bytes(), 7);
        drop((one, two));
        withdraw(ticket.key);
    }
    settles(&driver, before);
}

#[test]
fn a_driver_call_that_fails_leaves_nothing_behind() {
    let driver = host_driver();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let buffer = Buffer::new(&driver, 3, 0, Place::Device(DEVICE), Share::Fd);
    let (descriptor, _) = buffer.offer();
    let before = driver.usage();
    let import = || Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor)?, &BOTH);
    for (call, times) in [
        (Call::DeviceUuid, 1),
        (Call::Granularity, 1),
        (Call::ReserveAt, 1),
        (Call::ImportFd, 3),
        (Call::Map, 3),
        (Call::GrantAccess, 1),
        (Call::ExportFd, 3),
    ] {
        for nth in 1..=times {
            driver.fail(call, nth);
            let error = import().unwrap_err();
            match call {
                Call::ExportFd => assert!(matches!(error, Error::Peer(_)), "{call:?} {nth}: {error}"),
                _ => assert!(matches!(error, Error::Driver(_)), "{call:?} {nth}: {error}"),
            }
            assert_eq!(driver.usage(), before, "{call:?} {nth}");
        }
    }
    for nth in 1..=3 {
        // What would be lost gets a second chance.
        driver.fail(Call::Release, nth);
        import().unwrap().close().unwrap();
        settles(&driver, before);
    }
}

#[test]
fn a_close_that_fails_can_be_tried_again() {
    let driver = host_driver();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let buffer = Buffer::new(&driver, 3, 0, Place::Device(DEVICE), Share::Fd);
    let (descriptor, _) = buffer.offer();
    let before = driver.usage();
    let map = || Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH).unwrap();
    let imported = map();
    driver.fail(Call::Unmap, 1);
    assert!(matches!(imported.close(), Err(Error::Driver(_))));
    imported.close().unwrap();
    settles(&driver, before);
    // Once it is unmapped there is no way back, so the rest gets a second chance by itself.
    let imported = map();
    driver.fail(Call::Unreserve, 1);
    imported.close().unwrap();
    settles(&driver, before);
}

#[test]
fn memory_of_another_size_than_described_is_refused() {
    struct Lying(Arc<Buffer>, u64);
    impl Exported for Lying {
        fn pieces(&self) -> forebay::error::Result<Pieces> {
            let buffer = Arc::clone(&self.0);
            Pieces::lazy(0, self.1, Form::Fd, vec![self.1], move |_| {
                let mut pieces = buffer.pieces()?;
                pieces.next().unwrap().map(|piece| piece.handle)
            })
        }
    }
    let driver = host_driver();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let buffer = Buffer::new(&driver, 1, 0, Place::Device(DEVICE), Share::Fd);
    let location = Location::of(driver.as_ref(), buffer.place).unwrap();
    let before = driver.usage();
    for (bytes, refused_by_us) in [(2 * GRANULE, false), (GRANULE / 2, true), (GRANULE + 1, true), (1 << 57, false)] {
        let ticket = offer(Arc::new(Lying(Arc::clone(&buffer), bytes))).unwrap();
        let descriptor = Descriptor::new(Route::exchange(ticket, false), bytes, location).unwrap();
        let error = Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH).unwrap_err();
        match error {
            Error::Peer(text) if refused_by_us => assert!(text.contains(&GRANULE.to_string()), "{text}"),
            Error::Driver(_) | Error::Invalid(_) if !refused_by_us => {}
            other => panic!("{bytes}: {other:?}"),
        }
        settles(&driver, before);
    }
    // A descriptor of something that is no memory of the driver's.
    struct File;
    impl Exported for File {
        fn pieces(&self) -> forebay::error::Result<Pieces> {
            let file = std::fs::File::open("/dev/null").unwrap();
            let handle = Handle::Fd(file.into());
            Pieces::new(0, GRANULE, vec![forebay::resource::ipc::Piece { bytes: GRANULE, handle }])
        }
    }
    let ticket = offer(Arc::new(File)).unwrap();
    let descriptor = Descriptor::new(Route::exchange(ticket, false), GRANULE, location).unwrap();
    assert!(Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH).is_err());
    settles(&driver, before);
}

#[test]
fn a_device_that_is_not_seen_here_is_named() {
    let driver = host_driver();
    let dynamic: Arc<dyn Driver> = driver.clone();
    let buffer = Buffer::new(&driver, 1, 0, Place::Device(DEVICE), Share::Fd);
    let ticket = offer(buffer.clone()).unwrap();
    let elsewhere = Location::Device([0xab; 16]);
    let descriptor = Descriptor::new(Route::exchange(ticket, false), buffer.bytes, elsewhere).unwrap();
    let before = driver.usage();
    match Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor).unwrap(), &BOTH) {
        Err(Error::NotFound(text)) => {
            assert!(text.contains("abababab") && text.contains("CUDA_VISIBLE_DEVICES"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    settles(&driver, before);
    for place in [Place::Device(DEVICE), Place::Host, Place::HostNuma(1)] {
        let location = Location::of(driver.as_ref(), place).unwrap();
        assert_eq!(location.place(driver.as_ref()).unwrap(), place);
    }
    assert_eq!(Location::of(driver.as_ref(), Place::HostNumaCurrent).unwrap(), Location::Host);
    assert!(Location::of(driver.as_ref(), Place::Device(forebay::units::DeviceId(9))).is_err());
}
