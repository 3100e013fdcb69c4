//! The part of the C++ ABI (Itanium, libstdc++) that throws the exceptions PyTorch expects and calls its stream filter.
//!
//! Nothing is linked: each symbol is looked up in the libraries that the process has already loaded.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use libloading::os::unix::{Library, RTLD_LAZY};

use super::guard::Fault;
use crate::units::StreamHandle;

/// glibc's RTLD_NOLOAD: opens a library only if it is already loaded.
const RTLD_NOLOAD: c_int = 4;

/// Bytes allocated for a `c10::Error`, which took 96 to 120 in the versions of PyTorch checked.
const ERROR_BYTES: usize = 1024;

/// An exception object, constructed and not thrown yet. Plain pointers, so that unwinding drops nothing.
#[derive(Clone, Copy)]
pub(crate) struct Exception {
    object: *mut c_void,
    type_info: *mut c_void,
    destroy: *mut c_void,
    throw: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> !,
}

/// `std::string` in libstdc++'s layout. Texts of up to 15 bytes would lie inside the object; `copy_of` makes longer
/// ones only.
#[repr(C)]
struct StdString {
    data: *mut c_char,
    length: usize,
    capacity: usize,
    unused: usize,
}

/// `c10::SourceLocation`.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

struct Runtime {
    library: Library,
}

impl Runtime {
    fn loaded(name: &str) -> Option<Self> {
        // SAFETY: RTLD_NOLOAD runs no initialisers; at most it adds a reference to a library in use.
        let library = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) }.ok()?;
        Some(Self { library })
    }

    /// libstdc++, or the program itself if libstdc++ is linked into it.
    fn cxx() -> Self {
        Self::loaded("libstdc++.so.6").unwrap_or_else(|| Self { library: Library::this() })
    }

    /// # Safety
    /// `T` is the symbol's type.
    unsafe fn get<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: as the caller promises.
        unsafe { self.library.get::<T>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }
}

/// Makes the exception for a fault, or `None` in a program without a C++ runtime.
pub(crate) fn prepare(fault: Fault) -> Option<Exception> {
    let text = fault.text();
    let cxx = Runtime::cxx();
    let out_of_memory = fault.is_out_of_memory().then(|| out_of_memory(&cxx, &text)).flatten();
    out_of_memory.or_else(|| runtime_error(&cxx, &text))
}

