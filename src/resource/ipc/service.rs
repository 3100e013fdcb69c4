//! The exporter's side of the exchange: one thread that accepts connections, and one for each exchange.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use uuid::Uuid;

use super::message::{BATCH, Message, Record, Why};
use super::offers;
use super::pieces::{Exported, Form, Handle, Pieces};
use super::socket::{PATIENCE, Socket, lacks_fds, room_for_fds};
use crate::driver::process::{is_forked, watch_fork};
use crate::driver::{DriverError, ErrorKind};
use crate::error::{Error, Result};
use crate::ticket::Ticket;

/// The most exchanges at once. Further importers wait, at most for their own timeout.
const MOST_EXCHANGES: usize = 64;

/// The time after which a silent importer is disconnected if all exchanges are taken and others wait. Between two
/// messages an importer only maps the pieces that it received.
const SILENCE: Duration = Duration::from_secs(1);

/// The pause after the system refused a connection or a file descriptor.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of this process's service, once it runs.
static NAME: Mutex<Option<Uuid>> = Mutex::new(None);

/// Starts this process's service, which answers importers until the process ends. Further calls do nothing; [`offer`]
/// calls it, too. Any thread.
///
/// # Errors
/// [`Error::Forked`] in a child of `fork`; [`Error::Driver`] if the system refuses a socket or thread.
pub fn serve() -> Result<()> {
    start().map(drop)
}

/// Offers memory to other processes of this user until [`withdraw`](super::withdraw), and keeps `what` alive until
/// then. Starts the service. Any thread.
///
/// # Errors
/// Those of [`serve`].
pub fn offer(what: Arc<dyn Exported>) -> Result<Ticket> {
    let service = start()?;
    Ok(Ticket { service, key: offers::add(what) })
}

