//! The exporter's side: one thread that accepts, one more for each exchange under way.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use uuid::Uuid;

use super::message::{BATCH, Message, Record, Why};
use super::offers;
use super::pieces::{Handle, Pieces};
use super::socket::{PATIENCE, Socket};
use crate::driver::process::{is_forked, watch_fork};
use crate::driver::{DriverError, ErrorKind};
use crate::resource::{Error, Result};

/// Exchanges at once. Further importers wait to be accepted, within their patience.
const MOST_EXCHANGES: u32 = 64;

/// How long to leave the system alone after it refused a connection, e.g. for want of a descriptor.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of this process's service, once it runs.
static NAME: Mutex<Option<Uuid>> = Mutex::new(None);

/// Starts this process's service, which answers importers until the process ends. Again is harmless; [`offer`](super::offer())
/// does it too. Any thread.
///
/// # Errors
/// [`Error::Forked`] in a child of `fork`; [`Error::Driver`] where the system gives no socket or thread.
pub fn serve() -> Result<()> {
    start().map(drop)
}

/// [`serve`], and the service's name.
pub(super) fn start() -> Result<Uuid> {
    if is_forked() {
        return Err(Error::Forked);
    }
    watch_fork();
    let mut name = NAME.lock();
    if let Some(name) = *name {
        return Ok(name);
    }
    let new = Uuid::new_v4();
    let listener = Socket::listen(new)?;
    spawn("forebay-ipc", move || run(&listener, PATIENCE))?;
    *name = Some(new);
    Ok(new)
}

/// Accepts for ever.
pub(super) fn run(listener: &OwnedFd, patience: Duration) {
    let slots = Arc::new(Slots { used: Mutex::new(0), freed: Condvar::new() });
    let mut last = None;
    loop {
        let slot = slots.take();
        match Socket::accept(listener, patience) {
            Ok(socket) => begin(socket, slot),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => {
                if last.replace(errno) != Some(errno) {
                    tracing::warn!(%errno, "no connection for sharing memory could be accepted; trying on");
                }
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Gives a connection a thread of its own, unless its user has no business here.
fn begin(socket: Socket, slot: Slot) {
    let socket = match socket.check_user() {
        Ok(()) => socket,
        Err(error) => {
            tracing::warn!(%error, "a connection for sharing memory was refused");
            refuse(&socket, &error);
            return;
        }
    };
    let work = move || {
        if let Err(error) = answer(&socket) {
            tracing::debug!(%error, "an exchange of shared memory ended early");
            refuse(&socket, &error);
        }
        drop(slot);
    };
    if let Err(error) = spawn("forebay-ipc-peer", work) {
        tracing::warn!(%error, "a connection for sharing memory was dropped");
    }
}

/// One exchange, from the question to the last piece.
fn answer(socket: &Socket) -> Result<()> {
    let Message::Ask { key } = socket.receive()? else {
        return Err(Error::Invalid("this is no question for memory".into()));
    };
    let offer = offers::find(key).ok_or_else(|| Error::NotFound("nothing is exported under this key".into()))?;
    let mut pieces = offer.pieces()?;
    let shape = pieces.shape();
    socket.send(&Message::Found(shape), &[])?;
    let mut sent = 0;
    while sent < shape.count {
        match socket.receive()? {
            Message::Next { first } if first == sent => {}
            _ => return Err(Error::Invalid(format!("piece {sent} should be asked for next").into())),
        }
        sent += send_batch(socket, sent, &mut pieces)?;
    }
    Ok(())
}

/// Sends the next pieces, and answers how many.
fn send_batch(socket: &Socket, first: u64, pieces: &mut Pieces) -> Result<u64> {
    let (mut records, mut fds) = (Vec::new(), Vec::new());
    for piece in pieces.take(BATCH) {
        let piece = piece?;
        let blob = match piece.handle {
            Handle::Fabric(blob) => blob,
            Handle::Fd(fd) => {
                fds.push(fd);
                [0; _]
            }
        };
        records.push(Record { bytes: piece.bytes, blob });
    }
    let count = records.len() as u64;
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket.send(&Message::Batch { first, records }, &fds)?;
    Ok(count)
}

/// Tells an importer why it gets nothing. It may be gone already.
fn refuse(socket: &Socket, error: &Error) {
    let why = match error {
        Error::NotFound(_) | Error::Closed(_) => Why::NotFound,
        Error::NotPermitted(_) => Why::NotPermitted,
        Error::Invalid(_) | Error::Peer(_) => Why::Malformed,
        _ => Why::Failed,
    };
    let _ = socket.send(&Message::Refused { why, text: error.to_string() }, &[]);
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(|error| {
        let text = format!("a thread for sharing memory: {error}; raise the limit on threads (RLIMIT_NPROC)");
        Error::Driver(DriverError::new(ErrorKind::Failed, "pthread_create", text))
    })
}

/// Counts the exchanges under way.
struct Slots {
    used: Mutex<u32>,
    freed: Condvar,
}

impl Slots {
    /// Waits until there is one.
    fn take(self: &Arc<Self>) -> Slot {
        let mut used = self.used.lock();
        self.freed.wait_while(&mut used, |used| *used >= MOST_EXCHANGES);
        *used += 1;
        Slot(Arc::clone(self))
    }
}

/// One exchange's place; free again when dropped, also by a panic.
struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.used.lock() -= 1;
        self.0.freed.notify_one();
    }
}
