//! What happens to the whole process: forks; and whose another process is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on, children of `fork` are told apart. CUDA does not work in them, and locks that other
/// threads held in the parent stay locked.
pub fn watch_fork() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed after fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            tracing::warn!(code = failed, "forks cannot be watched");
        }
    });
}

/// Whether this process is a child of one that had called [`watch_fork`].
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The effective user of the process at the other end of a UNIX socket, as it was when it connected or listened.
///
/// Asked for here and not through a crate that gives the process's number as well: that number is 0 where the other
/// process cannot be seen from this PID namespace, which such crates hold to be impossible.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `peer` has the type that this option fills in, and `length` is its size.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut length) };
    if failed != 0 || length as usize != size_of_val(&peer) {
        return Err(io::Error::last_os_error());
    }
    Ok(peer.uid)
}
