//! The physical memory of a buffer, as a list of pieces that one process sends to another.

use std::os::fd::OwnedFd;

use super::MOST_BYTES;
use crate::driver::Blob;
use crate::error::{Error, Result};

/// An export: gives its physical memory at the time of a request.
pub trait Exported: Send + Sync {
    /// The physical memory of the export, in the order of its addresses. Called on threads of the service, possibly
    /// several at once, without a lock of the service.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Closed`] for memory that was freed, both [`Error::NotFound`] at the importer.
    /// [`Error::NotPermitted`] stays that at the importer; other errors become [`Error::Peer`] with their text.
    fn pieces(&self) -> Result<Pieces>;
}

/// The form in which a piece is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a file descriptor.
    Fd,
    /// As a fabric handle.
    Fabric,
}

/// Physical memory that can be imported.
#[derive(Debug)]
pub enum Handle {
    /// A file descriptor, which is closed after it was sent or imported. The exporter gives a duplicate.
    Fd(OwnedFd),
    /// A fabric handle.
    Fabric(Blob),
}

impl Handle {
    /// The form in which it is sent.
    #[must_use]
    pub fn form(&self) -> Form {
        match self {
            Self::Fd(_) => Form::Fd,
            Self::Fabric(_) => Form::Fabric,
        }
    }
}

/// One piece: a whole allocation of physical memory.
#[derive(Debug)]
pub struct Piece {
    /// Its size as it was created.
    pub bytes: u64,
    /// The handle to import it by.
    pub handle: Handle,
}

/// The sizes of a list of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes from the first piece's start to the buffer.
    pub(super) offset: u64,
    /// Bytes of the buffer.
    pub(super) bytes: u64,
    /// Bytes of all pieces.
    pub(super) span: u64,
    /// The number of pieces.
    pub(super) count: u64,
    pub(super) form: Form,
}

impl Shape {
    /// Checks that the buffer lies within the pieces, and that their number is possible.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let Self { offset, bytes, span, count, .. } = *self;
        let inside = bytes > 0 && span <= MOST_BYTES && offset.checked_add(bytes).is_some_and(|end| end <= span);
        if !inside || count == 0 || count > span {
            return Err(format!("{bytes} bytes at {offset} in {count} pieces of {span} bytes together"));
        }
        Ok(())
    }
}

/// A list of pieces: its sizes, and an [`Iterator`] over the pieces that ends after an error.
///
/// Each piece is checked: its form, that it holds a part of the buffer, and that the sizes add up.
pub struct Pieces {
    shape: Shape,
    source: Box<dyn Iterator<Item = Result<Piece>> + Send>,
    /// The number of pieces given so far, or of all pieces after an error; `reached` is their bytes.
    given: u64,
    reached: u64,
}

impl Pieces {
    /// A buffer of `bytes` bytes that begins `offset` bytes into the first piece. For short lists: each file descriptor
    /// stays open until it is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the buffer does not lie in the pieces.
    pub fn new(offset: u64, bytes: u64, pieces: Vec<Piece>) -> Result<Self> {
        let form = pieces.first().map_or(Form::Fd, |piece| piece.handle.form());
        let sizes: Vec<u64> = pieces.iter().map(|piece| piece.bytes).collect();
        let shape = shape(offset, bytes, form, &sizes)?;
        Ok(Self::from_source(shape, pieces.into_iter().map(Ok)))
    }

    /// [`Pieces::new`] for long lists: pieces of these sizes, each exported by its index just before it is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the buffer does not lie in the pieces.
    pub fn lazy(
        offset: u64,
        bytes: u64,
        form: Form,
        sizes: Vec<u64>,
        mut export: impl FnMut(usize) -> Result<Handle> + Send + 'static,
    ) -> Result<Self> {
        let shape = shape(offset, bytes, form, &sizes)?;
        let mut index = 0;
        let pieces = std::iter::from_fn(move || {
            let bytes = *sizes.get(index)?;
            let piece = export(index).map(|handle| Piece { bytes, handle });
            index += usize::from(piece.is_ok());
            Some(piece)
        });
        Ok(Self::from_source(shape, pieces))
    }

    /// pre: the shape was checked.
    pub(super) fn from_source(shape: Shape, source: impl Iterator<Item = Result<Piece>> + Send + 'static) -> Self {
        Self { shape, source: Box::new(source), given: 0, reached: 0 }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes from the first piece's start to the buffer.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.shape.offset
    }

    /// Bytes of the buffer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.bytes
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.shape.span
    }

    /// The number of all pieces.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shape.count
    }

    /// The form in which the pieces are sent.
    #[must_use]
    pub fn form(&self) -> Form {
        self.shape.form
    }

    /// [`Iterator::next`] that can be repeated: after an error of the source, the next call tries the same piece again.
    pub(super) fn attempt(&mut self) -> Option<Result<Piece>> {
        if self.given == self.shape.count {
            return None;
        }
        let next = self.source.next().unwrap_or_else(|| Err(wrong(format!("only {} pieces", self.given))));
        Some(next.and_then(|piece| self.check(piece)))
    }

    /// Checks the next piece and adds it to the sums.
    fn check(&mut self, piece: Piece) -> Result<Piece> {
        let Shape { offset, bytes, span, count, form } = self.shape;
        let (start, end) = (self.reached, self.reached.checked_add(piece.bytes).filter(|&end| end <= span));
        let last = self.given + 1 == count;
        let holds_part = piece.bytes > 0 && start < offset + bytes && (start > 0 || offset < piece.bytes);
        match end {
            Some(end) if holds_part && piece.handle.form() == form && (end == span) == last => {
                self.given += 1;
                self.reached = end;
                Ok(piece)
            }
            _ => Err(wrong(format!(
                "piece {} of {count} with {} bytes from {start} on, for {bytes} bytes at {offset} in {span}",
                self.given, piece.bytes
            ))),
        }
    }
}

impl Iterator for Pieces {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.attempt()?;
        if piece.is_err() {
            self.given = self.shape.count;
        }
        Some(piece)
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("shape", &self.shape).field("given", &self.given).finish_non_exhaustive()
    }
}

fn shape(offset: u64, bytes: u64, form: Form, sizes: &[u64]) -> Result<Shape> {
    let span = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
    let shape = Shape { offset, bytes, span, count: sizes.len() as u64, form };
    shape.check().map_err(|what| Error::Invalid(format!("memory to export cannot be {what}").into()))?;
    Ok(shape)
}

/// The error for sizes of the other process that contradict each other.
pub(super) fn wrong(what: String) -> Error {
    Error::Peer(format!("the exporting process describes its memory wrongly: {what}").into())
}
