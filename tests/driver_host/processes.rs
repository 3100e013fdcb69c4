//! Memory between real processes: this test program started again, to run one of the ignored tests below.
//!
//! A descriptor travels as the child's standard input, a blob in the environment.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use forebay::driver::host::HostDriver;
use forebay::driver::{
    Access, Blob, Driver, Physical, PhysicalOptions, Place, PoolOptions, Pools, Share, Sharing, VirtualMemory,
};
use forebay::units::Address;

use crate::kit::process::{Other, from_hex, role, say, to_hex, told};
use crate::kit::programs::says;
use crate::{DEVICE, GRANULE, LEGACY, PEER, byte, invalid, put, shareable};

const BLOB: &str = "FOREBAY_TEST_BLOB";
const PARENT: &str = "FOREBAY_TEST_PARENT";
const DONE: &str = "the child is done";

fn driver() -> HostDriver {
    HostDriver::new(shareable()).unwrap()
}

fn child(name: &str) -> Command {
    role(&format!("processes::{name}"))
}

/// Runs a child to its end.
#[track_caller]
fn succeeds(command: &mut Command) {
    says(command, DONE);
}

fn to_blob(text: &str) -> Blob {
    from_hex(text).try_into().unwrap()
}

fn blob_given() -> Blob {
    to_blob(&std::env::var(BLOB).unwrap())
}

fn descriptor_given() -> OwnedFd {
    std::io::stdin().as_fd().try_clone_to_owned().unwrap()
}

/// Maps a handle where `DEVICE` and the program can reach it.
fn show(driver: &HostDriver, physical: Physical) -> Address {
    let at = driver.reserve(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, at, GRANULE, physical).unwrap();
    driver.grant(DEVICE, at, GRANULE).unwrap();
    at
}

fn shared(place: Place, share: Share) -> (HostDriver, Physical, Address) {
    let driver = driver();
    // So that the handle is not at the beginning of its file.
    driver.create_with(DEVICE, GRANULE, &PhysicalOptions { place, share, rdma: false }).unwrap();
    let physical = driver.create_with(DEVICE, GRANULE, &PhysicalOptions { place, share, rdma: false }).unwrap();
    let at = show(&driver, physical);
    driver.fill(DEVICE, at, 5, GRANULE, LEGACY).unwrap();
    (driver, physical, at)
}

/// What a child does with memory that it was given: reads what was written, and writes something.
fn use_it(driver: &HostDriver, at: Address, bytes: u64) {
    assert_eq!((byte(at), byte(at.plus(bytes - 1))), (5, 5));
    driver.fill(DEVICE, at, 6, bytes, LEGACY).unwrap();
}

// ---- physical memory -----------------------------------------------------------------------------------

#[test]
fn physical_memory_is_one_in_two_processes() {
    for place in [Place::Device(DEVICE), Place::HostNuma(1)] {
        let (driver, physical, at) = shared(place, Share::Fd);
        let fd = driver.export_fd(DEVICE, physical).unwrap();
        succeeds(child("child_imports_physical_memory").stdin(fd));
        assert_eq!((byte(at), byte(at.plus(GRANULE - 1))), (6, 6), "what the child wrote at {place}");
    }
}

#[test]
#[ignore = "run as a child"]
fn child_imports_physical_memory() {
    let (driver, fd) = (driver(), descriptor_given());
    let before = driver.usage();
    let physical = driver.import_fd(DEVICE, fd.as_fd()).unwrap();
    assert_eq!((driver.usage().imported, driver.usage().handles), (1, 0));
    drop(fd);
    let at = show(&driver, physical);
    invalid(driver.map(DEVICE, at, 2 * GRANULE, physical), "asked to map");
    use_it(&driver, at, GRANULE);
    assert_eq!((driver.usage().bytes, driver.usage().host_bytes), (0, 0), "counted where it was created");
    driver.release(DEVICE, physical).unwrap();
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.unreserve(DEVICE, at, GRANULE).unwrap();
    assert_eq!(driver.usage(), before);
    println!("{DONE}");
}

