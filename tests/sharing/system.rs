//! Users, namespaces and limits of the system.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use forebay::driver::{Driver, Place, Share};
use forebay::error::Error;
use forebay::resource::ipc::{Descriptor, Imported, Route, fetch};
use rustix::net::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kit::exports::*;
use crate::kit::process::{Other, becomes, in_child, open_fds, say, told};
use crate::process::{given_descriptor, heard, start, start_apart, start_nameless};

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A bare connection to the service, past the importer's own checks.
fn raw_connect(descriptor: &Descriptor) -> OwnedFd {
    let Route::Exchange { service, .. } = descriptor.route() else { panic!("another route") };
    let address = SocketAddrUnix::new_abstract_name(format!("forebay-{}", service.simple()).as_bytes()).unwrap();
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
    connect(&fd, &address).unwrap();
    fd
}

/// A message as the protocol has it, byte by byte.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    [b"FBAYXCH\0\x02\0\0\0", &[kind, 0, 0, 0][..], content].concat()
}

fn question(descriptor: &Descriptor) -> Vec<u8> {
    let Route::Exchange { key, .. } = descriptor.route() else { panic!("another route") };
    message(1, key.0.as_bytes())
}

/// Role: asks as another user; first as one should, then past the own check.
pub fn another_user() {
    let descriptor = given_descriptor();
    assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
    match fetch(&descriptor) {
        Err(Error::NotPermitted(text)) => assert!(text.contains("user 0") && text.contains("65534"), "{text}"),
        other => panic!("{other:?}"),
    }
    // The refusal comes before any question, and nothing after it.
    let fd = raw_connect(&descriptor);
    let mut packet = [0; 4096];
    let (_, length) = recv(&fd, &mut packet, RecvFlags::empty()).unwrap();
    let text = String::from_utf8_lossy(&packet[..length]).into_owned();
    assert!(text.contains("within one user"), "{text}");
    assert_eq!(recv(&fd, &mut packet, RecvFlags::empty()).map(|(_, length)| length), Ok(0));
    say("refused");
}

#[test]
fn a_process_of_another_user_is_refused_by_both_sides() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let (descriptor, _) = Nothing::offer(3);
    let mut other = start("another user", Some(&descriptor));
    assert_eq!(other.hear(), "refused");
    other.finish();
    assert_eq!(take_all(&descriptor).unwrap(), 3);
}

#[test]
fn a_peer_outside_the_pid_namespace_has_a_user_all_the_same() {
    let (descriptor, _) = Nothing::offer(3);
    let Some(mut other) = start_apart("take all when told", &descriptor) else {
        println!("skipped: no PID namespace can be made here");
        return;
    };
    assert_eq!(other.hear(), "ready");
    other.tell("now");
    assert_eq!(other.hear(), "3 pieces");
    other.finish();
}

/// Few descriptors left to this process, until dropped.
struct Scarce {
    limit: Rlimit,
    fillers: Vec<File>,
}

impl Scarce {
    fn leave(room: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let highest = open_fds().iter().filter_map(|fd| fd.parse::<u64>().ok()).max().unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 100), ..limit }).unwrap();
        let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        fillers.truncate(fillers.len() - room);
        Self { limit, fillers }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        self.fillers.clear();
        setrlimit(Resource::Nofile, self.limit).unwrap();
    }
}

/// Returns when the service waits for a connection: the kernel sets a descriptor aside for that, which nobody can count.
fn wait_for_the_service() {
    let accepts = format!("{} ", libc::SYS_accept4);
    let says = |task: &std::path::Path, what| std::fs::read_to_string(task.join(what)).unwrap_or_default();
    let waits = |task: std::path::PathBuf| {
        says(&task, "comm").trim() == "forebay-ipc" && says(&task, "syscall").starts_with(&accepts)
    };
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    becomes("the service waits for somebody", &true, || tasks().any(waits));
}

/// Role: in a user namespace where no user has a number, connects past the own check with the exporter's key.
pub fn ask_without_a_number() {
    let descriptor = given_descriptor();
    say(rustix::process::geteuid().as_raw());
    say(asked_past_the_own_check(&descriptor));
}

/// What the service answers first, and whether that is the refusal that comes before any question.
fn asked_past_the_own_check(descriptor: &Descriptor) -> &'static str {
    let fd = raw_connect(descriptor);
    // Refused at once, the question may not be sent any more.
    let _ = send(&fd, &question(descriptor), SendFlags::NOSIGNAL);
    let mut packet = [0; 4096];
    let (_, length) = recv(&fd, &mut packet, RecvFlags::empty()).unwrap();
    match packet[12] {
        2 => "found",
        5 if String::from_utf8_lossy(&packet[..length]).contains("within one user") => "refused",
        kind => panic!("a message of kind {kind}"),
    }
}

