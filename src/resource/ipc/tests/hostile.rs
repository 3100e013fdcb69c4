//! The other side is silent, hostile or broken.

use std::time::Instant;

use super::*;
use crate::resource::ipc::fetch::receive;
use crate::resource::ipc::message::Record;
use crate::resource::ipc::pieces::Shape;
use crate::resource::ipc::{Key, withdraw};

fn found(pieces: u64) -> Message {
    Message::Found(Shape { offset: 0, bytes: pieces * PAGE, span: pieces * PAGE, count: pieces, form: Form::Fd })
}

fn batch(first: u64, pieces: u64) -> Message {
    let record = Record { bytes: PAGE, blob: [0; 64] };
    Message::Batch { first, records: vec![record; usize::try_from(pieces).unwrap()] }
}

/// The importer's result for these packets, each with a number of file descriptors, and none after them.
fn told(packets: &[(Vec<u8>, usize)], pieces: u64, pipe: &Pipe) -> Result<u64> {
    let (socket, exporter) = pair(LONG);
    for (packet, fds) in packets {
        let fds: Vec<_> = (0..*fds).map(|_| pipe.copy()).collect();
        raw_send(&exporter, packet, &fds);
    }
    rustix::net::shutdown(&exporter, rustix::net::Shutdown::Write).unwrap();
    let mut count = 0;
    for piece in receive(socket, Key(Uuid::from_bytes([1; 16])), pieces * PAGE, Form::Fd)? {
        piece?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn an_answer_as_it_should_be_is_taken() {
    let pipe = Pipe::new();
    let packets = [(packet(&found(66)), 0), (packet(&batch(0, 64)), 64), (packet(&batch(64, 2)), 2)];
    assert_eq!(told(&packets, 66, &pipe).unwrap(), 66);
    // Fewer than 64 in a batch are valid.
    let packets = [(packet(&found(3)), 0), (packet(&batch(0, 1)), 1), (packet(&batch(1, 2)), 2)];
    assert_eq!(told(&packets, 3, &pipe).unwrap(), 3);
    pipe.demand_closed();
}

#[test]
fn wrong_answers_are_refused_and_their_descriptors_closed() {
    let pipe = Pipe::new();
    let answer = |count, batches: &[(Message, usize)]| {
        let mut packets = vec![(packet(&found(count)), 0)];
        packets.extend(batches.iter().map(|(message, fds)| (packet(message), *fds)));
        told(&packets, count, &pipe)
    };
    peer(answer(2, &[(batch(0, 2), 1)]), "1 descriptors for 2 pieces");
    peer(answer(2, &[(batch(0, 2), 3)]), "3 descriptors for 2 pieces");
    peer(answer(2, &[(batch(0, 2), 253)]), "253 descriptors for 2 pieces");
    peer(answer(2, &[(batch(0, 2), 0)]), "0 descriptors for 2 pieces");
    peer(answer(2, &[(batch(1, 2), 2)]), "next pieces");
    peer(answer(2, &[(batch(0, 0), 0)]), "next pieces");
    peer(answer(2, &[(batch(0, 3), 3)]), "next pieces");
    peer(answer(3, &[(batch(0, 2), 2)]), "closed");
    peer(answer(3, &[]), "closed");
    peer(answer(1, &[(found(1), 1)]), "next pieces");
    let sized = |bytes| Message::Batch { first: 0, records: vec![Record { bytes, blob: [0; 64] }] };
    for bytes in [0, 1, PAGE - 1, PAGE + 1, u64::MAX] {
        peer(answer(1, &[(sized(bytes), 1)]), "wrongly");
    }
    let blob = Message::Batch { first: 0, records: vec![Record { bytes: PAGE, blob: [1; 64] }] };
    peer(answer(1, &[(blob, 1)]), "1 descriptors for 1 pieces");
    // File descriptors where none belong; a packet cut short; one that is too long.
    assert_eq!(told(&[(packet(&found(1)), 5), (packet(&batch(0, 1)), 1)], 1, &pipe).unwrap(), 1);
    peer(told(&[(packet(&found(1))[..50].to_vec(), 2)], 1, &pipe), "cut short");
    peer(told(&[(vec![1; 10_000], 2)], 1, &pipe), "more than");
    peer(told(&[(packet(&found(1)), 0), (vec![1; 10_000], 2)], 1, &pipe), "more than");
    peer(told(&[(packet(&Message::Next { first: 0, most: 64 }), 0)], 1, &pipe), "an answer");
    peer(told(&[], 1, &pipe), "closed");
    for shape in [
        Shape { offset: u64::MAX, bytes: PAGE, span: PAGE, count: 1, form: Form::Fd },
        Shape { offset: 1, bytes: PAGE, span: PAGE, count: 1, form: Form::Fd },
        Shape { offset: 0, bytes: PAGE, span: u64::MAX, count: 1, form: Form::Fd },
        Shape { offset: 0, bytes: PAGE, span: PAGE, count: 0, form: Form::Fd },
        Shape { offset: 0, bytes: PAGE, span: PAGE, count: PAGE + 1, form: Form::Fd },
        Shape { offset: 0, bytes: PAGE, span: PAGE, count: 1, form: Form::Fabric },
        Shape { offset: 0, bytes: PAGE - 1, span: PAGE, count: 1, form: Form::Fd },
    ] {
        peer(told(&[(packet(&Message::Found(shape)), 0)], 1, &pipe), "wrongly");
    }
    pipe.demand_closed();
}

#[test]
fn ten_thousand_damaged_answers_break_nothing_and_leak_nothing() {
    let (pipe, mut random) = (Pipe::new(), Random(3));
    let mut taken = 0;
    for case in 0..10_000 {
        let pieces = 1 + random.below(4);
        let mut packets = vec![(packet(&found(pieces)), 0), (packet(&batch(0, pieces)), pieces as usize)];
        let which = random.below(2) as usize;
        damage(&mut packets[which].0, &mut random);
        packets[which].1 = (packets[which].1 as u64 + random.below(2)) as usize;
        match told(&packets, pieces, &pipe) {
            Ok(count) => {
                assert_eq!(count, pieces, "case {case}");
                taken += 1;
            }
            Err(Error::Peer(_) | Error::NotFound(_) | Error::NotPermitted(_)) => {}
            Err(other) => panic!("case {case}: {other:?}"),
        }
    }
    assert!(taken < 5_000, "the damage does nothing");
    pipe.demand_closed();
}

#[test]
fn a_silent_exporter_is_given_up() {
    let name = Uuid::new_v4();
    let listener = Socket::listen(name).unwrap();
    let started = Instant::now();
    let ask = || receive(Socket::connect(name, SHORT)?, Key(Uuid::from_bytes([1; 16])), PAGE, Form::Fd);
    peer(ask(), "silent for 200ms");
    // Accepts, answers once, and is then silent.
    let answers = std::thread::spawn(move || {
        let _waiting = Socket::accept(&listener, LONG).unwrap();
        let socket = Socket::accept(&listener, LONG).unwrap();
        assert!(matches!(socket.receive().unwrap(), Message::Ask { .. }));
        socket.send(&found(1), &[]).unwrap();
        socket
    });
    let mut pieces = ask().unwrap();
    peer(pieces.next().unwrap(), "silent");
    assert!(pieces.next().is_none());
    assert!(started.elapsed() >= 2 * SHORT && started.elapsed() < LONG);
    drop(answers.join().unwrap());
}

#[test]
fn an_exporter_whose_queue_is_full_is_given_up() {
    let name = Uuid::new_v4();
    let _listener = Socket::listen(name).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match Socket::connect(name, SHORT) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1000);
    };
    peer::<()>(Err(error), "silent");
}

