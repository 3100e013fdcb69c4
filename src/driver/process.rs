//! What is the whole process's: forks, and the memory of its host; and whose another process is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Once};

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on, children of `fork` are told apart. CUDA does not work in them, and locks that other
/// threads held in the parent stay locked.
pub fn watch_fork() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to an atomic.
    ONCE.call_once(|| unsafe { when_forked(in_child) });
}

/// Has `handler` called first of all in children of `fork`.
///
/// # Safety
/// It does only what is allowed there.
pub unsafe fn when_forked(handler: extern "C" fn()) {
    // SAFETY: as the caller promises.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if failed != 0 {
        tracing::warn!(code = failed, "forks cannot be watched");
    }
}

/// Has `handler` called when the process ends in order, before the driver's own end if that was used by now.
pub fn when_exiting(handler: extern "C" fn()) {
    // SAFETY: takes a function that may be called at any time.
    let failed = unsafe { libc::atexit(handler) };
    if failed != 0 {
        tracing::warn!(code = failed, "the end of the process cannot be watched");
    }
}

/// Whether this process is a child of one that had called [`watch_fork`].
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Linux's numbers for two commands of `membarrier`; `libc` has none.
const REGISTER: libc::c_int = 1 << 4;
const BARRIER: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel can do what [`pass_barrier_everywhere`] is for.
pub fn can_pass_barrier_everywhere() -> bool {
    static ABLE: LazyLock<bool> = LazyLock::new(|| membarrier(REGISTER));
    *ABLE
}

/// Makes every thread of the process that runs now pass a full memory barrier; the others passed one when they stopped. Takes
/// microseconds. Only of use after [`can_pass_barrier_everywhere`] said so.
pub fn pass_barrier_everywhere() {
    if !membarrier(BARRIER) {
        let error = io::Error::last_os_error();
        unreachable!("membarrier answered {error} after it had been registered");
    }
}

/// All memory of the host, in bytes.
pub fn host_memory() -> super::Result<u64> {
    // SAFETY: an all-zero sysinfo is a valid value.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: writes the struct.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        let why = std::io::Error::last_os_error().to_string();
        return Err(super::DriverError::new(super::ErrorKind::Failed, "sysinfo", why));
    }
    Ok(info.totalram * u64::from(info.mem_unit))
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
