//! What is done with each kind of resource.

use std::sync::{Arc, Mutex};

use forebay::driver::{Access, HostFlags, Place, PoolAttribute, VirtualMemory};
use forebay::pool::{Options, Pool};
use forebay::resource::buffer::{Buffer, From, Owner, export_foreign, export_pointer};
use forebay::resource::driver_pool::{self, DeviceOptions, DriverPool, ManagedOptions, PinnedOptions, Source};
use forebay::resource::host::{HostKind, HostResource};
use forebay::resource::memory_resource::Kind;
use forebay::resource::pool_resource::PoolResource;
use forebay::resource::virtual_memory::{VirtualLocation, VirtualOptions, VirtualResource};
use forebay::units::{Address, DeviceId};

use crate::kit::driver::{HOME, LEGACY};
use crate::run::{BYTES, GRANULE, Resource, Run, small};

/// A pool of the driver, and the other side of it.
pub fn shared_pool(run: &mut Run, kind: Kind) {
    run.pooled = true;
    let home = run.home();
    let resource = run.until_done("create", || match kind {
        Kind::Device => {
            driver_pool::device(home.clone(), 0, DeviceOptions { source: Source::New, ipc: true, max_size: 0 })
        }
        _ => driver_pool::pinned(
            home.clone(),
            PinnedOptions { source: Source::New, ipc: true, ..PinnedOptions::default() },
        ),
    });
    run.attributes(&resource);
    run.life(&resource);
    let (fd, uuid) = run.until_done("export", || {
        let pool = resource.downcast_ref::<DriverPool>().unwrap();
        pool.allocation_handle(|fd, uuid| (fd.try_clone_to_owned().unwrap(), uuid))
    });
    let buffer = run.allocate(&resource, BYTES, 3);
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let away = run.away();
    let mapped = run.until_done("import of a pool", || {
        driver_pool::from_allocation_handle(away.clone(), kind, Some(0), std::os::fd::AsFd::as_fd(&fd), Some(uuid))
    });
    let mapped: Resource = mapped;
    for by_drop in [false, true] {
        let import = || Buffer::from_ipc_descriptor(&away, Some(&mapped), &descriptor, LEGACY);
        let imported = run.until_done("import", import);
        let imported = run.keep(Arc::new(imported), 3);
        run.fill(&imported, 3);
        if by_drop { run.drop_open(imported) } else { run.close(&imported) }
    }
    if kind == Kind::Device {
        run.until_done("close", || mapped.close());
    }
    drop((mapped, fd));
    run.close(&buffer);
    run.end(&resource);
}

pub fn device_pool(run: &mut Run) {
    shared_pool(run, Kind::Device);
}

pub fn pinned_pool(run: &mut Run) {
    shared_pool(run, Kind::Pinned);
}

/// Resources that are dropped without having been closed, or that are not owned.
pub fn unshared_pools(run: &mut Run) {
    run.pooled = true;
    let home = run.home();
    let managed = run.until_done("create", || {
        driver_pool::managed(home.clone(), ManagedOptions { source: Source::New, ..ManagedOptions::default() })
    });
    run.life(&managed);
    // What the driver makes for itself when first asked stays.
    let _ = home.pool_default(HOME, Some(Place::Device(HOME)), false);
    let _ = home.pool_default(HOME, Some(Place::Host), false);
    let current = run.until_done("create", || driver_pool::device(home.clone(), 0, DeviceOptions::default()));
    let of_host = run.until_done("create", || driver_pool::pinned(home.clone(), PinnedOptions::default()));
    let (first, second) = (run.allocate(&current, BYTES, 1), run.allocate(&of_host, BYTES, 2));
    run.copy_into(&first, &second);
    run.close(&first);
    run.drop_open(second);
    for resource in [current, of_host] {
        // The driver's own pools keep what is idle.
        run.until_done("trim", || resource.trim(0));
    }
    let forgotten = run.allocate(&managed, BYTES, 3);
    drop(managed);
    run.drop_open(forgotten);
}

