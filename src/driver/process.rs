//! What is the whole process's: forks, memory barriers, and the memory of its host; and whose another process is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::error::{DriverError, ErrorKind, Result};

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

/// The kernel refused a barrier after it had agreed to give them.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether [`pass_barrier`] can be used. May become false, never true again.
pub fn can_pass_barrier() -> bool {
    static ABLE: LazyLock<bool> = LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    *ABLE && !REFUSED.load(Ordering::Relaxed)
}

/// Makes every thread of the process that runs now pass a full memory barrier; the others passed one when they stopped. Takes
/// microseconds. Of use only after [`can_pass_barrier`] said so.
///
/// The kernel may refuse it all the same: a seccomp filter was set since, or it has no memory. Then this waits for far longer than any
/// store stays in its processor, and no barrier is used from then on.
pub fn pass_barrier() {
    let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) else { return };
    if !REFUSED.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "membarrier is refused since; locks are taken with atomic instructions from now on");
    }
    // No system call, as that may be refused too.
    let begun = Instant::now();
    while begun.elapsed() < STORES_ARE_SEEN {
        std::hint::spin_loop();
    }
}

/// After so long a store of any thread is seen by all: within a microsecond it reaches the cache, and at once where its thread is interrupted.
const STORES_ARE_SEEN: Duration = Duration::from_millis(5);

/// All memory of the host, in bytes.
pub fn host_memory() -> Result<u64> {
    // SAFETY: an all-zero sysinfo is a valid value.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: writes the struct.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        let why = std::io::Error::last_os_error().to_string();
        return Err(DriverError::new(ErrorKind::Failed, "sysinfo", why));
    }
    Ok(info.totalram * u64::from(info.mem_unit))
}

/// The process at the other end of a UNIX socket, as it was when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user, by the number that it has in this user namespace.
    pub user: u32,
    /// Whether that number is one user's. Where not every user has one, all that have none read as the same.
    pub is_named: bool,
    /// Whether the kernel let this process signal it, and told which process it is (`SO_PEERPIDFD`, from Linux 6.5). A process whose
    /// user has no number here may signal its own user's processes, and those of its namespace.
    pub may_be_signalled: bool,
}

/// The other end of a UNIX socket.
///
/// Asked for here and not through a crate that gives the process's number as well: that number is 0 where the other
/// process cannot be seen from this PID namespace, which such crates hold to be impossible.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: the struct is the one that this option fills in.
    unsafe { socket_option(socket, libc::SO_PEERCRED, &mut peer)? };
    let is_named = peer.uid != overflow_user() || every_user_has_a_number();
    Ok(Peer { user: peer.uid, is_named, may_be_signalled: !is_named && may_signal(socket) })
}

/// # Safety
/// `value` is of the type that the option has, and every value of it is valid.
unsafe fn socket_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: `value` has as many bytes as `length` says.
    let failed = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, &raw mut length) };
    if failed != 0 || length as usize != size_of::<T>() {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The number of every user that has none in this user namespace.
fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65534)
}

/// Whether no user is without a number in this user namespace, as in the first one.
fn every_user_has_a_number() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    // The last number means none.
    counts.sum::<u64>() >= u32::MAX.into()
}

fn may_signal(socket: BorrowedFd<'_>) -> bool {
    /// Linux's number, which `libc` lacks.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    // SAFETY: the option is an integer.
    if unsafe { socket_option(socket, SO_PEERPIDFD, &mut fd) }.is_err() || fd < 0 {
        return false;
    }
    // SAFETY: the kernel opened it for us just now.
    let process = unsafe { OwnedFd::from_raw_fd(fd) };
    let (none, no_flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: no signal is sent: 0 asks whether one may be.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), 0, none, no_flags) == 0 }
}
