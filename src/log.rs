//! The log: events that no status reports. The events of `tracing` go to stderr, and to one listener of the program.
//!
//! The first pool of a program that uses the C ABI installs this subscriber, unless the process already has one. A Rust
//! program that uses the crate's types directly installs its own.
//!
//! Events may be made under the pool's locks. A line to stderr is written at once, so that the lines before a crash or
//! a hang are seen. A listener may need a lock of the program, such as Python's GIL, that another thread holds while it
//! waits for a pool. So events for the listener wait in a queue, and are delivered at the end of a call, when the
//! thread holds no lock of this library (`abi/core/guard.rs`). Threads of the library itself deliver none: a thread
//! that ends a pool waits for them, perhaps with the lock that the listener needs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{Error, Result};

/// The variable with the level of the events that go to stderr.
const VARIABLE: &str = "FOREBAY_LOG";

/// The most events that the queue holds.
const QUEUE_CAPACITY: usize = 1024;

/// The levels by number, from none to all.
const FILTERS: [LevelFilter; 5] =
    [LevelFilter::OFF, LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG];

/// Receives an event's level and text, with no lock of this library held.
pub type Listener = Box<dyn Fn(Level, &str) + Send + Sync>;

/// Identifies a listener: the address of a function, and its user data.
pub type ListenerId = (usize, usize);

/// The settings of the log. This lock is taken before those below.
static SETTING: Mutex<Setting> = Mutex::new(Setting { variable: None, level: None, id: None, is_installed: false });
/// The numbers in [`FILTERS`] of the levels for stderr and for the listener.
static TO_STDERR: AtomicU8 = AtomicU8::new(0);
static TO_LISTENER: AtomicU8 = AtomicU8::new(0);
/// Held for reading while the listener is called.
static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);
/// Taken last, and held briefly.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { events: VecDeque::new(), lost: 0 });
/// Whether the queue has events.
static WAITING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is delivering events.
    static DELIVERING: Cell<bool> = const { Cell::new(false) };
}

struct Setting {
    /// The level in the variable, if it is set.
    variable: Option<u8>,
    /// The listener's level, if there is a listener.
    level: Option<u8>,
    /// The listener's id.
    id: Option<ListenerId>,
    /// Whether [`Log`] is the process's subscriber.
    is_installed: bool,
}

struct Queue {
    events: VecDeque<(Level, String)>,
    /// The number of events dropped because the queue was full.
    lost: u64,
}

impl Setting {
    /// Applies the settings. While there is a listener, stderr gets only the events that the variable selects.
    fn apply(&mut self) {
        self.is_installed = self.is_installed || tracing::subscriber::set_global_default(Log).is_ok();
        let default = if self.level.is_some() { 0 } else { 2 };
        TO_STDERR.store(self.variable.unwrap_or(default), Ordering::Relaxed);
        TO_LISTENER.store(self.level.unwrap_or(0), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Reads the variable and installs the subscriber, unless the process has one. Further calls do nothing, at the cost of
/// one load.
///
/// # Errors
/// [`Error::Invalid`] if `FOREBAY_LOG` cannot be read.
pub fn start() -> Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_some() {
        return Ok(());
    }
    let mut setting = SETTING.lock();
    setting.variable = match std::env::var_os(VARIABLE) {
        None => None,
        Some(value) => parse(&value.to_string_lossy())?,
    };
    setting.apply();
    STARTED.get_or_init(|| ());
    Ok(())
}

/// The number of a level by its name; `None` for an empty text.
fn parse(text: &str) -> Result<Option<u8>> {
    let named = text.trim().to_ascii_lowercase();
    if named.is_empty() {
        return Ok(None);
    }
    let found = ["off", "error", "warn", "info", "debug"].iter().position(|name| *name == named);
    found.map(|number| Some(number as u8)).ok_or_else(|| {
        Error::invalid(format_args!("{VARIABLE} is \"{text}\"; it takes off, error, warn, info or debug"))
    })
}

/// Sets the listener that receives the events up to `level`, from 0 (none) to 4 (all), in place of the one before,
/// which is no longer called when this returns. With the id of the present listener this changes the level only, and
/// does not wait.
///
/// # Errors
/// [`Error::Busy`] for another listener from inside a listener, and if the process has another subscriber.
pub fn listen(level: u8, listener: Option<(ListenerId, Listener)>) -> Result<()> {
    let (id, listener) = listener.unzip();
    let mut setting = SETTING.lock();
    setting.apply();
    if !setting.is_installed && listener.is_some() {
        return Err(Error::Busy(
            "this process has its own subscriber of tracing, which gets the events of the log".into(),
        ));
    }
    if setting.id != id {
        if DELIVERING.get() {
            return Err(Error::Busy("the log's callback cannot be replaced while it runs".into()));
        }
        // Waits until no thread is in the old listener.
        *LISTENER.write() = listener;
        setting.id = id;
    }
    setting.level = id.map(|_| level.min(4));
    setting.apply();
    Ok(())
}

/// Whether the queue has events for [`deliver`].
#[inline]
#[must_use]
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed)
}

