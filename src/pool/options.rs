//! The options of a pool, and the environment variables that set them.

use crate::driver::Choice;

use crate::error::{Error, Result};

/// The smallest [`Options::max_chunk`]: the granularity of current GPUs.
const LEAST_CHUNK: u64 = 2 << 20;

/// Every variable that this library, the Python package, or the repository's tests and tools read. Any other
/// `FOREBAY_*` is refused as a probable typo, which could mean no limit where one was wanted.
const VARIABLES: [&str; 17] = [
    "FOREBAY_DRIVER",
    "FOREBAY_LIMIT",
    "FOREBAY_FRACTION",
    "FOREBAY_MAX_CHUNK",
    "FOREBAY_GROW_FIRST",
    "FOREBAY_GIVE_BACK_MS",
    "FOREBAY_HOST_CAPACITY",
    "FOREBAY_HOST_DEVICES",
    "FOREBAY_HOST_LATE",
    "FOREBAY_LOG",
    "FOREBAY_LIBRARY",
    "FOREBAY_TORCH_MODE",
    "FOREBAY_TRACES",
    "FOREBAY_STEPS",
    "FOREBAY_SEEDS",
    "FOREBAY_UPSTREAM",
    "FOREBAY_GPU_DIR",
];
/// Prefixes of other variables: of the tests, of CMake for the package's folder, and of Kubernetes for a service called
/// forebay.
const OTHERS: [&str; 5] = ["FOREBAY_TEST_", "FOREBAY_ROOT", "FOREBAY_DIR", "FOREBAY_SERVICE_", "FOREBAY_PORT"];

/// Where a pool's memory lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// On each device.
    #[default]
    Device,
    /// Pinned on the host, with a pool for each device's streams.
    Host {
        /// The NUMA node; `None`: the one nearest to the device, if the driver knows it.
        numa_node: Option<u32>,
    },
}

/// How a pool behaves. The defaults suit nearly every program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The driver; `None`: `FOREBAY_DRIVER`, else CUDA.
    pub driver: Option<Choice>,
    /// Most bytes of physical memory per device; 0: no limit but the device's. `FOREBAY_LIMIT`.
    pub limit: u64,
    /// The same as a share of the device's memory, in (0, 1]; 0: none. The smaller of both counts. `FOREBAY_FRACTION`.
    pub fraction: f64,
    /// Largest chunk in bytes, a power of two of 2 MiB or more; 0: chunks follow the pool's size. `FOREBAY_MAX_CHUNK`.
    pub max_chunk: u64,
    /// Where the pool's memory lies.
    pub location: Location,
    /// Whether to take new memory rather than wait for another stream's. `FOREBAY_GROW_FIRST`.
    pub grow_first: bool,
    /// Milliseconds after which a thread of the pool gives unneeded memory back to the driver; 0: only a trim does.
    /// `FOREBAY_GIVE_BACK_MS`.
    pub give_back_ms: u32,
}

impl Options {
    /// The defaults, with the values of the environment variables.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a variable whose value cannot be read, and for an unknown `FOREBAY_*`.
    pub fn from_environment() -> Result<Self> {
        std::env::vars_os().try_for_each(|(name, _)| check_name(&name.to_string_lossy()))?;
        // A value that is not UTF-8 becomes a bad value instead of being ignored.
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    pub(crate) fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut options = Self::default();
        if let Some(text) = get("FOREBAY_LIMIT") {
            options.limit = parse_bytes("FOREBAY_LIMIT", &text)?;
        }
        if let Some(text) = get("FOREBAY_MAX_CHUNK") {
            options.max_chunk = parse_bytes("FOREBAY_MAX_CHUNK", &text)?;
        }
        if let Some(text) = get("FOREBAY_FRACTION") {
            options.fraction = text.trim().parse().map_err(|_| {
                Error::invalid(format_args!(
                    "FOREBAY_FRACTION is \"{text}\"; it takes a number above 0, up to 1, like 0.5"
                ))
            })?;
        }
        if let Some(text) = get("FOREBAY_GROW_FIRST") {
            options.grow_first = match text.trim() {
                "0" | "" => false,
                "1" => true,
                _ => return Err(Error::invalid(format_args!("FOREBAY_GROW_FIRST is \"{text}\"; it takes 0 or 1"))),
            };
        }
        if let Some(text) = get("FOREBAY_GIVE_BACK_MS") {
            options.give_back_ms = text.trim().parse().map_err(|_| {
                Error::invalid(format_args!(
                    "FOREBAY_GIVE_BACK_MS is \"{text}\"; it takes milliseconds up to {}, like 10000, or 0 for never",
                    u32::MAX
                ))
            })?;
        }
        options.validate()?;
        Ok(options)
    }