#[test]
fn users_without_a_number_are_not_one_user() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    // Of root, in a user namespace where nobody has a number: it reads every user as the same, itself too.
    let Some(mut exporter) = start_nameless("export and wait", None) else {
        println!("skipped: no user namespace can be made here");
        return;
    };
    let descriptor = heard(&mut exporter);
    let mut stranger = start("another user past the check", Some(&descriptor));
    assert_eq!(stranger.hear(), "refused");
    stranger.finish();
    // Its own user is known by what the kernel lets it do, where the kernel says which process it is.
    let own = take_all(&descriptor);
    match &own {
        Ok(pieces) => assert_eq!(*pieces, 100),
        Err(Error::NotPermitted(text)) => assert!(text.contains("uid_map"), "{text}"),
        other => panic!("{other:?}"),
    }
    // The other way round: who has no number is root to an exporter that knows him, and nobody to one of another user.
    let (ours, _) = Nothing::offer(3);
    let mut importer = start_nameless("ask without a number", Some(&ours)).unwrap();
    assert_eq!((importer.hear(), importer.hear()), (NOBODY.to_string(), "found".into()));
    importer.finish();
    exporter.finish();
}

#[test]
fn nobody_is_a_user_where_every_user_has_a_number() {
    in_child("system::nobody_is_a_user_where_every_user_has_a_number", &[], || {
        if !is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
        let (descriptor, _) = Nothing::offer(3);
        assert_eq!(take_all(&descriptor).unwrap(), 3);
    });
}

/// Role: asks as another user, past the own check.
pub fn another_user_past_the_check() {
    let descriptor = given_descriptor();
    assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
    say(asked_past_the_own_check(&descriptor));
}

/// Role: connects, and asks nothing.
pub fn connect_and_stay() {
    let descriptor = given_descriptor();
    say("ready");
    told();
    let _connection = raw_connect(&descriptor);
    say("connected");
    told();
}

#[test]
fn a_service_without_descriptors_left_answers_once_it_has_some() {
    in_child("system::a_service_without_descriptors_left_answers_once_it_has_some", &[], || {
        let (descriptor, _) = Nothing::offer(100);
        let mut first = start("connect and stay", Some(&descriptor));
        let mut second = start("take all when told", Some(&descriptor));
        assert_eq!((first.hear(), second.hear()), ("ready".into(), "ready".into()));
        // The kernel has set a descriptor for the next connection aside then.
        wait_for_the_service();
        let scarce = Scarce::leave(0);
        first.tell("now");
        assert_eq!(first.hear(), "connected");
        std::thread::sleep(Duration::from_millis(100));
        second.tell("now");
        std::thread::sleep(Duration::from_millis(300));
        drop(scarce);
        assert_eq!(second.hear(), "100 pieces");
        second.finish();
        first.finish();
        assert_eq!(take_all(&descriptor).unwrap(), 100);
    });
}

#[test]
fn an_importer_without_descriptors_left_is_told_so() {
    in_child("system::an_importer_without_descriptors_left_is_told_so", &[], || {
        let mut other = start("export and wait", None);
        let descriptor = heard(&mut other);
        let before = open_fds();
        for (room, call) in [(0, "socket"), (1, "recvmsg")] {
            let scarce = Scarce::leave(room);
            let result = take_all(&descriptor);
            drop(scarce);
            match result {
                Err(Error::Driver(error)) => {
                    assert_eq!((error.call, error.code), (call, libc::EMFILE), "{error}");
                    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
                }
                other => panic!("{call}: {other:?}"),
            }
            same_fds(&before);
        }
        // The connection needs one, and who counts them another.
        for room in [3, 4, 7, 20, 63] {
            let scarce = Scarce::leave(room);
            let taken = take_all(&descriptor);
            drop(scarce);
            assert_eq!(taken, Ok(100), "{room} descriptors left");
            same_fds(&before);
        }
        assert_eq!(take_all(&descriptor).unwrap(), 100);
        other.finish();
    });
}

