//! Making and ending pools, options, and the variables of the same names.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::abi::pool::create::*;
use forebay::abi::pool::snapshot::forebay_pool_set_mapping_observer;

use crate::kit::abi::*;
use crate::kit::process::in_child;

#[test]
fn a_pool_says_which_driver_and_how_many_devices_it_has_and_takes_no_memory() {
    let pool = Pool::new();
    assert_eq!(pool.driver_name(), Some(driver()));
    assert!(pool.device_count().unwrap() >= 1);
    let (free, total) = pool.memory_info(DEVICE).unwrap();
    assert!(0 < free && free <= total, "{free} of {total}");
    assert_eq!((pool.stats().physical, pool.stats().live), (0, 0));
    pool.check();
}

#[test]
fn destroying_a_pool_gives_its_live_blocks_back() {
    for _ in 0..20 {
        let pool = Pool::new();
        let stream = pool.stream();
        let block = pool.malloc(64 * MIB, stream).unwrap();
        pool.fill(block, 1, 64 * MIB, stream).unwrap();
        pool.malloc(512, LEGACY).unwrap();
        pool.destroy_stream(stream).unwrap();
    }
}

#[test]
fn options_are_filled_with_the_defaults() {
    let (options, _) = options();
    assert_eq!(
        (options.size as usize, options.version),
        (size_of::<ForebayPoolOptions>(), FOREBAY_POOL_OPTIONS_VERSION)
    );
    assert_eq!((options.give_back_ms, options.reserved), (0, [0; 7]));
}

#[track_caller]
fn bad(change: impl FnOnce(&mut ForebayPoolOptions), words: &[&str]) {
    refused(Pool::with(change).map(|_| ()), Status::InvalidArgument, words);
}

#[test]
fn bad_options_are_refused_with_the_value_and_what_is_allowed() {
    let size = size_of::<ForebayPoolOptions>() as u32;
    bad(|o| o.size = 0, &["size 0", &size.to_string(), "forebay_pool_options_init"]);
    bad(|o| o.size = size - 8, &[&(size - 8).to_string()]);
    bad(|o| o.size = size + 8, &[&(size + 8).to_string()]);
    bad(|o| o.version = 0, &["version 0"]);
    bad(|o| o.version = 2, &["version 2"]);
    for word in 0..7 {
        bad(|o| o.reserved[word] = 1, &["reserved"]);
    }
    bad(|o| o.driver = c"rocm".as_ptr(), &["\"rocm\"", "cuda and host"]);
    bad(|o| o.driver = c"".as_ptr(), &["cuda and host"]);
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        bad(|o| o.fraction = fraction, &["fraction", &fraction.to_string()]);
    }
    for chunk in [1, 3, 4096, 1 << 20, 3 << 20, u64::MAX] {
        bad(|o| o.max_chunk = chunk, &["max_chunk", &chunk.to_string(), "power of two"]);
    }
    for number in [2, u32::MAX] {
        bad(|o| o.grow_first = number, &["grow_first", &number.to_string(), "0 or 1"]);
    }
}

#[test]
fn good_options_are_kept_to() {
    let pool = Pool::with(|o| {
        o.limit = 64 * MIB;
        o.max_chunk = 32 * MIB;
        o.grow_first = 1;
    })
    .unwrap();
    assert_eq!(pool.limit().unwrap(), 64 * MIB);
    let block = pool.malloc(64 * MIB, LEGACY).unwrap();
    assert_eq!(pool.stats().growths, 6, "chunks of 32, 16, 8, 4 and twice 2 MiB");
    pool.free(block, LEGACY).unwrap();
    let total = pool.memory_info(DEVICE).unwrap().1;
    assert_eq!(Pool::with(|o| o.fraction = 0.5).unwrap().limit().unwrap(), total / 2);
    let both = Pool::with(|o| {
        o.fraction = 0.5;
        o.limit = 6 * MIB;
    });
    assert_eq!(both.unwrap().limit().unwrap(), 6 * MIB, "the smaller counts");
    assert_eq!(Pool::new().limit().unwrap(), 0);
}

// ---- the environment and the shared pool: in processes of their own -------------------------------------

/// Options as the variables make them.
fn from_environment() -> Outcome<ForebayPoolOptions> {
    let mut options = std::mem::MaybeUninit::uninit();
    outcome(unsafe { forebay_pool_options_init(options.as_mut_ptr()) }).map(|()| unsafe { options.assume_init() })
}

