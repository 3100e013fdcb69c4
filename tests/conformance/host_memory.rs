//! Checks of page-locked, registered and managed memory, and of what is known of a pointer.

use forebay::driver::{Driver, ErrorKind, HostFlags, PointerKind};
use forebay::units::Address;

use super::kit::{Chunk, DEVICE, Stream, all, granule, ok, pattern, read, refused, write};

const FLAGS: HostFlags = HostFlags { portable: true, mapped: true, write_combined: false };
const PAGE: u64 = 4096;

/// The program's view of memory that it reaches.
///
/// # Safety
/// The memory must be the program's to read, and no queued work may write it.
unsafe fn view<'a>(at: Address, bytes: u64) -> &'a [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(at.0 as *const u8, bytes as usize) }
}

pub(super) fn page_locked_memory_is_reached_from_both_sides(driver: &dyn Driver) {
    for write_combined in [false, true] {
        let flags = HostFlags { write_combined, ..FLAGS };
        let at = ok("host_allocate", driver.host_allocate(DEVICE, 10_000, flags));
        let theirs = ok("host_device_address", driver.host_device_address(DEVICE, at));
        let data = pattern(0x91, 10_000);
        // SAFETY: page-locked memory of ours that no work uses.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at.0 as *mut u8, data.len()) };
        assert!(read(driver, theirs, 10_000) == data, "the device does not see what the host wrote");
        let data = pattern(0x92, 10_000);
        write(driver, theirs, &data);
        // SAFETY: as above; the copy has ended.
        assert!(unsafe { view(at, 10_000) } == data, "the host does not see what the device wrote");
        ok("host_free", driver.host_free(DEVICE, at));
    }
    let local = [0u8; 16];
    assert!(driver.host_free(DEVICE, Address(local.as_ptr() as u64)).is_err(), "freed memory of the program");
}

pub(super) fn freeing_page_locked_memory_waits(driver: &dyn Driver) {
    let bytes = 64 << 20;
    let pinned = ok("host_allocate", driver.host_allocate(DEVICE, PAGE, FLAGS));
    let at = ok("allocate", driver.allocate(DEVICE, bytes));
    let stream = Stream::new(driver);
    let event = ok("event_create", driver.event_create(DEVICE));
    for value in 1..=20 {
        ok("fill", driver.fill(DEVICE, at, value, bytes, stream.1));
    }
    ok("event_record", driver.event_record(DEVICE, event, stream.1));
    ok("host_free", driver.host_free(DEVICE, pinned));
    assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "host_free did not wait for the device");
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn memory_of_the_program_is_registered_once(driver: &dyn Driver) {
    let mut buffer = vec![0u8; 6 * PAGE as usize];
    let first = Address((buffer.as_mut_ptr() as u64).next_multiple_of(PAGE));
    let bytes = 4 * PAGE;
    ok("host_register", driver.host_register(DEVICE, first, bytes, FLAGS));
    assert!(driver.host_register(DEVICE, first, bytes, FLAGS).is_err(), "registered twice");
    assert!(driver.host_register(DEVICE, first.plus(PAGE), PAGE, FLAGS).is_err(), "registered a part again");
    let theirs = ok("host_device_address", driver.host_device_address(DEVICE, first));
    write(driver, theirs, &pattern(0x93, bytes as usize));
    // SAFETY: the buffer's own memory; the copy has ended.
    assert!(unsafe { view(first, bytes) } == pattern(0x93, bytes as usize), "the device wrote elsewhere");
    assert!(driver.host_unregister(DEVICE, first.plus(PAGE)).is_err(), "unregistered by another address");
    ok("host_unregister", driver.host_unregister(DEVICE, first));
    assert!(driver.host_unregister(DEVICE, first).is_err(), "unregistered twice");
    assert!(driver.host_register(DEVICE, Address(0), PAGE, FLAGS).is_err(), "registered the null page");
    ok("host_register after all", driver.host_register(DEVICE, first, bytes, FLAGS));
    ok("host_unregister", driver.host_unregister(DEVICE, first));
}

pub(super) fn managed_memory_is_everybodys(driver: &dyn Driver) {
    if !ok("capabilities", driver.capabilities(DEVICE)).managed {
        eprintln!("skipped: device 0 has no managed memory");
        return refused("managed_allocate", ErrorKind::Unsupported, driver.managed_allocate(DEVICE, PAGE));
    }
    let at = ok("managed_allocate", driver.managed_allocate(DEVICE, 1 << 20));
    let stream = Stream::new(driver);
    ok("fill", driver.fill(DEVICE, at, 6, 1 << 20, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    // SAFETY: managed memory that no work uses any more.
    all("managed memory", unsafe { view(at, 1 << 20) }, 6);
    assert_eq!(ok("pointer", driver.pointer(DEVICE, at)).kind, PointerKind::Managed);
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn a_pointer_is_known_for_what_it_is(driver: &dyn Driver) {
    let capabilities = ok("capabilities", driver.capabilities(DEVICE));
    let look = |at: Address| {
        let found = ok("pointer", driver.pointer(DEVICE, at));
        if let Some((start, bytes)) = found.range {
            assert!((start.0..start.0 + bytes).contains(&at.0), "{at} is not inside its own range {start}+{bytes}");
        }
        found
    };
    let plain = ok("allocate", driver.allocate(DEVICE, 10_000));
    let found = look(plain.plus(9_999));
    assert_eq!((found.kind, found.device), (PointerKind::Device, Some(DEVICE)));
    assert_eq!(found.range.map(|(start, _)| start), Some(plain), "the range of a plain allocation");
    assert_eq!(found.legacy_ipc, capabilities.legacy_ipc, "whether a plain allocation can be shared");
    ok("free", driver.free(DEVICE, plain));
    let pinned = ok("host_allocate", driver.host_allocate(DEVICE, 10_000, FLAGS));
    let found = look(pinned);
    assert_eq!((found.kind, found.legacy_ipc), (PointerKind::Host, false));
    ok("host_free", driver.host_free(DEVICE, pinned));
    let local = [0u8; 100];
    assert_eq!(look(Address(local.as_ptr() as u64)).kind, PointerKind::Unknown, "memory of the program");
    if let Some(granule) = granule(driver) {
        let chunk = Chunk::new(driver, granule);
        let found = look(chunk.at.plus(granule - 1));
        assert_eq!((found.kind, found.device), (PointerKind::Device, Some(DEVICE)));
        assert!(!found.legacy_ipc, "mapped memory cannot be shared as plain memory");
    }
}
