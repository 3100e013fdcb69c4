//! Other processes: this test program again, for one of its tests. What this one has open, and when another is done.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::abi::driver;
use super::programs::{says, without_settings};

/// More than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program, to run one test. One that is there only for that is ignored otherwise: see [`role`].
pub fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    only(&mut command, test);
    command
}

/// This program, to run one of its ignored tests.
pub fn role(test: &str) -> Command {
    let mut command = again(test);
    command.arg("--ignored");
    command
}

/// What a command that ends in this program must be given to run one test.
pub fn only<'a>(command: &'a mut Command, test: &str) -> &'a mut Command {
    command.args([test, "--exact", "--nocapture", "--test-threads=1"])
}

/// Runs the body of the test `name` in a process of its own, with these variables and none of the caller's
/// `FOREBAY_*` but the driver's and how late that is: for what a process has once, or what the environment says.
#[track_caller]
pub fn in_child(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    const MARK: &str = "FOREBAY_TEST_CHILD";
    if std::env::var(MARK).is_ok_and(|child| child == name) {
        body();
        println!("{MARK} {name} is done");
        return;
    }
    let mut command = again(name);
    without_settings(&mut command);
    command.env(MARK, name).env("FOREBAY_DRIVER", driver()).env("FOREBAY_TEST_DRIVER", driver());
    says(command.envs(variables.iter().copied()), &format!("{MARK} {name} is done"));
}

/// Runs `work` in a forked child and waits for it; a failed assertion there is a failure here.
#[track_caller]
pub fn forked(work: impl FnOnce()) {
    // SAFETY: what the tests do there needs no thread but this one, and the child ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
        // SAFETY: ends the child, which has nothing to run at its exit.
        unsafe { libc::_exit(if fine { 0 } else { 9 }) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's wait status");
}

/// A child that does not outlive whoever started it.
pub struct Killed(pub Child);

impl Killed {
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// It ends by itself, without a failure.
    #[track_caller]
    pub fn finish(&mut self) {
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Marks a line of ours among the harness's.
const MARK: &str = "SAYS: ";

/// A process in a role, which speaks in lines: see [`say`] and [`told`].
pub struct Other {
    child: Killed,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child: Killed(child), input, output }
    }

    /// The next line that it says.
    #[track_caller]
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process said no more");
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// It is told no more, and ends by itself without a failure.
    #[track_caller]
    pub fn finish(mut self) {
        drop(self.input.take());
        self.child.finish();
    }
}

/// What a role says to whoever started it.
pub fn say(line: impl std::fmt::Display) {
    println!("{MARK}{line}");
}

/// What it is told; nothing once nobody tells it more.
pub fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The open descriptors of this process.
pub fn open_fds() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
    let mut fds: Vec<String> = entries
        .filter_map(|entry| {
            let to = std::fs::read_link(entry.path()).ok()?;
            // The one that reads this folder.
            let own = to.to_string_lossy().ends_with("/fd");
            (!own).then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect();
    fds.sort();
    fds
}

/// Waits until it is so: other threads and processes get there in their own time.
#[track_caller]
pub fn becomes<T: PartialEq + Debug>(what: &str, right: &T, now: impl Fn() -> T) {
    let started = Instant::now();
    loop {
        let found = now();
        if found == *right {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {found:?}, not {right:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes as a line can carry them.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