#[test]
fn every_variable_is_read() {
    let variables = [
        ("FOREBAY_LIMIT", "96M"),
        ("FOREBAY_FRACTION", "0.25"),
        ("FOREBAY_MAX_CHUNK", "4M"),
        ("FOREBAY_GROW_FIRST", "1"),
        ("FOREBAY_GIVE_BACK_MS", "3600000"),
    ];
    in_child("pools::every_variable_is_read", &variables, || {
        let options = from_environment().unwrap();
        assert_eq!(
            (options.limit, options.fraction, options.max_chunk, options.grow_first, options.give_back_ms),
            (96 * MIB, 0.25, 4 * MIB, 1, 3_600_000)
        );
        assert!(options.driver.is_null(), "left to the variable");
        let mut pool = std::ptr::null_mut();
        outcome(unsafe { forebay_pool_create(std::ptr::null(), &raw mut pool) }).unwrap();
        let own = Pool(pool);
        for pool in [own, Pool::shared().unwrap()] {
            assert_eq!((pool.limit().unwrap(), pool.driver_name()), (96 * MIB, Some(driver())));
            let block = pool.malloc(8 * MIB, LEGACY).unwrap();
            assert_eq!(pool.stats().growths, 3, "chunks of 4 and twice 2 MiB");
            pool.free(block, LEGACY).unwrap();
        }
    });
}

/// As on a GPU, also on the host driver: whoever opens it first, and however late its work is.
#[test]
fn pools_of_one_device_share_its_memory_and_its_streams() {
    let variables = [("FOREBAY_HOST_CAPACITY", "96M"), ("FOREBAY_HOST_LATE", "1000")];
    in_child("pools::pools_of_one_device_share_its_memory_and_its_streams", &variables, || {
        let (first, second) = (Pool::new(), Pool::new());
        let (from, to) = (first.malloc(24 * MIB, LEGACY).unwrap(), second.malloc(24 * MIB, LEGACY).unwrap());
        first.fill(from, 7, 24 * MIB, LEGACY).unwrap();
        second.copy(to, from, 24 * MIB, LEGACY).unwrap();
        first.holds(to, 7, 24 * MIB, LEGACY);
        first.free(from, LEGACY).unwrap();
        second.free(to, LEGACY).unwrap();

        let (free, total) = first.memory_info(0).unwrap();
        assert!(on_cuda() || (free, total) == (48 * MIB, 96 * MIB), "{free} of {total}");
        // More than there is beside the other pool's cache, on a device that is so small.
        let most = second.malloc(80 * MIB, LEGACY).unwrap();
        assert!(on_cuda() || first.stats().physical == 0);
        second.free(most, LEGACY).unwrap();
    });
}

/// A value that cannot be read is an error that names its variable, not a default.
fn refuses(test: &str, variable: &str, values: &[&str]) {
    for value in values {
        in_child(test, &[(variable, value)], || {
            refused(from_environment(), Status::InvalidArgument, &[]);
            let name = variable.trim_start_matches("FOREBAY_").to_lowercase();
            assert!(last_error().contains(variable) || last_error().contains(&name), "{}", last_error());
            refused(Pool::shared().map(|_| ()), Status::InvalidArgument, &[]);
            let mut pool = std::ptr::null_mut();
            refused(
                outcome(unsafe { forebay_pool_create(std::ptr::null(), &raw mut pool) }),
                Status::InvalidArgument,
                &[],
            );
            assert!(pool.is_null());
        });
    }
}

#[test]
fn a_bad_limit_variable_is_named() {
    refuses("pools::a_bad_limit_variable_is_named", "FOREBAY_LIMIT", &["much", "-1", "8GB"]);
}

#[test]
fn a_bad_fraction_variable_is_named() {
    refuses("pools::a_bad_fraction_variable_is_named", "FOREBAY_FRACTION", &["half", "1.5", "NaN"]);
}

#[test]
fn a_bad_chunk_variable_is_named() {
    refuses("pools::a_bad_chunk_variable_is_named", "FOREBAY_MAX_CHUNK", &["3M", "x", "1", "1M"]);
}

#[test]
fn a_bad_grow_first_variable_is_named() {
    refuses("pools::a_bad_grow_first_variable_is_named", "FOREBAY_GROW_FIRST", &["yes", "2"]);
}