/// [`serve`], and the service's name.
fn start() -> Result<Uuid> {
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

/// Accepts connections until the process ends.
pub(super) fn run(listener: &OwnedFd, patience: Duration) {
    let exchanges = Arc::new(Exchanges { open: Mutex::default(), ended: Condvar::new() });
    let mut last = None;
    loop {
        match Socket::accept(listener, patience) {
            Ok(socket) => begin(socket, &exchanges, patience),
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

/// Starts a thread for a connection, if it is of the same user.
fn begin(socket: Socket, exchanges: &Arc<Exchanges>, patience: Duration) {
    if let Err(error) = socket.check_user() {
        // Not a warning: every user of the machine can cause any number of these.
        tracing::info!(%error, "a connection for sharing memory was refused");
        refuse(&socket, &error);
        return;
    }
    let place = exchanges.enter(socket);
    let work = move || {
        if let Err(error) = answer(&place.exchange, patience) {
            tracing::debug!(%error, "an exchange of shared memory ended early");
            refuse(&place.exchange.socket, &error);
        }
    };
    if let Err(error) = spawn("forebay-ipc-peer", work) {
        tracing::warn!(%error, "a connection for sharing memory was dropped");
    }
}

/// One exchange, from the request to the last piece.
fn answer(exchange: &Exchange, patience: Duration) -> Result<()> {
    let Message::Ask { key } = exchange.receive()? else {
        return Err(Error::Invalid("the first message is not a request for memory".into()));
    };
    let offer = offers::find(key).ok_or_else(|| Error::NotFound("nothing is exported under this key".into()))?;
    let mut pieces = offer.pieces()?;
    let shape = pieces.shape();
    exchange.socket.send(&Message::Found(shape), &[])?;
    let mut sent = 0;
    while sent < shape.count {
        let most = match exchange.receive()? {
            Message::Next { first, most } if first == sent && most > 0 => most,
            _ => return Err(Error::Invalid(format!("piece {sent} should be asked for next").into())),
        };
        sent += send_batch(&exchange.socket, sent, most, &mut pieces, patience)?;
    }
    Ok(())
}

/// Sends the next pieces, as many as this process can open file descriptors for, and returns their number.
fn send_batch(socket: &Socket, first: u64, most: u64, pieces: &mut Pieces, patience: Duration) -> Result<u64> {
    let (mut records, mut fds) = (Vec::new(), Vec::new());
    let started = Instant::now();
    let room = if pieces.form() == Form::Fd { room_for_fds() } else { BATCH };
    let most = usize::try_from(most).unwrap_or(BATCH).min(room);
    while records.len() < most {
        let piece = match pieces.attempt() {
            None => break,
            Some(Ok(piece)) => piece,
            Some(Err(error)) if !lacks_fds(&error) || started.elapsed() >= patience => return Err(error),
            // Tried again, once other exchanges have closed file descriptors.
            Some(Err(_)) if records.is_empty() => {
                thread::sleep(PAUSE);
                continue;
            }
            Some(Err(_)) => break,
        };
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

/// Sends an importer the reason of a refusal. The importer may have ended already.
fn refuse(socket: &Socket, error: &Error) {
    let why = match error {
        Error::NotFound(_) | Error::Closed(_) => Why::NotFound,
        Error::NotPermitted(_) => Why::NotPermitted,
        Error::Invalid(_) | Error::Peer(_) => Why::Malformed,
        _ => Why::Failed,
    };
    socket.read_no_more();
    let _ = socket.send(&Message::Refused { why, text: error.to_string() }, &[]);
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(|error| {
        let text = format!("a thread for sharing memory: {error}; raise the limit on threads (RLIMIT_NPROC)");
        Error::Driver(DriverError::new(ErrorKind::Failed, "pthread_create", text))
    })
}

/// The exchanges under way.
struct Exchanges {
    open: Mutex<Vec<Arc<Exchange>>>,
    ended: Condvar,
}

/// One importer's connection.
struct Exchange {
    socket: Socket,
    /// The time since which the service waits for the importer.
    turn: Mutex<Option<Instant>>,
    /// It was disconnected because it was silent while others waited.
    is_over: AtomicBool,
}

impl Exchange {
    /// The importer's next message.
    fn receive(&self) -> Result<Message> {
        *self.turn.lock() = Some(Instant::now());
        let message = self.socket.receive();
        *self.turn.lock() = None;
        if self.is_over.load(Ordering::Relaxed) {
            return Err(Error::Peer(
                format!("this connection was silent for {SILENCE:?} while others waited for an answer: ask again")
                    .into(),
            ));
        }
        message
    }

    /// How long the importer has been silent.
    fn silence(&self) -> Option<Duration> {
        self.turn.lock().map(|since| since.elapsed())
    }
}

impl Exchanges {
    /// Waits for a place. If all are taken, the connection that is silent for the longest time is disconnected.
    fn enter(self: &Arc<Self>, socket: Socket) -> Place {
        let exchange = Arc::new(Exchange { socket, turn: Mutex::new(None), is_over: AtomicBool::new(false) });
        let mut open = self.open.lock();
        while open.len() >= MOST_EXCHANGES {
            let silent = open.iter().enumerate().filter_map(|(index, exchange)| Some((exchange.silence()?, index)));
            let (silence, index) = silent.max().unwrap_or_default();
            if silence >= SILENCE {
                let longest = open.swap_remove(index);
                longest.is_over.store(true, Ordering::Relaxed);
                longest.socket.stop_waiting();
            } else {
                self.ended.wait_for(&mut open, SILENCE - silence);
            }
        }
        open.push(Arc::clone(&exchange));
        Place { exchanges: Arc::clone(self), exchange }
    }
}

/// The place of one exchange, freed when dropped, also by a panic.
struct Place {
    exchanges: Arc<Exchanges>,
    exchange: Arc<Exchange>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.exchanges.open.lock().retain(|open| !Arc::ptr_eq(open, &self.exchange));
        self.exchanges.ended.notify_one();
    }
}
