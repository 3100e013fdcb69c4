//! Sharing of memory with other processes of the same user: a descriptor names the memory, and the exchange transfers
//! it.
//!
//! ```text
//!   exporter                                          importer
//!   offer(Exported) -> Ticket
//!   Descriptor ------- 256 bytes, by any way ------>  Descriptor::decode
//!                      the user's, stored or sent     fetch
//!   service <--------- key, over a UNIX socket -----    |
//!   Exported::pieces - descriptors, in batches ---->  Pieces
//!                                                     Imported::map
//! ```
//!
//! `descriptor` is the format of descriptors, `offers` the table of this process's exports, `service` the exporter's
//! threads, `fetch` the importer's request, `message` and `socket` the protocol between them, `imported` the mapping,
//! `registry` the table of pools by uuid. Descriptors and messages from another process are untrusted and checked
//! before use.
//!
//! # The exchange
//!
//! A process that exports has one service: a listening `SOCK_SEQPACKET` socket at an abstract name of 122 random bits.
//! One connection carries one request. Both sides compare the other's user with their own before the key is sent or
//! read. Messages are those of `message`; file descriptors travel with `SCM_RIGHTS`, so neither side needs the right to
//! trace the other. The importer requests the pieces in batches of at most 64, or of as many file descriptors as both
//! sides can open, so that neither process has more open, nor the kernel more in flight.
//!
//! Users are compared by number. In a user namespace one number stands for all users without a mapping; then this
//! process must also be allowed to signal the other one, which the kernel permits only for the same user.
//!
//! The service answers up to 64 importers at once, each on a thread. If more connect, an importer that was silent for
//! more than a second is disconnected.
//!
//! # Errors of an exchange
//!
//! | cause | error |
//! |---|---|
//! | the exporter has ended, or is in another network namespace | [`Error::Peer`](crate::error::Error::Peer) |
//! | the exporter withdrew its offer, or freed the memory | [`Error::NotFound`](crate::error::Error::NotFound) |
//! | the other process is of another user | [`Error::NotPermitted`](crate::error::Error::NotPermitted), on both sides |
//! | the other side is silent for 10 s, or sends an invalid message | [`Error::Peer`](crate::error::Error::Peer); the service goes on |
//! | the importer is silent for 1 s while 64 others are answered and more wait | [`Error::Peer`](crate::error::Error::Peer) |
//! | the importer ends in the middle | its descriptors are closed, the service goes on |
//! | this process is a child of `fork` | [`Error::Forked`](crate::error::Error::Forked); the parent's service goes on |
//!
//! A child of `fork` inherits the listening socket. While a child outlives its parent, importers get their error only
//! after the 10 s.

mod descriptor;
mod fetch;
mod imported;
mod location;
mod message;
mod offers;
mod pieces;
mod registry;
mod service;
mod socket;
#[cfg(test)]
mod tests;

pub use descriptor::{DESCRIPTOR_BYTES, Descriptor, Path, Route};
pub use fetch::fetch;
pub use imported::Imported;
pub use location::Location;
pub use offers::withdraw;
pub use pieces::{Exported, Form, Handle, Piece, Pieces};
pub use registry::Registry;
pub use service::{offer, serve};

pub use crate::ticket::{Key, Ticket};

/// More than any mapping can have: the addresses of a process under five-level paging.
const MOST_BYTES: u64 = 1 << 57;
