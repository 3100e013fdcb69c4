//! The Python package: its tests and its examples on the host driver, and an installation with pip.

mod kit;

use std::path::Path;
use std::process::Command;

use kit::programs::{files, library, on_host, plain, root, run, scratch};

fn python() -> Command {
    build_extension();
    let mut command = kit::programs::python();
    command.env("PYTHONPATH", root().join("python")).current_dir(root());
    command
}

/// Builds the extension as this test was built: it comes to lie beside the library.
fn build_extension() {
    let folder = library().parent().expect("a folder").to_owned();
    // The library was found in target/<profile> or its `deps`.
    let profile = folder.ancestors().find(|folder| !folder.ends_with("deps")).expect("a folder for the profile");
    let mut cargo = plain(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "forebay-python", "--target-dir"]).current_dir(root());
    cargo.arg(profile.parent().expect("the target folder"));
    if !profile.ends_with("debug") {
        cargo.args(["--profile", &profile.file_name().expect("a name").to_string_lossy()]);
    }
    run(&mut cargo);
    assert!(folder.join("libforebay_core.so").exists(), "no extension in {}", folder.display());
}

/// Runs the test files that one process is to run. The summary, with what was skipped and why, is printed.
fn unittest(pattern: &str) {
    let output = python()
        .args(["-m", "unittest", "discover", "--verbose", "-s", "tests/python", "-p", pattern])
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines()
        .filter(|line| line.contains("skipped") || line.starts_with("Ran "))
        .for_each(|line| println!("{line}"));
    assert!(
        output.status.success(),
        "{pattern}: {}\n{}\n{text}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(!text.contains("Ran 0 tests"), "{pattern} has no tests");
}

/// A module whose framework is not installed here is not imported by any other test.
#[test]
fn every_file_parses() {
    let program = "import ast, pathlib, sys\n\
                   found = [p for d in sys.argv[1:] for p in pathlib.Path(d).rglob('*.py')]\n\
                   [ast.parse(p.read_text(), str(p)) for p in found]\n\
                   print(*found)";
    let out = run(python().args(["-c", program, "python", "tests", "benches", "examples"]));
    assert!(out.contains("python/forebay/numba/_manager.py"), "{out}");
}

#[test]
fn interface() {
    unittest("test_[hs]e*.py"); // test_header.py, test_seeds.py
    unittest("test_layout.py");
    unittest("test_arguments.py");
}

#[test]
fn resources() {
    unittest("test_resources.py");
}

#[test]
fn buffers() {
    unittest("test_buffer.py");
    unittest("test_dlpack.py");
}

#[test]
fn in_a_child_of_fork() {
    unittest("test_fork.py");
}

#[test]
fn the_extension() {
    unittest("test_core*.py"); // test_core.py, test_core_blocks.py
}

#[test]
fn errors_and_streams() {
    unittest("test_errors.py");
    unittest("test_streams.py");
    unittest("test_log.py");
}

#[test]
fn frameworks() {
    unittest("test_torch.py");
}

#[test]
fn between_processes() {
    unittest("test_ipc.py");
}

/// The plug-ins, with what of their frameworks is installed: a file without its framework says that it was skipped.
#[test]
fn plugins() {
    for file in ["test_pressure.py", "test_cupy.py", "test_numba.py", "test_cuda_core.py"] {
        unittest(file);
    }
}

#[test]
fn examples() {
    for example in files("examples/python", "py") {
        let out = run(python().arg(&example));
        assert!(out.contains("driver host") && out.ends_with("ok\n"), "{}:\n{out}", example.display());
    }
}

/// Cargo finds every manifest and source that the package's two builds need in the source distribution.
#[test]
fn the_source_distribution_builds() {
    let folder = scratch("python-sdist");
    let tools = folder.join("tools");
    let mut pip = plain("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "setuptools>=77", "--target"]);
    if !pip.arg(&tools).output().expect("python3 runs").status.success() {
        println!("skipped: setuptools cannot be had here");
        return;
    }
    let mut sdist = plain("python3");
    sdist.args(["setup.py", "--quiet", "sdist", "--dist-dir"]).arg(&folder);
    run(sdist.env("PYTHONPATH", tools).current_dir(root()));
    let name = format!("forebay-{}", env!("CARGO_PKG_VERSION"));
    run(Command::new("tar").arg("-xzf").arg(folder.join(format!("{name}.tar.gz"))).arg("-C").arg(&folder));
    let unpacked = folder.join(name);
    for package in ["forebay", "forebay-python"] {
        let mut cargo = plain(env!("CARGO"));
        cargo.args(["check", "--quiet", "--locked", "--offline", "--lib", "--package", package]);
        run(cargo.arg("--target-dir").arg(root().join("target/python/sdist")).current_dir(&unpacked));
    }
}

/// Whether pip can build the package: it needs setuptools, from the network or installed.
fn pip_install(into: &Path) -> Result<(), String> {
    let mut reasons = Vec::new();
    for isolation in [&[][..], &["--no-build-isolation"]] {
        let output = python()
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(isolation)
            .arg("--target")
            .arg(into)
            .arg(".")
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        reasons.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Err(reasons.join("\n"))
}

#[test]
fn installed_with_pip() {
    let folder = scratch("python-install");
    if let Err(reason) = pip_install(&folder) {
        // Without a network there may be no setuptools; everything else is a fault of the package.
        let lacking = ["No module named pip", "No matching distribution", "Could not find a version", "setuptools"];
        assert!(lacking.iter().any(|text| reason.contains(text)), "{reason}");
        println!("skipped: pip cannot build here: {}", reason.lines().last().unwrap_or_default());
        return;
    }
    let program = "import forebay\n\
                   with forebay.PoolMemoryResource().allocate(64) as buffer: buffer.fill(1, stream=None)\n\
                   print(forebay.library_path, forebay._core.__file__, forebay.__version__)";
    let mut installed = on_host("python3");
    let out = run(installed.args(["-c", program]).env("PYTHONPATH", &folder).current_dir(&folder));
    let inside = folder.join("forebay");
    let [library, extension] = ["libforebay.so", "_core.abi3.so"].map(|name| inside.join(name).display().to_string());
    assert_eq!(out.trim(), format!("{library} {extension} {}", env!("CARGO_PKG_VERSION")));
    for needed in [
        "py.typed",
        "_core.pyi",
        "include/forebay.h",
        "include/forebay.hpp",
        "torch/adapter/install.cpp",
        "torch/adapter/allocator.h",
    ] {
        assert!(inside.join(needed).exists(), "{needed} is not installed");
    }
}
