//! Links the extension with `libforebay.so`, which is looked for beside the extension alone.
//!
//! The linker is given an empty library of that name, so that the two builds need not wait for each other. What the library lacks
//! is found when the extension is loaded.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    pyo3_build_config::use_pyo3_cfgs();
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let library = Path::new(&folder).join("libforebay.so");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libforebay.so", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status()
        .unwrap_or_else(|error| panic!("{compiler} cannot be run: {error}; install a C compiler, or let CC name one"));
    assert!(status.success(), "{compiler} cannot make {}", library.display());
    println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-link-arg={}", library.display());
    // An rpath and no runpath: LD_LIBRARY_PATH must not put another build in the library's place.
    println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
}
