//! Calls about whole processes: forks, the end of the process, memory barriers, the host's memory, and the user of
//! another process.

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

/// Makes [`is_forked`] true in later children of `fork`. CUDA does not work in them, and locks that other threads held
/// in the parent stay locked.
pub fn watch_fork() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to an atomic.
    ONCE.call_once(|| unsafe { when_forked(in_child) });
}

/// Registers `handler` to be called first in children of `fork`.
///
/// # Safety
/// `handler` is async-signal-safe.
pub unsafe fn when_forked(handler: extern "C" fn()) {
    // SAFETY: as the caller promises.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if failed != 0 {
        tracing::warn!(code = failed, "pthread_atfork failed: children of fork are not detected");
    }
}

/// Registers `handler` to be called at the regular end of the process, before the driver shuts down if that is in use
/// by now.
pub fn when_exiting(handler: extern "C" fn()) {
    // SAFETY: takes a function that may be called at any time.
    let failed = unsafe { libc::atexit(handler) };
    if failed != 0 {
        tracing::warn!(code = failed, "atexit failed: the end of the process is not detected");
    }
}

/// Whether this process is a child of one that had called [`watch_fork`].
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The kernel refused a barrier after it had accepted the registration.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether [`pass_barrier`] can be used. May become false, never true again.
pub fn can_pass_barrier() -> bool {
    static ABLE: LazyLock<bool> = LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    *ABLE && !REFUSED.load(Ordering::Relaxed)
}

/// Makes every running thread of the process pass a full memory barrier; threads that do not run passed one when they
/// stopped. Takes microseconds. Valid only if [`can_pass_barrier`] returned true before.
///
/// The kernel may still refuse it, because of a later seccomp filter or a lack of memory. Then this waits far longer
/// than a store stays in a processor's store buffer, and no barrier is used from then on.
pub fn pass_barrier() {
    let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) else { return };
    if !REFUSED.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "the kernel refused membarrier; locks use atomic instructions from now on");
    }
    // A busy wait, since a system call may be refused, too.
    let begun = Instant::now();
    while begun.elapsed() < STORES_ARE_SEEN {
        std::hint::spin_loop();
    }
}

/// The time after which all threads see any earlier store: it reaches the cache within a microsecond, and at once if
/// its thread is interrupted.
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
    /// Its effective user id in this user namespace.
    pub user: u32,
    /// Whether that id stands for one user. All users without a mapping in this user namespace have the same id.
    pub is_named: bool,
    /// Whether this process may signal it, by the kernel and `SO_PEERPIDFD` (from Linux 6.5). A process whose user has
    /// no mapping here may signal processes of its own user, and of its namespace.
    pub may_be_signalled: bool,
}

/// The other end of a UNIX socket.
///
/// Implemented here, since crates for this also give the process id and require that it is not 0. It is 0 if the other
/// process is not visible in this PID namespace.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: the option fills in this struct.
    unsafe { socket_option(socket, libc::SO_PEERCRED, &mut peer)? };
    let is_named = peer.uid != overflow_user() || every_user_is_mapped();
    Ok(Peer { user: peer.uid, is_named, may_be_signalled: !is_named && may_signal(socket) })
}

/// # Safety
/// `T` is the option's type, and every bit pattern of it is valid.
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

/// The id of every user without a mapping in this user namespace.
fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65534)
}

/// Whether every user has a mapping in this user namespace, as in the initial one.
fn every_user_is_mapped() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    // The last id means no user.
    counts.sum::<u64>() >= u32::MAX.into()
}

fn may_signal(socket: BorrowedFd<'_>) -> bool {
    /// Linux's value, which `libc` lacks.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    // SAFETY: the option is an integer.
    if unsafe { socket_option(socket, SO_PEERPIDFD, &mut fd) }.is_err() || fd < 0 {
        return false;
    }
    // SAFETY: the kernel opened it for us just now.
    let process = unsafe { OwnedFd::from_raw_fd(fd) };
    let (none, no_flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: signal 0 sends nothing; it only checks the permission.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), 0, none, no_flags) == 0 }
}
