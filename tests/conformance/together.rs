//! Checks of all of it at once, and again and again.

use std::thread;

use forebay::driver::Driver;

use super::kit::{Chunk, DEVICE, granule, ok, pattern, read, write};

pub(super) fn threads_do_not_disturb_one_another(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    thread::scope(|scope| {
        for seed in 1..=4u8 {
            scope.spawn(move || {
                for round in 0..10 {
                    let chunk = Chunk::new(driver, granule);
                    let data = pattern(seed.wrapping_mul(16) + round, 8192);
                    write(driver, chunk.at, &data);
                    assert!(read(driver, chunk.at, 8192) == data, "thread {seed} read another's data");
                }
            });
        }
    });
}

pub(super) fn nothing_stays_behind(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let bytes = (64u64 << 20).next_multiple_of(granule);
    let cycle = || {
        let chunk = Chunk::new(driver, bytes);
        write(driver, chunk.at, &pattern(3, 4096));
        let event = ok("event_create", driver.event_create(DEVICE));
        ok("event_destroy", driver.event_destroy(DEVICE, event));
    };
    // Once to let the driver set up what it keeps for itself.
    cycle();
    let before = ok("memory_info", driver.memory_info(DEVICE)).free;
    (0..8).for_each(|_| cycle());
    let after = ok("memory_info", driver.memory_info(DEVICE)).free;
    // Others may use the GPU meanwhile; eight leaks would be 512 MiB.
    assert!(after + bytes >= before, "free memory went from {before} to {after} in eight rounds");
}
