//! No circle of modules, and within a module no circle of more than two files.
//!
//! Two modules also form a circle where each names the other in different files. A file that lies beside modules, as
//! `driver/open.rs` beside `driver/host/`, may name what is in them and is named by them, as long as files form no circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{Graph, graph};

/// Parts of the source whose folders are modules of their own.
const PARTS: [&str; 4] = ["abi", "driver", "pool", "resource"];

/// The folders inside `pool/`, from the lowest: each may name those before it.
const POOL: [&str; 7] = ["order", "cache", "streams", "graph", "device", "report", "fallback"];

/// The place of a file's folder inside `pool/` among them.
fn place_in_pool(file: &str) -> Option<usize> {
    let folder = file.strip_prefix("pool/")?.split('/').next()?;
    POOL.iter().position(|&name| name == folder)
}

/// The module of a file: its folder below `src/`, or in a part that has several the folder in that. A `mod.rs` belongs to
/// its folder.
fn module(file: &str) -> &str {
    let folder = file.rfind('/').map_or(file, |end| &file[..end]);
    let first = folder.split('/').next().unwrap_or_default();
    let depth = 1 + usize::from(PARTS.contains(&first));
    folder.match_indices('/').nth(depth - 1).map_or(folder, |(end, _)| &folder[..end])
}

/// What is one when modules are looked at: a module, or a file beside modules.
fn unit(file: &str) -> &str {
    let module = module(file);
    if PARTS.contains(&module) { file } else { module }
}

/// The groups of nodes that lead to each other.
fn components<'a>(edges: &BTreeSet<(&'a str, &'a str)>) -> Vec<BTreeSet<&'a str>> {
    type Next<'a> = BTreeMap<&'a str, Vec<&'a str>>;
    fn visit<'a>(at: &'a str, next: &Next<'a>, seen: &mut BTreeSet<&'a str>, done: &mut Vec<&'a str>) {
        if seen.insert(at) {
            next.get(at).into_iter().flatten().for_each(|node| visit(node, next, seen, done));
            done.push(at);
        }
    }
    let (mut forward, mut backward) = (Next::new(), Next::new());
    for &(from, to) in edges {
        forward.entry(from).or_default().push(to);
        backward.entry(to).or_default().push(from);
    }
    // Kosaraju: whoever is done last is not led to by any group that is left but its own.
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    forward.keys().for_each(|node| visit(node, &forward, &mut seen, &mut order));
    seen.clear();
    let groups = order.into_iter().rev().map(|node| {
        let mut group = Vec::new();
        visit(node, &backward, &mut seen, &mut group);
        BTreeSet::from_iter(group)
    });
    groups.filter(|group| group.len() > 1).collect()
}

/// Says of a circle what leads from one to the next.
fn describe(what: &str, graph: &Graph, in_circle: impl Fn(&str, &str) -> bool) -> String {
    let edges = graph.iter().flat_map(|(from, named)| named.iter().map(move |(to, name)| (from, to, name)));
    let edges = edges.filter(|(from, to, _)| in_circle(from, to));
    edges.fold(what.to_owned(), |text, (from, to, name)| format!("{text}\n    {from} -> {to} by {name}"))
}

/// What is wrong with these files.
fn violations(sources: &[(String, String)]) -> Vec<String> {
    let graph = match graph(sources) {
        Ok(graph) => graph,
        Err(error) => return vec![error],
    };
    let files = graph.iter().flat_map(|(from, named)| named.keys().map(move |to| (from.as_str(), to.as_str())));
    let files: BTreeSet<_> = files.collect();
    let mut found = Vec::new();
    for (from, to) in &files {
        if let Some((low, high)) = place_in_pool(from).zip(place_in_pool(to))
            && low < high
        {
            found.push(format!("{from} names {to}: inside pool/ calls go down only"));
        }
    }
    for group in components(&files) {
        let modules: BTreeSet<&str> = group.iter().map(|file| module(file)).collect();
        if group.len() > 2 && modules.len() == 1 {
            let what = format!("a circle of {} files in {}:", group.len(), module(group.first().unwrap_or(&"")));
            found.push(describe(&what, &graph, |from, to| group.contains(from) && group.contains(to)));
        }
    }
    let units: BTreeSet<_> = files.iter().map(|&(from, to)| (unit(from), unit(to))).collect();
    for group in components(&units) {
        let modules: BTreeSet<&str> =
            graph.keys().filter(|file| group.contains(unit(file))).map(|file| module(file)).collect();
        if modules.len() > 1 {
            let what = format!("a circle of modules: {}:", Vec::from_iter(modules).join(", "));
            let both = |from: &str, to: &str| group.contains(from) && group.contains(to) && from != to;
            found.push(describe(&what, &graph, |from, to| both(unit(from), unit(to))));
        }
    }
    found
}

