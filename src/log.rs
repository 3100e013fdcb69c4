//! The log: what is worth a word and is in nobody's answer. Events of `tracing` go to stderr, and to one listener of the program.
//!
//! A program that calls through the C ABI gets this with its first pool, unless the process has a subscriber of its own by then. A
//! Rust program that uses the crate's types directly installs what it likes.
//!
//! Events come from everywhere, also from under the pool's locks. A line to stderr is written at once, so that what precedes a
//! crash or a hang is seen. A listener may want any lock of the program's, such as an interpreter's, which other threads hold while
//! they wait for a pool: so what it is to hear waits in a queue, and is handed over at the end of a call, when the thread has left
//! every lock of this library (`abi/guard.rs`). Not on threads of the library's own: whoever ends a pool waits for those, perhaps with the
//! lock that the listener wants.

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

/// The variable that says what goes to stderr.
const VARIABLE: &str = "FOREBAY_LOG";

/// How many events wait for a listener at most.
const MOST: usize = 1024;

/// By their numbers, from nothing to everything.
const FILTERS: [LevelFilter; 5] =
    [LevelFilter::OFF, LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG];

/// Told an event's level and text, without any lock of this library held.
pub type Listener = Box<dyn Fn(Level, &str) + Send + Sync>;

/// Tells listeners apart: a function and what it is called with.
pub type Who = (usize, usize);

/// What was said of the log: changed by one thread at a time, which takes this first.
static SETTING: Mutex<Setting> = Mutex::new(Setting { said: None, heard: None, who: None, ours: false });
/// The number in [`FILTERS`] of what goes to stderr, and of what goes to the listener.
static TO_STDERR: AtomicU8 = AtomicU8::new(0);
static TO_LISTENER: AtomicU8 = AtomicU8::new(0);
/// Held for reading while it is called.
static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);
/// Taken last, for a moment.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { events: VecDeque::new(), lost: 0 });
/// Whether there is something in the queue.
static WAITING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in the listener, or on its way there.
    static HANDING: Cell<bool> = const { Cell::new(false) };
}

struct Setting {
    /// What the variable says, if it says something.
    said: Option<u8>,
    /// What the listener wants, if there is one.
    heard: Option<u8>,
    /// Who it is.
    who: Option<Who>,
    /// Whether the events of this process come here.
    ours: bool,
}

struct Queue {
    events: VecDeque<(Level, String)>,
    /// How many found no room.
    lost: u64,
}

impl Setting {
    /// Makes it so. A program that listens decides itself what it prints, so nothing is printed unasked then.
    fn settle(&mut self) {
        self.ours = self.ours || tracing::subscriber::set_global_default(Log).is_ok();
        let unasked = if self.heard.is_some() { 0 } else { 2 };
        TO_STDERR.store(self.said.unwrap_or(unasked), Ordering::Relaxed);
        TO_LISTENER.store(self.heard.unwrap_or(0), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Reads the variable, once, and begins to listen to the process's events, if nobody does. Again is harmless, and cheap.
///
/// # Errors
/// [`Error::Invalid`] if `FOREBAY_LOG` cannot be read.
pub fn start() -> Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_some() {
        return Ok(());
    }
    let mut setting = SETTING.lock();
    setting.said = match std::env::var_os(VARIABLE) {
        None => None,
        Some(value) => parse(&value.to_string_lossy())?,
    };
    setting.settle();
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

/// Has events up to a level, by its number from 0, none, to 4, all, told to `listener`, in place of whom it was before; that one is not
/// called any more when this returns. For who listens already this changes the level and waits for nobody.
///
/// # Errors
/// [`Error::Busy`] for another one inside of a listener, or where the process's events go to a subscriber of somebody else's.
pub fn listen(level: u8, listener: Option<(Who, Listener)>) -> Result<()> {
    let (who, listener) = listener.unzip();
    let mut setting = SETTING.lock();
    setting.settle();
    if !setting.ours && listener.is_some() {
        return Err(Error::Busy(
            "this process has a subscriber of tracing's of its own: it gets what there is to log".into(),
        ));
    }
    if setting.who != who {
        if HANDING.get() {
            return Err(Error::Busy("the log's callback cannot be replaced while it runs".into()));
        }
        // Waits until nobody is in the old one.
        *LISTENER.write() = listener;
        setting.who = who;
    }
    setting.heard = who.map(|_| level.min(4));
    setting.settle();
    Ok(())
}

/// Whether [`hand_over`] has something to do.
#[inline]
#[must_use]
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed)
}

/// Tells the listener what waits for it. pre: this thread holds no lock of the library's.
#[cold]
pub fn hand_over() {
    // What comes while the listener runs waits for the next turn, and a listener that calls the library is not called by that.
    if HANDING.try_with(|handing| handing.replace(true)) != Ok(false) {
        return;
    }
    {
        // Past whoever waits to change it: he waits for somebody who may need a lock that this thread has, such as an interpreter's.
        let listener = LISTENER.read_recursive();
        let (mut left, lost) = {
            let mut queue = QUEUE.lock();
            (queue.events.len(), std::mem::take(&mut queue.lost))
        };
        let tell = |level: Level, text: &str| {
            if let Some(listener) = &*listener {
                listener(level, text);
            }
        };
        while left > 0
            && let Some((level, text)) = next()
        {
            tell(level, &text);
            left -= 1;
        }
        if lost > 0 {
            tell(Level::WARN, &format!("{lost} messages were lost: they came faster than they could be told"));
        }
    }
    let _ = HANDING.try_with(|handing| handing.set(false));
}

fn next() -> Option<(Level, String)> {
    let mut queue = QUEUE.lock();
    let first = queue.events.pop_front();
    WAITING.store(!queue.events.is_empty() || queue.lost > 0, Ordering::Relaxed);
    first
}

/// The subscriber. There are no spans in this crate.
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
            // In one piece, so that lines of several threads do not mix. Nobody can be told that it failed.
            let _ = std::io::stderr().write_all(format!("forebay: {name}: {text}\n").as_bytes());
        }
        if passes(level, &TO_LISTENER) {
            let mut queue = QUEUE.lock();
            if queue.events.len() < MOST {
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

/// An event as one line: its message, and the rest in brackets.
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
