//! A block's header word, the lengths that blocks have, and the table from an offset to its block.

mod header;
mod size_class;
mod table;

pub use header::{Beginning, Header, State};
#[cfg(test)]
pub(crate) use size_class::BINNED;
pub use size_class::block_granules;
pub(crate) use size_class::{BINS, EXACT, bin, block_length, length, lengths, longer_bin};
pub(crate) use table::NONE;
pub use table::{BlockId, LastLeaf, Place, Table, TableShape};