#[test]
fn an_exporter_with_few_descriptors_left_sends_fewer_at_once() {
    in_child("system::an_exporter_with_few_descriptors_left_sends_fewer_at_once", &[], || {
        let (descriptor, _) = Nothing::offer(100);
        for room in [2, 3, 20, 63] {
            let mut other = start("take all when told", Some(&descriptor));
            assert_eq!(other.hear(), "ready");
            wait_for_the_service();
            let scarce = Scarce::leave(room);
            other.tell("now");
            assert_eq!(other.hear(), "100 pieces", "{room} descriptors left");
            drop(scarce);
            other.finish();
        }
        // Several at once have to do with what one has.
        let mut others: Vec<_> = (0..8).map(|_| start("take all when told", Some(&descriptor))).collect();
        others.iter_mut().for_each(|other| assert_eq!(other.hear(), "ready"));
        let scarce = Scarce::leave(10);
        others.iter_mut().for_each(|other| other.tell("now"));
        others.iter_mut().for_each(|other| assert_eq!(other.hear(), "100 pieces"));
        drop(scarce);
        others.into_iter().for_each(Other::finish);
    });
}

#[test]
fn memory_in_many_pieces_is_mapped_with_few_descriptors_left_to_both_sides() {
    in_child("system::memory_in_many_pieces_is_mapped_with_few_descriptors_left_to_both_sides", &[], || {
        let driver = host_driver();
        let dynamic: Arc<dyn Driver> = driver.clone();
        let buffer = Buffer::new(&driver, 100, 0, Place::Device(DEVICE), Share::Fd);
        let (descriptor, _) = buffer.offer();
        let import = || Imported::map(&dynamic, DEVICE, &descriptor, fetch(&descriptor)?, &BOTH);
        // The host driver opens one file for all of it.
        drop(import().unwrap());
        for room in [12, 40] {
            let scarce = Scarce::leave(room);
            let imported = import();
            drop(scarce);
            let imported = imported.unwrap();
            write(buffer.at(), buffer.bytes, room as u64);
            holds(imported.address(), imported.bytes(), room as u64);
        }
    });
}

/// Whether the kernel lets this user put one more descriptor under way. It comes back at once.
fn can_send_a_descriptor() -> bool {
    let (one, _other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let fds = [std::os::fd::AsFd::as_fd(&one)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&fds));
    match sendmsg(&one, &[std::io::IoSlice::new(b"x")], &mut beside, SendFlags::NOSIGNAL) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::TOOMANYREFS);
            false
        }
    }
}

#[test]
fn descriptors_under_way_beyond_the_users_limit_are_waited_for() {
    in_child("system::descriptors_under_way_beyond_the_users_limit_are_waited_for", &[], || {
        if !is_root() {
            println!("skipped: only root can become a user without other processes");
            return;
        }
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
        let (descriptor, _) = Nothing::offer(64);
        // Importers that ask for a batch of 64 each and do not take it: it stays under way.
        let (ask, next) = (question(&descriptor), message(3, &[[0; 8], 64u64.to_le_bytes()].concat()));
        // The service answers from threads of its own and sends fewer at once when it has few: how many it takes, nobody can say.
        let mut lazy = Vec::new();
        while can_send_a_descriptor() {
            assert!(lazy.len() < 40, "the limit is not reached");
            let fd = raw_connect(&descriptor);
            send(&fd, &ask, SendFlags::NOSIGNAL).unwrap();
            assert!(recv(&fd, &mut [0; 100], RecvFlags::empty()).unwrap().1 > 16);
            send(&fd, &next, SendFlags::NOSIGNAL).unwrap();
            lazy.push(fd);
            std::thread::sleep(Duration::from_millis(50));
        }
        let importer = std::thread::spawn(move || take_all(&descriptor));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!importer.is_finished());
        drop(lazy);
        assert_eq!(importer.join().unwrap().unwrap(), 64);
    });
}

#[test]
fn names_of_services_cannot_be_guessed() {
    let (descriptor, ticket) = Nothing::offer(1);
    let (_, again) = Nothing::offer(1);
    assert_eq!(ticket.service, again.service, "one service for the process");
    assert_ne!(ticket.key, again.key);
    assert_eq!(ticket.service.get_version_num(), 4);
    assert_eq!(ticket.key.0.get_version_num(), 4);
    assert!(!format!("{ticket:?} {descriptor:?}").contains(&ticket.key.0.simple().to_string()));
    assert!(!format!("{ticket:?} {descriptor:?}").contains(&ticket.key.0.to_string()));
    // A name is taken once: nobody can listen at a service's.
    let address = SocketAddrUnix::new_abstract_name(format!("forebay-{}", ticket.service.simple()).as_bytes()).unwrap();
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let error = std::io::Error::from(bind(&fd, &address).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}
