//! The layers of the design, read off the source: calls go down only, each outside crate has one home, and modules form no
//! circle.
//!
//! The rules here work on lines of code, comments left out; `circles` works on what each file names. All are tested
//! themselves, on planted violations.

use std::path::Path;

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/imports.rs"]
mod imports;

/// The longest file that a person reads in one go.
const MOST_LINES: usize = 500;

/// For each layer, those that it may name. `error`, `log`, `units`, `ticket` and `cpu` are leaves.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("abi", &["abi", "resource", "pool", "block", "driver", "error", "log", "units"]),
    ("resource", &["resource", "pool", "driver", "error", "log", "random", "ticket", "units"]),
    ("pool", &["pool", "policy", "arena", "block", "cpu", "driver", "error", "ticket", "units"]),
    ("policy", &["policy"]),
    ("arena", &["arena", "block", "cpu", "random", "units"]),
    ("block", &["block", "units"]),
    ("driver", &["driver", "units"]),
    ("error", &["driver", "units"]),
    ("log", &["error"]),
    ("cpu", &[]),
    ("ticket", &[]),
    ("units", &["units"]),
];

/// A word that may stand only in files under these places, and why.
const HOMES: [(&str, &[&str], &str); 11] = [
    ("cudarc::", &["driver/cuda/"], "CUDA is called through driver/cuda alone"),
    ("no_mangle", &["abi/"], "only the ABI exports"),
    ("export_name", &["abi/"], "only the ABI exports"),
    ("libc::", &["driver/"], "the operating system is the driver layer's"),
    (
        "rustix::",
        &["resource/ipc/", "driver/process.rs"],
        "the operating system is the driver layer's, but for sharing",
    ),
    ("parking_lot", &["resource/", "pool/", "driver/", "log.rs"], "only these layers have locks"),
    ("spin::", &["pool/cache/"], "only the cache of a stream is held so briefly"),
    ("set_global_default", &["log.rs"], "the process has one log"),
    ("Subscriber", &["log.rs"], "the log is written at one place; events come from everywhere"),
    ("libloading", &["abi/", "driver/cuda/"], "symbols are looked up there alone"),
    ("catch_unwind", &["abi/core/guard.rs", "arena/model.rs"], "panics stop at one place, and in the model test"),
];

/// Where `unsafe` has no business.
const SAFE: [&str; 5] = ["arena/", "policy/", "pool/order/", "pool/report/", "units.rs"];

/// The code of a line: what is left without comments and without what stands in quotes.
fn code(line: &str) -> String {
    let mut code = String::new();
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => drop(characters.next()),
            '"' => quoted = !quoted,
            '/' if !quoted && characters.peek() == Some(&'/') => break,
            _ if !quoted => code.push(character),
            _ => {}
        }
    }
    code
}

/// Whether `word` stands in `code` as a word of its own.
fn names(code: &str, word: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let ends = !word.ends_with(part) || !after.is_some_and(part);
        !before.is_some_and(part) && ends
    })
}

