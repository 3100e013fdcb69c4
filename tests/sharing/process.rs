//! Other processes: this test program again, in a role. They speak in lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use forebay::resource::ipc::{DESCRIPTOR_BYTES, Descriptor};

const ROLE: &str = "FOREBAY_TEST_ROLE";
const DESCRIPTOR: &str = "FOREBAY_TEST_DESCRIPTOR";
/// Marks a line of ours among the harness's.
const MARK: &str = "SAYS: ";

/// A process in a role. Killed when dropped.
pub struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(role: &str, descriptor: Option<&Descriptor>) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), role, descriptor)
    }

    /// In a PID namespace of its own, where the system allows that.
    pub fn start_apart(role: &str, descriptor: &Descriptor) -> Option<Self> {
        if !Command::new("unshare").args(["-p", "-f", "true"]).status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["-p", "-f", "--kill-child"]).arg(std::env::current_exe().unwrap());
        Some(Self::start_by(command, role, Some(descriptor)))
    }

    /// In a user namespace in which no user has a number, where the system allows that.
    pub fn start_nameless(role: &str, descriptor: Option<&Descriptor>) -> Option<Self> {
        if !Command::new("unshare").args(["-U", "true"]).status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = Command::new("unshare");
        command.arg("-U").arg(std::env::current_exe().unwrap());
        Some(Self::start_by(command, role, descriptor))
    }

    fn start_by(mut command: Command, role: &str, descriptor: Option<&Descriptor>) -> Self {
        command.args(["process::other_process", "--exact", "--ignored", "--nocapture"]).env(ROLE, role);
        if let Some(descriptor) = descriptor {
            command.env(DESCRIPTOR, to_text(descriptor));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// The next line that it says.
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

    pub fn hear_descriptor(&mut self) -> Descriptor {
        from_text(&self.hear())
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It ends by itself, without a failure.
    pub fn finish(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a role says to whoever started it.
pub fn say(line: impl std::fmt::Display) {
    println!("{MARK}{line}");
}

/// What it is told.
pub fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

pub fn given_descriptor() -> Descriptor {
    from_text(&std::env::var(DESCRIPTOR).unwrap())
}

pub fn to_text(descriptor: &Descriptor) -> String {
    descriptor.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Descriptor {
    assert_eq!(text.len(), 2 * DESCRIPTOR_BYTES);
    let bytes: Vec<u8> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    Descriptor::decode(&bytes).unwrap()
}

#[test]
#[ignore = "the other process of the tests here"]
fn other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("import and change") => crate::import::import_and_change(),
        Ok("export and wait") => crate::exchange::export_and_wait(),
        Ok("take some and die") => crate::exchange::take_some_and_die(),
        Ok("take all when told") => crate::exchange::take_all_when_told(),
        Ok("connect and stay") => crate::system::connect_and_stay(),
        Ok("another user") => crate::system::another_user(),
        Ok("another user past the check") => crate::system::another_user_past_the_check(),
        Ok("ask without a number") => crate::system::ask_without_a_number(),
        Ok(other) => panic!("no role {other:?}"),
        Err(_) => println!("no role: nothing to do"),
    }
}
