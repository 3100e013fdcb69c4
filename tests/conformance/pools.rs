//! Checks of the driver's own stream-ordered pools.

use forebay::driver::{
    Access, Capabilities, Driver, ErrorKind, Place, PoolAttribute as Attribute, PoolHandle, PoolOptions,
};
use forebay::units::{Address, DeviceId};

use super::kit::{DEVICE, Stream, all, ok, pattern, read, refused, write};
use super::sharing::{closes_on_exec, garbage};

const OWN: Place = Place::Device(DEVICE);
const PLAIN: PoolOptions = PoolOptions { place: Some(OWN), managed: false, share: false, max_size: 0 };
const BYTES: u64 = 8 << 20;

/// What the device can do, or `None` after a note: the driver has no pools, or none of this kind.
fn with(driver: &dyn Driver, what: &str, has: impl Fn(&Capabilities) -> bool) -> Option<Capabilities> {
    let found = ok("capabilities", driver.capabilities(DEVICE));
    if !found.driver_pools || !has(&found) {
        eprintln!("skipped: the driver has no pools {what}");
        return None;
    }
    Some(found)
}

/// A pool, destroyed at the end.
struct Pool<'a>(&'a dyn Driver, PoolHandle);

impl<'a> Pool<'a> {
    fn new(driver: &'a dyn Driver, options: PoolOptions) -> Self {
        Self(driver, ok("pool_create", driver.pool_create(DEVICE, &options)))
    }

    fn read(&self, attribute: Attribute) -> u64 {
        ok("pool_attribute", self.0.pool_attribute(DEVICE, self.1, attribute))
    }

