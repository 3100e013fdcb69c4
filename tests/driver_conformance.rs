//! Binds the driver suite to the host driver, to CUDA where `FOREBAY_TEST_DRIVER=cuda` asks for it, and to CUDA's layer on the
//! stand-in for libcuda, with drivers of every age.

mod conformance;
mod kit;

use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::driver::host::{Clock, HostDriver, HostOptions};
use forebay::driver::{Choice, Driver, ErrorKind, open};

use kit::abi::on_cuda;
use kit::process::again;
use kit::programs::says;
use kit::standin::{Libcuda, functions};

/// Runs every check and fails with the names of all that failed.
fn run(driver: &dyn Driver) {
    let failed: Vec<&str> = conformance::suite()
        .into_iter()
        .filter(|(name, check)| {
            eprintln!("{}: {name}", driver.name());
            catch_unwind(AssertUnwindSafe(|| check(driver))).is_err()
        })
        .map(|(name, _)| name)
        .collect();
    assert!(failed.is_empty(), "{} checks failed on {}: {failed:?}", failed.len(), driver.name());
}

/// The suite leaves nothing behind, in any of the driver's shapes.
fn run_on_host(options: HostOptions) {
    let driver = HostDriver::new(HostOptions { capacity: 1 << 30, ..options }).expect("a host driver");
    let before = driver.usage();
    run(&driver);
    assert_eq!(driver.usage(), before, "the suite left something behind");
    assert_eq!((driver.dead_stream_uses(), driver.bad_accesses()), (0, 0));
}

#[test]
fn the_host_driver_conforms() {
    run_on_host(HostOptions::default());
}

#[test]
fn the_host_driver_conforms_with_the_manual_clock() {
    run_on_host(HostOptions { clock: Clock::Manual, ..HostOptions::default() });
}

#[test]
fn the_host_driver_conforms_without_its_optional_features() {
    let bare = HostOptions { vmm: false, stream_identity: false, driver_pools: false, ..HostOptions::default() };
    let bare = HostOptions { managed: false, legacy_ipc: false, ..bare };
    run_on_host(HostOptions { device_events: false, version: 12_040, ..bare });
}

#[test]
fn the_host_driver_conforms_with_small_granules_and_two_devices() {
    run_on_host(HostOptions { granularity: 64 << 10, devices: 2, ..HostOptions::default() });
}

#[test]
fn the_host_driver_conforms_with_half_of_its_kinds_of_memory() {
    let half = HostOptions { posix_fd: false, rdma: false, host_numa: false, fabric: true, ..HostOptions::default() };
    run_on_host(HostOptions { pool_fd: false, host_pools: false, managed_pools: false, ..half });
}

#[test]
fn cuda_conforms() {
    if std::env::var("FOREBAY_TEST_DRIVER").as_deref() != Ok("cuda") {
        eprintln!("skipped: no CUDA (FOREBAY_TEST_DRIVER=cuda runs it)");
        return;
    }
    let driver = open(Choice::Cuda).unwrap_or_else(|error| panic!("FOREBAY_TEST_DRIVER=cuda, but {error}"));
    run(&*driver);
}

#[test]
fn without_cuda_the_error_names_the_other_driver() {
    match open(Choice::Cuda) {
        Ok(_) => eprintln!("skipped: this machine has CUDA"),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::NoDriver, "{error}");
            assert!(error.to_string().contains("FOREBAY_DRIVER=host"), "{error}");
        }
    }
}

/// Runs the suite through the CUDA layer, on a libcuda that reports this version.
#[track_caller]
fn through_the_cuda_layer(libcuda: &Libcuda, version: &str) {
    let mut child = again("cuda_conforms");
    let environment = [("STANDIN_CAPACITY", "1073741824"), ("STANDIN_DEVICES", "2"), ("STANDIN_VERSION", version)];
    says(libcuda.serve(&mut child).envs(environment), "1 passed");
}

/// The last version without the group of functions; newest first.
const BEFORE: [(&str, &str); 8] = [
    ("PlacePools", "12090"),
    ("ContextEvents", "12040"),
    ("StreamId", "11080"),
    ("PartUuid", "11030"),
    ("CaptureInfo", "11020"),
    ("Pools", "11010"),
    ("Ipc", "10020"),
    ("Vmm", "10010"),
];

#[test]
fn the_cuda_layer_conforms() {
    if on_cuda() {
        return;
    }
    through_the_cuda_layer(&Libcuda::new("whole"), "13000");
    through_the_cuda_layer(&Libcuda::new("newer"), "13010");
}

#[test]
fn the_cuda_layer_conforms_on_devices_that_can_do_little() {
    if on_cuda() {
        return;
    }
    let libcuda = Libcuda::new("little");
    // No virtual memory; no pools; no descriptors, RDMA, memory of the host or managed pools.
    for denied in ["102=0", "115=0", "103=0,110=0,141=0,134=-1,119=0,142=0,144=0,89=0"] {
        let mut child = again("cuda_conforms");
        says(libcuda.serve(&mut child).env("STANDIN_ATTRIBUTES", denied), "1 passed");
    }
}

#[test]
fn the_cuda_layer_conforms_without_each_group_of_functions() {
    if on_cuda() {
        return;
    }
    let optional: Vec<(&str, Vec<&str>)> = functions().into_iter().filter(|(group, _)| *group != "Base").collect();
    assert_eq!(optional.len(), BEFORE.len());
    for (group, names) in optional {
        let (_, version) = BEFORE.iter().find(|(known, _)| *known == group).unwrap();
        through_the_cuda_layer(&Libcuda::new(group).without(&names), version);
    }
}

#[test]
fn the_cuda_layer_conforms_with_each_older_driver() {
    if on_cuda() {
        return;
    }
    let (mut lacking, all) = (Vec::new(), functions());
    for (group, version) in BEFORE {
        lacking.extend(&all.iter().find(|(known, _)| *known == group).unwrap().1);
        through_the_cuda_layer(&Libcuda::new(version).without(&lacking), version);
    }
}