#[test]
fn the_source_has_no_circles() {
    let sources = crate::sources();
    let edges: usize = graph(&sources).iter().flat_map(Graph::values).map(BTreeMap::len).sum();
    assert!(edges > 300, "only {edges} imports found: the search is broken");
    let found = violations(&sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_folder_of_the_pool_has_its_place() {
    let mut folders: Vec<String> = Vec::new();
    for (file, _) in crate::sources() {
        let folder =
            file.strip_prefix("pool/").and_then(|rest| rest.split_once('/')).map(|(folder, _)| folder.to_owned());
        folders.extend(folder.filter(|folder| !folders.contains(folder)));
    }
    assert!(folders.len() >= POOL.len() && POOL.iter().all(|name| folders.iter().any(|folder| folder == name)));
}

#[test]
fn a_call_up_inside_the_pool_is_caught() {
    let stream = ("pool/cache/stream.rs", "use crate::pool::device::state::State;\npub struct Stream;");
    let state = ("pool/device/state.rs", "pub struct State;");
    caught(
        &[stream, state, ("pool/cache/mod.rs", "pub mod stream;"), ("pool/device/mod.rs", "pub mod state;")],
        "go down",
    );
}

// ---- the rules themselves ------------------------------------------------------------------------------

/// These files, and an empty one for each module that they lie in.
fn planted(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut sources = BTreeMap::from([("lib.rs".to_owned(), String::new())]);
    for (file, _) in files {
        let folders = file.match_indices('/').map(|(end, _)| format!("{}/mod.rs", &file[..end]));
        sources.extend(folders.map(|file| (file, String::new())));
    }
    sources.extend(files.iter().map(|&(file, text)| (file.to_owned(), text.to_owned())));
    sources.into_iter().collect()
}

#[track_caller]
fn caught(files: &[(&str, &str)], word: &str) {
    let found = violations(&planted(files));
    assert!(found.iter().any(|text| text.contains(word)), "{files:?} was not caught by {word:?}: {found:?}");
}

#[track_caller]
fn passes(files: &[(&str, &str)]) {
    let found = violations(&planted(files));
    assert!(found.is_empty(), "{files:?} is fine: {found:?}");
}

#[test]
fn a_file_has_its_module() {
    for (file, expected) in [
        ("units.rs", "units.rs"),
        ("arena/mod.rs", "arena"),
        ("arena/plan.rs", "arena"),
        ("driver/open.rs", "driver"),
        ("driver/mod.rs", "driver"),
        ("driver/host/mod.rs", "driver/host"),
        ("resource/ipc/socket.rs", "resource/ipc"),
        ("resource/ipc/deep/down.rs", "resource/ipc"),
        ("arena/deep/down.rs", "arena"),
    ] {
        assert_eq!(module(file), expected, "{file}");
    }
}

#[test]
fn modules_that_name_each_other_are_caught_however_it_is_written() {
    for text in [
        "use crate::block::table::Table;",
        "use crate::{\n    units::Address,\n    block::{self, table::{self, Table}},\n};",
        "pub(crate) fn f() { crate::block::table::find(); }",
        "fn f(_: &crate::block::table::Table) {}",
        "impl crate::block::table::Find for u8 {}",
        "fn f() { use crate::block::table; table::find(); }",
        "use crate::block as other;\ntype T = other::table::Table;",
        "fn f() { assert!(matches!(g(), crate::block::table::Kind::Plain)); }",
        "use super::super::block::table::Table as Other;",
        "mod inner { fn f() { super::super::super::block::table::find(); } }",
        "struct S { field: Vec<Option<crate::block::table::Table>> }",
    ] {
        caught(&[("arena/plan.rs", text), ("block/table.rs", "use crate::arena::plan::Plan;")], "arena, block");
        passes(&[("arena/plan.rs", text), ("block/table.rs", "pub struct Table;")]);
    }
}

#[test]
fn modules_that_name_each_other_in_different_files_are_caught() {
    let there = ("resource/ipc/fetch.rs", "use crate::resource::buffer::copy::Copy;");
    let back = ("resource/buffer/memory.rs", "use crate::resource::ipc::socket::Socket;");
    caught(&[there, back], "resource/buffer, resource/ipc");
    passes(&[there]);
    caught(
        &[("abi/torch/a.rs", "use crate::abi::cupy::b::B;"), ("abi/cupy/c.rs", "use super::super::torch::d::D;")],
        "abi/cupy",
    );
}

#[test]
fn a_file_beside_modules_may_open_them_but_not_be_in_their_circle() {
    let open = ("driver/open.rs", "use super::host::HostDriver;");
    let of = |text| ("driver/host/mod.rs", text);
    passes(&[open, of("use crate::driver::Driver;\npub struct HostDriver;"), ("driver/mod.rs", "pub trait Driver {}")]);
    caught(&[open, of("use crate::driver::open::Choice;\npub struct HostDriver;")], "driver, driver/host");
    caught(
        &[
            open,
            of("use self::zone::Zone;\npub struct HostDriver;"),
            ("driver/host/zone.rs", "use super::super::open::f;"),
        ],
        "driver, driver/host",
    );
}

#[test]
fn three_files_of_a_module_are_caught_and_two_pass() {
    let first = ("arena/a.rs", "use super::b::B;\npub struct A;");
    passes(&[first, ("arena/b.rs", "use super::a::A;\npub struct B;")]);
    let second = ("arena/b.rs", "use super::c;\npub struct B(c::C);");
    caught(&[first, second, ("arena/c.rs", "pub struct C(super::a::A);")], "3 files in arena");
    passes(&[first, second, ("arena/c.rs", "pub struct C;")]);
    // Two circles of two that share a file are one of three.
    let both = ("arena/b.rs", "use super::{a::A, c::C};");
    caught(&[first, both, ("arena/c.rs", "use super::b::B;")], "3 files in arena");
    let units = |text| ("units.rs", text);
    caught(&[units("use crate::log::Log;"), ("log.rs", "use crate::units::Address;")], "log.rs, units.rs");
}

#[test]
fn a_re_export_is_followed_to_the_definition() {
    let facade =
        ("arena/mod.rs", "mod a;\nmod b;\nmod c;\npub use self::a::A;\npub use b::{B, C as D};\npub(crate) use c::f;");
    let leaves = [("arena/b.rs", "pub struct B;\npub struct C;"), ("arena/c.rs", "use super::{B, D};\npub fn f() {}")];
    passes(&[facade, ("arena/a.rs", "use super::{B, D, f};\npub struct A;"), leaves[0], leaves[1]]);
    caught(
        &[
            facade,
            ("arena/a.rs", "use super::f;\npub struct A;"),
            ("arena/b.rs", "use super::A;\npub struct C;"),
            leaves[1],
        ],
        "3 files in arena",
    );
    // From outside, through a re-export of a re-export.
    let outside = ("block/mod.rs", "pub use crate::arena::D as Far;\nmod table;");
    caught(
        &[
            facade,
            outside,
            ("arena/b.rs", "use crate::block::table::Table;\npub struct C;"),
            ("block/table.rs", "use super::Far;"),
        ],
        "arena, block",
    );
    // What a facade uses itself counts.
    let user =
        ("arena/mod.rs", "pub use a::A;\npub use b::B;\npub struct Both(A);\nimpl Both { fn b(&self) { f(B) } }");
    let up = |text| ("arena/a.rs", text);
    passes(&[user, up("pub struct A;"), ("arena/b.rs", "pub struct B(super::Both);")]);
    caught(&[user, up("pub struct A(super::Both);"), ("arena/b.rs", "pub struct B(super::Both);")], "3 files in arena");
}

#[test]
fn a_variable_that_is_called_like_a_re_export_is_none() {
    let facade = |text| [("arena/mod.rs", text), ("arena/a.rs", "use super::Base;\npub fn make() {}")];
    let chain = ("arena/b.rs", "use super::a::x;\npub fn other() {}");
    let used = "pub use a::make;\npub use b::other;\npub struct Base;\nfn f(make: u8) { other(make); vec![make]; }";
    let [first, second] = facade(used);
    caught(&[first, second, chain], "3 files in arena");
    let unused = used.replace("other(make)", "g(make)");
    let [first, second] = facade(&unused);
    passes(&[first, second, chain]);
}

#[test]
fn tests_comments_and_texts_name_nothing() {
    let back = ("block/table.rs", "use crate::arena::plan::Plan;");
    for text in [
        "// use crate::block::table::Table;",
        "//! See [`crate::block::table::Table`].\n/// And [it](crate::block::table::Table).\nfn f() {}",
        "const TEXT: &str = \"crate::block::table::Table\";",
        "fn f() { println!(\"crate::block::table::Table and {{}}\"); }",
        "#[cfg(test)]\nmod tests { use crate::block::table::Table; }",
        "#[cfg(test)]\nuse crate::block::table::Table;",
        "struct S;\n#[cfg(test)]\nimpl S { fn f() { crate::block::table::find() } }",
        "struct S;\nimpl S { #[cfg(test)] fn f() { crate::block::table::find() } }",
        "use crate::block;",
        "use std::block::table::Table;",
        "use other::block::table::Table;",
        "use uuid::uuid;\nfn f() { uuid!(1); }",
    ] {
        passes(&[("arena/plan.rs", text), back]);
    }
    let kit = ("arena/kit.rs", "use crate::block::table::Table;");
    passes(&[("arena/mod.rs", "#[cfg(test)]\nmod kit;"), kit, back]);
    caught(&[("arena/mod.rs", "mod kit;"), kit, back], "arena, block");
    passes(&[("arena/mod.rs", "#[cfg(test)]\nmod tests;"), ("arena/tests/exchange.rs", kit.1), back]);
}

#[test]
fn a_module_of_everything_is_refused() {
    caught(&[("arena/plan.rs", "use super::walk::*;"), ("arena/walk.rs", "")], "arena/plan.rs: use super::walk::*");
    caught(&[("arena/mod.rs", "pub use walk::*;"), ("arena/walk.rs", "")], "name the items");
    passes(&[("arena/plan.rs", "use std::fmt::*;\n#[cfg(test)]\nmod tests { use super::*; }")]);
}
