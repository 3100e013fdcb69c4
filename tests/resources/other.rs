//! Another process: this program again, as an agent that does what it is told over a UNIX socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use forebay::abi::resource::ipc::forebay_ipc_export_foreign;
use forebay::units::DeviceId;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::kit::process::{Killed, role};
use crate::kit::resources::*;

const ROLE: &str = "FOREBAY_TEST_AGENT";
const LONGEST: usize = 4096;

/// Words for a person, bytes beside them, and at most one file descriptor.
#[derive(Debug)]
pub struct Message {
    pub words: String,
    pub bytes: Vec<u8>,
    pub fd: Option<OwnedFd>,
}

struct Wire(OwnedFd);

impl Wire {
    fn send(&self, words: &str, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
        let packet = [words.as_bytes(), b"\0", bytes].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.into_iter().collect();
        assert!(fds.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&self.0, &[IoSlice::new(&packet)], &mut beside, SendFlags::NOSIGNAL).unwrap();
    }

    /// Nothing once the other end is closed.
    fn receive(&self) -> Option<Message> {
        let mut packet = [0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = recvmsg(&self.0, &mut [IoSliceMut::new(&mut packet)], &mut beside, flags).unwrap().bytes;
        let fd = beside.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let middle = packet[..count].iter().position(|&byte| byte == 0)?;
        let words = String::from_utf8(packet[..middle].to_vec()).unwrap();
        Some(Message { words, bytes: packet[middle + 1..count].to_vec(), fd })
    }
}

/// The agent as whoever started it sees it.
pub struct Other {
    child: Killed,
    wire: Wire,
}

impl Other {
    pub fn start() -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        set_socket_timeout(&ours, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
        let child = role("other::agent")
            .env(ROLE, "1")
            .env("FOREBAY_DRIVER", driver())
            .env("FOREBAY_TEST_DRIVER", driver())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child: Killed(child), wire: Wire(ours) }
    }

    /// Has it do something; answers what it says.
    #[track_caller]
    pub fn ask_with(&self, words: &str, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Message {
        self.wire.send(words, bytes, fd);
        self.wire.receive().unwrap_or_else(|| panic!("{words}: the other process ended"))
    }

    #[track_caller]
    pub fn ask(&self, words: &str) -> Message {
        self.ask_with(words, &[], None)
    }

    /// Has it do something, which must go well.
    #[track_caller]
    pub fn does(&self, words: &str) {
        assert_eq!(self.ask(words).words, "done", "{words}");
    }

    #[track_caller]
    pub fn import(&self, descriptor: &ForebayIpcDescriptor) -> String {
        self.ask_with("import", &descriptor.bytes, None).words
    }

    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// It ends by itself, and found nothing wrong.
    pub fn finish(mut self) {
        self.does("end");
        self.child.finish();
    }
}

pub fn descriptor_of(message: &Message) -> ForebayIpcDescriptor {
    assert!(message.bytes.len() >= 256, "{}", message.words);
    ForebayIpcDescriptor { bytes: message.bytes[..256].try_into().unwrap() }
}

/// A kind that can be shared. The first two are pools of the driver.
pub fn shareable(kind: &str, pool: &mut Option<Pool>) -> Outcome<Resource> {
    let location = match kind {
        "device" => return Resource::device(|options| options.ipc_enabled = 1),
        "pinned" => return Resource::pinned(|options| options.ipc_enabled = 1),
        "virtual" => return Resource::virtual_memory(|_| ()),
        "virtual-host" => {
            return Resource::virtual_memory(|options| options.location_type = ForebayLocation::HostNuma as u32);
        }
        "pool" => ForebayLocation::Device,
        "pinned-pool" => ForebayLocation::HostNuma,
        other => panic!("no kind {other:?}"),
    };
    Resource::of_pool(pool.insert(Pool::with(|options| options.location = location as u32)?))
}

// ---- the agent itself ----------------------------------------------------------------------------------

#[derive(Default)]
struct Agent {
    buffer: Option<Buffer>,
    resource: Option<Resource>,
    pool: Option<Pool>,
}

fn told<T>(result: Outcome<T>, done: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => done(value),
        Err(failure) => format!("{:?}: {}", failure.status, failure.text),
    }
}