#[test]
fn a_bad_time_variable_is_named() {
    refuses("pools::a_bad_time_variable_is_named", "FOREBAY_GIVE_BACK_MS", &["10s", "-1", "4294967296"]);
}

#[test]
fn a_variable_that_means_nothing_is_named_with_the_nearest_that_does() {
    let test = "pools::a_variable_that_means_nothing_is_named_with_the_nearest_that_does";
    for (slip, meant) in [
        ("FOREBAY_LIMT", "FOREBAY_LIMIT"),
        ("FOREBAY_GIVEBACK_MS", "FOREBAY_GIVE_BACK_MS"),
        ("FOREBAY_HOST_CAPACTY", "FOREBAY_HOST_CAPACITY"),
        ("FOREBAY_", "FOREBAY_LOG"),
    ] {
        for value in ["8G", ""] {
            in_child(test, &[(slip, value), ("SLIP", slip), ("MEANT", meant)], || {
                let [slip, meant] = ["SLIP", "MEANT"].map(|name| std::env::var(name).unwrap());
                let told = format!("unknown environment variable {slip}; the nearest known one is {meant}");
                let words = [told.as_str(), "known are FOREBAY_DRIVER, "];
                refused(from_environment(), Status::InvalidArgument, &words);
                refused(Pool::shared().map(|_| ()), Status::InvalidArgument, &words);
                let mut pool = std::ptr::null_mut();
                let made = outcome(unsafe { forebay_pool_create(std::ptr::null(), &raw mut pool) });
                refused(made, Status::InvalidArgument, &words);
                assert!(pool.is_null());
            });
        }
    }
}

#[test]
fn variables_of_the_python_package_of_tools_and_of_others_are_left_alone() {
    let names = [
        "FOREBAY",
        "FOREBAYLIMIT",
        "forebay_limit",
        "FOREBAY_LIBRARY",
        "FOREBAY_TORCH_MODE",
        "FOREBAY_LOG",
        "FOREBAY_TRACES",
        "FOREBAY_STEPS",
        "FOREBAY_SEEDS",
        "FOREBAY_UPSTREAM",
        "FOREBAY_GPU_DIR",
        "FOREBAY_TEST_ROLE",
        "FOREBAY_ROOT",
        "FOREBAY_SERVICE_HOST",
        "FOREBAY_PORT_80_TCP",
    ];
    let variables = names.map(|name| (name, ""));
    in_child("pools::variables_of_the_python_package_of_tools_and_of_others_are_left_alone", &variables, || {
        from_environment().unwrap();
        Pool::shared().unwrap();
    });
}

#[test]
fn a_capacity_of_the_host_driver_beyond_its_addresses_is_refused() {
    let test = "pools::a_capacity_of_the_host_driver_beyond_its_addresses_is_refused";
    for capacity in ["4T", "5T", "1048576T", "1152921504606846976"] {
        in_child(test, &[("FOREBAY_HOST_CAPACITY", capacity)], || {
            let capacity = std::env::var("FOREBAY_HOST_CAPACITY").unwrap();
            if capacity == "4T" || on_cuda() {
                Pool::shared().unwrap().malloc(MIB, LEGACY).unwrap();
            } else {
                let words = ["FOREBAY_HOST_CAPACITY", &capacity, "4.00 TiB"];
                refused(Pool::shared().map(|_| ()), Status::InvalidArgument, &words);
            }
        });
    }
}

#[test]
fn a_variable_that_is_no_text_is_refused_rather_than_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    in_child("pools::a_variable_that_is_no_text_is_refused_rather_than_passed_over", &[], || {
        // SAFETY: this child process has no other thread that reads the environment.
        unsafe { std::env::set_var("FOREBAY_LIMIT", std::ffi::OsStr::from_bytes(b"12\xff")) };
        refused(from_environment(), Status::InvalidArgument, &["FOREBAY_LIMIT"]);
    });
}

#[test]
fn a_driver_variable_that_names_no_driver_is_refused() {
    in_child("pools::a_driver_variable_that_names_no_driver_is_refused", &[("FOREBAY_DRIVER", "rocm")], || {
        let words = ["FOREBAY_DRIVER", "rocm", "cuda and host"];
        refused(Pool::shared().map(|_| ()), Status::InvalidArgument, &words);
        assert!(from_environment().is_ok(), "the driver is looked at when it is opened");
        let pool = Pool::new();
        assert_eq!(pool.driver_name(), Some(driver()), "an option goes before the variable");
    });
}