#[test]
fn memory_outlives_the_process_that_made_it() {
    succeeds(&mut child("child_exports_and_dies"));
}

#[test]
#[ignore = "run as a child"]
#[expect(clippy::zombie_processes, reason = "the child must outlive this process")]
fn child_exports_and_dies() {
    let (driver, physical, _) = shared(Place::Device(DEVICE), Share::Fd);
    let fd = driver.export_fd(DEVICE, physical).unwrap();
    // It inherits standard output, so whoever reads that waits for it.
    let mut importer = child("child_imports_after_its_parent");
    importer.stdin(fd).env(PARENT, std::process::id().to_string()).spawn().unwrap();
}

#[test]
#[ignore = "run as a child"]
fn child_imports_after_its_parent() {
    let parent = std::env::var(PARENT).unwrap();
    while std::os::unix::process::parent_id().to_string() == parent {
        std::thread::sleep(Duration::from_millis(5));
    }
    let driver = driver();
    let physical = driver.import_fd(DEVICE, descriptor_given().as_fd()).unwrap();
    use_it(&driver, show(&driver, physical), GRANULE);
    println!("{DONE}");
}

#[test]
fn a_fabric_handle_works_while_its_process_lives() {
    let (driver, physical, at) = shared(Place::Device(DEVICE), Share::Fabric);
    let blob = driver.export_fabric(DEVICE, physical).unwrap();
    succeeds(child("child_imports_a_fabric_handle").env(BLOB, to_hex(&blob)));
    assert_eq!(byte(at), 6);
}

#[test]
#[ignore = "run as a child"]
fn child_imports_a_fabric_handle() {
    let driver = driver();
    let physical = driver.import_fabric(DEVICE, &blob_given()).unwrap();
    use_it(&driver, show(&driver, physical), GRANULE);
    println!("{DONE}");
}

// ---- pools ---------------------------------------------------------------------------------------------

const BLOCK: u64 = 12_288;

#[test]
fn an_allocation_of_a_shared_pool_is_one_in_two_processes() {
    for place in [Place::Device(DEVICE), Place::HostNuma(0)] {
        let driver = driver();
        let options = PoolOptions { place: Some(place), managed: false, share: true, max_size: 0 };
        let pool = driver.pool_create(DEVICE, &options).unwrap();
        driver.pool_set_access(DEVICE, pool, Place::Device(DEVICE), Access::ReadWrite).unwrap();
        let first = driver.pool_allocate(DEVICE, pool, 4096, LEGACY).unwrap();
        let at = driver.pool_allocate(DEVICE, pool, BLOCK, LEGACY).unwrap();
        driver.fill(DEVICE, at, 5, BLOCK, LEGACY).unwrap();
        let blob = driver.pool_export_pointer(DEVICE, at).unwrap();
        let fd = driver.pool_export_fd(DEVICE, pool).unwrap();
        succeeds(child("child_imports_a_pool").stdin(fd).env(BLOB, to_hex(&blob)));
        assert_eq!((byte(at), byte(at.plus(BLOCK - 1)), byte(first)), (6, 6, 0), "what the child wrote at {place}");
    }
}

