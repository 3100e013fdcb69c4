//! Processes that end, and descriptors that must not stay.

use forebay::error::Error;
use forebay::resource::ipc::{fetch, serve, withdraw};

use crate::kit::exports::*;
use crate::kit::process::{forked, in_child, open_fds, say, told};
use crate::process::{given_descriptor, heard, start, to_text};

/// Role: exports, says what, and lives until told otherwise.
pub fn export_and_wait() {
    let (descriptor, ticket) = Nothing::offer(100);
    say(to_text(&descriptor));
    while told() == "withdraw" {
        withdraw(ticket.key);
        say("withdrawn");
    }
}

/// Role: asks, takes a few pieces of many, says so and waits for its end.
pub fn take_some_and_die() {
    let mut pieces = fetch(&given_descriptor()).unwrap();
    let kept: Vec<_> = pieces.by_ref().take(3).map(|piece| piece.unwrap()).collect();
    say("took");
    told();
    drop(kept);
}

/// Role: asks once told to, and says what came.
pub fn take_all_when_told() {
    let descriptor = given_descriptor();
    say("ready");
    told();
    match take_all(&descriptor) {
        Ok(count) => say(format!("{count} pieces")),
        Err(error) => say(format!("{error:?}")),
    }
}

#[test]
fn an_exporter_that_has_ended_is_a_peer_that_is_gone() {
    let mut other = start("export and wait", None);
    let descriptor = heard(&mut other);
    assert_eq!(take_all(&descriptor).unwrap(), 100);
    let mut half = fetch(&descriptor).unwrap();
    half.next().unwrap().unwrap();
    other.kill();
    match take_all(&descriptor) {
        Err(Error::Peer(text)) => assert!(text.contains("has ended"), "{text}"),
        result => panic!("{result:?}"),
    }
    // What was received is good; what was not never comes.
    let error = half.find_map(|piece| piece.err()).unwrap();
    assert!(matches!(&error, Error::Peer(text) if text.contains("closed the connection")), "{error}");
}

#[test]
fn what_another_process_has_withdrawn_is_not_found() {
    let mut other = start("export and wait", None);
    let descriptor = heard(&mut other);
    other.tell("withdraw");
    other.hear();
    assert!(matches!(take_all(&descriptor), Err(Error::NotFound(_))));
    other.finish();
}

#[test]
fn nothing_stays_open_and_what_is_open_is_closed_on_exec() {
    in_child("exchange::nothing_stays_open_and_what_is_open_is_closed_on_exec", &[], || {
        let before = open_fds();
        serve().unwrap();
        serve().unwrap();
        let serving = open_fds();
        assert_eq!(serving.len(), before.len() + 1, "one socket");
        let (descriptor, ticket) = Nothing::offer(100);
        for _ in 0..20 {
            assert_eq!(take_all(&descriptor).unwrap(), 100);
        }
        same_fds(&serving);
        let mut half = fetch(&descriptor).unwrap();
        let piece = half.next().unwrap().unwrap();
        let now: Vec<String> = open_fds().into_iter().filter(|fd| !before.contains(fd)).collect();
        assert!(now.len() > 64, "{now:?}");
        for fd in now {
            // A thread of the service may have closed its own meanwhile.
            let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else { continue };
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & libc::O_CLOEXEC != 0, "descriptor {fd} survives exec");
        }
        drop((half, piece));
        same_fds(&serving);
        // An importer that dies with pieces in hand and more to come.
        for _ in 0..3 {
            let mut other = start("take some and die", Some(&descriptor));
            assert_eq!(other.hear(), "took");
            other.kill();
            drop(other);
            same_fds(&serving);
        }
        assert_eq!(take_all(&descriptor).unwrap(), 100);
        withdraw(ticket.key);
        assert!(matches!(take_all(&descriptor), Err(Error::NotFound(_))));
        same_fds(&serving);
    });
}

#[test]
fn a_child_of_fork_is_refused_and_the_service_goes_on() {
    in_child("exchange::a_child_of_fork_is_refused_and_the_service_goes_on", &[], || {
        use forebay::driver::{Driver, Place, Share};
        use forebay::resource::ipc::{Imported, offer};
        let driver = host_driver();
        let dynamic: std::sync::Arc<dyn Driver> = driver.clone();
        let buffer = Buffer::new(&driver, 2, 0, Place::Device(DEVICE), Share::Fd);
        let (mapped, _) = buffer.offer();
        let imported = Imported::map(&dynamic, DEVICE, &mapped, fetch(&mapped).unwrap(), &BOTH).unwrap();
        write(buffer.at(), buffer.bytes, 3);
        let (descriptor, ticket) = Nothing::offer(10);
        let (pieces, mut imported) = (fetch(&mapped).unwrap(), Some(imported));
        forked(|| {
            // What the child takes stays with the parent.
            let imported = imported.take().unwrap();
            assert_eq!(serve(), Err(Error::Forked));
            assert_eq!(offer(std::sync::Arc::new(Nothing(1))).unwrap_err(), Error::Forked);
            assert_eq!(fetch(&descriptor).unwrap_err(), Error::Forked);
            assert_eq!(imported.close(), Err(Error::Forked));
            let again = Imported::map(&dynamic, DEVICE, &mapped, pieces, &BOTH);
            assert_eq!(again.unwrap_err(), Error::Forked);
            withdraw(ticket.key);
            drop(imported);
        });
        let imported = imported.unwrap();
        assert_eq!(take_all(&descriptor).unwrap(), 10);
        holds(imported.address(), imported.bytes(), 3);
        imported.close().unwrap();
    });
}