#[test]
fn without_a_gpu_the_default_driver_is_an_error_that_names_the_way_out() {
    let none = [("FOREBAY_DRIVER", "cuda"), ("CUDA_VISIBLE_DEVICES", "")];
    in_child("pools::without_a_gpu_the_default_driver_is_an_error_that_names_the_way_out", &none, || {
        for _ in 0..2 {
            refused(Pool::shared().map(|_| ()), Status::NoDriver, &["FOREBAY_DRIVER=host"]);
        }
        refused(Pool::with(|o| o.driver = c"cuda".as_ptr()).map(|_| ()), Status::NoDriver, &["FOREBAY_DRIVER=host"]);
    });
}

#[test]
fn the_shared_pool_is_one_and_is_configured_before_its_first_use_only() {
    in_child("pools::the_shared_pool_is_one_and_is_configured_before_its_first_use_only", &[], || {
        let (mut wanted, _name) = options();
        wanted.reserved[3] = 1;
        refused(
            outcome(unsafe { forebay_pool_configure_shared(&raw const wanted) }),
            Status::InvalidArgument,
            &["reserved"],
        );
        wanted.reserved[3] = 0;
        for limit in [10 * MIB, 20 * MIB] {
            wanted.limit = limit;
            outcome(unsafe { forebay_pool_configure_shared(&raw const wanted) }).unwrap();
        }
        let (first, second) = (Pool::shared().unwrap(), Pool::shared().unwrap());
        assert_ne!(first.0, second.0, "an object for each call");
        assert_eq!(first.limit().unwrap(), 20 * MIB, "the last word counts");
        refused(outcome(unsafe { forebay_pool_configure_shared(&raw const wanted) }), Status::Busy, &["exists"]);
        refused(outcome(unsafe { forebay_pool_configure_shared(std::ptr::null()) }), Status::Busy, &["exists"]);
        let block = first.malloc(MIB, LEGACY).unwrap();
        drop(first);
        assert_eq!(second.stats().live, MIB, "destroying an object leaves the shared pool alone");
        second.fill(block, 1, MIB, LEGACY).unwrap();
        second.holds(block, 1, MIB, LEGACY);
        second.free(block, LEGACY).unwrap();
        drop(second);
        assert_eq!(Pool::shared().unwrap().stats().frees, 1);
    });
}

/// Told of what is mapped and unmapped.
unsafe extern "C" fn counts(user: *mut c_void, _device: i32, _what: u32, _at: *mut c_void, _bytes: u64) {
    unsafe { &*user.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_pool_has_ended_when_destroy_returns_though_another_one_was_trimming_it() {
    in_child("pools::a_pool_has_ended_when_destroy_returns_though_another_one_was_trimming_it", &[], || {
        let greedy = Pool::limited(4 * MIB);
        // What a first use of the device takes for itself stays.
        let first = Pool::new();
        let block = first.malloc(6 * MIB, LEGACY).unwrap();
        first.free(block, LEGACY).unwrap();
        drop(first);
        let (free, _) = greedy.memory_info(DEVICE).unwrap();
        let rounds = if on_cuda() { 50 } else { 2000 };
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                for round in 0..rounds {
                    let (pool, told) = (Pool::new(), AtomicU64::new(0));
                    let user = (&raw const told).cast_mut().cast();
                    outcome(unsafe { forebay_pool_set_mapping_observer(pool.0, DEVICE, Some(counts), user) }).unwrap();
                    let block = pool.malloc(6 * MIB, LEGACY).unwrap();
                    pool.free(block, LEGACY).unwrap();
                    drop(pool);
                    let told_before = told.load(Ordering::SeqCst);
                    assert_eq!(greedy.memory_info(DEVICE).unwrap().0, free, "round {round}: memory is still held");
                    assert_eq!(told.load(Ordering::SeqCst), told_before, "round {round}: told after the end");
                }
            });
            while !ending.is_finished() {
                // Asks all others to give back, and fails.
                refused(greedy.malloc(8 * MIB, LEGACY), Status::OutOfMemory, &["limit"]);
            }
        });
    });
}