#[test]
fn silent_and_rude_importers_keep_nobody_else_from_an_answer() {
    let (name, pipe) = (service(SHORT), Pipe::new());
    let (ticket, bytes) = offered(&pipe, 100);
    let ask = packet(&Message::Ask { key: ticket.key });
    let mut random = Random(4);
    let mut rude = Vec::new();
    let connect = || Socket::connect(name, LONG).unwrap();
    // As many importers as the service answers at once say nothing, and as many stop in the middle.
    for index in 0..128 {
        let socket = connect();
        if index % 2 == 0 {
            socket.send(&Message::Ask { key: ticket.key }, &[]).unwrap();
        }
        rude.push(socket);
    }
    let good = || drain(receive(connect(), ticket.key, bytes, Form::Fd).unwrap());
    let started = Instant::now();
    assert_eq!(good(), 100);
    assert!(started.elapsed() < LONG / 2, "{:?}", started.elapsed());
    drop(rude);
    // Garbage, with descriptors beside it, and ends in the middle.
    for _ in 0..1000 {
        let (fd, mut bytes) = (raw_connect(name), ask.clone());
        damage(&mut bytes, &mut random);
        let fds: Vec<_> = (0..random.below(3)).map(|_| pipe.copy()).collect();
        raw_send(&fd, &bytes, &fds);
    }
    for stop in [0, 1] {
        let mut pieces = receive(connect(), ticket.key, bytes, Form::Fd).unwrap();
        pieces.by_ref().take(stop).for_each(|piece| drop(piece.unwrap()));
    }
    assert_eq!(good(), 100);
    withdraw(ticket.key);
    pipe.demand_closed();
}

