//! The replay example on the host driver: its figures, its two forms of output, and what it says of bad input.

mod kit;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use kit::programs::{on_host, plain, root, run, scratch};
use kit::random::Random;

/// What other programs read from `--json`.
const KEYS: [&str; 12] = [
    "trace",
    "driver",
    "events",
    "streams",
    "peak_live_bytes",
    "peak_physical_bytes",
    "ratio",
    "driver_ms",
    "ns_per_op",
    "steals",
    "growths",
    "waits",
];

/// The example, in `target/<profile>/examples`. `cargo test` builds it before any test runs; `cargo test --test replay`
/// does not, so it is built here where it is missing.
fn program() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let executable = std::env::current_exe().expect("the test's own path");
    let profile = executable.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let path = profile.join("examples/replay");
    let build = || {
        if !path.is_file() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let release = profile.ends_with("release").then_some("--release");
            run(Command::new(cargo).args(["build", "--example", "replay"]).args(release).current_dir(root()));
        }
        path.clone()
    };
    FOUND.get_or_init(build).clone()
}

/// With work that is done at once, unless a test says otherwise.
fn replay() -> Command {
    let mut command = on_host(program());
    command.env_remove("FOREBAY_HOST_LATE");
    command
}

fn small() -> PathBuf {
    root().join("examples/replay/small.csv.gz")
}

fn written(name: &str, text: &str) -> PathBuf {
    let path = scratch(&format!("replay-{name}")).join("trace.csv");
    std::fs::write(&path, text).expect("a trace");
    path
}

fn figures(command: &mut Command) -> Vec<Value> {
    let lines = run(command);
    lines.lines().map(|line| serde_json::from_str(line).expect("each line is a JSON value")).collect()
}

/// What a failing replay said, after its exit code and the silence of its standard output were checked.
fn refusal(command: &mut Command, code: i32) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(code), "{command:?}: {text}");
    assert!(stdout.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&stdout));
    text
}

fn refused_trace(name: &str, text: &str) -> String {
    refusal(replay().arg(written(name, text)), 1)
}

