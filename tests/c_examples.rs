//! Every C program of the repository compiles without a warning, runs on the host driver and prints what it should.

mod kit;

use kit::programs::{built, compile, cxx, files, lacks, library, on_host, root, run, scratch};

#[test]
fn every_example_compiles_and_runs() {
    for source in files("examples/c", "c") {
        let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
        let out = run(&mut on_host(compile(&source, &scratch(&format!("c-{name}")))));
        assert!(out.contains("driver host"), "{name} says which driver it ran on:\n{out}");
    }
}

#[test]
fn minimal_writes_and_reads_back() {
    let out = run(&mut built("examples/c/minimal.c", "c-minimal-output"));
    assert!(out.contains("1048576 bytes written on the stream and read back: right"), "{out}");
    assert!(out.contains("live 0 (peak 1048576)"), "{out}");
    assert!(out.contains("1 allocations, 1 frees"), "{out}");
}

#[test]
fn threads_find_every_byte_right() {
    let out = run(built("examples/c/threads.c", "c-threads-output").args(["8", "1000"]));
    assert!(out.contains("data: 8000 random steps"), "{out}");
    assert!(out.contains("every byte right"), "{out}");
    assert!(out.contains("stats: live 0 "), "{out}");
}

#[test]
fn resources_shows_every_kind_and_brings_data_back() {
    let out = run(&mut built("examples/c/resources.c", "c-resources-output"));
    for kind in ["current pool", "new pool", "pinned", "managed", "virtual memory", "host", "Forebay's pool"] {
        assert!(out.lines().any(|line| line.starts_with(kind)), "no {kind}:\n{out}");
    }
    assert!(!out.contains("not here"), "the host driver has every kind:\n{out}");
    assert!(out.contains("3145728 bytes, every one right"), "{out}");
}

#[test]
fn grow_keeps_every_byte() {
    let out = run(&mut built("examples/c/grow.c", "c-grow-output"));
    assert!(out.contains("5 grows, every byte of 67108864 right"), "{out}");
    assert!(out.contains("1 PiB: out of memory; still 67108864 bytes"), "{out}");
    assert!(out.contains("shrunk to 2097152 bytes"), "{out}");
    let addresses = out.lines().filter(|line| line.starts_with("step ")).filter_map(|line| line.split(" at ").nth(1));
    let addresses: std::collections::BTreeSet<&str> = addresses.collect();
    assert_eq!(addresses.len(), 1, "its address stays:\n{out}");
}

#[test]
fn share_reads_and_writes_on_both_sides() {
    let out = run(&mut built("examples/c/share.c", "c-share-output"));
    assert!(out.contains("child: 1044480 bytes by file descriptors: read, and written"), "{out}");
    assert!(out.contains("child: 1048576 bytes by a pool: read, and written"), "{out}");
    assert!(out.contains("parent: 1048576 bytes of a pool of the driver are the child's"), "{out}");
    assert!(out.trim_end().ends_with("both right"), "{out}");
}

#[test]
fn an_example_without_a_driver_says_what_to_do() {
    let mut program = built("examples/c/minimal.c", "c-no-driver");
    // An empty list of visible devices is a machine without a GPU, also where there is one.
    let output = program.env("FOREBAY_DRIVER", "cuda").env("CUDA_VISIBLE_DEVICES", "").output();
    let output = output.expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FOREBAY_DRIVER=host"), "the error names the way out:\n{text}");
}

#[test]
fn exit_and_fork_are_harmless() {
    let program = compile(&root().join("tests/c/exit_fork.c"), &scratch("c-exit-fork"));
    for how in ["fork", "exit", "late"] {
        for milliseconds in ["0", "4"] {
            let mut command = on_host(&program);
            command.env("FOREBAY_GIVE_BACK_MS", milliseconds).arg(how);
            assert_eq!(run(&mut command), format!("{how}: right\n"));
        }
    }
}

/// Each name of the header that is called: a new function without an entry in the program is told.
fn functions_of_the_header() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include/forebay.h")).expect("the header");
    let declarations =
        header.lines().filter(|line| !line.trim_start().starts_with("//") && !line.starts_with("typedef"));
    let names = declarations.flat_map(|line| {
        let ends = line.match_indices('(').map(|(at, _)| at);
        let word = |at: usize| line[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        ends.filter_map(word).filter(|name| name.starts_with("forebay_")).map(str::to_owned).collect::<Vec<_>>()
    });
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

#[test]
fn every_function_answers_at_once_in_a_child_of_fork() {
    let functions = functions_of_the_header();
    assert!(functions.len() > 120, "only {} functions found: the search is broken", functions.len());
    let mut command = built("tests/c/fork_all.c", "c-fork-all");
    command.args(&functions);
    assert_eq!(run(&mut command), format!("{} functions in a child of fork: right\n", functions.len()));
}

#[test]
fn the_library_stays_where_it_is_when_it_is_let_go() {
    // As a program that does not link it.
    let mut command = built("tests/c/unload.c", "c-unload");
    command.env("FOREBAY_GIVE_BACK_MS", "4").arg(library());
    assert_eq!(run(&mut command), "turn 1: used and let go\nturn 2: used and let go\n");
}

#[test]
fn hooks_answer_null_without_a_cxx_runtime() {
    assert_eq!(run(&mut built("tests/c/hooks_null.c", "c-hooks-null")), "hooks without C++: right\n");
}

/// Where there is a C++ compiler, the program says that and no more.
fn cpp_program_says(source: &str, folder: &str, said: &str) {
    if !lacks(&cxx()) {
        assert_eq!(run(&mut built(source, folder)), said);
    }
}

#[test]
fn hooks_throw_with_a_cxx_runtime() {
    cpp_program_says("tests/c/hooks_throw.cc", "c-hooks-throw", "hooks with C++: right\n");
}

#[test]
fn a_resource_for_cpp_gives_memory_by_stream_and_throws() {
    let said = "ok memory_resource, driver host\n";
    cpp_program_says("tests/cpp/memory_resource.cc", "cpp-memory-resource", said);
}
