//! Replays allocation traces through the C ABI, as a program in C would make the calls, and prints what they cost.
//!
//! ```text
//! FOREBAY_DRIVER=host cargo run --release --example replay -- examples/replay/small.csv.gz
//! ```
//!
//! ```text
//!   arguments   the command line
//!   trace       a file to a list of operations
//!   pool        the C functions behind a type that cleans up
//!   run         the timed replay, then the checks
//!   table       what was measured, for people or as JSON
//! ```

mod arguments;
mod pool;
mod run;
mod table;
mod trace;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use arguments::{Arguments, Request};
use run::Outcome;
use trace::Trace;

/// For what is wrong with the command line; everything else that goes wrong ends with 1.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Request::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Request::Replay(arguments)) => arguments,
        Err(text) => {
            eprintln!("replay: {text}\nreplay --help says more");
            return ExitCode::from(BAD_USAGE);
        }
    };
    match replay_all(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // `replay ... | head` is no failure of ours.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => fail(&format!("the output could not be written: {error}")),
        Err(Failure::Replay(text)) => fail(&text),
    }
}

fn fail(text: &str) -> ExitCode {
    eprintln!("replay: {text}");
    ExitCode::FAILURE
}

enum Failure {
    Replay(String),
    Output(std::io::Error),
}

/// Every file is read before the first is replayed, so that a bad line is told at once. The first failing replay ends
/// the program, after what was measured before it was printed.
fn replay_all(arguments: &Arguments) -> Result<(), Failure> {
    let read: Result<Vec<Trace>, String> = arguments.files.iter().map(|file| trace::read(file)).collect();
    let traces = read.map_err(Failure::Replay)?;
    let bar = progress(&traces);
    let mut outcomes = Vec::new();
    let mut failure = None;
    for trace in &traces {
        bar.set_message(trace.name.clone());
        match run::replay(trace, arguments, |operations| bar.inc(operations)) {
            Ok(outcome) => outcomes.push(outcome),
            Err(text) => {
                failure = Some(text);
                break;
            }
        }
    }
    bar.finish_and_clear();
    print(&outcomes, arguments.json).map_err(Failure::Output)?;
    failure.map_or(Ok(()), |text| Err(Failure::Replay(text)))
}

fn print(outcomes: &[Outcome], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        outcomes.iter().try_for_each(|outcome| writeln!(out, "{}", table::json(outcome)))?;
    } else if !outcomes.is_empty() {
        write!(out, "{}", table::text(outcomes))?;
    }
    out.flush()
}

/// On a terminal only: a log wants no half-drawn lines.
fn progress(traces: &[Trace]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(traces.iter().map(|trace| trace.operations.len() as u64).sum());
    match ProgressStyle::with_template("{msg:>16} {wide_bar} {human_pos}/{human_len} operations, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