/// Throws the exception, if there is one. The unwound frames must hold nothing to drop.
pub(crate) fn throw(exception: Option<Exception>) {
    if let Some(Exception { object, type_info, destroy, throw }) = exception {
        // SAFETY: the object was allocated and constructed for this type.
        unsafe { throw(object, type_info, destroy) }
    }
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;

fn thrower(
    cxx: &Runtime,
) -> Option<(Allocate, unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> !)> {
    // SAFETY: the types are those of the Itanium C++ ABI.
    unsafe { Some((cxx.get("__cxa_allocate_exception\0")?, cxx.get("__cxa_throw\0")?)) }
}

/// `std::runtime_error(text)`.
fn runtime_error(cxx: &Runtime, text: &str) -> Option<Exception> {
    let (allocate, throw) = thrower(cxx)?;
    let text = std::ffi::CString::new(text.replace('\0', " ")).ok()?;
    // SAFETY: the constructor takes the object and a C string; 64 bytes are more than its two words.
    unsafe {
        let construct: unsafe extern "C" fn(*mut c_void, *const c_char) = cxx.get("_ZNSt13runtime_errorC1EPKc\0")?;
        let destroy = cxx.get("_ZNSt13runtime_errorD1Ev\0")?;
        let type_info = cxx.get("_ZTISt13runtime_error\0")?;
        let object = allocate(64);
        construct(object, text.as_ptr());
        Some(Exception { object, type_info, destroy, throw })
    }
}

/// `c10::OutOfMemoryError`: a `c10::Error` with another vtable.
fn out_of_memory(cxx: &Runtime, text: &str) -> Option<Exception> {
    const CONSTRUCTOR: &str =
        "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0";
    let c10 = Runtime::loaded("libc10.so")?;
    let cuda = Runtime::loaded("libc10_cuda.so");
    let (allocate, throw) = thrower(cxx)?;
    // SAFETY: the types are those of the mangled names, of vtables and of type_info objects.
    unsafe {
        let construct: unsafe extern "C" fn(*mut c_void, SourceLocation, *mut StdString) = c10.get(CONSTRUCTOR)?;
        let find = |name: &str| cuda.as_ref().and_then(|cuda| cuda.get::<*mut c_void>(name)).or_else(|| c10.get(name));
        let vtable: *mut *mut c_void = find("_ZTVN3c1016OutOfMemoryErrorE\0")?.cast();
        let type_info = find("_ZTIN3c1016OutOfMemoryErrorE\0")?;
        let new: Allocate = cxx.get("_Znwm\0")?;
        let delete: unsafe extern "C" fn(*mut c_void) = cxx.get("_ZdlPv\0")?;
        let mut message = StdString::copy_of(text, new);
        let data = message.data;
        let object = allocate(ERROR_BYTES);
        let location =
            SourceLocation { function: c"forebay_torch_malloc".as_ptr(), file: c"libforebay.so".as_ptr(), line: 0 };
        construct(object, location, &raw mut message);
        // If the constructor moved the text out, the string points to its own short buffer instead.
        if message.data == data {
            delete(data.cast());
        }
        // Behind the offset and the type_info, the first entry is the complete-object destructor.
        let first_entry = vtable.add(2);
        object.cast::<*mut *mut c_void>().write(first_entry);
        Some(Exception { object, type_info, destroy: *first_entry, throw })
    }
}

impl StdString {
    /// # Safety
    /// `new` is `operator new`.
    unsafe fn copy_of(text: &str, new: Allocate) -> Self {
        // At least 16: libstdc++ keeps shorter texts inside the string.
        let capacity = text.len().max(16);
        // SAFETY: capacity + 1 bytes for the text and its NUL.
        let data: *mut c_char = unsafe { new(capacity + 1) }.cast();
        // SAFETY: the memory was just allocated and does not overlap the text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), data.cast(), text.len());
            data.add(text.len()).write(0);
        }
        Self { data, length: text.len(), capacity, unused: 0 }
    }
}

type Manager = unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool;
type Invoker = unsafe extern "C" fn(*const [usize; 2], *mut *mut c_void) -> bool;

/// `std::function<bool(cudaStream_t)>` as libstdc++ lays it out.
#[repr(C)]
struct StdFunction {
    storage: [usize; 2],
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

/// A copy of PyTorch's stream filter, which selects the streams that allocate from a private pool.
pub(crate) struct StreamFilter {
    function: Option<StdFunction>,
}

// SAFETY: PyTorch calls its own copies from any thread that allocates.
unsafe impl Send for StreamFilter {}
// SAFETY: PyTorch, too, calls the same const std::function from several threads.
unsafe impl Sync for StreamFilter {}

impl StreamFilter {
    const CLONE: c_int = 2;
    const DESTROY: c_int = 3;

    /// # Safety
    /// `function` is NULL or points to a `std::function<bool(cudaStream_t)>`.
    pub unsafe fn copy(function: *const c_void) -> Self {
        // SAFETY: as the caller promises.
        let original = unsafe { function.cast::<StdFunction>().as_ref() };
        let function = original.and_then(|original| {
            let (manager, invoker) = (original.manager?, original.invoker?);
            let mut storage = MaybeUninit::<[usize; 2]>::zeroed();
            // SAFETY: the manager copies the callable into the storage given.
            unsafe { manager(storage.as_mut_ptr(), &raw const original.storage, Self::CLONE) };
            // SAFETY: zeroed before, so initialised whatever the manager wrote.
            let storage = unsafe { storage.assume_init() };
            Some(StdFunction { storage, manager: Some(manager), invoker: Some(invoker) })
        });
        Self { function }
    }

    pub fn accepts(&self, stream: StreamHandle) -> bool {
        let Some(StdFunction { storage, invoker: Some(invoker), .. }) = &self.function else { return true };
        let mut stream = stream.0 as *mut c_void;
        // SAFETY: a copy of a callable of this type, called as std::function calls it.
        unsafe { invoker(storage, &raw mut stream) }
    }
}

impl Drop for StreamFilter {
    fn drop(&mut self) {
        if let Some(StdFunction { storage, manager: Some(manager), .. }) = &mut self.function {
            // SAFETY: destroys the copy made above, once.
            unsafe { manager(storage, storage, Self::DESTROY) };
        }
    }
}