/// The parts of the crate that a line names by `crate::…`, those in braces included.
fn crate_parts(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut parts = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        match rest.strip_prefix('{') {
            None => parts.push(word(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut start = true;
                for (index, character) in list.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        ' ' => {}
                        _ if start => {
                            parts.push(word(&list[index..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    parts
}

/// A `use` that runs over several lines, as one line; every other line as it is.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let code = code(line);
        let trimmed = code.trim_start();
        let begins =
            trimmed.starts_with("use ") || trimmed.starts_with("pub use ") || trimmed.starts_with("pub(super) use ");
        match statements.last_mut() {
            Some((_, last)) if open => last.push_str(code.trim()),
            _ => statements.push((number + 1, code.clone())),
        }
        open = (open || begins) && !code.contains(';');
    }
    statements
}

/// What is wrong with a file; `path` is below `src/`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let layer = path.split(['/', '.']).next().unwrap_or_default();
    let may_use = MAY_USE.iter().find(|&&(name, _)| name == layer).map(|&(_, parts)| parts);
    if may_use.is_none() && path != "lib.rs" {
        found.push(format!("{path}: no layer of the design"));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        found.push(format!("{path}: {lines} lines, more than {MOST_LINES}"));
    }
    for (number, code) in statements(text) {
        let mut complain = |what: String| found.push(format!("{path}:{number}: {what}"));
        for part in crate_parts(&code) {
            if may_use.is_some_and(|parts| !parts.contains(&part.as_str())) {
                complain(format!("{layer} names crate::{part}: calls go down only"));
            }
        }
        if code.contains("super::super") {
            complain("super::super: name it from the crate's root".into());
        }
        for (word, homes, reason) in HOMES {
            if names(&code, word) && !homes.iter().any(|home| path.starts_with(home)) {
                complain(format!("{word} outside src/{}: {reason}", homes.join(", src/")));
            }
        }
        if names(&code, "unsafe") && SAFE.iter().any(|safe| path.starts_with(safe)) {
            complain("unsafe in a part that needs none".into());
        }
    }
    found
}

/// Every file of the source: its path below `src/`, and its text.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, into: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, root, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("below src").to_string_lossy().replace('\\', "/");
                into.push((name, std::fs::read_to_string(&path).expect("readable")));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    assert!(files.len() > 40, "only {} files found: the search is broken", files.len());
    files
}

#[test]
fn the_source_keeps_to_its_layers() {
    let found: Vec<String> = sources().iter().flat_map(|(path, text)| violations(path, text)).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_layer_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for layer in ["abi", "resource", "pool", "policy", "arena", "block", "driver"] {
        assert!(root.join(layer).join("mod.rs").is_file(), "src/{layer} is gone: do the rules still fit?");
    }
    assert!(root.join("units.rs").is_file());
}

// ---- the rules themselves ------------------------------------------------------------------------------

#[track_caller]
fn caught(path: &str, text: &str, word: &str) {
    let found = violations(path, text);
    assert!(
        found.iter().any(|complaint| complaint.contains(word)),
        "{path}: {text:?} was not caught by {word:?}: {found:?}"
    );
}

#[track_caller]
fn passes(path: &str, text: &str) {
    let found = violations(path, text);
    assert!(found.is_empty(), "{path}: {text:?} is fine: {found:?}");
}

#[test]
fn an_upward_call_is_caught_however_it_is_written() {
    caught("driver/host/mod.rs", "use crate::pool::Pool;", "crate::pool");
    caught("driver/host/mod.rs", "use crate::resource::Pool;", "crate::resource");
    caught("arena/arena.rs", "    let pool = crate::pool::shared();", "crate::pool");
    caught("arena/arena.rs", "use crate::driver::Physical;", "crate::driver");
    caught("resource/pool.rs", "use crate::abi::status;", "crate::abi");
    caught("resource/pool.rs", "use crate::{units::Address, abi::guard};", "crate::abi");
    caught("resource/pool.rs", "use crate::{\n    units::{Address, GRANULE},\n    abi::guard,\n};", "crate::abi");
    caught("units.rs", "use crate::arena::Arena;", "crate::arena");
    caught("cpu.rs", "use crate::driver::Driver;", "crate::driver");
    caught("resource/pool.rs", "type A = fn(crate::pool::Pool, crate::abi::Fault);", "crate::abi");
}

#[test]
fn a_call_down_and_a_use_of_a_leaf_pass() {
    passes("abi/memory.rs", "use crate::resource::Error;\nuse crate::driver::ErrorKind;\nuse crate::units::Address;");
    passes("resource/room.rs", "use crate::driver::Driver;\nuse crate::pool::Pool;\nuse crate::units::GRANULE;");
    passes("arena/arena.rs", "use crate::units::GRANULE;\nuse super::block::Block;");
    passes("resource/room.rs", "use crate::{pool::{Options, Pool}, units::{Address, GRANULE}};");
    passes("lib.rs", "pub mod abi;\npub mod resource;");
}

#[test]
fn a_crate_away_from_its_home_is_caught() {
    caught("driver/host/mod.rs", "use cudarc::driver::sys;", "cudarc::");
    caught("resource/pool.rs", "#[unsafe(no_mangle)]", "no_mangle");
    caught("driver/mod.rs", "#[unsafe(export_name = \"forebay_x\")]", "export_name");
    caught("resource/pool.rs", "    unsafe { libc::getpid() }", "libc::");
    caught("abi/torch.rs", "use libc::c_int;", "libc::");
    caught("resource/pool/pool.rs", "use rustix::net::connect;", "rustix::");
    caught("driver/cuda/api.rs", "    rustix::process::geteuid();", "rustix::");
    caught("arena/arena.rs", "use parking_lot::Mutex;", "parking_lot");
    caught("abi/core/status.rs", "use parking_lot::Mutex;", "parking_lot");
    caught("resource/pool.rs", "use libloading::Library;", "libloading");
    caught("driver/host/mod.rs", "use libloading::Library;", "libloading");
    caught("resource/pool.rs", "std::panic::catch_unwind(|| ());", "catch_unwind");
    caught("abi/core/guard.rs", "tracing::subscriber::set_global_default(log);", "set_global_default");
    caught("abi/log.rs", "impl tracing::Subscriber for Mine {", "Subscriber");
}

#[test]
fn a_crate_at_home_passes() {
    passes("driver/cuda/api.rs", "use cudarc::driver::sys;\nuse libloading::Library;");
    passes("abi/memory.rs", "#[unsafe(no_mangle)]");
    passes("driver/process.rs", "    unsafe { libc::getpid() };");
    passes("resource/pool.rs", "use parking_lot::Mutex;");
    passes("resource/ipc/socket.rs", "use rustix::net::connect;");
    passes("abi/core/cxx.rs", "use libloading::os::unix::Library;");
    passes("abi/core/guard.rs", "use std::panic::catch_unwind;");
    passes("log.rs", "use tracing::Subscriber;");
    passes("driver/process.rs", "tracing::warn!(code, \"no\");");
    passes("driver/host/fault.rs", "let not_libc_but = mylibc::x;");
}

#[test]
fn unsafe_in_the_algorithm_is_caught_and_a_longer_word_is_not() {
    caught("arena/plan.rs", "    let x = unsafe { *y };", "unsafe");
    caught("units.rs", "unsafe impl Send for Address {}", "unsafe");
    passes("arena/plan.rs", "let unsafety = not_unsafe;");
    passes("resource/pool.rs", "    let x = unsafe { *y };");
}

#[test]
fn a_long_file_and_a_climb_over_two_modules_are_caught() {
    caught("arena/arena.rs", &"let a = 1;\n".repeat(MOST_LINES + 1), "lines");
    passes("arena/arena.rs", &"let a = 1;\n".repeat(MOST_LINES));
    caught("driver/host/vmm.rs", "use super::super::Driver;", "super::super");
}

#[test]
fn a_folder_that_is_no_layer_is_caught() {
    caught("helpers/mod.rs", "fn f() {}", "no layer");
}

#[test]
fn comments_and_texts_are_not_code() {
    passes("arena/mod.rs", "//! No CUDA, no locks, no `unsafe`; see crate::resource and libc::.");
    passes("arena/mod.rs", "let text = \"an unsafe word, crate::abi and a quote \\\" unsafe\";");
    caught("arena/mod.rs", "let text = \"a//b\"; unsafe { f() }", "unsafe");
}
