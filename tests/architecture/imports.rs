//! Which file names items of which other file: `use` lines and paths in the code, resolved to the file that defines the item.
//!
//! A re-export is followed to the definition, so a `mod.rs` that only re-exports is part of no circle. A module that is
//! named without an item of it counts for nothing. What is only for tests is left out. Calls of methods are not seen,
//! only the names of types and functions are.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, UseTree, Visibility};

/// For each file the other files that it names items of, and one of these items.
pub type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// A path of modules and items.
type Path = Vec<String>;

/// One file.
struct Module {
    file: String,
    code: syn::File,
    /// What its `use` lines bring in, by the name that it has here.
    bindings: BTreeMap<String, Path>,
}

/// Every file that is not only for tests, by the path of its module.
struct Modules(BTreeMap<Path, Module>);

/// The graph of these files, each a path below `src/` and its text.
///
/// # Errors
/// A file that is no Rust, or that imports everything of a module, so that nobody can tell what it names.
pub fn graph(sources: &[(String, String)]) -> Result<Graph, String> {
    let modules = Modules::read(sources)?;
    let mut graph = Graph::new();
    for (at, module) in &modules.0 {
        let mut names = Names { paths: Vec::new(), bindings: module.bindings.clone(), globs: Vec::new(), inside: 0 };
        names.visit_file(&module.code);
        if let Some(glob) = names.globs.iter().find(|glob| glob.first().is_some_and(|first| modules.begins(at, first)))
        {
            return Err(format!("{}: use {}::*: name the items", module.file, glob.join("::")));
        }
        let named = graph.entry(module.file.clone()).or_default();
        for path in names.paths {
            if let Some(file) = modules.resolve(at, &names.bindings, &path).filter(|&file| file != module.file) {
                named.entry(file.into()).or_insert_with(|| path.join("::"));
            }
        }
    }
    Ok(graph)
}

impl Modules {
    fn read(sources: &[(String, String)]) -> Result<Self, String> {
        let (mut modules, mut tests) = (BTreeMap::new(), Vec::new());
        for (file, text) in sources {
            let at = module_path(file);
            let code = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
            let mut bindings = BTreeMap::new();
            for item in &code.items {
                match item {
                    Item::Mod(child) if is_for_tests(&child.attrs) => tests.push(join(&at, &child.ident.to_string())),
                    Item::Use(line) if !is_for_tests(&line.attrs) => {
                        let leaves = leaves(&line.tree);
                        bindings.extend(leaves.into_iter().filter_map(|(name, path)| Some((name?, path))));
                    }
                    _ => {}
                }
            }
            modules.insert(at, Module { file: file.clone(), code, bindings });
        }
        modules.retain(|at, _| !tests.iter().any(|test| at.starts_with(test)));
        Ok(Self(modules))
    }

    /// Whether a path in module `at` that begins with `first` leads to this crate, but for what the file's `use` lines bring in.
    fn begins(&self, at: &Path, first: &str) -> bool {
        matches!(first, "crate" | "self" | "super") || self.0.contains_key(&join(at, first))
    }

    /// The file that defines what `path` names in module `at`; `None` where that is of another crate, or a module.
    fn resolve(&self, at: &Path, bindings: &BTreeMap<String, Path>, path: &[String]) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        match bindings.get(first) {
            Some(target) if target.as_slice() != path && !self.0.contains_key(&join(at, first)) => {
                self.follow(at, &[target, rest].concat(), MOST_STEPS)
            }
            _ if self.begins(at, first) => self.follow(at, path, MOST_STEPS),
            _ => None,
        }
    }

    /// The same by the items and re-exports of module `at` alone.
    fn follow(&self, at: &Path, path: &[String], steps: u32) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let steps = steps.checked_sub(1)?;
        match first.as_str() {
            "crate" => return self.follow(&Path::new(), rest, steps),
            "self" => return self.follow(at, rest, steps),
            "super" => return self.follow(&at[..at.len().checked_sub(1)?].to_vec(), rest, steps),
            _ => {}
        }
        let (module, child) = (self.0.get(at)?, join(at, first));
        let target = module.bindings.get(first).filter(|target| target.as_slice() != [first.clone()]);
        match target {
            // A module and an item may have one name: the module is what has something behind it.
            _ if self.0.contains_key(&child) && (target.is_none() || !rest.is_empty()) => {
                self.follow(&child, rest, steps)
            }
            Some(target) if self.begins(at, &target[0]) || module.bindings.contains_key(&target[0]) => {
                self.follow(at, &[target, rest].concat(), steps)
            }
            Some(_) => None,
            None => Some(&module.file),
        }
    }
}

