//! The part of CPython's C API that sets exceptions. Nothing is linked: in a program without Python the symbols are not
//! found, and the functions do nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

use crate::abi::core::guard::Fault;

pub(crate) type Object = *mut c_void;

/// # Safety
/// `T` is the symbol's type.
unsafe fn symbol<T: Copy>(program: &Library, name: &CStr) -> Option<T> {
    // SAFETY: as the caller promises.
    unsafe { program.get::<T>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
}

/// Sets the Python exception for `fault`, and returns whether it could. pre: the calling thread holds the GIL, if there
/// is one.
pub(crate) fn raise(fault: &Fault, requested: u64, live: u64) -> bool {
    let text = CString::new(fault.text().replace('\0', " ")).unwrap_or_default();
    let program = Library::this();
    // SAFETY: the types are those of CPython's stable ABI, and the GIL is held.
    unsafe {
        let Some(holds_gil) = symbol::<unsafe extern "C" fn() -> c_int>(&program, c"PyGILState_Check") else {
            return false;
        };
        if holds_gil() == 0 {
            return false;
        }
        if fault.is_out_of_memory() && raise_cupys(&program, &text, requested, live).is_some() {
            return true;
        }
        let class = if fault.is_out_of_memory() { c"PyExc_MemoryError" } else { c"PyExc_RuntimeError" };
        let set: Option<unsafe extern "C" fn(Object, *const c_char)> = symbol(&program, c"PyErr_SetString");
        let class: Option<*mut Object> = symbol(&program, class);
        let Some((set, class)) = set.zip(class) else { return false };
        set(*class, text.as_ptr());
        true
    }
}

/// The pointer in a capsule of this name; NULL if the capsule has another name.
///
/// # Safety
/// `capsule` is a Python capsule, and the GIL is held.
pub(crate) unsafe fn capsule(capsule: Object, name: &CStr) -> Object {
    let program = Library::this();
    // SAFETY: the types are those of CPython's stable ABI; a capsule and the GIL as the caller promises.
    unsafe {
        let is_valid = symbol::<unsafe extern "C" fn(Object, *const c_char) -> c_int>(&program, c"PyCapsule_IsValid");
        let get = symbol::<unsafe extern "C" fn(Object, *const c_char) -> Object>(&program, c"PyCapsule_GetPointer");
        match (is_valid, get) {
            (Some(is_valid), Some(get)) if is_valid(capsule, name.as_ptr()) != 0 => get(capsule, name.as_ptr()),
            _ => std::ptr::null_mut(),
        }
    }
}

/// Runs `work` with the GIL released. pre: the calling thread holds it.
pub(crate) fn without_gil(work: impl FnOnce()) {
    type Save = unsafe extern "C" fn() -> Object;
    type Restore = unsafe extern "C" fn(Object);
    let program = Library::this();
    // SAFETY: the types are those of CPython's stable ABI, and the lock is held.
    unsafe {
        let both =
            symbol::<Save>(&program, c"PyEval_SaveThread").zip(symbol::<Restore>(&program, c"PyEval_RestoreThread"));
        let saved = both.map(|(save, restore)| (save(), restore));
        work();
        if let Some((thread, restore)) = saved {
            restore(thread);
        }
    }
}

/// Functions that allocations and frees call. Looked up once, since a look-up costs more than a call.
pub(crate) struct Calls {
    call: unsafe extern "C" fn(Object, *const c_char, ...) -> Object,
    pub is_true: unsafe extern "C" fn(Object) -> c_int,
    pub drop: unsafe extern "C" fn(Object),
    /// The current thread's state; `thread_id` gives its number.
    pub thread: unsafe extern "C" fn() -> Object,
    pub thread_id: unsafe extern "C" fn(Object) -> u64,
}

/// The functions, looked up when Python is there for the first time.
pub(crate) fn calls() -> Option<&'static Calls> {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    if let Some(calls) = CALLS.get() {
        return Some(calls);
    }
    let program = Library::this();
    // SAFETY: the types are those of CPython's stable ABI. A program does not unload Python and go on.
    let found = unsafe {
        Calls {
            call: symbol(&program, c"PyObject_CallFunction")?,
            is_true: symbol(&program, c"PyObject_IsTrue")?,
            drop: symbol(&program, c"Py_DecRef")?,
            thread: symbol(&program, c"PyThreadState_Get")?,
            thread_id: symbol(&program, c"PyThreadState_GetID")?,
        }
    };
    Some(CALLS.get_or_init(|| found))
}

/// Calls a Python function with five integers. Returns whether its result is true, or `None` with its exception
/// pending.
///
/// # Safety
/// `function` is a callable Python object, and the GIL is held.
pub(crate) unsafe fn call(function: Object, arguments: [u64; 5]) -> Option<bool> {
    let calls = calls()?;
    let [a, b, c, d, e] = arguments;
    // SAFETY: an object and the GIL as the caller promises; the format is that of the arguments.
    unsafe {
        let answer = (calls.call)(function, c"KKKKK".as_ptr(), a, b, c, d, e);
        if answer.is_null() {
            return None;
        }
        let truth = (calls.is_true)(answer);
        (calls.drop)(answer);
        (truth >= 0).then_some(truth > 0)
    }
}

