//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub const HELP: &str = "\
Replays allocation traces through Forebay's C ABI and prints what they cost.

Usage: replay [--json] [--limit BYTES] [--work] [--seconds S] TRACE.csv[.gz] ...

  --json          one JSON object a line for each trace, instead of a table
  --limit BYTES   the most physical memory the pool may hold: bytes, or with K, M, G or T for powers of 1024, like 8G
  --work          with every operation, a little work is queued on its stream: what another stream freed comes back only
                  once that is done. The times then have the work in them
  --seconds S     host driver: how long the program ran that was traced, beside its driver calls. The pool moves memory for a share
                  of that time. Spread evenly over the operations; unset: 50 microseconds for each
  -h, --help      this text

A trace has one operation a line, after an optional first line that begins with #:

  a,ID,BYTES,STREAM        allocates; the ID is any number that names no live block
  f,ID[,BYTES[,STREAM]]    frees, in the order of that stream, else of the stream of the allocation

Stream 0 is the default stream; every other number gets a stream of its own. What is live at the end is freed.

FOREBAY_DRIVER=host replays without a GPU and prices the driver calls as an H200 charges for them; unset or cuda
uses device 0. The host driver works at once, or with FOREBAY_HOST_LATE=N when N more items were queued, as a GPU that is
behind: with --work that shows what streams cost each other. Each trace gets a fresh pool. FOREBAY_LIMIT and the other
variables of the library count as always.

Exit status: 0; 1 if a trace could not be read or replayed; 2 if the command line is wrong.
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Help,
    Replay(Arguments),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    pub json: bool,
    pub limit: Option<u64>,
    pub work: bool,
    pub seconds: Option<Duration>,
    pub files: Vec<PathBuf>,
}

/// The error is a sentence for the user.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let mut arguments = Arguments { json: false, limit: None, work: false, seconds: None, files: Vec::new() };
    let mut words = words.peekable();
    let mut options = true;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") if options => options = false,
            Some("-h" | "--help") if options => return Ok(Request::Help),
            Some("--json") if options => arguments.json = true,
            Some("--work") if options => arguments.work = true,
            Some("--limit") if options => {
                let value = words.next().ok_or("--limit needs a number of bytes after it, like 8G")?;
                arguments.limit = Some(limit(&value.to_string_lossy())?);
            }
            Some(text) if options && text.starts_with("--limit=") => {
                arguments.limit = Some(limit(&text["--limit=".len()..])?);
            }
            Some("--seconds") if options => {
                let value = words.next().ok_or("--seconds needs a number after it, like 12.5")?;
                arguments.seconds = Some(seconds(&value.to_string_lossy())?);
            }
            Some(text) if options && text.starts_with("--seconds=") => {
                arguments.seconds = Some(seconds(&text["--seconds=".len()..])?);
            }
            Some(text) if options && text.starts_with('-') && text.len() > 1 => {
                return Err(format!(
                    "there is no option {text}: --json, --limit BYTES, --work, --seconds S and --help are options"
                ));
            }
            _ => arguments.files.push(word.into()),
        }
    }
    if arguments.files.is_empty() {
        return Err("which trace? Name at least one TRACE.csv or TRACE.csv.gz".into());
    }
    Ok(Request::Replay(arguments))
}

fn limit(text: &str) -> Result<u64, String> {
    bytes(text)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("--limit is \"{text}\"; it takes bytes like 1073741824, 512M, 8G or 1T, above 0"))
}

/// A day is longer than any trace.
const MOST_SECONDS: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("--seconds is \"{text}\"; it takes a number from 0 to {MOST_SECONDS}, like 12.5"))
}

/// `8G` is 8 GiB.
fn bytes(text: &str) -> Option<u64> {
    let suffixes = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let last = text.chars().last()?.to_ascii_uppercase();
    let (digits, shift) = match suffixes.iter().find(|&&(suffix, _)| suffix == last) {
        Some(&(_, shift)) => (&text[..text.len() - 1], shift),
        None => (text, 0),
    };
    // `parse` would take a plus sign.
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(1 << shift)
}
