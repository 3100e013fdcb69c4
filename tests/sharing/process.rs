//! Other processes: this test program again, in a role, with a descriptor where it needs one.

use std::process::Command;

use forebay::resource::ipc::Descriptor;

use crate::kit::process::{Other, from_hex, only, role, to_hex};

const TEST: &str = "process::other_process";
const ROLE: &str = "FOREBAY_TEST_ROLE";
const DESCRIPTOR: &str = "FOREBAY_TEST_DESCRIPTOR";

pub fn start(name: &str, descriptor: Option<&Descriptor>) -> Other {
    start_by(role(TEST), name, descriptor)
}

/// In a PID namespace of its own, where the system allows that.
pub fn start_apart(name: &str, descriptor: &Descriptor) -> Option<Other> {
    start_in(&["-p", "-f", "--kill-child"], name, Some(descriptor))
}

/// In a user namespace in which no user has a number, where the system allows that.
pub fn start_nameless(name: &str, descriptor: Option<&Descriptor>) -> Option<Other> {
    start_in(&["-U"], name, descriptor)
}

fn start_in(namespace: &[&str], name: &str, descriptor: Option<&Descriptor>) -> Option<Other> {
    if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    only(command.args(namespace).arg(std::env::current_exe().unwrap()), TEST).arg("--ignored");
    Some(start_by(command, name, descriptor))
}

fn start_by(mut command: Command, name: &str, descriptor: Option<&Descriptor>) -> Other {
    command.env(ROLE, name).envs(descriptor.map(|descriptor| (DESCRIPTOR, to_text(descriptor))));
    Other::start(&mut command)
}

pub fn heard(other: &mut Other) -> Descriptor {
    from_text(&other.hear())
}

pub fn given_descriptor() -> Descriptor {
    from_text(&std::env::var(DESCRIPTOR).unwrap())
}

pub fn to_text(descriptor: &Descriptor) -> String {
    to_hex(&descriptor.encode())
}

fn from_text(text: &str) -> Descriptor {
    Descriptor::decode(&from_hex(text)).unwrap()
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
