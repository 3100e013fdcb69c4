//! Exporter and importer in one process, both valid.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use super::{LONG, PAGE, Pipe, SHORT, drain, offered, peer, service};
use crate::error::{Error, Result};
use crate::resource::ipc::fetch::receive;
use crate::resource::ipc::socket::Socket;
use crate::resource::ipc::{
    Descriptor, Exported, Form, Handle, Key, Location, Piece, Pieces, Route, Ticket, fetch, offer, withdraw,
};

/// Memory whose pieces have their index as content, with a count of pieces exported ahead.
struct Numbered {
    pieces: usize,
    exported: Arc<AtomicU64>,
}

fn numbered(index: usize) -> OwnedFd {
    let mut file = File::from(rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(&index.to_le_bytes()).unwrap();
    file.into()
}

impl Exported for Numbered {
    fn pieces(&self) -> Result<Pieces> {
        let exported = Arc::clone(&self.exported);
        let sizes: Vec<u64> = (1..=self.pieces as u64).map(|size| size * PAGE).collect();
        let bytes = sizes.iter().sum::<u64>() - PAGE;
        Pieces::lazy(PAGE / 2, bytes, Form::Fd, sizes, move |index| {
            exported.fetch_add(1, Ordering::SeqCst);
            Ok(Handle::Fd(numbered(index)))
        })
    }
}

#[test]
fn pieces_arrive_whole_in_order_and_only_when_their_turn_has_come() {
    for count in [1, 63, 64, 65, 128, 300] {
        let exported = Arc::new(AtomicU64::new(0));
        let ticket = offer(Arc::new(Numbered { pieces: count, exported: Arc::clone(&exported) })).unwrap();
        let bytes = (1..=count as u64).sum::<u64>() * PAGE - PAGE;
        // One piece of a page cannot hold the buffer with an offset.
        let Some(bytes) = Some(bytes).filter(|&bytes| bytes > 0) else { continue };
        let descriptor = Descriptor::new(Route::exchange(ticket, false), bytes, Location::Host).unwrap();
        let mut pieces = fetch(&descriptor).unwrap();
        assert_eq!((pieces.offset(), pieces.bytes(), pieces.total()), (PAGE / 2, bytes, count as u64));
        assert_eq!(pieces.span(), bytes + PAGE);
        assert_eq!(exported.load(Ordering::SeqCst), 0, "nothing is exported before it is asked for");
        for index in 0..count {
            let piece = pieces.next().unwrap().unwrap();
            assert_eq!(piece.bytes, (index as u64 + 1) * PAGE);
            let Handle::Fd(fd) = piece.handle else { panic!("a descriptor was sent") };
            assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
            let (mut file, mut number) = (File::from(fd), [0; 8]);
            file.rewind().unwrap();
            file.read_exact(&mut number).unwrap();
            assert_eq!(usize::from_le_bytes(number), index);
            let ahead = exported.load(Ordering::SeqCst) - index as u64;
            assert!(ahead <= 64, "{ahead} descriptors at once");
        }
        assert!(pieces.next().is_none());
        withdraw(ticket.key);
    }
}

#[test]
fn fabric_handles_arrive_without_descriptors() {
    struct Fabric;
    impl Exported for Fabric {
        fn pieces(&self) -> Result<Pieces> {
            let piece = |number| Piece { bytes: PAGE, handle: Handle::Fabric([number; 64]) };
            Pieces::new(0, 2 * PAGE, vec![piece(1), piece(2)])
        }
    }
    let ticket = offer(Arc::new(Fabric)).unwrap();
    let described = |fabric| Descriptor::new(Route::exchange(ticket, fabric), 2 * PAGE, Location::Host).unwrap();
    let blobs: Vec<_> = fetch(&described(true)).unwrap().map(|piece| piece.unwrap().handle).collect();
    assert!(matches!(blobs[..], [Handle::Fabric([1, ..]), Handle::Fabric([2, ..])]));
    peer(fetch(&described(false)), "where the descriptor says");
}

#[test]
fn a_withdrawn_offer_and_an_unknown_key_are_not_found() {
    let pipe = Pipe::new();
    let (ticket, bytes) = offered(&pipe, 3);
    let descriptor = Descriptor::new(Route::exchange(ticket, false), bytes, Location::Host).unwrap();
    assert_eq!(fetch(&descriptor).unwrap().total(), 3);
    withdraw(ticket.key);
    withdraw(ticket.key);
    let unknown =
        Descriptor::new(Route::exchange(Ticket { key: Key(Uuid::new_v4()), ..ticket }, false), bytes, Location::Host);
    for descriptor in [descriptor, unknown.unwrap()] {
        let error = fetch(&descriptor).unwrap_err();
        assert!(matches!(&error, Error::NotFound(text) if text.contains("under this key")), "{error}");
    }
    pipe.demand_closed();
}

#[test]
fn what_the_exporter_says_reaches_the_importer() {
    struct Failing(Error);
    impl Exported for Failing {
        fn pieces(&self) -> Result<Pieces> {
            Err(self.0.clone())
        }
    }
    let answered = |error: Error| {
        let ticket = offer(Arc::new(Failing(error))).unwrap();
        let answer = fetch(&Descriptor::new(Route::exchange(ticket, false), 1, Location::Host).unwrap()).unwrap_err();
        withdraw(ticket.key);
        answer
    };
    assert!(matches!(answered(Error::Closed("shut".into())), Error::NotFound(text) if text.contains("shut")));
    assert!(matches!(answered(Error::NotPermitted("no".into())), Error::NotPermitted(text) if text.contains("no")));
    let other = answered(Error::OutOfMemory("no\u{1b}[2Jroom".into()));
    assert!(matches!(&other, Error::Peer(text) if text.contains("no[2Jroom")), "{other}");
}

#[test]
fn a_failure_and_a_panic_between_the_pieces_end_one_exchange_only() {
    struct Breaking(Pipe, bool);
    impl Exported for Breaking {
        fn pieces(&self) -> Result<Pieces> {
            let (fd, panics) = (self.0.copy(), self.1);
            Pieces::lazy(0, 100 * PAGE, Form::Fd, vec![PAGE; 100], move |index| match index {
                70 if panics => panic!("planted in a test"),
                70 => Err(Error::NotFound("freed meanwhile".into())),
                _ => Ok(Handle::Fd(fd.try_clone().map_err(Error::invalid)?)),
            })
        }
    }
    for panics in [false, true] {
        let memory = Arc::new(Breaking(Pipe::new(), panics));
        let ticket = offer(memory.clone()).unwrap();
        let descriptor = Descriptor::new(Route::exchange(ticket, false), 100 * PAGE, Location::Host).unwrap();
        for _ in 0..3 {
            let mut pieces = fetch(&descriptor).unwrap();
            let error = pieces.find_map(|piece| piece.err()).unwrap();
            match panics {
                false => assert!(matches!(&error, Error::NotFound(text) if text.contains("meanwhile")), "{error}"),
                true => assert!(matches!(&error, Error::Peer(text) if text.contains("closed")), "{error}"),
            }
            assert!(pieces.next().is_none(), "nothing after an error");
        }
        withdraw(ticket.key);
        let started = std::time::Instant::now();
        let memory = loop {
            match Arc::strong_count(&memory) {
                1 => break Arc::into_inner(memory).unwrap(),
                _ if started.elapsed() > LONG => panic!("the service still holds what was withdrawn"),
                _ => std::thread::sleep(SHORT / 20),
            }
        };
        memory.0.demand_closed();
    }
}

#[test]
fn a_descriptor_that_says_another_size_is_refused() {
    let pipe = Pipe::new();
    let (ticket, bytes) = offered(&pipe, 2);
    for wrong in [bytes - 1, bytes + 1, 1] {
        let descriptor = Descriptor::new(Route::exchange(ticket, false), wrong, Location::Host).unwrap();
        peer(fetch(&descriptor), &format!("the descriptor says {wrong}"));
    }
    withdraw(ticket.key);
    pipe.demand_closed();
}

#[test]
fn a_service_that_nobody_has_is_a_peer_that_is_gone() {
    peer(Socket::connect(Uuid::new_v4(), SHORT), "has ended");
    let route = crate::resource::ipc::Route::Pool { blob: [0; 64], pool: None };
    let error = fetch(&Descriptor::new(route, 1, Location::Host).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[test]
fn many_importers_at_once_get_everything() {
    let pipe = Pipe::new();
    let (ticket, bytes) = offered(&pipe, 100);
    let name = service(LONG);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let socket = Socket::connect(name, LONG).unwrap();
                let pieces = receive(socket, ticket.key, bytes, Form::Fd).unwrap();
                assert_eq!(drain(pieces), 100);
            });
        }
    });
    withdraw(ticket.key);
    pipe.demand_closed();
}