#[test]
fn json_has_exactly_the_documented_keys_and_true_figures() {
    let all = figures(replay().arg("--json").arg(small()));
    let [figures] = all.as_slice() else { panic!("one line for one trace, not {all:?}") };
    let object = figures.as_object().expect("an object");
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut expected = KEYS;
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!((&object["trace"], &object["driver"]), (&Value::from("small"), &Value::from("host")));
    assert_eq!((&object["events"], &object["streams"]), (&Value::from(3651), &Value::from(3)));
    let number = |key: &str| object[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", object[key]));
    assert!((number("ratio") - number("peak_physical_bytes") / number("peak_live_bytes")).abs() < 1e-5);
    assert!(number("ratio") >= 1.0, "less memory than is live: {}", number("ratio"));
    // The share lost where a live block ends inside a chunk is the larger, the smaller the pool is; and chunks that blocks
    // of several streams touch cannot move.
    assert!(number("ratio") < 1.05, "ratio {}", number("ratio"));
    assert!(number("driver_ms") > 1.0 && number("driver_ms") < 150.0, "{} ms of driver calls", number("driver_ms"));
    assert!(number("ns_per_op") > 0.0);
    assert!(number("growths") > 0.0 && number("steals") > 0.0, "{figures}");
}

#[test]
fn with_work_that_is_late_streams_wait_for_each_other() {
    let of = |command: &mut Command| {
        let all = figures(command.args(["--json", "--work"]).arg(small()));
        let number = |key: &str| all[0][key].as_f64().unwrap_or_else(|| panic!("{key} is {}", all[0][key]));
        (number("waits"), number("ratio"))
    };
    let (waits, at_once) = of(&mut replay());
    assert!((waits, at_once) < (1.0, 1.05), "all work is done at once: {waits} waits, {at_once}");
    let (waits, late) = of(replay().env("FOREBAY_HOST_LATE", "1000"));
    assert!(waits > 0.0 && late < 1.06, "{waits} waits, {late}");
    let text = refusal(replay().env("FOREBAY_HOST_LATE", "soon").arg(small()), 1);
    assert!(text.contains("FOREBAY_HOST_LATE=\"soon\""), "{text}");
}

#[test]
fn peaks_are_those_of_the_trace() {
    // 512 + 4096 bytes live, then 4096 + 1024: a block counts in whole granules of 512.
    let path = written("peaks", "# op,id,bytes,stream\na,1,1,0\na,2,4096,5\nf,1,1,0\na,3,1000,9\nf,2\n\n");
    let all = figures(replay().arg("--json").arg(&path));
    assert_eq!(all[0]["peak_live_bytes"], 4096 + 1024, "{all:?}");
    assert_eq!((&all[0]["events"], &all[0]["streams"]), (&Value::from(5), &Value::from(3)));
}

#[test]
fn an_id_may_be_used_again_and_nothing_may_be_asked_for() {
    let path = written("again", "a,1,0,0\nf,1\na,1,512,0\nf,1,99,0\na,1,512,3\n");
    let all = figures(replay().arg("--json").arg(&path));
    assert_eq!(all[0]["peak_live_bytes"], 512, "{all:?}");
}

#[test]
fn the_table_is_aligned_and_one_line_a_trace() {
    let other = written("table", "a,1,512,0\n");
    let out = run(replay().arg(small()).arg(&other));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("trace "), "{out}");
    assert!(lines[1].starts_with("small ") && lines[2].starts_with("trace "), "{out}");
    let lengths: Vec<usize> = lines[..3].iter().map(|line| line.chars().count()).collect();
    assert_eq!(lengths, [lengths[0]; 3], "{out}");
    let end_of = |word: &str| lines[0].find(word).unwrap_or_else(|| panic!("no column {word}:\n{out}")) + word.len();
    for column in ["events", "streams", "peak live", "peak physical", "ratio", "driver ms", "ns/op", "steals", "waits"]
    {
        for line in &lines[1..3] {
            let cell = &line[..end_of(column)];
            assert!(cell.ends_with(|c: char| c.is_ascii_alphanumeric()), "{column} is not flush right:\n{out}");
        }
    }
    assert!(out.contains("driver host"), "{out}");
}

#[test]
fn a_pipe_sees_no_progress_bar() {
    let output = replay().arg(small()).output().expect("the program starts");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_limit_that_is_too_low_ends_with_the_pools_report() {
    let text = refusal(replay().args(["--limit", "1G"]).arg(small()), 1);
    for part in ["small, line ", "out of memory", "limit 1.00 GiB", "live by stream"] {
        assert!(text.contains(part), "no \"{part}\" in:\n{text}");
    }
    let enough = figures(replay().args(["--json", "--limit=3G"]).arg(small()));
    assert!(enough[0]["peak_physical_bytes"].as_u64() <= Some(3 << 30), "{enough:?}");
}

#[test]
fn what_was_replayed_before_a_failure_is_printed() {
    let big = written("before", "a,1,4294967296,0\n");
    let output =
        replay().args(["--json", "--limit", "3G"]).arg(small()).arg(&big).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("trace, line 1: 4294967296 bytes were refused"));
}

