//! The descriptor: 256 bytes that name memory of another process, for every path.
//!
//! Plain data without pointers or file descriptors: it may be stored, copied and sent by any means. Every process of
//! the same user that has one can open the memory, so it is as secret as the memory. An importer does not trust it:
//! each descriptor has exactly one valid encoding, and everything else is refused.
//!
//! Integers are little-endian; fields that a path does not use are zero.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `FBAYMEM` and a zero byte |
//! | 8..12 | version of the format: 1 |
//! | 12..16 | path: 1 driver pool, 2 file descriptors, 3 fabric handles, 4 legacy |
//! | 16..24 | bytes of the buffer, 1 to 2^57 |
//! | 24..32 | legacy: bytes from the allocation's start to the buffer |
//! | 32..36 | location: 1 device, 2 host, 3 NUMA node of the host |
//! | 36..40 | NUMA node |
//! | 40..56 | UUID of the device |
//! | 56..72 | driver pool: UUID of the pool, or zero. File descriptors, fabric handles: the key |
//! | 72..88 | file descriptors, fabric handles: name of the exporter's service |
//! | 88..152 | driver pool, legacy: the driver's 64 bytes |
//! | 152..256 | zero |

use bytemuck::{Pod, Zeroable};
use uuid::Uuid;

use super::MOST_BYTES;
use super::location::Location;
use crate::driver::Blob;
use crate::error::{Error, Result};
use crate::ticket::{Key, Ticket};

/// The length of an encoded descriptor.
pub const DESCRIPTOR_BYTES: usize = 256;

const MAGIC: [u8; 8] = *b"FBAYMEM\0";
const VERSION: u32 = 1;

const AT_DEVICE: u32 = 1;
const AT_HOST: u32 = 2;
const AT_NUMA: u32 = 3;

/// The path by which memory came into a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Path {
    /// None: it is memory of this process.
    None = 0,
    /// Through a driver pool that was shared by file descriptor.
    Pool = 1,
    /// As physical memory, by file descriptors over a socket.
    Fd = 2,
    /// As physical memory, by fabric handles.
    Fabric = 3,
    /// By a legacy handle (`cuIpc*`).
    Legacy = 4,
}

/// The data that an importer needs, for each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A pointer of a driver pool. The importer needs the pool as well.
    Pool {
        /// The result of [`Pools::pool_export_pointer`](crate::driver::Pools::pool_export_pointer).
        blob: Blob,
        /// The pool's uuid, if the exporter knows it.
        pool: Option<Uuid>,
    },
    /// Physical memory, which [`fetch`](super::fetch()) requests from the exporter's service.
    Exchange {
        /// The service's name.
        service: Uuid,
        /// The key of the offer.
        key: Key,
        /// Whether the pieces come as fabric handles instead of file descriptors.
        fabric: bool,
    },
    /// An allocation with a legacy handle.
    Legacy {
        /// The result of [`Sharing::ipc_export`](crate::driver::Sharing::ipc_export) for the allocation.
        blob: Blob,
        /// Bytes from the allocation's start to the buffer.
        offset: u64,
    },
}

impl Route {
    /// The route to the offer of this ticket.
    #[must_use]
    pub fn exchange(ticket: Ticket, fabric: bool) -> Self {
        Self::Exchange { service: ticket.service, key: ticket.key, fabric }
    }
}

/// A decoded descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    route: Route,
    bytes: u64,
    location: Location,
}

/// The encoded fields in their order, with little-endian numbers.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: u32,
    path: u32,
    bytes: u64,
    offset: u64,
    location: u32,
    node: u32,
    device: [u8; 16],
    id: [u8; 16],
    service: [u8; 16],
    blob: Blob,
    reserved: [u64; 13],
}

const _: () = assert!(size_of::<Raw>() == DESCRIPTOR_BYTES);