#[test]
fn pieces_that_do_not_hold_the_buffer_are_refused_when_they_are_described() {
    let sized = |offset, bytes, sizes: &[u64]| {
        Pieces::lazy(offset, bytes, Form::Fabric, sizes.to_vec(), |_| Ok(Handle::Fabric([0; 64])))
    };
    for (offset, bytes, sizes) in [
        (0, 0, &[PAGE][..]),
        (0, 1, &[]),
        (1, PAGE, &[PAGE]),
        (u64::MAX, 2, &[PAGE]),
        (0, PAGE + 1, &[PAGE]),
        (0, 1, &[u64::MAX, 2]),
        (0, 1, &[(1 << 57) + 1]),
    ] {
        assert!(matches!(sized(offset, bytes, sizes), Err(Error::Invalid(_))), "{offset} {bytes} {sizes:?}");
    }
    // Pieces without a part of the buffer, and pieces of no size.
    for (offset, bytes, sizes) in [
        (PAGE, PAGE, &[PAGE, PAGE][..]),
        (0, PAGE, &[PAGE, PAGE]),
        (0, 2 * PAGE, &[PAGE, 0, PAGE]),
        (0, 2 * PAGE, &[0, 2 * PAGE]),
    ] {
        let error = sized(offset, bytes, sizes).unwrap().find_map(|piece| piece.err());
        assert!(error.is_some(), "{offset} {bytes} {sizes:?}");
    }
}
