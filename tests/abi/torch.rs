//! PyTorch's hooks from C++, with and without PyTorch's exception classes in the process.
//!
//! The programs are built here, against the shared library: what is thrown must pass real C++ frames.

use std::process::Command;

use crate::kit::abi::driver;
use crate::kit::programs::{Folder, cxx, has, lacks, link_library, plain, run};

/// A folder with the sources and the library.
struct Sources(Folder);

impl Sources {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        for (file, text) in [
            ("forebay.h", include_str!("../../include/forebay.h")),
            ("torch.cc", include_str!("torch.cc")),
            ("c10.h", include_str!("c10.h")),
            ("c10.cc", include_str!("c10.cc")),
        ] {
            folder.with(file, text);
        }
        link_library(folder.path());
        Self(folder)
    }

    /// Runs the C++ compiler in the folder.
    fn compile(&self, arguments: &[&str]) {
        run(Command::new(compiler())
            .current_dir(self.0.path())
            .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-pthread"])
            .args(arguments)
            .args(["-L.", "-Wl,-rpath,$ORIGIN"]));
    }

    fn run(&self, program: &str, variables: &[(&str, &str)], arguments: &[&str]) -> String {
        let mut command = plain(self.0.path().join(program));
        run(command.env("FOREBAY_DRIVER", driver()).envs(variables.iter().copied()).args(arguments))
    }
}

/// The system's compiler before the one that `CXX` names: that may link libstdc++ into the program, where nobody
/// finds it, and PyTorch's programs have it as a library.
fn compiler() -> String {
    if has("c++") { "c++".into() } else { cxx() }
}

#[test]
fn without_pytorchs_classes_a_failure_is_a_runtime_error_with_the_report() {
    if lacks(&compiler()) {
        return;
    }
    let folder = Sources::new("torch");
    folder.compile(&["torch.cc", "-o", "plain", "-lforebay"]);
    assert_eq!(folder.run("plain", &[], &[]), "torch hooks: right\n");
}

#[test]
fn with_pytorchs_classes_want_of_memory_is_pytorchs_own_exception() {
    if lacks(&compiler()) {
        return;
    }
    let folder = Sources::new("c10");
    folder.compile(&["-shared", "-fPIC", "c10.cc", "-o", "libc10.so", "-Wl,-soname,libc10.so"]);
    folder.compile(&[
        "-shared",
        "-fPIC",
        "-DCUDA_PART",
        "c10.cc",
        "-o",
        "libc10_cuda.so",
        "-Wl,-soname,libc10_cuda.so",
        "-lc10",
    ]);
    folder.compile(&["-DFAKE_C10", "torch.cc", "-o", "fake", "-lforebay", "-lc10_cuda", "-lc10"]);
    assert_eq!(folder.run("fake", &[], &[]), "torch hooks: right\n");
}

#[test]
fn without_a_driver_init_and_malloc_throw_and_the_rest_does_nothing() {
    if lacks(&compiler()) {
        return;
    }
    let folder = Sources::new("torch-no-driver");
    folder.compile(&["torch.cc", "-o", "plain", "-lforebay"]);
    let none = [("FOREBAY_DRIVER", "cuda"), ("CUDA_VISIBLE_DEVICES", "")];
    assert_eq!(folder.run("plain", &none, &["no-driver"]), "without a driver: right\n");
}
