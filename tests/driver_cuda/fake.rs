//! The functions that the made libcuda has for its tests.

/// The fake's own functions.
pub struct Fake(libloading::Library);

impl Fake {
    pub fn load() -> Self {
        let path = std::env::var_os("FAKE_LIBRARY").expect("run by its parent test");
        // SAFETY: our own library, without initialisers.
        Self(unsafe { libloading::Library::new(path) }.unwrap())
    }

    /// The calls since the last time, as `name:mode:depth`.
    pub fn calls(&self) -> Vec<String> {
        // SAFETY: the types are those of `fake.c`.
        unsafe {
            let log = self.0.get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(b"fake_log").unwrap();
            let text = std::ffi::CStr::from_ptr(log()).to_string_lossy().into_owned();
            self.0.get::<unsafe extern "C" fn()>(b"fake_clear").unwrap()();
            text.split_whitespace().map(str::to_owned).collect()
        }
    }

    pub fn answer(&self, name: &std::ffi::CStr, code: i32) {
        // SAFETY: as above.
        unsafe {
            let answer = self.0.get::<unsafe extern "C" fn(*const std::ffi::c_char, i32)>(b"fake_answer").unwrap();
            answer(name.as_ptr(), code);
        }
    }

    pub fn set(&self, name: &[u8], value: usize) {
        // SAFETY: as above; an `int` and a pointer are passed alike.
        unsafe { self.0.get::<unsafe extern "C" fn(usize)>(name).unwrap()(value) }
    }

    pub fn get(&self, name: &[u8]) -> usize {
        // SAFETY: as above; the numbers asked for are small or pointers of 16 bits.
        unsafe { self.0.get::<unsafe extern "C" fn() -> usize>(name).unwrap()() }
    }

    /// The arguments of the last call that notes them.
    pub fn said(&self) -> String {
        // SAFETY: as above.
        unsafe {
            let said = self.0.get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(b"fake_said").unwrap();
            std::ffi::CStr::from_ptr(said()).to_string_lossy().into_owned()
        }
    }
}
