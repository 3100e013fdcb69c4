//! The quantities that cross layers. No layer hands another a bare integer.

use std::fmt;

/// The granule of the pool: every block starts at, and is a whole number of, 512 bytes.
///
/// 512 is what PyTorch and CuPy promise their own users, and twice what CUDA kernels need.
pub const GRANULE: u64 = 512;

/// An address in device (or, for the host driver, process) memory. Zero is never a valid one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A device by its ordinal, counted from zero as CUDA counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A stream as the caller names it: the bits of a `CUstream`.
///
/// 0 and 1 are the legacy default stream, 2 is the calling thread's own default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamHandle(pub u64);

impl StreamHandle {
    /// The legacy default stream, by the name 0.
    pub const LEGACY: Self = Self(0);
    /// The calling thread's default stream: another stream on every thread.
    pub const PER_THREAD: Self = Self(2);

    /// One name for each stream: 1 is another name of 0.
    #[must_use]
    pub const fn canonical(self) -> Self {
        if self.0 == 1 { Self::LEGACY } else { self }
    }

    /// Whether the driver keeps this stream alive for as long as its context.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        self.0 <= 1
    }

    /// Whether nobody made this stream: it is there by itself.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 <= 2
    }
}

impl fmt::Display for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Bytes, written for a person: `12.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (unit, name) in STEPS {
            if self.0 >= unit {
                #[expect(clippy::cast_precision_loss, reason = "two decimals for a person")]
                return write!(f, "{:.2} {name}", self.0 as f64 / unit as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}
