//! What `forebay.cupy.PinnedMemoryPool` has of this module: blocks of pinned memory that are kept at hand.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyTuple};

use crate::cell::Field;
use crate::connect::package;

const UNIT: u64 = 512;
/// Longer blocks serve everybody through the pool.
const SMALL: u64 = 1 << 20;
/// Bytes kept at hand of one size.
const OF_A_SIZE: usize = 4 << 20;
/// How many sizes are kept at hand.
const SIZES: usize = 64;

/// The blocks of a pool.
#[derive(Default)]
struct Books {
    /// By size, those that are kept at hand.
    free: HashMap<u64, Vec<u64>>,
    /// By address: the size, and the number of the object that the block belongs to. An object whose block was freed by hand
    /// owns nothing any more.
    in_use: HashMap<u64, (u64, u64)>,
    last: u64,
}

impl Books {
    /// Enters a block that was given out: the number of its object.
    fn enter(&mut self, address: u64, size: u64) -> u64 {
        self.last += 1;
        self.in_use.insert(address, (size, self.last));
        self.last
    }

    /// Takes a block back. `false`: there is no room at hand, the caller gives it to the pool.
    fn keep(&mut self, address: u64, size: u64) -> bool {
        self.in_use.remove(&address);
        let known = self.free.len();
        if size > SMALL || (known >= SIZES && !self.free.contains_key(&size)) {
            return false;
        }
        let free = self.free.entry(size).or_default();
        let room = free.len() * (size as usize) < OF_A_SIZE;
        if room {
            free.push(address);
        }
        room
    }
}

/// Pinned memory with blocks kept at hand. A class derived from it gets and gives back the others: `_more`, `_give_back`.
#[pyclass(subclass, frozen, module = "forebay._core")]
#[derive(Default)]
pub struct PinnedBase {
    /// CuPy's class of pointers.
    pointer: Field<Option<Py<PyAny>>>,
    /// Never held while Python code runs.
    books: Mutex<Books>,
}

impl PinnedBase {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `size` rounded up.
fn rounded(size: u64) -> u64 {
    size.checked_next_multiple_of(UNIT).unwrap_or(size)
}

#[pymethods]
impl PinnedBase {
    #[new]
    #[pyo3(signature = (*_arguments, **_named))]
    fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Names the class of the pointers that are handed out.
    fn _connect(&self, py: Python<'_>, pointer: Py<PyAny>) {
        drop(self.pointer.replace(py, Some(pointer)));
    }

    /// Gives pinned memory.
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     Bytes, rounded up to 512.
    ///
    /// Returns
    /// -------
    /// cupy.cuda.PinnedMemoryPointer
    fn malloc<'py>(slf: &Bound<'py, Self>, size: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let size = rounded(package(py)?.size(size)?);
        let Some(pointer) = this.pointer.share(py) else {
            return Err(PyRuntimeError::new_err("the pool was not initialized"));
        };
        let at_hand = {
            let mut books = this.books();
            let found = books.free.get_mut(&size).and_then(Vec::pop);
            found.map(|address| (address, books.enter(address, size)))
        };
        let (ptr, number) = match at_hand {
            Some(found) => found,
            None if size == 0 => (0, 0),
            None => {
                let address = slf.call_method1(intern!(py, "_more"), (size,))?.extract()?;
                (address, this.books().enter(address, size))
            }
        };
        // From here on the object gives the block back, whatever fails.
        let block = PinnedBlock { ptr, size, number, pool: slf.clone().unbind() };
        pointer.bind(py).call1((Bound::new(py, block)?, 0))
    }

    /// Takes a block back before its last pointer is gone.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If there is no such block in use.
    fn free(slf: &Bound<'_, Self>, ptr: &Bound<'_, PyAny>, size: &Bound<'_, PyAny>) -> PyResult<()> {
        let package = package(slf.py())?;
        let (address, size) = (package.pointer(ptr)? as u64, rounded(package.size(size)?));
        let kept = {
            let mut books = slf.get().books();
            let fits = books.in_use.get(&address).is_some_and(|(held, _)| *held == size);
            fits.then(|| books.keep(address, size))
        };
        match kept {
            None => Err(PyRuntimeError::new_err(format!(
                "{address:#x} with {size} bytes is no block of this pool that is in use"
            ))),
            Some(true) => Ok(()),
            Some(false) => slf.call_method1(intern!(slf.py(), "_give_back"), (address,)).map(drop),
        }
    }

    /// Takes everything that is at hand away, to be given back.
    fn _take_at_hand(&self) -> Vec<u64> {
        self.books().free.values_mut().flat_map(std::mem::take).collect()
    }

    /// How many blocks are at hand.
    fn _at_hand(&self) -> usize {
        self.books().free.values().map(Vec::len).sum()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector runs with the interpreter's lock held, and its visits only count.
        unsafe { self.pointer.visit(|held| visit.call(held)) }
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.pointer.replace(py, None));
    }
}

/// A block. CuPy's pointers refer to it by `ptr` and `size`; the last of them ends it.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub struct PinnedBlock {
    #[pyo3(get)]
    ptr: u64,
    #[pyo3(get)]
    size: u64,
    number: u64,
    pool: Py<PinnedBase>,
}

#[pymethods]
impl PinnedBlock {
    fn __int__(&self) -> u64 {
        self.ptr
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        // SAFETY: an object of the interpreter ends with its lock held.
        let py = unsafe { Python::assume_attached() };
        let pool = self.pool.bind(py);
        let kept = {
            let mut books = pool.get().books();
            let is_mine = books.in_use.get(&self.ptr).is_some_and(|(_, number)| *number == self.number);
            !is_mine || books.keep(self.ptr, self.size)
        };
        if kept {
            return;
        }
        // An exception that is on its way while the object ends stays the pending one.
        let pending = PyErr::take(py);
        if let Err(error) = pool.call_method1(intern!(py, "_give_back"), (self.ptr,)) {
            error.write_unraisable(py, Some(pool));
        }
        if let Some(pending) = pending {
            pending.restore(py);
        }
    }
}
