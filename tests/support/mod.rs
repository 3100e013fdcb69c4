//! What the tests share that run programs against the built shared library: where it is, and how to run them.

#![allow(dead_code, reason = "each test program uses its own part of this module")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that Cargo built for this test: beside the test's own executable, in `target/<profile>/deps`.
pub fn library() -> PathBuf {
    let executable = std::env::current_exe().expect("the test's own path");
    let found = executable.ancestors().skip(1).take(2).map(|folder| folder.join("libforebay.so")).find(|p| p.exists());
    found.unwrap_or_else(|| panic!("no libforebay.so beside {}", executable.display()))
}

/// An empty folder of this name under `target/tmp`.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the last run's folder can be removed");
    }
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

/// Puts links to the library into `folder` under the name the linker looks for and the one the loader looks for.
pub fn link_library(folder: &Path) {
    for name in ["libforebay.so".to_owned(), format!("libforebay.so.{}", env!("CARGO_PKG_VERSION_MAJOR"))] {
        std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link to the library");
    }
}

/// A command that sees none of the caller's FOREBAY_* settings, and runs on the host driver.
pub fn on_host(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = plain(program);
    command.env("FOREBAY_DRIVER", "host");
    command
}

/// A command that sees none of the caller's FOREBAY_* settings, and no make that runs us.
pub fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("FOREBAY_") || name.starts_with("MAKE") || name == "MFLAGS" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command, demands success, answers its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n--- out\n{out}\n--- err\n{err}", output.status);
    out.into_owned()
}

/// Whether this machine has the tool.
pub fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The C compiler, as make would choose it.
pub fn cc() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// The C++ compiler, likewise.
pub fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// Compiles a C or C++ file strictly against `include/` and the built library, and answers the program's path.
pub fn compile(source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().expect("a file name"));
    link_library(folder);
    let (compiler, standard) = match source.extension().is_some_and(|ending| ending == "cc") {
        true => (cxx(), "-std=c++17"),
        false => (cc(), "-std=c11"),
    };
    run(Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I"])
        .arg(root().join("include"))
        // What forebay.hpp needs of CCCL, in its place.
        .arg("-isystem")
        .arg(root().join("tests/cpp/cccl"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(folder)
        .arg("-lforebay")
        .arg(format!("-Wl,-rpath,{}", folder.display())));
    program
}

/// The files of a folder with this ending, sorted.
pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == ending));
    paths.sort();
    assert!(!paths.is_empty(), "no *.{ending} in {folder}");
    paths
}