#[test]
#[ignore = "run as a child"]
fn child_imports_a_pool() {
    let (driver, blob) = (driver(), blob_given());
    let before = driver.usage();
    let pool = driver.pool_import_fd(DEVICE, descriptor_given().as_fd()).unwrap();
    invalid(driver.pool_allocate(DEVICE, pool, 4096, LEGACY), "was imported");
    invalid(driver.pool_export_fd(DEVICE, pool), "not created to be shared");
    driver.pool_set_access(DEVICE, pool, Place::Device(DEVICE), Access::ReadWrite).unwrap();
    let at = driver.pool_import_pointer(DEVICE, pool, &blob).unwrap();
    invalid(driver.fill(PEER, at, 1, BLOCK, LEGACY), "has no access");
    invalid(driver.fill(DEVICE, at, 1, BLOCK + 1, LEGACY), "is not inside");
    for (place, change) in [(0, 1), (8, 1), (24, 1), (32, 1), (40, 0x10), (48, 0x10), (55, 0xff)] {
        let mut wrong = blob;
        wrong[place] ^= change;
        let error = driver.pool_import_pointer(DEVICE, pool, &wrong);
        // The number in /proc is of no interest here: the pool's own descriptor is there.
        assert!(error.is_err() || place == 16, "byte {place} of the blob was changed and nobody noticed");
    }
    use_it(&driver, at, BLOCK);
    // The pool ends first; its memory stays until it is freed.
    driver.pool_destroy(DEVICE, pool).unwrap();
    assert_eq!((driver.usage().pools, driver.usage().pool_allocations), (0, 1));
    assert_eq!(byte(at), 6);
    driver.pool_free(DEVICE, at, LEGACY).unwrap();
    assert_eq!(driver.usage(), before);
    println!("{DONE}");
}

// ---- plain allocations ---------------------------------------------------------------------------------

/// A process that keeps a plain allocation of 8 KiB, full of fives, until this is dropped.
pub struct Holder {
    _process: Other,
    pub blob: Blob,
}

impl Holder {
    pub fn start() -> Self {
        let mut process = Other::start(&mut child("child_holds_a_plain_allocation"));
        let blob = to_blob(&process.hear());
        Self { _process: process, blob }
    }
}

#[test]
#[ignore = "run as a child"]
fn child_holds_a_plain_allocation() {
    let driver = driver();
    driver.allocate(DEVICE, 4096).unwrap();
    let at = driver.allocate(DEVICE, 8192).unwrap();
    driver.fill(DEVICE, at, 5, 8192, LEGACY).unwrap();
    say(to_hex(&driver.ipc_export(DEVICE, at).unwrap()));
    told();
}

#[test]
fn a_plain_allocation_opens_in_another_process_and_not_in_its_own() {
    let (driver, holder) = (driver(), Holder::start());
    let before = driver.usage();
    let at = driver.ipc_open(DEVICE, &holder.blob).unwrap();
    assert_eq!(driver.usage().ipc_mappings, 1);
    use_it(&driver, at, 8192);
    let again = driver.ipc_open(DEVICE, &holder.blob).unwrap();
    assert_eq!(byte(again), 6, "both are one memory");
    invalid(driver.free(DEVICE, at), "not the start of a plain");
    invalid(driver.ipc_close(DEVICE, at.plus(4096)), "not the start");
    driver.ipc_close(DEVICE, again).unwrap();
    driver.ipc_close(DEVICE, at).unwrap();
    invalid(driver.ipc_close(DEVICE, at), "not the start");
    assert_eq!(driver.usage(), before);
    drop(holder);
    let ours = driver.allocate(DEVICE, 4096).unwrap();
    invalid(driver.ipc_open(DEVICE, &driver.ipc_export(DEVICE, ours).unwrap()), "this process's own");
}

#[test]
fn a_dead_exporters_allocation_cannot_be_opened_and_an_open_one_stays() {
    let (driver, holder) = (driver(), Holder::start());
    let (at, blob) = (driver.ipc_open(DEVICE, &holder.blob).unwrap(), holder.blob);
    drop(holder);
    invalid(driver.ipc_open(DEVICE, &blob), "cannot be opened");
    assert_eq!(byte(at), 5);
    put(at, 6);
    driver.ipc_close(DEVICE, at).unwrap();
}

#[test]
fn what_was_freed_is_no_longer_shared() {
    let driver = driver();
    let at = driver.allocate(DEVICE, 4096).unwrap();
    let blob = driver.ipc_export(DEVICE, at).unwrap();
    driver.free(DEVICE, at).unwrap();
    succeeds(child("child_is_refused_a_plain_allocation").env(BLOB, to_hex(&blob)));
}

#[test]
#[ignore = "run as a child"]
fn child_is_refused_a_plain_allocation() {
    invalid(driver().ipc_open(DEVICE, &blob_given()), "nothing is shared");
    println!("{DONE}");
}
