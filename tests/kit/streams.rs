//! Who reads late and who writes early: what the order between streams is judged by.

use forebay::driver::Driver;
use forebay::driver::host::HostDriver;
use forebay::units::{Address, StreamHandle};

use super::driver::HOME;

/// What a stream reads of a block of ones, once it gets there.
pub struct LateRead(Vec<u8>);

impl LateRead {
    /// Queues the read of the block's first bytes.
    pub fn of(driver: &HostDriver, block: Address, bytes: u64, stream: StreamHandle) -> Self {
        let mut read = vec![0; bytes as usize];
        driver.copy(HOME, Address(read.as_mut_ptr() as u64), block, bytes, stream).unwrap();
        Self(read)
    }

    pub fn is_right(&self) -> bool {
        self.0.iter().all(|&byte| byte == 1)
    }

    #[track_caller]
    pub fn was_in_time(&self) {
        assert!(self.is_right(), "the block was written again before its last reader ran");
    }
}

/// Whoever gets memory writes to it at once: as far as the writer gets by itself, and then everybody.
pub fn write_early(driver: &HostDriver, block: Address, bytes: u64, writer: StreamHandle) {
    driver.fill(HOME, block, 0xEE, bytes, writer).unwrap();
    driver.run_stream(HOME, writer).unwrap();
    driver.run_all();
}
