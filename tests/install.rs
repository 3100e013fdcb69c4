//! `make install`, and the C example built against what it installed, through pkg-config and through CMake.

mod kit;

use std::path::{Path, PathBuf};
use std::process::Command;

use kit::programs::{SONAME, cc, lacks, library, on_host, plain, root, run, scratch};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn install(prefix: &Path, stage: &str) {
    run(plain("make").current_dir(root()).arg("--no-print-directory").arg("install").args([
        format!("LIBRARY={}", library().display()),
        format!("PREFIX={}", prefix.display()),
        format!("DESTDIR={stage}"),
    ]));
}

fn minimal() -> PathBuf {
    root().join("examples/c/minimal.c")
}

#[test]
fn links_lead_to_the_versioned_library() {
    let prefix = scratch("install-links");
    install(&prefix, "");
    let lib = prefix.join("lib");
    let target = |name: &str| std::fs::read_link(lib.join(name)).expect("a link");
    assert_eq!(target("libforebay.so"), Path::new(SONAME));
    assert_eq!(target(SONAME), Path::new(&format!("libforebay.so.{VERSION}")));
    assert!(prefix.join("include/forebay.h").exists() && prefix.join("include/forebay.hpp").exists());
}

#[test]
fn a_staged_install_names_its_final_place() {
    let stage = scratch("install-stage");
    install(Path::new("/opt/forebay"), &stage.display().to_string());
    let pc = stage.join("opt/forebay/lib/pkgconfig/forebay.pc");
    let text = std::fs::read_to_string(pc).expect("the pkg-config file");
    assert!(text.contains("prefix=/opt/forebay\n") && !text.contains('@'), "{text}");
    for file in ["forebayConfig.cmake", "forebayConfigVersion.cmake"] {
        let file = stage.join("opt/forebay/lib/cmake/forebay").join(file);
        let text = std::fs::read_to_string(file).expect("the CMake files");
        assert!(!text.contains('@'), "a place was not filled in: {text}");
    }
}

#[test]
fn the_library_names_itself_and_asks_for_no_cuda() {
    if lacks("readelf") {
        return;
    }
    let text = run(Command::new("readelf").arg("-d").arg(library()));
    assert!(text.contains(&format!("Library soname: [{SONAME}]")), "{text}");
    assert!(!text.contains("libcuda"), "CUDA is opened at run time, never linked:\n{text}");
}

#[test]
fn those_who_write_the_soname_down_know_it() {
    for file in ["benches/peers/toolchain.py", "examples/python-ctypes/forebay_ctypes.py", "tests/gpu/run.sh"] {
        let text = std::fs::read_to_string(root().join(file)).expect("a file of the repository");
        assert!(text.contains(&format!("{SONAME}\"")), "{file} does not name {SONAME}");
    }
}

#[test]
fn pkg_config_builds_the_example() {
    if lacks("pkg-config") {
        return;
    }
    let prefix = scratch("install-pkg-config");
    install(&prefix, "");
    let ask = |what: &[&str]| {
        let out = run(Command::new("pkg-config")
            .args(what)
            .arg("forebay")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
        out.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ask(&["--modversion"]), [VERSION]);
    let program = prefix.join("minimal");
    run(Command::new(cc()).arg("-std=c11").arg(minimal()).args(ask(&["--cflags", "--libs"])).arg("-o").arg(&program));
    let out = run(on_host(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert!(out.contains("driver host"), "{out}");
}

#[test]
fn cmake_builds_the_example() {
    if lacks("cmake") {
        return;
    }
    let prefix = scratch("install-cmake");
    install(&prefix, "");
    // An installed tree may be moved: the package finds its files from its own place.
    let moved = scratch("install-cmake-moved").join("prefix");
    std::fs::rename(&prefix, &moved).expect("the tree moves");

    let project = scratch("install-cmake-project");
    let text = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nset(CMAKE_C_STANDARD 11)\n\
         find_package(forebay {VERSION} REQUIRED)\nadd_executable(minimal {})\n\
         target_link_libraries(minimal PRIVATE forebay::forebay)\n",
        minimal().display()
    );
    std::fs::write(project.join("CMakeLists.txt"), text).expect("a CMake project");
    let build = project.join("build");
    run(plain("cmake")
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display())));
    run(plain("cmake").arg("--build").arg(&build));
    let out = run(&mut on_host(build.join("minimal")));
    assert!(out.contains("driver host"), "{out}");
}
