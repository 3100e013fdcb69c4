//! Messages of the exchange as `src/resource/ipc/message.rs` describes them, written a second time so that any of their
//! numbers can be wrong.

use bolero::TypeGenerator;
use bolero::generator::*;
use uuid::Uuid;

#[derive(Clone, Debug, TypeGenerator)]
pub enum Packet {
    Ask { is_known: bool, other: [u8; 16] },
    Found { offset: Number, bytes: Number, span: Number, count: Number, form: u8 },
    Next { first: Number, most: Number },
    Batch { first: Number, pieces: Vec<(Number, bool)> },
    Refused { why: u8, text: Vec<u8> },
    Any { kind: u8, content: Vec<u8> },
    Bytes(Vec<u8>),
    Cut { kind: u8, version: u8, bytes: u8 },
}

/// A number that may be right, or nearly.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum Number {
    Small(u8),
    /// So many times 2 MiB.
    Pieces(u8),
    Power(u8, bool),
    Any(u64),
}

impl Number {
    fn value(self) -> u64 {
        match self {
            Self::Small(number) => u64::from(number % 4),
            Self::Pieces(number) => u64::from(number % 4) << 21,
            Self::Power(bit, below) => (1 << (bit % 64)) - u64::from(below),
            Self::Any(number) => number,
        }
    }
}

fn head(kind: u8, version: u32) -> Vec<u8> {
    let mut packet = b"FBAYXCH\0".to_vec();
    packet.extend(version.to_le_bytes());
    packet.extend(u32::from(kind).to_le_bytes());
    packet
}

fn message(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut packet = head(kind, 2);
    numbers.iter().for_each(|number| packet.extend(number.to_le_bytes()));
    packet
}

impl Packet {
    /// The packet; `key` is what it asks for where it knows it.
    pub fn encode(&self, key: Uuid) -> Vec<u8> {
        match *self {
            Self::Ask { is_known, other } => {
                let mut packet = head(1, 2);
                packet.extend(if is_known { key.into_bytes() } else { other });
                packet
            }
            Self::Found { offset, bytes, span, count, form } => {
                let [offset, bytes, span, count] = [offset, bytes, span, count].map(Number::value);
                message(2, &[offset, bytes, span, count, u64::from(form % 4)])
            }
            Self::Next { first, most } => message(3, &[first.value(), most.value()]),
            Self::Batch { first, ref pieces } => {
                let mut packet = message(4, &[first.value()]);
                for (bytes, is_blob) in pieces {
                    packet.extend(bytes.value().to_le_bytes());
                    packet.extend([u8::from(*is_blob); 64]);
                }
                packet
            }
            Self::Refused { why, ref text } => {
                let mut packet = message(5, &[u64::from(why % 6)]);
                packet.extend(text);
                packet
            }
            Self::Any { kind, ref content } => [head(kind % 8, 2), content.clone()].concat(),
            Self::Bytes(ref bytes) => bytes.clone(),
            Self::Cut { kind, version, bytes } => {
                let mut packet = head(kind % 6, u32::from(version % 4));
                packet.truncate(usize::from(bytes));
                packet
            }
        }
    }
}