/// More re-exports and modules than any path leads through.
const MOST_STEPS: u32 = 64;

/// `driver/host/mod.rs` is the module `driver::host`.
fn module_path(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    path.pop_if(|last| last == "mod" || last == "lib");
    path
}

fn join(at: &Path, name: &str) -> Path {
    at.iter().cloned().chain([name.into()]).collect()
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    })
}

/// What a `use` line brings in: the name here, `None` for all there is, and the path.
fn leaves(tree: &UseTree) -> Vec<(Option<String>, Path)> {
    let below = |tree, first: String| {
        let prefix = |(name, path): (Option<String>, Path)| match path.as_slice() {
            // `a::{self}` is `a`.
            [this] if this == "self" => {
                (name.filter(|name| name != "self").or(Some(first.clone())), vec![first.clone()])
            }
            _ => (name, [vec![first.clone()], path].concat()),
        };
        leaves(tree).into_iter().map(prefix).collect()
    };
    match tree {
        UseTree::Path(path) => below(&path.tree, path.ident.to_string()),
        UseTree::Name(name) => vec![(Some(name.ident.to_string()), vec![name.ident.to_string()])],
        UseTree::Rename(name) => vec![(Some(name.rename.to_string()), vec![name.ident.to_string()])],
        UseTree::Glob(_) => vec![(None, Path::new())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

fn is_in_lower_case(name: &str) -> bool {
    name.chars().all(|character| character.is_lowercase() || character.is_numeric() || character == '_')
}

/// Gathers the paths of a file.
struct Names {
    paths: Vec<Path>,
    /// The file's, and those of its functions.
    bindings: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// How many modules are open within the file.
    inside: usize,
}

impl Names {
    fn add(&mut self, mut path: Path) {
        let up = path.iter().take_while(|&part| part == "super").count().min(self.inside);
        path.drain(..up);
        self.paths.push(path);
    }
}

impl Visit<'_> for Names {
    fn visit_item(&mut self, item: &Item) {
        let attributes = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        self.inside += 1;
        visit::visit_item_mod(self, module);
        self.inside -= 1;
    }

    fn visit_item_use(&mut self, line: &syn::ItemUse) {
        for (name, path) in leaves(&line.tree) {
            // What is passed on is not used here.
            if matches!(line.vis, Visibility::Inherited) {
                self.add(path.clone());
            }
            match name {
                Some(name) => drop(self.bindings.insert(name, path)),
                None => self.globs.push(path),
            }
        }
    }

    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        match &*call.func {
            Expr::Path(function) => visit::visit_expr_path(self, function),
            other => self.visit_expr(other),
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_path(&mut self, name: &syn::ExprPath) {
        // A variable may have the name of a function that the file passes on.
        if !name.path.get_ident().is_some_and(|name| is_in_lower_case(&name.to_string())) {
            visit::visit_expr_path(self, name);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// What a macro is given is words to us.
    fn visit_macro(&mut self, call: &syn::Macro) {
        self.visit_path(&call.path);
        let text = crate::code(&call.tokens.to_string().replace('\n', " ")).replace(" :: ", "::");
        for word in text.split(|character: char| !(character.is_alphanumeric() || "_:".contains(character))) {
            if !word.is_empty() && !is_in_lower_case(word) {
                self.add(word.split("::").map(String::from).collect());
            }
        }
    }

    fn visit_attribute(&mut self, _: &Attribute) {}

    fn visit_visibility(&mut self, _: &Visibility) {}
}
