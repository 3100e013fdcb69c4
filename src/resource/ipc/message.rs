//! The messages of the exchange. Each is one packet with exactly one valid encoding; everything else is refused.
//!
//! Integers are little-endian. Every message begins with 16 bytes: `FBAYXCH` and a zero byte, the protocol's version
//! (4 bytes), the kind (4 bytes). Then:
//!
//! | kind | from | content |
//! |---|---|---|
//! | 1 ask | importer | key (16) |
//! | 2 found | exporter | offset, bytes, span, count (8 each), form (8): 1 file descriptors, 2 fabric handles |
//! | 3 next | importer | index of the first piece wanted, how many at most (8 each) |
//! | 4 batch | exporter | index of the first piece (8), then for each piece its bytes (8) and fabric handle (64); the descriptors beside it |
//! | 5 refused | exporter | why (8), text in UTF-8, at most 400 bytes |

use uuid::Uuid;

use super::pieces::{Form, Shape};
use crate::driver::Blob;
use crate::ticket::Key;

/// The most pieces in a batch. The kernel allows 253 file descriptors in a packet; fewer keep both processes below
/// their limits on open files.
pub(super) const BATCH: usize = 64;

/// The length of the longest message, in bytes.
pub(super) const LONGEST: usize = HEAD + 8 + BATCH * RECORD;

const MAGIC: [u8; 8] = *b"FBAYXCH\0";
const VERSION: u32 = 2;
const HEAD: usize = 16;
const RECORD: usize = 8 + size_of::<Blob>();
const LONGEST_TEXT: usize = 400;

/// The reason why the exporter refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    NotFound,
    NotPermitted,
    /// The importer's message is invalid.
    Malformed,
    Failed,
}

/// A piece in a batch. For a piece that is sent as a file descriptor the handle is all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) bytes: u64,
    pub(super) blob: Blob,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ask { key: Key },
    Found(Shape),
    Next { first: u64, most: u64 },
    Batch { first: u64, records: Vec<Record> },
    Refused { why: Why, text: String },
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(LONGEST);
        packet.extend(MAGIC);
        packet.extend(VERSION.to_le_bytes());
        packet.extend(self.kind().to_le_bytes());
        let mut put = |number: u64| packet.extend(number.to_le_bytes());
        match self {
            Self::Ask { key } => packet.extend(key.0.as_bytes()),
            Self::Found(Shape { offset, bytes, span, count, form }) => {
                let form = match form {
                    Form::Fd => 1,
                    Form::Fabric => 2,
                };
                [*offset, *bytes, *span, *count, form].into_iter().for_each(put);
            }
            Self::Next { first, most } => [*first, *most].into_iter().for_each(put),
            Self::Batch { first, records } => {
                put(*first);
                for record in records {
                    packet.extend(record.bytes.to_le_bytes());
                    packet.extend(record.blob);
                }
            }
            Self::Refused { why, text } => {
                put(match why {
                    Why::NotFound => 1,
                    Why::NotPermitted => 2,
                    Why::Malformed => 3,
                    Why::Failed => 4,
                });
                let mut end = text.len().min(LONGEST_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                packet.extend(&text.as_bytes()[..end]);
            }
        }
        packet
    }

    /// Decodes a packet, or describes why it is invalid.
    pub(super) fn decode(packet: &[u8]) -> Result<Self, String> {
        let mut rest = Reader(packet);
        if rest.take()? != MAGIC {
            return Err("a packet that is no message of Forebay's".into());
        }
        let version = u32::from_le_bytes(rest.take()?);
        if version != VERSION {
            return Err(format!("a message of protocol version {version}; this Forebay speaks {VERSION}"));
        }
        let message = match u32::from_le_bytes(rest.take()?) {
            1 => Self::Ask { key: Key(Uuid::from_bytes(rest.take()?)) },
            2 => Self::Found(Shape {
                offset: rest.number()?,
                bytes: rest.number()?,
                span: rest.number()?,
                count: rest.number()?,
                form: match rest.number()? {
                    1 => Form::Fd,
                    2 => Form::Fabric,
                    other => return Err(format!("form {other} of memory")),
                },
            }),
            3 => Self::Next { first: rest.number()?, most: rest.number()? },
            4 => {
                let (first, mut records) = (rest.number()?, Vec::new());
                while !rest.0.is_empty() && records.len() < BATCH {
                    records.push(Record { bytes: rest.number()?, blob: rest.take()? });
                }
                Self::Batch { first, records }
            }
            5 => {
                let why = match rest.number()? {
                    1 => Why::NotFound,
                    2 => Why::NotPermitted,
                    3 => Why::Malformed,
                    4 => Why::Failed,
                    other => return Err(format!("reason {other}")),
                };
                let text = std::str::from_utf8(std::mem::take(&mut rest.0)).map_err(|_| "a text that is not UTF-8")?;
                if text.len() > LONGEST_TEXT {
                    return Err(format!("a text of {} bytes; {LONGEST_TEXT} are possible", text.len()));
                }
                Self::Refused { why, text: text.into() }
            }
            other => return Err(format!("a message of kind {other}; known are 1 to 5")),
        };
        if !rest.0.is_empty() {
            return Err(format!("{} bytes too many", rest.0.len()));
        }
        Ok(message)
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Ask { .. } => 1,
            Self::Found(_) => 2,
            Self::Next { .. } => 3,
            Self::Batch { .. } => 4,
            Self::Refused { .. } => 5,
        }
    }
}

struct Reader<'packet>(&'packet [u8]);

impl Reader<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], String> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("a message that is cut short")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }
}
