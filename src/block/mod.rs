//! The header word of a block, the lengths of blocks, and the table from an offset to its block.

mod header;
mod size_class;
mod table;

pub use header::{FastHeader, Header, State};
#[cfg(test)]
pub(crate) use size_class::BINNED;
pub use size_class::block_granules;
pub(crate) use size_class::{BINS, EXACT, bin, block_length, length, lengths, longer_bin};
pub(crate) use table::NONE;
pub use table::{BlockId, CellRef, LastLeaf, Table, TableShape};