impl Agent {
    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().unwrap()
    }

    fn take(&mut self, imported: Outcome<Buffer>) -> String {
        told(imported, |buffer| {
            let info = buffer.info();
            self.buffer = Some(buffer);
            format!("path {} bytes {} mapped {}", info.ipc_path, info.bytes, info.is_mapped)
        })
    }

    fn answer(&mut self, asked: &Message, reply: &Wire) {
        let words: Vec<&str> = asked.words.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let done = |result: Outcome| told(result, |()| "done".into());
        let answer = match words[0] {
            "export" if words[1] == "plain" => return export_plain(number(2), number(3), reply),
            "export" => match shareable(words[1], &mut self.pool) {
                Ok(resource) => return self.export(resource, number(2), number(3), reply),
                Err(failure) => format!("{:?}: {}", failure.status, failure.text),
            },
            "map" => {
                let (kind, fd) = (if words[1] == "device" { Kind::Device } else { Kind::Pinned }, asked.fd.as_ref());
                let uuid = <&Uuid>::try_from(&asked.bytes[..]).ok();
                told(Resource::from_fd(kind as u32, fd.unwrap().as_raw_fd(), uuid), |resource| {
                    let info = resource.info();
                    let refused = resource.allocate(MIB, LEGACY).expect_err("a mapped pool").status;
                    self.resource = Some(resource);
                    format!("mapped {} uuid {} allocate {refused:?}", info.is_mapped, info.has_uuid)
                })
            }
            "import" => self.take(Buffer::from_descriptor(None, &descriptor_of(asked))),
            "import-mapped" => self.take(Buffer::from_descriptor(self.resource.as_ref(), &descriptor_of(asked))),
            "check" => {
                let buffer = self.buffer();
                // A pattern that begins in the middle: of a buffer of which this is the end.
                let (skipped, seed) = (number(2), number(1));
                let right = pattern(seed, skipped + buffer.bytes());
                if buffer.read(0, buffer.bytes()) == right[skipped as usize..] { "done" } else { "wrong bytes" }.into()
            }
            "write" => {
                self.buffer().write_pattern(number(1));
                "done".into()
            }
            "grow" => done(self.resource.as_ref().unwrap().modify(self.buffer(), number(1), None)),
            "close" => {
                let closed = self.buffer().close().and_then(|()| self.buffer().close());
                // The exporter may give a pool's memory back only after this side is done with it.
                synchronize();
                done(closed)
            }
            "drop" => {
                self.buffer = None;
                self.resource = None;
                self.pool = None;
                "done".into()
            }
            "end" => "done".into(),
            other => panic!("asked for {other:?}"),
        };
        reply.send(&answer, &[], None);
    }

    fn export(&mut self, resource: Resource, bytes: u64, seed: u64, reply: &Wire) {
        let buffer = resource.allocate(bytes, LEGACY).unwrap();
        buffer.write_pattern(seed);
        let descriptor = buffer.descriptor().unwrap().bytes;
        assert_eq!(descriptor, buffer.descriptor().unwrap().bytes, "asking again gives the same");
        match resource.allocation_handle() {
            Ok((fd, uuid)) => {
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                reply.send("exported", &[&descriptor[..], &uuid].concat(), Some(fd));
            }
            Err(_) => reply.send("exported", &descriptor, None),
        }
        (self.buffer, self.resource) = (Some(buffer), Some(resource));
    }
}

/// Plain device memory, which stays until this process ends.
fn export_plain(bytes: u64, seed: u64, reply: &Wire) {
    shared();
    let driver = std::sync::Arc::clone(forebay::pool::shared().unwrap().driver());
    let (at, data) = (driver.allocate(DeviceId(0), bytes).unwrap().0, pattern(seed, bytes));
    shared().copy(at as Block, data.as_ptr() as Block, bytes, LEGACY).unwrap();
    synchronize();
    let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
    match outcome(unsafe { forebay_ipc_export_foreign(at as *const _, bytes, &raw mut descriptor) }) {
        Ok(()) => reply.send("exported", &descriptor.bytes, None),
        Err(failure) => reply.send(&format!("{:?}: {}", failure.status, failure.text), &[], None),
    }
}

#[test]
#[ignore = "the other process of the tests here"]
fn agent() {
    if std::env::var(ROLE).is_err() {
        println!("no role: nothing to do");
        return;
    }
    let wire = Wire(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut agent = Agent::default();
    while let Some(asked) = wire.receive() {
        agent.answer(&asked, &wire);
        if asked.words == "end" {
            break;
        }
    }
}