/// Delivers the queued events to the listener. pre: this thread holds no lock of the library.
#[cold]
pub fn deliver() {
    // Events made while the listener runs wait for the next call, and a listener that calls the library is not called
    // again.
    if DELIVERING.try_with(|delivering| delivering.replace(true)) != Ok(false) {
        return;
    }
    {
        // Recursive, so as not to queue behind a thread that waits to replace the listener: it waits for a thread in
        // the listener, which may need a lock that this thread holds, such as Python's GIL.
        let listener = LISTENER.read_recursive();
        let (mut count, lost) = {
            let mut queue = QUEUE.lock();
            (queue.events.len(), std::mem::take(&mut queue.lost))
        };
        let call = |level: Level, text: &str| {
            if let Some(listener) = &*listener {
                listener(level, text);
            }
        };
        while count > 0
            && let Some((level, text)) = next()
        {
            call(level, &text);
            count -= 1;
        }
        if lost > 0 {
            call(Level::WARN, &format!("{lost} log messages were lost: the queue of {QUEUE_CAPACITY} was full"));
        }
    }
    let _ = DELIVERING.try_with(|delivering| delivering.set(false));
}

fn next() -> Option<(Level, String)> {
    let mut queue = QUEUE.lock();
    let first = queue.events.pop_front();
    WAITING.store(!queue.events.is_empty() || queue.lost > 0, Ordering::Relaxed);
    first
}

/// The subscriber. This crate has no spans.
struct Log;

fn passes(level: Level, number: &AtomicU8) -> bool {
    FILTERS.get(usize::from(number.load(Ordering::Relaxed))).is_some_and(|filter| level <= *filter)
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && (passes(*metadata.level(), &TO_STDERR) || passes(*metadata.level(), &TO_LISTENER))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let most = TO_STDERR.load(Ordering::Relaxed).max(TO_LISTENER.load(Ordering::Relaxed));
        FILTERS.get(usize::from(most)).copied()
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let text = Text::of(event);
        if passes(level, &TO_STDERR) {
            let name = level.as_str().to_ascii_lowercase();
            // One write, so that lines of several threads do not mix. A failed write cannot be reported.
            let _ = std::io::stderr().write_all(format!("forebay: {name}: {text}\n").as_bytes());
        }
        if passes(level, &TO_LISTENER) {
            let mut queue = QUEUE.lock();
            if queue.events.len() < QUEUE_CAPACITY {
                queue.events.push_back((level, text));
            } else {
                queue.lost += 1;
            }
            WAITING.store(true, Ordering::Relaxed);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as one line: its message, and its other fields in brackets.
#[derive(Default)]
struct Text {
    message: String,
    rest: String,
}

impl Text {
    fn of(event: &Event<'_>) -> String {
        let mut text = Self::default();
        event.record(&mut text);
        match text.rest.is_empty() {
            true => text.message,
            false => format!("{} [{}]", text.message, text.rest),
        }
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.rest, "{}{name}={value:?}", if self.rest.is_empty() { "" } else { ", " }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_by_name_and_everything_else_is_refused() {
        for (text, number) in [("off", 0), ("error", 1), (" warn ", 2), ("INFO", 3), ("debug", 4)] {
            assert_eq!(parse(text), Ok(Some(number)), "{text}");
        }
        assert_eq!(parse(""), Ok(None));
        for text in ["trace", "2", "warn,forebay=debug", "yes"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("FOREBAY_LOG") && error.contains("warn") && error.contains(text), "{error}");
        }
    }
}