    fn set(&self, attribute: Attribute, value: u64) {
        ok("pool_set_attribute", self.0.pool_set_attribute(DEVICE, self.1, attribute, value));
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Address {
        ok("pool_allocate", self.0.pool_allocate(DEVICE, self.1, bytes, stream.1))
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        let _ = self.0.pool_destroy(DEVICE, self.1);
    }
}

fn free(driver: &dyn Driver, at: Address, stream: &Stream) {
    ok("pool_free", driver.pool_free(DEVICE, at, stream.1));
}

fn synchronize(driver: &dyn Driver, stream: &Stream) {
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
}

pub(super) fn default_pools_are_the_drivers(driver: &dyn Driver) {
    if with(driver, "at all", |_| true).is_none() {
        let (place, kind) = (Some(OWN), ErrorKind::Unsupported);
        refused("pool_default", kind, driver.pool_default(DEVICE, place, false));
        return refused("pool_create", kind, driver.pool_create(DEVICE, &PLAIN));
    }
    let pool = ok("pool_default", driver.pool_default(DEVICE, Some(OWN), false));
    assert_eq!(pool, ok("pool_default again", driver.pool_default(DEVICE, Some(OWN), false)));
    ok("pool_current", driver.pool_current(DEVICE, Some(OWN), false));
    assert!(driver.pool_destroy(DEVICE, pool).is_err(), "a default pool was destroyed");
    let stream = Stream::new(driver);
    let at = ok("pool_allocate", driver.pool_allocate(DEVICE, pool, BYTES, stream.1));
    ok("fill", driver.fill(DEVICE, at, 5, BYTES, stream.1));
    synchronize(driver, &stream);
    all("memory of the default pool", &read(driver, at.plus(BYTES - 4096), 4096), 5);
    free(driver, at, &stream);
    synchronize(driver, &stream);
    ok("trim_driver_pools", driver.trim_driver_pools(DEVICE));
}

pub(super) fn pool_memory_lives_in_stream_order(driver: &dyn Driver) {
    if with(driver, "at all", |_| true).is_none() {
        return;
    }
    let (pool, stream) = (Pool::new(driver, PLAIN), Stream::new(driver));
    let told = ok("pool_place", driver.pool_place(DEVICE, pool.1));
    assert!(told.is_none_or(|place| place == OWN), "the pool lies on {told:?}");
    let kept = ok("allocate", driver.allocate(DEVICE, 16 * 4096));
    // Nobody waits in between: each copy must see the data of its own round.
    for round in 0..16u8 {
        let at = pool.allocate(BYTES, &stream);
        ok("fill", driver.fill(DEVICE, at, round, BYTES, stream.1));
        let (to, from) = (kept.plus(u64::from(round) * 4096), at.plus(BYTES - 4096));
        ok("copy", driver.copy(DEVICE, to, from, 4096, stream.1));
        free(driver, at, &stream);
    }
    synchronize(driver, &stream);
    for round in 0..16u8 {
        all("a round's copy", &read(driver, kept.plus(u64::from(round) * 4096), 4096), round);
    }
    ok("free", driver.free(DEVICE, kept));
}

pub(super) fn pool_attributes_follow(driver: &dyn Driver) {
    if with(driver, "at all", |_| true).is_none() {
        return;
    }
    let (pool, stream) = (Pool::new(driver, PLAIN), Stream::new(driver));
    for reuse in [
        Attribute::ReuseFollowEventDependencies,
        Attribute::ReuseAllowOpportunistic,
        Attribute::ReuseAllowInternalDependencies,
    ] {
        assert_eq!(pool.read(reuse), 1, "{reuse:?} at first");
        pool.set(reuse, 0);
        assert_eq!(pool.read(reuse), 0, "{reuse:?} after it was set");
    }
    assert_eq!((pool.read(Attribute::ReleaseThreshold), pool.read(Attribute::UsedCurrent)), (0, 0));
    pool.set(Attribute::ReleaseThreshold, u64::MAX);
    assert_eq!(pool.read(Attribute::ReleaseThreshold), u64::MAX);
    let (first, second) = (pool.allocate(BYTES, &stream), pool.allocate(BYTES, &stream));
    let (used, reserved) = (pool.read(Attribute::UsedCurrent), pool.read(Attribute::ReservedCurrent));
    assert!(used >= 2 * BYTES && reserved >= used, "used {used}, reserved {reserved} with {} out", 2 * BYTES);
    free(driver, first, &stream);
    free(driver, second, &stream);
    synchronize(driver, &stream);
    assert_eq!(pool.read(Attribute::UsedCurrent), 0, "all was freed, and the stream waited for");
    assert!(pool.read(Attribute::UsedHigh) >= 2 * BYTES && pool.read(Attribute::ReservedHigh) >= 2 * BYTES);
    assert!(pool.read(Attribute::ReservedCurrent) >= 2 * BYTES, "the threshold kept nothing");
    ok("pool_trim", driver.pool_trim(DEVICE, pool.1, 0));
    assert!(pool.read(Attribute::ReservedCurrent) < 2 * BYTES, "the trim gave nothing back");
    for high in [Attribute::UsedHigh, Attribute::ReservedHigh] {
        pool.set(high, 0);
        assert!(pool.read(high) < 2 * BYTES, "{high:?} after it was set back");
        assert!(driver.pool_set_attribute(DEVICE, pool.1, high, 1).is_err(), "{high:?} was set to 1");
    }
    for current in [Attribute::UsedCurrent, Attribute::ReservedCurrent] {
        assert!(driver.pool_set_attribute(DEVICE, pool.1, current, 0).is_err(), "{current:?} was written");
    }
}

pub(super) fn a_pools_limits_hold(driver: &dyn Driver) {
    let Some(found) = with(driver, "at all", |_| true) else { return };
    let stream = Stream::new(driver);
    let total = ok("memory_info", driver.memory_info(DEVICE)).total;
    let pool = Pool::new(driver, PLAIN);
    let more = driver.pool_allocate(DEVICE, pool.1, total * 2, stream.1);
    refused("pool_allocate of more than there is", ErrorKind::OutOfMemory, more);
    // CUDA before 12.2 knows no limit.
    if found.version >= 12_020 {
        let pool = Pool::new(driver, PoolOptions { max_size: 64 << 20, ..PLAIN });
        let more = driver.pool_allocate(DEVICE, pool.1, 256 << 20, stream.1);
        refused("pool_allocate above the limit", ErrorKind::OutOfMemory, more);
        let at = pool.allocate(BYTES, &stream);
        free(driver, at, &stream);
        synchronize(driver, &stream);
    }
}

pub(super) fn a_destroyed_pools_memory_stays_until_freed(driver: &dyn Driver) {
    if with(driver, "at all", |_| true).is_none() {
        return;
    }
    let stream = Stream::new(driver);
    let pool = ok("pool_create", driver.pool_create(DEVICE, &PLAIN));
    let at = ok("pool_allocate", driver.pool_allocate(DEVICE, pool, BYTES, stream.1));
    synchronize(driver, &stream);
    write(driver, at, &pattern(0x61, 4096));
    ok("pool_destroy", driver.pool_destroy(DEVICE, pool));
    assert!(read(driver, at, 4096) == pattern(0x61, 4096), "the pool took its memory along");
    free(driver, at, &stream);
    synchronize(driver, &stream);
}

pub(super) fn a_pools_access_is_said_and_set(driver: &dyn Driver) {
    if with(driver, "at all", |_| true).is_none() {
        return;
    }
    let (pool, stream) = (Pool::new(driver, PLAIN), Stream::new(driver));
    let at = pool.allocate(BYTES, &stream);
    synchronize(driver, &stream);
    let access = |place| ok("pool_access", driver.pool_access(DEVICE, pool.1, place));
    assert_eq!(access(OWN), Access::ReadWrite);
    assert!(driver.pool_set_access(DEVICE, pool.1, OWN, Access::None).is_err(), "a device lost its own pool");
    let peer = DeviceId(1);
    if driver.device_count() < 2 || !ok("can_access_peer", driver.can_access_peer(DEVICE, peer)) {
        eprintln!("skipped: device 0 has no peer");
    } else {
        assert_eq!(access(Place::Device(peer)), Access::None);
        let set = |access| driver.pool_set_access(DEVICE, pool.1, Place::Device(peer), access);
        ok("pool_set_access", set(Access::ReadWrite));
        assert_eq!(access(Place::Device(peer)), Access::ReadWrite);
        let theirs = ok("stream_create on the peer", driver.stream_create(peer));
        ok("fill by the peer", driver.fill(peer, at, 7, 4096, theirs));
        ok("stream_synchronize on the peer", driver.stream_synchronize(peer, theirs));
        ok("stream_destroy on the peer", driver.stream_destroy(peer, theirs));
        all("what the peer filled", &read(driver, at, 4096), 7);
        ok("pool_set_access", set(Access::None));
        assert_eq!(access(Place::Device(peer)), Access::None);
    }
    free(driver, at, &stream);
    synchronize(driver, &stream);
}

/// Memory that the host writes and the device copies, and the other way round.
fn both_sides(driver: &dyn Driver, what: &str, at: Address) {
    let data = pattern(0x71, 4096);
    // SAFETY: memory that the host reaches, and that no queued work uses.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at.0 as *mut u8, data.len()) };
    assert!(read(driver, at, 4096) == data, "{what}: the device does not see what the host wrote");
    let data = pattern(0x72, 4096);
    write(driver, at, &data);
    // SAFETY: as above, and the copy has ended.
    let seen = unsafe { std::slice::from_raw_parts(at.0 as *const u8, 4096) };
    assert!(seen == data, "{what}: the host does not see what the device wrote");
}

pub(super) fn pools_of_host_memory_work(driver: &dyn Driver) {
    let Some(found) = with(driver, "of host memory", |found| found.host_pools) else { return };
    let stream = Stream::new(driver);
    let node = found.numa_node.filter(|_| found.host_numa).map(Place::HostNuma);
    for place in [Some(Place::Host), node].into_iter().flatten() {
        let pool = Pool::new(driver, PoolOptions { place: Some(place), ..PLAIN });
        ok("pool_set_access", driver.pool_set_access(DEVICE, pool.1, OWN, Access::ReadWrite));
        assert_eq!(ok("pool_access", driver.pool_access(DEVICE, pool.1, OWN)), Access::ReadWrite);
        let at = pool.allocate(BYTES, &stream);
        synchronize(driver, &stream);
        both_sides(driver, "a pool of host memory", at);
        free(driver, at, &stream);
        synchronize(driver, &stream);
    }
    let lost = PoolOptions { place: Some(Place::Host), share: true, ..PLAIN };
    assert!(driver.pool_create(DEVICE, &lost).is_err(), "a pool on no particular node can be shared");
}

pub(super) fn pools_of_managed_memory_work(driver: &dyn Driver) {
    if with(driver, "of managed memory", |found| found.managed_pools).is_none() {
        return;
    }
    let stream = Stream::new(driver);
    for place in [None, Some(OWN)] {
        let pool = Pool::new(driver, PoolOptions { place, managed: true, ..PLAIN });
        let at = pool.allocate(BYTES, &stream);
        synchronize(driver, &stream);
        both_sides(driver, "a pool of managed memory", at);
        free(driver, at, &stream);
        synchronize(driver, &stream);
    }
}

pub(super) fn a_pool_leaves_only_if_it_was_made_for_it(driver: &dyn Driver) {
    if with(driver, "that can be shared", |found| found.pool_fd).is_none() {
        return;
    }
    let (alone, shared) = (Pool::new(driver, PLAIN), Pool::new(driver, PoolOptions { share: true, ..PLAIN }));
    assert!(driver.pool_export_fd(DEVICE, alone.1).is_err(), "a pool was exported that was not made for it");
    let fd = ok("pool_export_fd", driver.pool_export_fd(DEVICE, shared.1));
    assert!(closes_on_exec(&fd), "a pool's descriptor stays open across exec");
    let stream = Stream::new(driver);
    let at = shared.allocate(BYTES, &stream);
    synchronize(driver, &stream);
    let blob = ok("pool_export_pointer", driver.pool_export_pointer(DEVICE, at));
    assert_ne!(blob, [0; 64], "an exported pointer says nothing");
    for (what, fd) in garbage() {
        let imported = driver.pool_import_fd(DEVICE, std::os::fd::AsFd::as_fd(&fd));
        assert!(imported.is_err(), "{what} was imported as a pool");
    }
    free(driver, at, &stream);
    synchronize(driver, &stream);
}