#[test]
fn connections_that_are_silent_for_long_make_room_for_others() {
    // Far longer than any wait in this test.
    let (name, pipe) = (service(30 * LONG), Pipe::new());
    let (ticket, bytes) = offered(&pipe, 100);
    let connect = || Socket::connect(name, LONG).unwrap();
    let silent: Vec<Socket> = (0..100)
        .map(|index| {
            let socket = connect();
            if index % 2 == 0 {
                socket.send(&Message::Ask { key: ticket.key }, &[]).unwrap();
            }
            socket
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(drain(receive(connect(), ticket.key, bytes, Form::Fd).unwrap()), 100);
    }
    // Those that were silent for the longest time get an error. The order of the service's threads decides which.
    let told = std::thread::scope(|scope| {
        let (teller, told) = std::sync::mpsc::channel();
        for socket in &silent {
            let teller = teller.clone();
            scope.spawn(move || {
                while let Ok(message) = socket.receive() {
                    if let Message::Refused { text, .. } = message {
                        // The service no longer reads the next ones.
                        let _ = teller.send(text);
                    }
                }
            });
        }
        let text = told.recv_timeout(LONG).expect("somebody is told");
        silent.iter().for_each(Socket::stop_waiting);
        text
    });
    assert!(told.contains("silent for 1s while others waited"), "{told}");
    withdraw(ticket.key);
    drop(silent);
    pipe.demand_closed();
}

#[test]
fn a_question_that_makes_no_sense_is_told_so() {
    let name = service(LONG);
    let told = |packet: &[u8]| {
        let fd = raw_connect(name);
        raw_send(&fd, packet, &[]);
        match Socket::patient(fd, LONG).unwrap().receive() {
            Ok(Message::Refused { text, .. }) => text,
            other => panic!("{other:?}"),
        }
    };
    let mut newer = packet(&Message::Next { first: 0, most: 64 });
    assert!(told(&newer).contains("not a request"));
    newer[8] = 9;
    assert!(told(&newer).contains("protocol version 9"));
    assert!(told(b"GET / HTTP/1.1\r\n\r\n").contains("no message of Forebay's"));
    let pipe = Pipe::new();
    let (ticket, _) = offered(&pipe, 100);
    let socket = Socket::connect(name, LONG).unwrap();
    socket.send(&Message::Ask { key: ticket.key }, &[]).unwrap();
    assert!(matches!(socket.receive(), Ok(Message::Found(_))));
    socket.send(&Message::Next { first: 64, most: 64 }, &[]).unwrap();
    let answer = socket.receive().unwrap();
    assert!(matches!(&answer, Message::Refused { text, .. } if text.contains("piece 0")), "{answer:?}");
    withdraw(ticket.key);
    drop(socket);
    pipe.demand_closed();
}

/// A connection without timeouts.
fn raw_connect(name: Uuid) -> OwnedFd {
    use rustix::net::*;
    let address = SocketAddrUnix::new_abstract_name(format!("forebay-{}", name.simple()).as_bytes()).unwrap();
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&fd, &address).unwrap();
    fd
}