impl Descriptor {
    /// A descriptor of `bytes` bytes at `location`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes or more than 2^57, for an offset beyond that, and for a nil name.
    pub fn new(route: Route, bytes: u64, location: Location) -> Result<Self> {
        let offset = if let Route::Legacy { offset, .. } = route { offset } else { 0 };
        if bytes == 0 || bytes > MOST_BYTES || offset > MOST_BYTES - bytes {
            return Err(bad(format!("says {bytes} bytes at offset {offset}; 1 to {MOST_BYTES} bytes are possible")));
        }
        let nil = match route {
            Route::Pool { pool, .. } => pool.is_some_and(|pool| pool.is_nil()),
            Route::Exchange { service, key, .. } => service.is_nil() || key.0.is_nil(),
            Route::Legacy { .. } => false,
        };
        if nil {
            return Err(bad("has a name or key of zeros".into()));
        }
        Ok(Self { route, bytes, location })
    }

    /// The data that the importer needs.
    #[must_use]
    pub fn route(&self) -> Route {
        self.route
    }

    /// The path of this descriptor.
    #[must_use]
    pub fn path(&self) -> Path {
        match self.route {
            Route::Pool { .. } => Path::Pool,
            Route::Exchange { fabric: false, .. } => Path::Fd,
            Route::Exchange { fabric: true, .. } => Path::Fabric,
            Route::Legacy { .. } => Path::Legacy,
        }
    }

    /// Bytes of the buffer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The location of the memory.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Encodes the descriptor.
    #[must_use]
    pub fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut raw = Raw::zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.to_le();
        raw.path = (self.path() as u32).to_le();
        raw.bytes = self.bytes.to_le();
        match self.location {
            Location::Device(uuid) => (raw.location, raw.device) = (AT_DEVICE.to_le(), uuid),
            Location::Host => raw.location = AT_HOST.to_le(),
            Location::HostNuma(node) => (raw.location, raw.node) = (AT_NUMA.to_le(), node.to_le()),
        }
        match self.route {
            Route::Pool { blob, pool } => (raw.blob, raw.id) = (blob, pool.unwrap_or_default().into_bytes()),
            Route::Exchange { service, key, .. } => {
                (raw.service, raw.id) = (service.into_bytes(), key.0.into_bytes());
            }
            Route::Legacy { blob, offset } => (raw.blob, raw.offset) = (blob, offset.to_le()),
        }
        bytemuck::cast(raw)
    }

    /// Decodes a descriptor.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes that are not a result of [`Descriptor::encode`].
    pub fn decode(given: &[u8]) -> Result<Self> {
        let given: [u8; DESCRIPTOR_BYTES] = given
            .try_into()
            .map_err(|_| bad(format!("has {} bytes instead of {DESCRIPTOR_BYTES}: pass all of it", given.len())))?;
        let raw: Raw = bytemuck::cast(given);
        if raw.magic != MAGIC {
            return Err(bad("does not begin as one: these are other bytes".into()));
        }
        let version = u32::from_le(raw.version);
        if version != VERSION {
            return Err(bad(format!(
                "has format version {version}, known is {VERSION}: use one Forebay on both sides"
            )));
        }
        let (id, service) = (Uuid::from_bytes(raw.id), Uuid::from_bytes(raw.service));
        let path = u32::from_le(raw.path);
        let route = match path {
            1 => Route::Pool { blob: raw.blob, pool: Some(id).filter(|id| !id.is_nil()) },
            2 | 3 => Route::Exchange { service, key: Key(id), fabric: path == 3 },
            4 => Route::Legacy { blob: raw.blob, offset: u64::from_le(raw.offset) },
            _ => return Err(bad(format!("has path {path}; known are 1 to 4"))),
        };
        let location = match u32::from_le(raw.location) {
            AT_DEVICE => Location::Device(raw.device),
            AT_HOST => Location::Host,
            AT_NUMA => Location::HostNuma(u32::from_le(raw.node)),
            other => return Err(bad(format!("has location {other}; known are 1 to 3"))),
        };
        let descriptor = Self::new(route, u64::from_le(raw.bytes), location)?;
        if descriptor.encode() != given {
            return Err(bad("has other bytes than zero where zeros belong: it was damaged".into()));
        }
        Ok(descriptor)
    }
}

fn bad(what: String) -> Error {
    Error::Invalid(format!("the IPC descriptor {what}").into())
}
