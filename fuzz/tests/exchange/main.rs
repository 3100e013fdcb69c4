//! What comes from another process: descriptors, messages to the service, and answers of an exporter that lies. The worst
//! that they cause is an error; what still opens is the memory that was named, and the service goes on.

#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: objects are alive, outputs are locals, and wrong bytes are what is tested"
)]

#[path = "../../../tests/kit/mod.rs"]
mod kit;
mod packet;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use bolero::TypeGenerator;
use bolero::generator::*;
use forebay::abi::resource::ipc::forebay_ipc_descriptor_size;
use forebay::resource::ipc::{Descriptor, Route};
use rustix::net::*;
use uuid::Uuid;

use kit::resources::*;
use packet::Packet;

/// A change of a descriptor's bytes.
#[derive(Clone, Debug, TypeGenerator)]
enum Change {
    Bit(u8, u8),
    Byte(u8, u8),
    Path(u8),
    Location(u8, u8),
    Bytes(u64),
    Key([u8; 16]),
    Blob(u8, [u8; 8]),
}

impl Change {
    fn apply(&self, bytes: &mut [u8; 256]) {
        match *self {
            Self::Bit(at, bit) => bytes[usize::from(at)] ^= 1 << (bit % 8),
            Self::Byte(at, byte) => bytes[usize::from(at)] = byte,
            Self::Path(path) => bytes[12] = path % 6,
            Self::Location(location, node) => (bytes[32], bytes[36]) = (location % 5, node),
            Self::Bytes(size) => bytes[16..24].copy_from_slice(&size.to_le_bytes()),
            Self::Key(key) => bytes[56..72].copy_from_slice(&key),
            Self::Blob(at, word) => {
                let at = 88 + 8 * usize::from(at % 8);
                bytes[at..at + 8].copy_from_slice(&word);
            }
        }
    }
}

#[derive(Clone, Debug, TypeGenerator)]
enum Input {
    /// A descriptor, changed, and how many of its bytes are given.
    Descriptor { which: u8, changes: Vec<Change>, given: Option<u8> },
    /// Packets to the service, each with so many file descriptors beside it.
    Importer { which: u8, packets: Vec<(Packet, u8)> },
    /// Answers to an import.
    Exporter { which: u8, packets: Vec<(Packet, u8)> },
}

/// Memory that is exported from the first input to the last.
struct Exports {
    buffers: Vec<(Buffer, ForebayIpcDescriptor)>,
    listener: OwnedFd,
    name: Uuid,
    file: OwnedFd,
}

fn address(name: Uuid) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("forebay-{}", name.simple()).as_bytes()).unwrap()
}

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Sends a packet with so many copies of `file` beside it. The other side may have closed the connection.
fn send(to: &OwnedFd, packet: &[u8], file: BorrowedFd<'_>, files: u8) {
    let beside = vec![file; usize::from(files)];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(256))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&beside));
    }
    let _ = sendmsg(to, &[std::io::IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL);
}

impl Exports {
    fn new() -> Self {
        let virtual_memory = Resource::virtual_memory(|_| ()).unwrap();
        let resources = [Resource::of_pool(shared()).unwrap(), virtual_memory];
        let buffers = resources.iter().zip(1..).map(|(resource, seed)| {
            let buffer = resource.allocate(2 * MIB, LEGACY).unwrap();
            buffer.write_pattern(seed);
            let descriptor = buffer.descriptor().unwrap();
            (buffer, descriptor)
        });
        let (listener, name) = (socket(), Uuid::new_v4());
        bind(&listener, &address(name)).unwrap();
        listen(&listener, 8).unwrap();
        let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 2 * MIB).unwrap();
        Self { buffers: buffers.collect(), listener, name, file }
    }

    fn pick(&self, which: u8) -> (&ForebayIpcDescriptor, u64) {
        let index = usize::from(which) % self.buffers.len();
        (&self.buffers[index].1, index as u64 + 1)
    }

    /// What opens holds what was exported, no more of it than there is.
    fn opens_right(&self, result: Outcome<Buffer>) {
        match result {
            Ok(buffer) => {
                let bytes = buffer.bytes();
                assert!(bytes <= 2 * MIB);
                let found = buffer.read(0, bytes.min(4096));
                let right = |&seed: &u64| found == pattern(seed, found.len() as u64);
                assert!([1, 2].iter().any(right), "other memory");
            }
            Err(failure) => assert_ne!(failure.status, Status::Panic, "{}", failure.text),
        }
    }

    fn run(&self, input: &Input) {
        match input {
            Input::Descriptor { which, changes, given } => {
                let mut bytes = self.pick(*which).0.bytes;
                changes.iter().for_each(|change| change.apply(&mut bytes));
                let (descriptor, mut size) = (ForebayIpcDescriptor { bytes }, 0);
                let given = given.map_or(256, u64::from);
                let status = unsafe { forebay_ipc_descriptor_size(&raw const descriptor, given, &raw mut size) };
                let decoded = Descriptor::decode(&bytes[..given as usize]);
                assert_eq!(status == Status::Ok, decoded.is_ok());
                if let Ok(decoded) = decoded {
                    assert_eq!((decoded.encode(), decoded.bytes()), (bytes, size));
                    self.opens_right(Buffer::from_descriptor(None, &descriptor));
                }
            }
            Input::Importer { which, packets } => {
                let (descriptor, seed) = self.pick(*which);
                let Route::Exchange { service, key, .. } = Descriptor::decode(&descriptor.bytes).unwrap().route()
                else {
                    panic!("memory in pieces goes through the exchange")
                };
                let connection = socket();
                connect(&connection, &address(service)).unwrap();
                for (packet, files) in packets {
                    send(&connection, &packet.encode(key.0), self.file.as_fd(), files % 4);
                }
                drop(connection);
                Buffer::from_descriptor(None, descriptor).unwrap().holds_pattern(seed, 4096);
            }
            Input::Exporter { which, packets } => {
                let (mut descriptor, _) = self.pick(*which);
                let mut bytes = descriptor.bytes;
                bytes[72..88].copy_from_slice(self.name.as_bytes());
                let forged = ForebayIpcDescriptor { bytes };
                descriptor = &forged;
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let connection = accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
                        for (packet, files) in packets {
                            send(&connection, &packet.encode(Uuid::nil()), self.file.as_fd(), *files);
                        }
                    });
                    match Buffer::from_descriptor(None, descriptor) {
                        Ok(_) => panic!("memory of nobody was mapped"),
                        Err(failure) => assert_ne!(failure.status, Status::Panic, "{}", failure.text),
                    }
                });
            }
        }
    }
}

#[test]
fn exchange() {
    forebay_fuzz::set_up();
    let exports = std::panic::AssertUnwindSafe(Exports::new());
    bolero::check!(name = "exchange").with_type::<Input>().for_each(|input| exports.run(input));
}
