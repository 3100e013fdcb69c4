//! What is logged, as a C program and its user see it: on stderr, by the variable, and in a callback.

mod kit;

use std::process::Output;

use kit::programs::built;

/// Runs the C program with FOREBAY_LOG as said: its output, and what it wrote to stderr.
fn run(name: &str, how: &str, log: Option<&str>) -> (String, String, bool) {
    let mut command = built("tests/c/log.c", name);
    if let Some(log) = log {
        command.env("FOREBAY_LOG", log);
    }
    let Output { status, stdout, stderr } = command.arg(how).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(stdout), text(stderr), status.success())
}

/// How many lines of this level there are.
fn lines(text: &str, level: &str) -> usize {
    text.lines().filter(|line| line.starts_with(&format!("forebay: {level}: "))).count()
}

#[test]
fn a_bad_free_through_a_hook_is_a_warning_on_stderr_unless_told_otherwise() {
    for (log, warnings) in [(None, 2), (Some(""), 2), (Some("warn"), 2), (Some("Info"), 2), (Some("error"), 0)] {
        let (out, err, fine) = run("log-stderr", "stderr", log);
        assert!(fine, "{log:?}:\n{err}");
        assert_eq!((lines(&err, "warn"), err.lines().count()), (warnings, warnings), "{log:?}:\n{err}");
        let (address, stream) = out.lines().next().and_then(|line| line.split_once(' ')).expect("both");
        for (line, hook) in err.lines().zip(["forebay_torch_free", "free of CuPy"]) {
            assert!(line.contains(hook) && line.contains(&format!("address={address}")), "{line}");
            // CuPy has no getter here, and so the legacy stream.
            let stream = if hook == "forebay_torch_free" { stream } else { "0x0" };
            assert!(line.contains(&format!("stream={stream}")), "{line}");
        }
    }
    assert_eq!(run("log-off", "stderr", Some("off")).1, "");
    let (_, err, _) = run("log-debug", "stderr", Some("debug"));
    assert!(lines(&err, "debug") > 0 && lines(&err, "warn") == 2, "{err}");
}

#[test]
fn a_callback_gets_what_would_be_printed_without_any_lock_of_the_pool() {
    let (out, err, fine) = run("log-callback", "callback", None);
    assert!(fine && out == "callback: right\n", "{out}\n{err}");
    // Printed while there was no callback, by calls that were under way then.
    assert!(err.lines().all(|line| line.starts_with("forebay: warn: ")), "{err}");
    assert!(lines(&err, "warn") > 0, "a call without the callback:\n{err}");
    let (out, err, fine) = run("log-both", "callback", Some("debug"));
    assert!(fine && out == "callback: right\n", "{out}\n{err}");
    assert!(lines(&err, "debug") > 0, "asked for, so printed too:\n{err}");
    let (_, err, fine) = run("log-neither", "callback", Some("off"));
    assert!(fine && err.is_empty(), "{err}");
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_that_says_what_is_allowed() {
    for how in ["stderr", "callback"] {
        let (_, err, fine) = run(&format!("log-wrong-{how}"), how, Some("loud"));
        assert!(!fine);
        for word in ["invalid argument", "FOREBAY_LOG", "\"loud\"", "off, error, warn, info or debug"] {
            assert!(err.contains(word), "no {word}: {err}");
        }
    }
}
