//! How memory reaches another process of the same user: one format for what is handed over, one exchange for the rest.
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
//! `descriptor` is the format, `offers` what this process exports, `service` the thread that answers, `fetch` the
//! question, `message` and `socket` what passes between the two, `imported` the mapping, `registry` the table of pools
//! by their names. What comes from the other side is checked before it is used: descriptors and messages are untrusted.
//!
//! # The exchange
//!
//! A process that exports has one service: a listening `SOCK_SEQPACKET` socket at an abstract name of 128 random bits.
//! One connection carries one request. Both sides compare the other's user with their own before the key is sent or
//! looked at. Messages are those of `message`; file descriptors travel with `SCM_RIGHTS`, so neither side needs the
//! right to trace the other. A list of pieces comes in batches of 64, or of as many as both sides have descriptors for, each
//! when the importer asks for it, so neither process has more descriptors open than that, nor has the kernel more in flight.
//!
//! Users are compared by number. Where the number stands for every user that has none in a user namespace, the other
//! process must also be one that this process may signal: the kernel lets it signal its own user's, and no other's from outside.
//!
//! 64 importers are answered at once, each on a thread. Where more come, those that were silent for longer than a second give way.
//!
//! # What goes wrong, and what is answered
//!
//! | what | answer |
//! |---|---|
//! | the exporter has ended, or is in another network namespace | [`Error::Peer`](crate::error::Error::Peer) |
//! | the exporter took its offer back, or the memory is freed | [`Error::NotFound`](crate::error::Error::NotFound) |
//! | the other process is of another user | [`Error::NotPermitted`](crate::error::Error::NotPermitted), on both sides |
//! | the other side is silent for 10 s, or sends what is no message | [`Error::Peer`](crate::error::Error::Peer); the service goes on |
//! | the importer is silent for 1 s while 64 others are answered and more wait | [`Error::Peer`](crate::error::Error::Peer) |
//! | the importer ends in the middle | its descriptors are closed, the service goes on |
//! | this process is a child of `fork` | [`Error::Forked`](crate::error::Error::Forked); the parent's service goes on |
//!
//! A child of `fork` inherits the listening socket. While one lives on after its parent, importers get their answer
//! only after the 10 s.

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
