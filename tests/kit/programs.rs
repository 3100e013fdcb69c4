//! What the tests share that run programs against the built shared library: where it is, and how to run them.

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

/// A folder of this process alone, removed in the end: for programs that may run far from where they were built.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for what is there for a while");
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and answers where.
    pub fn with(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the library names itself, and a linked program asks for.
pub const SONAME: &str =
    concat!("libforebay.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Puts links to the library into `folder` under the name the linker looks for and the one the loader looks for.
pub fn link_library(folder: &Path) {
    for name in ["libforebay.so", SONAME] {
        std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link to the library");
    }
}

/// A command without the caller's settings (see [`without_settings`]), which runs on the host driver.
pub fn on_host(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = plain(program);
    command.env("FOREBAY_DRIVER", "host");
    command
}

/// A command without the caller's settings.
pub fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    without_settings(&mut command);
    command
}

/// How late the host driver's work is, in this process and in all that it starts.
const LATE: &str = "FOREBAY_HOST_LATE";

/// Takes the caller's FOREBAY_* settings from a command, but [`LATE`], and the make that runs us.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("FOREBAY_") && name != LATE || name.starts_with("MAKE") || name == "MFLAGS" {
            command.env_remove(name);
        }
    }
}

/// Runs the command, demands success, answers its standard output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    says(command, "")
}

/// The same, and these words must be in it.
#[track_caller]
pub fn says(command: &mut Command, words: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let fine = output.status.success() && out.contains(words);
    assert!(fine, "{command:?}: {}, {words:?} expected\n--- out\n{out}\n--- err\n{err}", output.status);
    out.into_owned()
}

/// Whether this machine has the tool.
pub fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether it has not, which is then said: the test ends there.
pub fn lacks(tool: &str) -> bool {
    let lacks = !has(tool);
    if lacks {
        println!("skipped: this machine has no {tool}");
    }
    lacks
}

/// Python on the host driver with the built library. The repository stays clean, and a stale cache of another version is
/// never read.
pub fn python() -> Command {
    let mut command = on_host("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("FOREBAY_LIBRARY", library());
    command
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

/// A program of the repository, compiled in a scratch folder of this name, to be run on the host driver.
pub fn built(source: &str, name: &str) -> Command {
    on_host(compile(&root().join(source), &scratch(name)))
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
