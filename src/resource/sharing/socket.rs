//! One connection: whole packets, file descriptors beside them, and no wait longer than its patience.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use uuid::Uuid;

use super::message::{BATCH, LONGEST, Message};
use crate::driver::process::peer_user;
use crate::driver::{DriverError, ErrorKind};
use crate::resource::{Error, Result};

/// How long either side waits for the other to take or send a packet, or to accept.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What the kernel passes in a packet at most (`SCM_MAX_FD`): more than a batch, so that too many are seen.
const MOST_FDS: usize = 253;

/// A connected or listening socket; close-on-exec.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    patience: Duration,
}

impl Socket {
    /// Listens at an abstract name, which is gone with the last descriptor of the socket.
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

    /// The kernel waits for that long and no longer.
    pub(super) fn patient(fd: OwnedFd, patience: Duration) -> rustix::io::Result<Self> {
        set_socket_timeout(&fd, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&fd, Timeout::Send, Some(patience))?;
        Ok(Self { fd, patience })
    }

    /// Refuses a peer of another user. What counts is who the peer was when it connected or listened.
    pub(super) fn check_user(&self) -> Result<()> {
        let peer = peer_user(self.fd.as_fd()).map_err(|error| {
            let text = format!("the other process's user cannot be asked for: {error}");
            Error::Driver(DriverError::new(ErrorKind::Failed, "getsockopt", text))
        })?;
        let own = rustix::process::geteuid().as_raw();
        if peer != own {
            return Err(Error::NotPermitted(
                format!(
                    "the other process is of user {peer}, this one of user {own}: memory is shared within one user"
                )
                .into(),
            ));
        }
        Ok(())
    }

    /// Sends one packet, these descriptors beside it. pre: at most [`BATCH`].
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
                // The user's processes together may have only so many descriptors under way.
                Err(Errno::TOOMANYREFS) if started.elapsed() < self.patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other.map_err(|errno| self.trouble("sendmsg", errno)),
            }
        }
    }

    /// Receives one packet. Descriptors beside it are closed.
    pub(super) fn receive(&self) -> Result<Message> {
        self.receive_into(&mut RecvAncillaryBuffer::default()).map(|(message, _)| message)
    }

    /// Receives one packet and the descriptors beside it.
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

    /// Repeats what a signal interrupted, as long as patience lasts.
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

fn open() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed("socket", errno))
}

fn address(name: Uuid) -> Result<SocketAddrUnix> {
    let name = format!("forebay-{}", name.simple());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|errno| failed("bind", errno))
}

/// A packet that makes no sense.
pub(super) fn garbled(what: &str) -> Error {
    Error::Peer(format!("the other process sent {what}: use one Forebay on both sides").into())
}

/// The system refused this process something.
fn failed(call: &'static str, errno: Errno) -> Error {
    let way_out = match errno {
        Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS => "; raise the limit on open files (RLIMIT_NOFILE)",
        _ => "",
    };
    let detail = format!("a socket for sharing memory: {errno}{way_out}");
    Error::Driver(DriverError { kind: ErrorKind::Failed, call, code: errno.raw_os_error(), detail })
}