    /// Checks the ranges that do not depend on a device.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the option, its value and what it takes.
    pub fn validate(&self) -> Result<()> {
        if !(self.fraction >= 0.0 && self.fraction <= 1.0) {
            return Err(Error::invalid(format_args!(
                "fraction is {}; it takes a number above 0, up to 1, or 0 for none",
                self.fraction
            )));
        }
        if self.max_chunk != 0 && !(self.max_chunk.is_power_of_two() && self.max_chunk >= LEAST_CHUNK) {
            return Err(Error::invalid(format_args!(
                "max_chunk is {}; it takes a power of two in bytes, {LEAST_CHUNK} or more, like {}, or 0 to follow the pool",
                self.max_chunk,
                32 << 20
            )));
        }
        Ok(())
    }
}

/// The smaller of two limits in bytes, each 0 for none: a number, and a share of `total`. `u64::MAX` for no limit.
pub(crate) fn effective_limit(total: u64, bytes: u64, fraction: f64) -> u64 {
    let bytes = if bytes == 0 { u64::MAX } else { bytes };
    if fraction == 0.0 {
        return bytes;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of memory need not be exact to the byte"
    )]
    let share = (total as f64 * fraction) as u64;
    // 0 would read as no limit.
    bytes.min(share.max(1))
}

/// Refuses an unknown variable name that begins with `FOREBAY_`.
fn check_name(name: &str) -> Result<()> {
    if !name.starts_with("FOREBAY_") || VARIABLES.contains(&name) || OTHERS.iter().any(|begin| name.starts_with(begin))
    {
        return Ok(());
    }
    let nearest = VARIABLES.into_iter().min_by_key(|known| strsim::levenshtein(known, name)).unwrap_or_default();
    Err(Error::invalid(format_args!(
        "unknown environment variable {name}; the nearest known one is {nearest}. Unset it or correct its name; known are {}",
        VARIABLES.join(", ")
    )))
}

/// Parses bytes with an optional K, M, G or T for powers of 1024: `8G`, `512M`, `1048576`.
fn parse_bytes(name: &str, text: &str) -> Result<u64> {
    let wrong = || Error::invalid(format_args!("{name} is \"{text}\"; it takes bytes like 1073741824, 512M, 8G or 1T"));
    let trimmed = text.trim();
    let unit = trimmed.chars().last().ok_or_else(wrong)?.to_ascii_uppercase();
    let shift = match unit {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { trimmed } else { &trimmed[..trimmed.len() - 1] };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Options> {
        Options::from_variables(move |asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn documented_values_are_read() {
        assert_eq!(read("FOREBAY_LIMIT", "8G").map(|o| o.limit), Ok(8 << 30));
        assert_eq!(read("FOREBAY_LIMIT", " 12 ").map(|o| o.limit), Ok(12));
        assert_eq!(read("FOREBAY_MAX_CHUNK", "32m").map(|o| o.max_chunk), Ok(32 << 20));
        assert_eq!(read("FOREBAY_FRACTION", "0.5").map(|o| o.fraction), Ok(0.5));
        assert_eq!(read("FOREBAY_GROW_FIRST", "1").map(|o| o.grow_first), Ok(true));
        assert_eq!(read("FOREBAY_GIVE_BACK_MS", " 1500 ").map(|o| o.give_back_ms), Ok(1500));
    }

    #[test]
    fn other_values_are_refused_by_name() {
        for (name, value) in [
            ("FOREBAY_LIMIT", ""),
            ("FOREBAY_LIMIT", "-1"),
            ("FOREBAY_LIMIT", "99999999T"),
            ("FOREBAY_LIMIT", "8GB"),
            ("FOREBAY_MAX_CHUNK", "3M"),
            ("FOREBAY_MAX_CHUNK", "1"),
            ("FOREBAY_MAX_CHUNK", "1M"),
            ("FOREBAY_FRACTION", "half"),
            ("FOREBAY_FRACTION", "1.5"),
            ("FOREBAY_FRACTION", "NaN"),
            ("FOREBAY_GROW_FIRST", "yes"),
            ("FOREBAY_GIVE_BACK_MS", "10s"),
            ("FOREBAY_GIVE_BACK_MS", "-1"),
            ("FOREBAY_GIVE_BACK_MS", "4294967296"),
        ] {
            let text = read(name, value).expect_err(value).to_string();
            let option = name.trim_start_matches("FOREBAY_").to_lowercase();
            assert!(text.contains(name) || text.contains(&option), "{name}={value}: {text}");
        }
    }
}