/// An exception that was pending: type, value, traceback.
pub(crate) struct Pending([Object; 3]);

/// Removes the pending exception and returns it. pre: the calling thread holds the GIL, if there is one.
pub(crate) fn take() -> Pending {
    let mut parts = [std::ptr::null_mut(); 3];
    // SAFETY: the type is that of CPython's stable ABI; it writes three pointers.
    if let Some(fetch) = unsafe {
        symbol::<unsafe extern "C" fn(*mut Object, *mut Object, *mut Object)>(&Library::this(), c"PyErr_Fetch")
    } {
        let [kind, value, trace] = &mut parts;
        // SAFETY: as above.
        unsafe { fetch(kind, value, trace) };
    }
    Pending(parts)
}

/// Makes the exception pending again. pre: as for [`take`].
pub(crate) fn put_back(Pending([kind, value, trace]): Pending) {
    // SAFETY: the type is that of CPython's stable ABI; it takes the three references over.
    unsafe {
        if let Some(restore) =
            symbol::<unsafe extern "C" fn(Object, Object, Object)>(&Library::this(), c"PyErr_Restore")
        {
            restore(kind, value, trace);
        }
    }
}

/// Drops the exception. pre: as for [`take`].
pub(crate) fn forget(Pending(parts): Pending) {
    // SAFETY: the type is that of CPython's stable ABI; `take` owns each reference, or it is NULL.
    unsafe {
        if let Some(drop) = symbol::<unsafe extern "C" fn(Object)>(&Library::this(), c"Py_DecRef") {
            parts.into_iter().for_each(|part| drop(part));
        }
    }
}

/// Passes the pending exception to `sys.unraisablehook`, with the object that raised it. pre: as for [`take`].
pub(crate) fn report(from: Object) {
    // SAFETY: the type is that of CPython's stable ABI.
    unsafe {
        if let Some(write) = symbol::<unsafe extern "C" fn(Object)>(&Library::this(), c"PyErr_WriteUnraisable") {
            write(from);
        }
    }
}

/// Clears a pending exception. pre: the calling thread holds the GIL, if there is one.
pub(crate) fn clear() {
    let program = Library::this();
    // SAFETY: the types are those of CPython's stable ABI.
    unsafe {
        let holds_gil = symbol::<unsafe extern "C" fn() -> c_int>(&program, c"PyGILState_Check");
        let clear = symbol::<unsafe extern "C" fn()>(&program, c"PyErr_Clear");
        if let (Some(holds_gil), Some(clear)) = (holds_gil, clear)
            && holds_gil() != 0
        {
            clear();
        }
    }
}

/// Raises `cupy.cuda.memory.OutOfMemoryError(requested, live)`, with Forebay's text as its argument.
///
/// # Safety
/// The GIL is held.
unsafe fn raise_cupys(program: &Library, text: &CStr, requested: u64, live: u64) -> Option<()> {
    // SAFETY: the types are those of CPython's stable ABI; every new reference is dropped again.
    unsafe {
        let import: unsafe extern "C" fn(*const c_char) -> Object = symbol(program, c"PyImport_ImportModule")?;
        let get: unsafe extern "C" fn(Object, *const c_char) -> Object = symbol(program, c"PyObject_GetAttrString")?;
        let put: unsafe extern "C" fn(Object, *const c_char, Object) -> c_int =
            symbol(program, c"PyObject_SetAttrString")?;
        let call: unsafe extern "C" fn(Object, *const c_char, ...) -> Object =
            symbol(program, c"PyObject_CallFunction")?;
        let build: unsafe extern "C" fn(*const c_char, ...) -> Object = symbol(program, c"Py_BuildValue")?;
        let set: unsafe extern "C" fn(Object, Object) = symbol(program, c"PyErr_SetObject")?;
        let clear: unsafe extern "C" fn() = symbol(program, c"PyErr_Clear")?;
        let drop: unsafe extern "C" fn(Object) = symbol(program, c"Py_DecRef")?;

        let module = import(c"cupy.cuda.memory".as_ptr());
        let class = if module.is_null() { module } else { get(module, c"OutOfMemoryError".as_ptr()) };
        let error = if class.is_null() {
            class
        } else {
            call(class, c"KK".as_ptr(), requested as c_ulonglong, live as c_ulonglong)
        };
        let arguments = if error.is_null() { error } else { build(c"(s)".as_ptr(), text.as_ptr()) };
        let done = !arguments.is_null() && put(error, c"args".as_ptr(), arguments) == 0;
        if done {
            set(class, error);
        } else {
            clear();
        }
        for object in [arguments, error, class, module] {
            if !object.is_null() {
                drop(object);
            }
        }
        done.then_some(())
    }
}
