//! What the targets in `tests/` share: the driver that they run on, and sizes worth trying.

use std::sync::Once;

use bolero_generator::{Driver, TypeGenerator};

/// Two small devices whose work comes late, so that memory runs out and an order that is missing shows. Call it before the
/// library is used.
pub fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, value) in [
            ("FOREBAY_DRIVER", "host"),
            ("FOREBAY_HOST_CAPACITY", "64M"),
            ("FOREBAY_HOST_DEVICES", "2"),
            ("FOREBAY_HOST_LATE", "7"),
            ("FOREBAY_LOG", "off"),
        ] {
            // SAFETY: each target is the only test of its program, and has started no thread by now.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// A number of bytes: mostly up to 64 MiB and evenly over the powers of two, seldom any number.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl TypeGenerator for Size {
    fn generate<D: Driver>(driver: &mut D) -> Option<Self> {
        let (kind, low) = (u8::generate(driver)?, u64::generate(driver)?);
        Some(Self(match kind {
            0..=3 => low,
            4..=7 => u64::MAX - (low >> 52),
            _ => low >> (38 + kind % 26),
        }))
    }
}