#[test]
fn a_bad_line_is_told_with_its_number_its_text_and_what_is_expected() {
    for (name, text, parts) in [
        ("letter", "# head\nx,1,2,3\n", &["line 2", "\"x,1,2,3\"", "a,ID,BYTES,STREAM", "f,ID"][..]),
        ("short", "a,1,512\n", &["line 1", "\"a,1,512\"", "a,ID,BYTES,STREAM"]),
        ("number", "a,1,many,0\n", &["line 1", "BYTES is \"many\"", "whole number"]),
        ("negative", "a,1,-5,0\n", &["BYTES is \"-5\"", "whole number"]),
        ("id", "a,one,5,0\n", &["ID is \"one\""]),
        ("stream", "a,1,5,x\n", &["STREAM is \"x\""]),
        ("twice", "a,7,512,0\nf,7,512,0\nf,7,512,0\n", &["line 3", "block 7 was freed on line 2"]),
        ("never", "a,7,512,0\nf,8,512,0\n", &["line 2", "block 8 was never allocated"]),
        ("live", "a,7,512,0\na,7,512,0\n", &["line 2", "block 7 is live since line 1"]),
        ("empty", "# op,id,bytes,stream\n", &["has no operations", "a,ID,BYTES,STREAM"]),
    ] {
        let said = refused_trace(name, text);
        assert!(said.contains("trace.csv"), "{name}: which file?\n{said}");
        for part in parts {
            assert!(said.contains(part), "{name}: no {part} in:\n{said}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = refusal(replay().arg("no/such.csv"), 1);
    assert!(missing.contains("no/such.csv cannot be opened"), "{missing}");
    let path = scratch("replay-not-gzip").join("plain.csv.gz");
    std::fs::write(&path, "a,1,512,0\n").expect("a file");
    let plain_text = refusal(replay().arg(&path), 1);
    assert!(plain_text.contains("plain.csv.gz cannot be read"), "{plain_text}");
    // A bad file is told before the good one in front of it is replayed.
    let second = refusal(replay().arg(small()).arg(Path::new("no/such.csv")), 1);
    assert!(second.contains("cannot be opened"), "{second}");
}

#[test]
fn a_bad_command_line_ends_with_2_and_says_what_is_right() {
    for (words, part) in [
        (&[][..], "TRACE.csv"),
        (&["--jsn", "x.csv"], "no option --jsn"),
        (&["--limit"], "--limit needs"),
        (&["--limit", "lots", "x.csv"], "--limit is \"lots\""),
        (&["--limit", "8GB", "x.csv"], "8G"),
        (&["--limit=0", "x.csv"], "above 0"),
        (&["--limit", "99999999T", "x.csv"], "99999999T"),
        (&["--seconds", "-1", "x.csv"], "--seconds is \"-1\""),
        (&["--seconds"], "--seconds needs"),
        (&["--limit", "+1", "x.csv"], "--limit is \"+1\""),
    ] {
        let text = refusal(replay().args(words), 2);
        assert!(text.contains(part) && text.contains("--help"), "{words:?}: {text}");
    }
}

#[test]
fn help_shows_the_usage() {
    let text = run(replay().arg("--help"));
    for part in ["Usage: replay", "--json", "--limit", "FOREBAY_DRIVER", "a,ID,BYTES,STREAM"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn without_a_gpu_the_error_names_the_host_driver() {
    let text = refusal(plain(program()).env("CUDA_VISIBLE_DEVICES", "").arg(small()), 1);
    assert!(text.contains("FOREBAY_DRIVER=host"), "{text}");
}

/// Blocks of all lengths on two streams, each freed by the other now and then: more moves than their share of the time pays for.
/// So long that the moves which it takes cost more than a pool may owe.
fn shuffled() -> PathBuf {
    let (mut text, mut live, mut random) = (String::new(), Vec::new(), Random(1));
    for id in 0..60_000 {
        let stream = 1 + random.below(2);
        if live.len() > 60 {
            let old = live.swap_remove(random.below(60) as usize);
            writeln!(text, "f,{old},0,{stream}").expect("a string takes all");
        }
        writeln!(text, "a,{id},{},{stream}", 1 + random.below(24 << 20)).expect("a string takes all");
        live.push(id);
    }
    written("shuffled", &text)
}

/// Says so when it is dropped, in a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_busy_machine_changes_nothing_but_the_time_of_the_calls() {
    let trace = shuffled();
    let replayed = || {
        let mut all =
            figures(replay().env("FOREBAY_HOST_LATE", "200").args(["--json", "--work", "--seconds=0"]).arg(&trace));
        all[0].as_object_mut().and_then(|figures| figures.remove("ns_per_op")).expect("a time");
        all.remove(0)
    };
    let idle = replayed();
    let over = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        replayed()
    });
    assert_eq!(idle, busy);
    // The time that the program takes is what moves are paid from.
    let more =
        figures(replay().env("FOREBAY_HOST_LATE", "200").args(["--json", "--work", "--seconds=1000"]).arg(&trace));
    assert!(more[0]["steals"].as_u64() > idle["steals"].as_u64(), "{more:?} {idle}");
}