pub fn plain(run: &mut Run) {
    let home = run.home();
    for what in [HostKind::Managed, HostKind::Host(HostFlags { mapped: true, ..HostFlags::default() })] {
        let resource = run.until_done("create", || HostResource::new(home.clone(), Some(0), what));
        let resource: Resource = Arc::new(resource);
        run.life(&resource);
        run.end(&resource);
    }
    // Memory that belongs to somebody else, and plain memory for the legacy way.
    let told = Arc::new(Mutex::new(0));
    let mut data = vec![7u8; BYTES as usize];
    let at = Address(data.as_mut_ptr() as u64);
    let wrapped = run.until_done("from_handle", || {
        let told = Arc::clone(&told);
        let owner = Owner::new(move || *told.lock().unwrap() += 1);
        Buffer::from_handle(&home, at, BYTES, From::Owner(owner), LEGACY)
    });
    let wrapped = run.keep(Arc::new(wrapped), 7);
    run.fill(&wrapped, 8);
    assert_eq!(*told.lock().unwrap(), 0);
    run.close(&wrapped);
    assert_eq!(*told.lock().unwrap(), 1);
    let at = run.until_done("allocate", || Ok(home.allocate(HOME, BYTES)?));
    run.until_done("export", || export_foreign(&home, at, BYTES));
    run.until_done("free", || Ok(home.free(HOME, at)?));
}

pub fn virtual_memory(run: &mut Run) {
    let (home, away) = (run.home(), run.away());
    // Memory of the host may be more than the device has, whose size says how many addresses are set aside.
    let options = VirtualOptions { location: VirtualLocation::HostNuma, ..VirtualOptions::default() };
    let headroom = small().capacity;
    let resource = run.until_done("create", || VirtualResource::new(home.clone(), 0, &options));
    let resource: Resource = Arc::new(resource);
    run.life(&resource);
    let buffer = run.allocate(&resource, GRANULE, 4);
    let moved = run.modify(&resource, &buffer, 3 * GRANULE);
    assert!(!moved || !run.calm, "in place");
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let fetched = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    let imported = run.keep(Arc::new(fetched), 4);
    let moved = run.modify(&resource, &buffer, headroom);
    assert!(!moved || !run.calm, "in place, up to the last address");
    run.modify(&resource, &buffer, headroom + 2 * GRANULE);
    // Behind all that it has, in one reservation or two, somebody else has an address.
    let start = buffer.info().at;
    let mut walls = Vec::new();
    for end in [headroom, headroom + 2 * GRANULE, 2 * headroom, 2 * (headroom + 2 * GRANULE)] {
        walls.extend(run.home.reserve_at(HOME, GRANULE, 0, start.plus(end)).ok());
    }
    let moved = run.modify(&resource, &buffer, 3 * headroom);
    assert!(moved || !run.calm, "it had to move");
    run.check("a move");
    for wall in walls {
        run.until_done("unreserve", || Ok(home.unreserve(HOME, wall, GRANULE)?));
    }
    for bytes in [headroom, headroom + GRANULE, 2 * GRANULE, 5 * GRANULE, GRANULE] {
        run.modify(&resource, &buffer, bytes);
    }
    // What was mapped before all this is still there.
    run.until_done("fill", || imported.fill(5, 1, LEGACY));
    run.place(&imported).byte = 5;
    run.place(&buffer).byte = 5;
    run.check("a write to memory of both");
    run.close(&imported);
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let again = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    let again = run.keep(Arc::new(again), 5);
    run.drop_open(again);
    // A pointer that nobody gives back ends with its resource.
    run.until_done("allocate", || resource.allocate(BYTES, LEGACY));
    run.end(&resource);
    run.drop_open(buffer);
}

pub fn own_pools(run: &mut Run) {
    let (home, away) = (run.home(), run.away());
    run.strict = false;
    let pinned = PinnedOptions { source: Source::New, own: true, ipc: true, ..PinnedOptions::default() };
    let pinned = run.until_done("create", || driver_pool::pinned(home.clone(), pinned));
    let pool = Pool::with_driver(home.clone(), Options::default()).unwrap();
    let of_pool: Resource = Arc::new(run.until_done("create", || PoolResource::new(Arc::clone(&pool), 0, 0)));
    for resource in [&pinned, &of_pool] {
        run.life(resource);
        let buffer = run.allocate(resource, 9 * GRANULE + 77, 3);
        let descriptor = run.until_done("export", || buffer.ipc_descriptor());
        let imported = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
        let imported = run.keep(Arc::new(imported), 3);
        run.close(&imported);
        run.until_done("attribute", || resource.attribute(PoolAttribute::ReservedCurrent));
        run.close(&buffer);
    }
    run.until_done("set_peer_access", || of_pool.set_peer_access(DeviceId(1), Access::Read));
    let block = run.allocate(&of_pool, 5 * GRANULE, 6);
    let descriptor = run.until_done("export", || export_pointer(&pool, block.info().at.plus(GRANULE)));
    let part = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    assert_eq!(part.info().bytes, 4 * GRANULE);
    let part = run.keep(Arc::new(part), 6);
    run.until_done("set_peer_access", || of_pool.set_peer_access(DeviceId(1), Access::None));
    run.drop_open(part);
    run.close(&block);
    run.end(&pinned);
}
