//! The importer's side of the exchange.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::descriptor::{Descriptor, Route};
use super::message::{BATCH, Message, Record, Why};
use super::pieces::{Form, Handle, Piece, Pieces, Shape, wrong};
use super::socket::{PATIENCE, Socket, garbled, room_for_fds};
use crate::driver::process::is_forked;
use crate::error::{Error, Result};
use crate::ticket::Key;

/// Requests a buffer's physical memory from the process that exported it. The sizes in the result are checked against
/// the descriptor. The pieces arrive over the connection while the caller iterates over the result; iterate at once,
/// since the exporter waits 10 s for each batch of at most 64 pieces.
///
/// Works in the exporting process, too; the caller must then hold no lock that
/// [`Exported::pieces`](super::Exported::pieces) needs. Any thread; waits for the exporter, at most 10 s for each
/// packet.
///
/// # Errors
/// [`Error::Invalid`] for a descriptor of another path, [`Error::Forked`] in a child of `fork`, [`Error::Peer`] for an
/// exporter that has ended, hangs, or sends an invalid message, [`Error::NotFound`] for memory that is freed or no
/// longer offered, [`Error::NotPermitted`] for one of another user, [`Error::Driver`] if the system refuses a socket or
/// file descriptor.
pub fn fetch(descriptor: &Descriptor) -> Result<Pieces> {
    let Route::Exchange { service, key, fabric } = descriptor.route() else {
        let path = descriptor.path();
        return Err(Error::Invalid(format!("the IPC descriptor is of path {path:?}, which has no exchange").into()));
    };
    if is_forked() {
        return Err(Error::Forked);
    }
    let socket = Socket::connect(service, PATIENCE)?;
    socket.check_user()?;
    receive(socket, key, descriptor.bytes(), if fabric { Form::Fabric } else { Form::Fd })
}

/// Sends the request over a connection, and receives the shape of the result.
pub(super) fn receive(socket: Socket, key: Key, bytes: u64, form: Form) -> Result<Pieces> {
    // If the exporter refused at once, its message can be received although this send fails.
    let asked = socket.send(&Message::Ask { key }, &[]);
    let shape = match (socket.receive(), asked) {
        (Ok(Message::Found(shape)), _) => shape,
        (Ok(Message::Refused { why, text }), _) => return Err(refused(why, &text)),
        (Ok(_), _) => return Err(garbled("something else than an answer")),
        (Err(error), Ok(())) | (Err(_), Err(error)) => return Err(error),
    };
    shape.check().map_err(wrong)?;
    if shape.bytes != bytes || shape.form != form {
        let (now, now_form) = (shape.bytes, shape.form);
        return Err(wrong(format!("{now} bytes by {now_form:?}, where the descriptor says {bytes} by {form:?}")));
    }
    Ok(Pieces::from_source(shape, Incoming { socket, shape, received: 0, waiting: VecDeque::new() }))
}

/// The pieces still to be received.
struct Incoming {
    socket: Socket,
    shape: Shape,
    received: u64,
    waiting: VecDeque<Piece>,
}

impl Incoming {
    fn batch(&mut self) -> Result<()> {
        let most = match self.shape.form {
            Form::Fd => room_for_fds(),
            Form::Fabric => BATCH,
        };
        let lacking = (self.shape.count - self.received).min(most as u64);
        self.socket.send(&Message::Next { first: self.received, most: lacking }, &[])?;
        let (records, fds) = match self.socket.receive_with_fds()? {
            (Message::Batch { first, records }, fds)
                if first == self.received && (1..=lacking).contains(&(records.len() as u64)) =>
            {
                (records, fds)
            }
            (Message::Refused { why, text }, _) => return Err(refused(why, &text)),
            _ => return Err(garbled("something else than the next pieces")),
        };
        self.received += records.len() as u64;
        self.waiting = match self.shape.form {
            Form::Fd => with_fds(&records, fds)?,
            Form::Fabric if fds.is_empty() => records.into_iter().map(with_blob).collect(),
            Form::Fabric => return Err(garbled("descriptors beside fabric handles")),
        };
        Ok(())
    }
}

impl Iterator for Incoming {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.waiting.is_empty()
            && let Err(error) = self.batch()
        {
            return Some(Err(error));
        }
        self.waiting.pop_front().map(Ok)
    }
}

fn with_blob(record: Record) -> Piece {
    Piece { bytes: record.bytes, handle: Handle::Fabric(record.blob) }
}

fn with_fds(records: &[Record], fds: Vec<OwnedFd>) -> Result<VecDeque<Piece>> {
    if records.len() != fds.len() || records.iter().any(|record| record.blob != [0; _]) {
        return Err(garbled(&format!("{} descriptors for {} pieces", fds.len(), records.len())));
    }
    let pieces = records.iter().zip(fds);
    Ok(pieces.map(|(record, fd)| Piece { bytes: record.bytes, handle: Handle::Fd(fd) }).collect())
}

/// The error for the exporter's refusal. The text is untrusted, so control characters are removed.
fn refused(why: Why, text: &str) -> Error {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    let text = format!("the exporting process answers: {text}").into();
    match why {
        Why::NotFound => Error::NotFound(text),
        Why::NotPermitted => Error::NotPermitted(text),
        Why::Malformed | Why::Failed => Error::Peer(text),
    }
}
