//! The CUDA layer without a GPU: a libcuda on RAM, which `tests/standin` is made into, or an older one.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use forebay::driver::{Choice, Driver, Result, open};
use forebay::units::StreamHandle;
use libloading::Library;

use super::abi::on_cuda;
use super::programs::{Folder, root, run, says};

/// The library, in `target/<profile>/examples`. `cargo test` builds it before any test runs; `cargo test --test abi`
/// does not, so it is built here where it is missing.
fn library() -> PathBuf {
    let executable = std::env::current_exe().expect("the test's own path");
    let profile = executable.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let path = profile.join("examples/libstandin.so");
    if !path.is_file() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let release = profile.ends_with("release").then_some("--release");
        run(Command::new(cargo).args(["build", "--example", "standin"]).args(release).current_dir(root()));
    }
    path
}

/// All tests of the calling test program again, through the CUDA layer: on a libcuda that runs on RAM, with work that is late.
pub fn all_tests_again(name: &str) {
    if on_cuda() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.arg("--test-threads=1").env("FOREBAY_HOST_LATE", "30");
    says(Libcuda::new(name).serve(&mut child), "test result: ok");
}

/// A libcuda in a folder of its own, from which functions can be taken out.
pub struct Libcuda {
    folder: Folder,
    bytes: Vec<u8>,
}

/// The functions that the CUDA layer looks up, by the groups of `src/driver/cuda/api.rs`: those of a group are there
/// together or not at all. `Base` is what every libcuda has.
pub fn functions() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in include_str!("../../src/driver/cuda/api.rs").split("\nfunctions! {\n").skip(1) {
        let lines: Vec<&str> = block.lines().map(str::trim).take_while(|&line| line != "}").collect();
        let group = lines.iter().find_map(|line| line.strip_suffix(" {")).unwrap();
        let names = lines.iter().filter(|line| line.starts_with("cu")).map(|line| line.split('(').next().unwrap());
        groups.push((group, names.collect()));
    }
    groups
}

impl Libcuda {
    pub fn new(name: &str) -> Self {
        let (folder, bytes) = (Folder::new(&format!("standin-{name}")), fs::read(library()).unwrap());
        folder.with("libcuda.so", &bytes);
        Self { folder, bytes }
    }

    /// Takes functions out, so that the loader does not find them: their names in the file are changed.
    pub fn without(self, names: &[&str]) -> Self {
        names.iter().for_each(|name| self.rename(name, b'-'));
        self
    }

    /// Puts one back.
    pub fn put_back(&self, name: &str) {
        self.rename(name, name.as_bytes()[0]);
    }

    /// Takes one out.
    pub fn take(&self, name: &str) {
        self.rename(name, b'-');
    }

    /// Where the loader looks names up is near the file's begin; the linker's own copy, and the debugger's, come later.
    fn rename(&self, name: &str, first: u8) {
        let whole = format!("\0{name}\0");
        let found = self.bytes.windows(whole.len()).position(|window| window == whole.as_bytes());
        let at = found.unwrap_or_else(|| panic!("the stand-in exports no {name}")) + 1;
        let file = fs::File::options().write(true).open(self.folder.path().join("libcuda.so")).unwrap();
        file.write_all_at(&[first], at as u64).unwrap();
    }

    /// Has a command use it, in whatever it tests.
    pub fn serve<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let cuda = "cuda";
        command.env("FOREBAY_DRIVER", cuda).env("FOREBAY_TEST_DRIVER", cuda).env("LD_LIBRARY_PATH", self.folder.path())
    }
}

/// What the stand-in's devices are like.
#[repr(C)]
pub struct Shape {
    pub capacity: u64,
    pub granularity: u64,
    pub has_vmm: bool,
    pub is_held_back: bool,
}

/// The stand-in's device in a process that has it for its libcuda, and the CUDA driver on it.
pub struct Standin {
    library: Library,
    pub driver: Arc<dyn Driver>,
}

impl Standin {
    /// Fresh devices: whatever was given out before is gone.
    pub fn new(shape: &Shape) -> Result<Self> {
        // SAFETY: the stand-in, whose initialisers do nothing.
        let library = unsafe { Library::new("libcuda.so") }.unwrap();
        // SAFETY: the type is that of `tests/standin/control.rs`, here and below.
        let reset = unsafe { library.get::<unsafe extern "C" fn(&Shape) -> c_int>(b"standin_reset") }.unwrap();
        // SAFETY: reads the shape.
        assert_eq!(unsafe { reset(shape) }, 0);
        Ok(Self { library, driver: open(Choice::Cuda)? })
    }

    /// A call about a stream, which writes a number of this type, or none for `()`.
    fn ask<T: Default>(&self, name: &str, stream: StreamHandle) -> T {
        let mut value = T::default();
        // SAFETY: as above.
        let call = unsafe { self.library.get::<unsafe extern "C" fn(u64, &mut T) -> c_int>(name) }.unwrap();
        // SAFETY: writes the value, where it writes one.
        assert_eq!(unsafe { call(stream.0, &mut value) }, 0, "{name}");
        value
    }

    /// A call that writes so many numbers.
    fn tell<T: Default, U: Default>(&self, name: &str) -> (T, U) {
        let mut values = (T::default(), U::default());
        // SAFETY: as above.
        let call = unsafe { self.library.get::<unsafe extern "C" fn(&mut T, &mut U) -> c_int>(name) }.unwrap();
        // SAFETY: writes as many of the values as it has.
        assert_eq!(unsafe { call(&mut values.0, &mut values.1) }, 0, "{name}");
        values
    }

    pub fn host_call(&self, stream: StreamHandle, work: Box<dyn FnOnce() + Send>) {
        type Work = Box<dyn FnOnce() + Send>;
        extern "C" fn run(work: *mut c_void) {
            // SAFETY: what `host_call` gave away, once.
            let work = unsafe { Box::from_raw(work.cast::<Work>()) };
            work();
        }
        type Queue = unsafe extern "C" fn(u64, extern "C" fn(*mut c_void), *mut c_void) -> c_int;
        // SAFETY: as above.
        let queue = unsafe { self.library.get::<Queue>(b"standin_call") }.unwrap();
        // SAFETY: the work is called once, or leaks with its stream.
        assert_eq!(unsafe { queue(stream.0, run, Box::into_raw(Box::new(work)).cast()) }, 0);
    }

    pub fn step(&self, stream: StreamHandle) -> bool {
        self.ask::<c_int>("standin_step", stream) != 0
    }

    pub fn run_all(&self) {
        self.tell::<(), ()>("standin_run_all");
    }

    pub fn queued(&self, stream: StreamHandle) -> usize {
        self.ask::<u64>("standin_queued", stream) as usize
    }

    pub fn begin_capture(&self, stream: StreamHandle) {
        self.ask::<()>("standin_begin_capture", stream);
    }

    pub fn end_capture(&self, stream: StreamHandle) {
        self.ask::<()>("standin_end_capture", stream);
    }

    /// How often a stream was used that does not live, and memory that was not mapped.
    pub fn wrong_uses(&self) -> (u64, u64) {
        self.tell("standin_wrong_uses")
    }

    /// How many contexts are pushed on this thread, and its capture mode.
    pub fn thread(&self) -> (u64, u32) {
        self.tell("standin_thread")
    }

    /// Whether all that was given out came back.
    pub fn is_idle(&self) -> bool {
        self.tell::<c_int, ()>("standin_is_idle").0 != 0
    }
}
