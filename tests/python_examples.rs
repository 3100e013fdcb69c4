//! The ctypes examples: those that need no GPU run on the host driver, the others must at least be valid Python.
//! `tests/gpu/run.sh` runs the others on a GPU.

mod kit;

use std::process::Command;

use kit::programs::{files, python, root, run, scratch};

const FOLDER: &str = "examples/python-ctypes";

fn example(words: &[&str]) -> String {
    run(python().args(words).current_dir(root().join(FOLDER)))
}

#[test]
fn host_demo_shares_one_pool() {
    let out = example(&["host_demo.py"]);
    assert!(out.contains("driver host"), "{out}");
    assert!(!out.contains("FAIL"), "{out}");
    for line in [
        "cupy got 160 MiB of what torch gave back",
        "torch copied what cupy wrote, on its own stream",
        "everything was given back",
    ] {
        assert!(out.contains(&format!("ok   {line}")), "{line}:\n{out}");
    }
    let heads = out.lines().find(|line| line.starts_with("after ")).expect("the stats table");
    assert!(heads.contains("torch") && heads.contains("physical"), "{heads}");
}

#[test]
fn bad_frees_are_errors() {
    let out = example(&["exceptions.py", "bad_frees"]);
    assert!(out.contains("ok   freed twice") && !out.contains("FAIL"), "{out}");
}

#[test]
fn every_example_is_valid_python() {
    let cache = scratch("pycache");
    for folder in [FOLDER, "benches/gpu", "benches/frameworks", "benches/peers", "tests/gpu"] {
        for source in files(folder, "py") {
            run(Command::new("python3").args(["-m", "py_compile"]).arg(&source).env("PYTHONPYCACHEPREFIX", &cache));
        }
    }
}

/// An address is used again, a free is asked for before it is done, and memory from before the recording is freed in it.
#[test]
fn a_recorded_history_is_a_trace() {
    let events = r#"
import record
words = [("alloc", 64, 100, 7), ("alloc", 128, 200, 9), ("segment_alloc", 1, 2, 7), ("free_requested", 64, 100, 7), ("free_completed", 64, 100, 7),
         ("free_completed", 999, 5, 7), ("alloc", 64, 300, 9), ("free_completed", 64, 300, 9), ("free_completed", 128, 200, 9)]
print("".join(record.operations([dict(zip(("action", "addr", "size", "stream"), word)) for word in words])), end="")
"#;
    let out = run(Command::new("python3").args(["-c", events]).env("PYTHONPATH", "benches/frameworks"));
    assert_eq!(out, "a,1,100,0\na,2,200,1\nf,1,0,0\na,3,300,1\nf,3,0,1\nf,2,0,1\n");
}
