//! The header is what cbindgen makes of `src/abi`, byte for byte, and compiles as C11 and C++17.

mod kit;

use std::path::Path;
use std::process::Command;

use kit::programs::{Folder, cc, cxx, lacks, root, run};

/// A group of the header: its name for Doxygen, its title, and its files under `src/abi`, in the order of the header.
type Group = (&'static str, &'static str, &'static [&'static str]);

const GROUPS: [Group; 13] = [
    ("status", "Errors, status, version and log", &["core/status", "core/version", "core/log"]),
    ("objects", "Objects", &["core/handle"]),
    ("pool", "Pool", &["pool/create"]),
    ("blocks", "Blocks", &["pool/memory", "pool/try_memory"]),
    ("streams", "Streams, copies and page-locked memory", &["pool/streams", "pool/host"]),
    ("limits", "Limits and pressure", &["pool/limits"]),
    ("statistics", "Statistics", &["pool/stats", "pool/snapshot"]),
    ("graphs", "Graphs", &["pool/private"]),
    ("resources", "Resources", &["core/enums", "resource/options", "resource/create", "resource/object"]),
    ("buffers", "Buffers", &["resource/buffer"]),
    ("sharing", "Sharing: DLPack and other processes", &["resource/dlpack", "resource/ipc"]),
    ("cupy", "CuPy's hooks", &["cupy/allocator", "cupy/hooks", "cupy/pool"]),
    ("torch", "PyTorch's hooks", &["torch/allocator", "torch/blocks", "torch/pools"]),
];

/// cbindgen puts all types before all functions, so that each group is a run of its own.
fn group((name, title, files): Group) -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    let source = |file: &&str| root().join(format!("src/abi/{file}.rs"));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = files.iter().map(source).fold(builder, cbindgen::Builder::with_src);
    let mut text = Vec::new();
    builder.generate().expect("cbindgen").write(&mut text);
    let text = without_safety_sections(&String::from_utf8(text).expect("UTF-8"));
    format!("/**\n * @defgroup forebay_{name} {title}\n * @{{\n */\n\n{}\n\n/** @}} */\n\n", text.trim())
}

fn generate() -> String {
    let preamble = std::fs::read_to_string(root().join("src/abi/preamble.h")).expect("preamble");
    let groups: String = GROUPS.into_iter().map(group).collect();
    format!("{preamble}\n{groups}#ifdef __cplusplus\n}}\n#endif\n\n#endif /* FOREBAY_H */\n")
}

/// A "Safety" section tells a Rust caller what C callers are told by the text above it.
fn without_safety_sections(header: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in header.lines() {
        if line.trim_start() == "/// # Safety" {
            inside = true;
            if kept.last().is_some_and(|last| last.trim() == "///") {
                kept.pop();
            }
        } else if !line.trim_start().starts_with("///") {
            inside = false;
        }
        if !inside {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_committed_header_is_the_generated_one() {
    let path = root().join("include/forebay.h");
    let fresh = generate();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("write the header");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "include/forebay.h is not what src/abi says: BLESS=1 cargo test --test header rewrites it"
    );
}

#[test]
fn the_header_names_every_exported_function() {
    let header = generate();
    let mut missing = Vec::new();
    let mut found = 0;
    let mut folders = vec![root().join("src/abi")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of the sources") {
            let path = entry.expect("entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = std::fs::read_to_string(path).expect("source");
        for (at, _) in text.match_indices("#[unsafe(no_mangle)]") {
            let name =
                text[at..].split("fn ").nth(1).and_then(|rest| rest.split('(').next()).expect("a function follows");
            found += 1;
            if !header.contains(&format!(" {name}(")) && !header.contains(&format!("*{name}(")) {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "not in the header: {missing:?}");
    assert!(found > 40, "only {found} exports found: the search is broken");
}

/// The name of each group, each text and each cross-reference.
#[test]
fn doxygen_reads_it_without_a_warning() {
    if lacks("doxygen") {
        return;
    }
    let text = format!(
        "INPUT={}\nOPTIMIZE_OUTPUT_FOR_C=YES\nTYPEDEF_HIDES_STRUCT=YES\nWARN_AS_ERROR=YES\nQUIET=YES\n\
         GENERATE_XML=YES\nGENERATE_HTML=NO\nGENERATE_LATEX=NO\n",
        root().join("include/forebay.h").display()
    );
    let folder = Folder::new("doxygen");
    run(Command::new("doxygen").arg(folder.with("Doxyfile", &text)).current_dir(folder.path()));
}

fn compile(compiler: &str, standard: &str, language: &str, source: &Path) {
    run(Command::new(compiler)
        .args(["-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .args((language == "c").then_some("-Wstrict-prototypes"))
        .arg("-I")
        .arg(root().join("include"))
        .arg(source));
}

#[test]
fn it_compiles_as_c11_and_cpp17() {
    let text = r#"
#include <forebay.h>
#include <forebay.h> /* twice: the guard holds */
#ifdef __cplusplus
#define ASSERT static_assert
#else
#define ASSERT _Static_assert
#endif
ASSERT(sizeof(forebay_pool_options) == 112, "options");
ASSERT(sizeof(forebay_pool_stats) == 296, "stats");
ASSERT(sizeof(forebay_device_resource_options) == 64, "device resource options");
ASSERT(sizeof(forebay_pinned_resource_options) == 80, "pinned resource options");
ASSERT(sizeof(forebay_managed_resource_options) == 64, "managed resource options");
ASSERT(sizeof(forebay_virtual_resource_options) == 96, "virtual resource options");
ASSERT(sizeof(forebay_host_resource_options) == 64, "host resource options");
ASSERT(sizeof(forebay_resource_info) == 120, "resource info");
ASSERT(sizeof(forebay_buffer_info) == 96, "buffer info");
ASSERT(sizeof(forebay_ipc_descriptor) == 256, "descriptor");
ASSERT(FOREBAY_STATUS_PEER == 16, "status numbers are fixed");
ASSERT(sizeof(forebay_stream_stats) == 80, "stream stats");
ASSERT(FOREBAY_STATUS_PANIC == 13 && FOREBAY_STATUS_PEER == 16, "status numbers are fixed");
ASSERT(FOREBAY_VERSION_NUMBER == FOREBAY_VERSION_MAJOR * 10000 + FOREBAY_VERSION_MINOR * 100 + FOREBAY_VERSION_PATCH, "");
int main(void) {
  forebay_pool *pool = 0;
  return forebay_pool_create(0, &pool) == FOREBAY_STATUS_OK;
}
"#;
    let folder = Folder::new("header");
    let source = folder.with("header.c", text);
    compile(&cc(), "-std=c11", "c", &source);
    compile(&cxx(), "-std=c++17", "c++", &source);
}

#[test]
fn the_versions_agree() {
    let parts: Vec<u32> = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().expect("a number")).collect();
    use forebay::abi::core::version::*;
    assert_eq!(parts, [FOREBAY_VERSION_MAJOR, FOREBAY_VERSION_MINOR, FOREBAY_VERSION_PATCH]);
    assert_eq!(FOREBAY_VERSION_NUMBER, parts[0] * 10_000 + parts[1] * 100 + parts[2]);
    assert_eq!(forebay_version_number(), FOREBAY_VERSION_NUMBER);
    // SAFETY: a static C string.
    let text = unsafe { std::ffi::CStr::from_ptr(forebay_version()) };
    assert_eq!(text.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
