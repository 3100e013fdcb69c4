//! One connection: packets with file descriptors, and a timeout for each wait.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, sendmsg, shutdown, socket_with,
};
use uuid::Uuid;

use super::message::{BATCH, LONGEST, Message};
use crate::driver::process::peer;
use crate::driver::{DriverError, ErrorKind};
use crate::error::{Error, Result};

/// The timeout of accepting a connection, and of sending and receiving a packet.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The most file descriptors that the kernel passes in a packet (`SCM_MAX_FD`): more than a batch, so that too many are
/// noticed.
const MOST_FDS: usize = 253;

/// A connected or listening socket; close-on-exec.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    patience: Duration,
}

impl Socket {
    /// Listens at an abstract name, which ends with the last descriptor of the socket.
    pub(super) fn listen(name: Uuid) -> Result<OwnedFd> {
        let fd = open()?;
        bind(&fd, &address(name)?).map_err(|errno| failed("bind", errno))?;
        listen(&fd, BACKLOG).map_err(|errno| failed("listen", errno))?;
        Ok(fd)
    }

    /// The next connection to a listening socket.
    pub(super) fn accept(listener: &OwnedFd, patience: Duration) -> rustix::io::Result<Self> {
        Self::patient(accept_with(listener, SocketFlags::CLOEXEC)?, patience)
    }

    /// A connection to the service of this name.
    pub(super) fn connect(name: Uuid, patience: Duration) -> Result<Self> {
        let (fd, address) = (open()?, address(name)?);
        let socket = Self::patient(fd, patience).map_err(|errno| failed("setsockopt", errno))?;
        match socket.insist(|| connect(&socket.fd, &address)) {
            Ok(()) => Ok(socket),
            Err(Errno::CONNREFUSED) => Err(Error::Peer(
                "the process that exported this memory has ended, or is in another network namespace: export again from a \
                 process that lives"
                    .into(),
            )),
            Err(errno) => Err(socket.trouble("connect", errno)),
        }
    }

    /// Sets the kernel's timeouts of the socket.
    pub(super) fn patient(fd: OwnedFd, patience: Duration) -> rustix::io::Result<Self> {
        set_socket_timeout(&fd, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&fd, Timeout::Send, Some(patience))?;
        Ok(Self { fd, patience })
    }

    /// Refuses a peer of another user. The peer's user is that of the time when it connected or listened.
    pub(super) fn check_user(&self) -> Result<()> {
        let peer = peer(self.fd.as_fd()).map_err(|error| {
            let text = format!("the other process's user cannot be asked for: {error}");
            Error::Driver(DriverError::new(ErrorKind::Failed, "getsockopt", text))
        })?;
        let (own, user) = (rustix::process::geteuid().as_raw(), peer.user);
        if user != own {
            return Err(Error::NotPermitted(
                format!(
                    "the other process is of user {user}, this one of user {own}: memory is shared within one user"
                )
                .into(),
            ));
        }
        if !peer.is_named && !peer.may_be_signalled {
            return Err(Error::NotPermitted(
                format!(
                    "the other process is of user {user}, and so is this one, but in this user namespace that stands for \
                     every user without a number, and the kernel does not say that they are one: memory is shared within \
                     one user. Give the user a number here (/proc/PID/uid_map)"
                )
                .into(),
            ));
        }
        Ok(())
    }

    /// Ends a wait for the other side: a thread that waits to receive sees a closed connection, and can still send.
    pub(super) fn stop_waiting(&self) {
        // Fails only if the connection is closed.
        let _ = shutdown(&self.fd, Shutdown::Read);
    }

    /// Discards unread packets and receives no more: if packets are unread when this side closes, the kernel lets the
    /// other side read no more.
    pub(super) fn read_no_more(&self) {
        self.stop_waiting();
        while recv(&self.fd, &mut [0; 1], RecvFlags::DONTWAIT).is_ok_and(|(_, received)| received > 0) {}
    }

