//! Descriptors, messages and the exchange, without a driver: descriptors of pipes and memfds stand for memory.

mod descriptor;
mod exchange;
mod hostile;
mod message;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::random::Random;
use crate::resource::ipc::message::Message;
use crate::resource::ipc::pieces::{Exported, Form, Handle, Pieces};
use crate::resource::ipc::socket::Socket;
use crate::resource::ipc::{Ticket, offer, service};

const PAGE: u64 = 4096;
/// Short, for tests in which one side is silent.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

/// A service of this test; the offers are those of the process.
fn service(patience: Duration) -> Uuid {
    let name = Uuid::new_v4();
    let listener = Socket::listen(name).unwrap();
    std::thread::spawn(move || service::run(&listener, patience));
    name
}

/// Writing ends of one pipe: the reading end shows whether any is still open, in any process.
struct Pipe {
    reading: OwnedFd,
    writing: OwnedFd,
}

impl Pipe {
    fn new() -> Self {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        Self { reading, writing }
    }

    fn copy(&self) -> OwnedFd {
        self.writing.try_clone().unwrap()
    }

    /// Closes this writing end, and checks that it was the last.
    #[track_caller]
    fn demand_closed(self) {
        drop(self.writing);
        let started = Instant::now();
        // Children that other tests start have copies until they execute their program.
        while rustix::io::read(&self.reading, &mut [0; 1]) != Ok(0) {
            assert!(started.elapsed() < LONG, "a descriptor that was sent is still open");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Memory in equal pieces, each a copy of one descriptor.
struct Memory {
    fd: OwnedFd,
    pieces: u64,
}

impl Memory {
    fn bytes(&self) -> u64 {
        self.pieces * PAGE
    }
}

impl Exported for Memory {
    fn pieces(&self) -> Result<Pieces> {
        let fd = self.fd.try_clone().map_err(Error::invalid)?;
        let sizes = vec![PAGE; usize::try_from(self.pieces).map_err(Error::invalid)?];
        let bytes = self.bytes();
        Pieces::lazy(0, bytes, Form::Fd, sizes, move |_| Ok(Handle::Fd(fd.try_clone().map_err(Error::invalid)?)))
    }
}

fn offered(pipe: &Pipe, pieces: u64) -> (Ticket, u64) {
    let memory = Memory { fd: pipe.copy(), pieces };
    let bytes = memory.bytes();
    (offer(Arc::new(memory)).unwrap(), bytes)
}

/// Takes all pieces, and returns their number.
#[track_caller]
fn drain(mut pieces: Pieces) -> u64 {
    pieces.try_fold(0, |count, piece| piece.map(|_| count + 1)).unwrap()
}

/// Changes, cuts or lengthens some bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        match random.below(10) {
            0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
            1 => bytes.extend((0..random.below(100)).map(|_| random.0 as u8)),
            _ if bytes.is_empty() => {}
            _ => {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = [0, 1, 0xff, random.next() as u8, bytes[at] ^ 1][random.below(5) as usize];
            }
        }
    }
}

fn raw_send(to: &OwnedFd, packet: &[u8], fds: &[OwnedFd]) {
    use rustix::net::*;
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&fds)));
    // The other side may have closed already.
    let _ = sendmsg(to, &[std::io::IoSlice::new(packet)], &mut beside, SendFlags::NOSIGNAL);
}

/// One end with timeouts, the other without.
fn pair(patience: Duration) -> (Socket, OwnedFd) {
    use rustix::net::*;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (Socket::patient(one, patience).unwrap(), other)
}

#[track_caller]
fn peer<T: std::fmt::Debug>(result: Result<T>, word: &str) {
    match result {
        Err(Error::Peer(text)) => assert!(text.contains(word), "no {word:?} in: {text}"),
        other => panic!("no Peer error: {other:?}"),
    }
}

/// A message as its bytes.
fn packet(message: &Message) -> Vec<u8> {
    message.encode()
}
