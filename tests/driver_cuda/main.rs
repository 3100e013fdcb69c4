//! The CUDA driver against a libcuda made for the purpose: what no healthy GPU machine will show.
//!
//! A C library with libcuda's symbols is compiled and put first in the search path of a child process, which
//! runs one of the ignored tests of the modules. It notes the context and the capture mode of each call, and the
//! arguments of many, answers any code it is told to, and can be built without the newer functions. Data, memory and order are
//! the business of the libcuda in `tests/standin`, on which other tests run.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod calls;
mod current;
mod fake;
mod host_memory;
#[path = "../kit/mod.rs"]
mod kit;
mod older;
mod pools;
mod sharing;
mod virtual_memory;
mod whole;

use std::process::Command;

use forebay::units::StreamHandle;

use kit::driver::HOME as DEVICE;
use kit::memory::MIB;
use kit::process::role;
use kit::programs::{Folder, cc, says};

const STREAM: StreamHandle = StreamHandle(0x5000);

const FAKE: &str = include_str!("fake.c");

/// Compiles a libcuda into a folder of its own.
fn build(name: &str, flags: &[&str]) -> Folder {
    let place = Folder::new(&format!("libcuda-{name}"));
    let (source, library) = (place.with("fake.c", FAKE), place.path().join("libcuda.so"));
    kit::programs::run(Command::new(cc()).args(["-w", "-shared", "-fPIC", "-o"]).arg(library).arg(source).args(flags));
    place
}

/// Runs an ignored test of a module in a process that finds the library.
fn run(test: &str, library: &Folder, environment: &[(&str, &str)]) {
    let mut child = role(test);
    child.env("LD_LIBRARY_PATH", library.path()).env("FAKE_LIBRARY", library.path().join("libcuda.so"));
    says(child.envs(environment.iter().copied()), "1 passed");
}

#[test]
fn a_whole_libcuda() {
    run("whole::child_whole", &build("whole", &["-DVERSION=13000"]), &[]);
}

#[test]
fn a_libcuda_that_cannot_be_loaded_is_told_from_none() {
    let place = Folder::new("libcuda-no-library");
    for name in ["libcuda.so", "libcuda.so.1"] {
        // What an installation that failed leaves.
        place.with(name, b"\x7fELF and no more");
    }
    run("older::child_broken", &place, &[("EXPECT", "file too short")]);
}

#[test]
fn virtual_memory_with_its_options() {
    run("virtual_memory::child_options", &build("options", &["-DVERSION=13000"]), &[]);
}

#[test]
fn virtual_memory_of_a_device_that_can_do_little() {
    // No descriptors, fabric handles, RDMA, host memory; no NUMA node.
    let lacking = ",103=0,128=0,110=0,141=0,134=-1";
    let library = build("lacking", &["-DVERSION=13000"]);
    run("virtual_memory::child_lacking", &library, &[("FAKE_ATTRIBUTES", lacking)]);
}

#[test]
fn host_memory_pointers_and_devices() {
    run("host_memory::child_host_memory", &build("host", &["-DVERSION=13000"]), &[]);
}

#[test]
fn driver_pools() {
    run("pools::child_pools", &build("pools", &["-DVERSION=13000"]), &[]);
}

#[test]
fn driver_pools_of_devices_that_can_do_little() {
    // Pools of devices only, which cannot be shared, and no concurrent managed access.
    let library = build("poolless", &["-DVERSION=13000"]);
    let lacking = [("FAKE_ATTRIBUTES", ",144=0,142=0,119=0,89=0")];
    run("pools::child_lacking", &library, &lacking);
}

#[test]
fn pinned_memory_of_the_current_device() {
    let library = build("current", &["-DVERSION=13000"]);
    let environment = [("FOREBAY_DRIVER", "cuda"), ("FAKE_ATTRIBUTES", ",134@70=3,134@71=5")];
    run("current::child_current", &library, &environment);
}

#[test]
fn sharing() {
    run("sharing::child_sharing", &build("sharing", &["-DVERSION=13000"]), &[]);
}

#[test]
fn a_libcuda_of_12_4() {
    run("older::child_12", &build("twelve", &["-DVERSION=12040"]), &[("FAKE_UNKNOWN", "135")]);
}

#[test]
fn a_libcuda_from_before_the_newer_functions() {
    run("older::child_old", &build("old", &["-DVERSION=11010"]), &[("FAKE_UNKNOWN", "117")]);
}

#[test]
fn a_libcuda_of_10_2() {
    run("older::child_oldest", &build("oldest", &["-DVERSION=10020"]), &[("FAKE_UNKNOWN", "111")]);
}

#[test]
fn a_libcuda_that_lacks_what_every_one_has() {
    run("older::child_broken", &build("broken", &["-DVERSION=10000", "-DBROKEN"]), &[("EXPECT", "cuEventQuery")]);
}

#[test]
fn a_libcuda_without_a_device() {
    let library = |name| build(name, &["-DVERSION=13000"]);
    run("older::child_broken", &library("init"), &[("FAKE_INIT", "100"), ("EXPECT", "CUDA_ERROR_NO_DEVICE")]);
    run("older::child_broken", &library("none"), &[("FAKE_DEVICES", "0"), ("EXPECT", "sees no device")]);
    run("older::child_broken", &library("unknown"), &[("FAKE_INIT", "54321"), ("EXPECT", "54321")]);
}