    /// Sends one packet with these file descriptors. pre: at most [`BATCH`].
    pub(super) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let packet = message.encode();
        let started = Instant::now();
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(failed("sendmsg", Errno::MSGSIZE));
            }
            let sent = self
                .insist(|| sendmsg(&self.fd, &[IoSlice::new(&packet)], &mut beside, SendFlags::NOSIGNAL).map(|_| ()));
            match sent {
                // The kernel limits the file descriptors in flight for each user.
                Err(Errno::TOOMANYREFS) if started.elapsed() < self.patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other.map_err(|errno| self.trouble("sendmsg", errno)),
            }
        }
    }

    /// Receives one packet. Its file descriptors are closed.
    pub(super) fn receive(&self) -> Result<Message> {
        self.receive_into(&mut RecvAncillaryBuffer::default()).map(|(message, _)| message)
    }

    /// Receives one packet and its file descriptors.
    pub(super) fn receive_with_fds(&self) -> Result<(Message, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let (message, flags) = self.receive_into(&mut beside)?;
        let mut fds = Vec::new();
        for part in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                fds.extend(received);
            }
        }
        if flags.contains(ReturnFlags::CTRUNC) {
            return Err(failed("recvmsg", Errno::MFILE));
        }
        Ok((message, fds))
    }

    fn receive_into(&self, beside: &mut RecvAncillaryBuffer<'_>) -> Result<(Message, ReturnFlags)> {
        let mut packet = [0; LONGEST];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = self.insist(|| recvmsg(&self.fd, &mut [IoSliceMut::new(&mut packet)], beside, flags));
        let received = received.map_err(|errno| self.trouble("recvmsg", errno))?;
        if received.bytes == 0 {
            return Err(self.trouble("recvmsg", Errno::CONNRESET));
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(garbled(&format!("a packet of more than {LONGEST} bytes")));
        }
        let message = Message::decode(&packet[..received.bytes]).map_err(|what| garbled(&what))?;
        Ok((message, received.flags))
    }

    /// Repeats a call that a signal interrupted, until the timeout.
    fn insist<T>(&self, mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let started = Instant::now();
        loop {
            match call() {
                Err(Errno::INTR) if started.elapsed() < self.patience => {}
                Err(Errno::INTR) => return Err(Errno::AGAIN),
                other => return other,
            }
        }
    }

    fn trouble(&self, call: &'static str, errno: Errno) -> Error {
        match errno {
            Errno::AGAIN => Error::Peer(
                format!("the other process was silent for {:?}: it hangs, or is stopped", self.patience).into(),
            ),
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => {
                Error::Peer("the other process closed the connection: it ended, or gave up".into())
            }
            _ => failed(call, errno),
        }
    }
}

/// The most file descriptors of a batch for this process: a third of those that it can still open, since its other
/// threads need some, and the other side may be this process, too.
pub(super) fn room_for_fds() -> usize {
    let folder = "/proc/self/fd";
    // Since Linux 6.2 the size of this folder is the number of file descriptors.
    let counted = std::fs::metadata(folder).map(|folder| folder.len()).ok().filter(|&open| open > 0);
    let open = counted.or_else(|| Some(std::fs::read_dir(folder).ok()?.count() as u64)).unwrap_or(0);
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(open) / 3).unwrap_or(BATCH).clamp(1, BATCH)
}

/// Whether `error` may be caused by a lack of file descriptors. A driver's own errors do not tell, so this then tries
/// to open one.
pub(super) fn lacks_fds(error: &Error) -> bool {
    let Error::Driver(error) = error else { return false };
    let is_fd_limit = |code| [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&code);
    let opened = || std::fs::File::open("/dev/null");
    is_fd_limit(error.code) || opened().is_err_and(|error| error.raw_os_error().is_some_and(is_fd_limit))
}

fn open() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed("socket", errno))
}

fn address(name: Uuid) -> Result<SocketAddrUnix> {
    let name = format!("forebay-{}", name.simple());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|errno| failed("bind", errno))
}

/// The error for an invalid packet.
pub(super) fn garbled(what: &str) -> Error {
    Error::Peer(format!("the other process sent {what}: use one Forebay on both sides").into())
}

/// The error for a failed system call.
fn failed(call: &'static str, errno: Errno) -> Error {
    let way_out = match errno {
        Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS => "; raise the limit on open files (RLIMIT_NOFILE)",
        _ => "",
    };
    let detail = format!("a socket for sharing memory: {errno}{way_out}");
    Error::Driver(DriverError { kind: ErrorKind::Failed, call, code: errno.raw_os_error(), detail })
}
