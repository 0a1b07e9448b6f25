//! Walls between the rooms of `src`, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The Rust files of `src` that are no tests, with their first folder or file: `kernels` of
/// `kernels/norm.rs`.
fn rooms() -> Vec<(String, PathBuf, String)> {
    let root = root();
    let mut files = vec![];
    sources(&root, &mut files);
    let tests: BTreeSet<PathBuf> = files.iter().flat_map(|path| test_files(path)).collect();
    assert!(tests.iter().all(|path| files.contains(path)), "{tests:?}");
    files.retain(|path| !tests.contains(path));
    assert!(files.len() > 100 && tests.len() > 5, "{} and {} files", files.len(), tests.len());
    files
        .into_iter()
        .map(|path| {
            let inside = path.strip_prefix(&root).unwrap();
            let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            (first.trim_end_matches(".rs").to_owned(), path, text)
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// What `#[cfg(test)]` marks: where each begins in the text, and the line after it.
fn marked(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let marks = ["#[cfg(test)]", "#[cfg(all(test"].map(|mark| text.match_indices(mark));
    marks.into_iter().flatten().map(|(at, _)| (at, text[at..].lines().nth(1).unwrap_or("").trim()))
}

/// The files that a file has as modules for tests alone: `#[cfg(test)] mod tests;`.
fn test_files(path: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(path).unwrap();
    let owner = path.file_stem().is_some_and(|stem| stem == "mod" || stem == "lib");
    let folder = if owner { path.parent().unwrap().to_owned() } else { path.with_extension("") };
    let name = |(_, line): (usize, &str)| {
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned() + ".rs")
    };
    marked(&text).filter_map(name).map(|name| folder.join(name)).collect()
}

/// Lines of code: no comments, and nothing from a module of tests on that the file has in itself.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let inline = |(_, line): &(usize, &str)| line.starts_with("mod ") && line.ends_with('{');
    let end = marked(text).filter(inline).map(|(at, _)| at).min().unwrap_or(text.len());
    let lines = (1..).zip(text[..end].lines());
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn only_modules_of_tests_are_cut() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\nuse crate::c;\n#[cfg(test)]\nfn d() {}\nfn e() {}\n\
                #[cfg(all(test, feature = \"testing\"))]\nmod tests {\nuse crate::f;\n}\n";
    assert_eq!(code(text).last(), Some((7, "fn e() {}")));
    let tests = test_files(&root().join("session/mod.rs"));
    assert!(tests.contains(&root().join("session/fake.rs")), "{tests:?}");
    assert_eq!(test_files(&root().join("config.rs")), [root().join("config/tests.rs")]);
}

#[test]
fn only_arch_and_config_know_an_architecture_by_name() {
    let names = ["llama", "mistral", "qwen", "gemma", "gpt2", "gpt_neox"];
    let mut found = vec![];
    for (room, path, text) in rooms() {
        if ["arch", "config", "testing"].contains(&room.as_str()) {
            continue;
        }
        for (number, line) in code(&text) {
            let lower = line.to_lowercase();
            if names.iter().any(|name| lower.contains(name)) && !lower.contains("llama.cpp") {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "an architecture's name outside arch and config:\n{}",
        found.join("\n")
    );
}

/// What imports what, by name.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Names that reach themselves, each with what it reaches of them: none where there is no cycle.
fn cycles(imports: &Imports) -> Vec<String> {
    let reached = |from: &String| {
        let mut found = BTreeSet::new();
        let mut next = vec![from];
        while let Some(name) = next.pop() {
            for target in imports.get(name).into_iter().flatten() {
                if found.insert(target) {
                    next.push(target);
                }
            }
        }
        found
    };
    let all: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|name| (name, reached(name))).collect();
    let circles = |name: &&String| all[*name].contains(*name);
    let tell = |name: &String| {
        let back = |target: &&String| all.get(target).is_some_and(|of| of.contains(name));
        let targets: Vec<_> = imports[name].iter().filter(back).map(String::as_str).collect();
        format!("{name} imports {}", targets.join(", "))
    };
    imports.keys().filter(circles).map(tell).collect()
}

#[test]
fn cycles_are_found() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut all = Imports::new();
        for (from, to) in pairs {
            all.entry((*from).into()).or_default().insert((*to).into());
        }
        all
    };
    assert!(cycles(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = cycles(&imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert_eq!(found, ["b imports c", "c imports b"]);
}

#[test]
fn rooms_do_not_import_each_other_in_a_circle() {
    let mut imports = Imports::new();
    for (room, path, text) in rooms() {
        if room == "lib" {
            continue;
        }
        let targets = imports.entry(room.clone()).or_default();
        let name = module(path.strip_prefix(root()).unwrap());
        targets.extend(absolute(&name, &text).into_iter().map(|path| path[0].clone()));
        targets.remove(&room);
    }
    let found = cycles(&imports);
    for (room, targets) in &imports {
        let targets: Vec<_> = targets.iter().map(String::as_str).collect();
        println!("{room}: {}", targets.join(", "));
    }
    println!("{} rooms, {} in cycles", imports.len(), found.len());
    assert!(imports.len() > 20 && imports.values().flatten().count() > 60, "{imports:?}");
    assert!(found.is_empty(), "rooms in a circle:\n{}", found.join("\n"));
}

/// Rooms whose files must not import each other in a circle either.
const WITHOUT_CYCLES: [&str; 2] = ["kernels", "session"];

#[test]
fn files_of_a_room_do_not_import_each_other_in_a_circle() {
    for wanted in WITHOUT_CYCLES {
        let imports = file_imports(wanted);
        let found = cycles(&imports);
        let edges = imports.values().map(BTreeSet::len).sum::<usize>();
        println!("{wanted}: {} files, {edges} imports, {} in cycles", imports.len(), found.len());
        assert!(imports.len() > 15 && edges > 40, "{imports:?}");
        assert!(found.is_empty(), "files of {wanted} in a circle:\n{}", found.join("\n"));
    }
}

/// What the files of a room import of each other, by module path: `kernels::norm`.
fn file_imports(wanted: &str) -> Imports {
    let files: BTreeMap<String, String> = rooms()
        .into_iter()
        .filter(|(room, ..)| room == wanted)
        .map(|(_, path, text)| (module(path.strip_prefix(root()).unwrap()), text))
        .collect();
    let mut imports = Imports::new();
    for (name, text) in &files {
        // The innermost file that a path leads to; a name that a `mod.rs` hands on leads to that.
        let file = |path: &[String]| {
            (1..=path.len()).rev().map(|len| path[..len].join("::")).find(|p| files.contains_key(p))
        };
        let targets = imports.entry(name.clone()).or_default();
        let paths = absolute(name, text);
        targets.extend(paths.iter().filter_map(|path| file(path)).filter(|target| target != name));
    }
    imports
}

/// [`paths`] of the module `name`, from the crate's root on.
fn absolute(name: &str, text: &str) -> Vec<Vec<String>> {
    let own: Vec<String> = name.split("::").map(str::to_owned).collect();
    let whole = |path: Vec<String>| {
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path[0].as_str() {
            "crate" => path[1..].to_vec(),
            "super" => [&own[..own.len().saturating_sub(ups)], &path[ups..]].concat(),
            "self" => [&own[..], &path[1..]].concat(),
            _ => [&own[..], &path[..]].concat(),
        }
    };
    paths(text).into_iter().map(whole).filter(|path| !path.is_empty()).collect()
}

/// `kernels::norm` of `kernels/norm.rs`, `kernels` of `kernels/mod.rs`.
fn module(path: &Path) -> String {
    let text = path.with_extension("").to_str().unwrap().replace(['/', '\\'], "::");
    text.trim_end_matches("::mod").to_owned()
}

/// Every path that code names from `crate`, `self`, `super` or a child on, and every path of a `use`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = code(text).map(|(_, line)| line).collect();
    let text = lines.join("\n");
    let mut found = vec![];
    let mut rest = text.as_str();
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].ends_with(['\n', ' ', ')']) || at == 0;
        rest = &rest[at + "use ".len()..];
        let Some(end) = rest.find(';').filter(|_| begins) else { continue };
        expand(&unnamed(&rest[..end]), &mut found);
    }
    let children = lines.iter().filter_map(|line| {
        let (visible, name) = line.trim().split_once("mod ")?;
        (visible.is_empty() || visible.starts_with("pub")).then_some(name.strip_suffix(';')?)
    });
    let children = children.map(|name| format!("{name}::"));
    let starts = ["crate::", "super::", "self::"].map(str::to_owned);
    for start in starts.into_iter().chain(children) {
        for (at, _) in text.match_indices(&start) {
            // A path's middle, or the room of a `pub(in …)`.
            let inside = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c))
                || text[..at].ends_with("(in ");
            let path: String = text[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || "_:".contains(*c))
                .collect();
            if !inside {
                found.push(split(&path));
            }
        }
    }
    found.retain(|path| path.len() > 1);
    found
}

/// A `use` without white space and without the names that it gives.
fn unnamed(tree: &str) -> String {
    let mut parts: Vec<&str> = tree.split(" as ").collect();
    for part in &mut parts[1..] {
        let name = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        *part = &part[name..];
    }
    parts.concat().split_whitespace().collect()
}

/// The paths of a `use`, braces opened.
fn expand(tree: &str, found: &mut Vec<Vec<String>>) {
    let Some(open) = tree.find('{') else { return found.push(split(tree)) };
    let (first, inside) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(open + 1)]);
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            expand(&format!("{first}{}", &inside[from..at]), found);
            from = at + 1;
        }
    }
}

fn split(path: &str) -> Vec<String> {
    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// What each room may import of the crate, the room itself aside.
const MAY_IMPORT: [(&str, &[&str]); 23] = [
    ("error", &[]),
    ("format", &[]),
    ("random", &[]),
    ("order", &[]),
    ("products", &[]),
    ("caps", &["error", "products"]),
    ("config", &["error"]),
    ("schedule", &["error"]),
    ("arch", &["config", "error"]),
    ("graph", &["arch", "config", "format"]),
    ("params", &["arch", "caps", "error", "order"]),
    ("kernels", &["caps", "config", "error", "format", "order", "products"]),
    ("plan", &["caps", "error", "kernels", "order"]),
    ("ops", &["caps", "data", "error", "kernels", "plan"]),
    ("optim", &["caps", "error", "kernels", "params", "plan"]),
    ("lower", &["arch", "caps", "error", "graph", "kernels", "optim", "params", "plan"]),
    ("gpu", &["caps", "error", "kernels", "order", "plan"]),
    ("checkpoint", &["error", "order"]),
    ("data", &["error", "random"]),
    ("session", &SESSION),
    (
        "twins",
        &[
            "arch", "caps", "config", "data", "error", "format", "gpu", "graph", "kernels", "plan",
            "random",
        ],
    ),
    // All but the browser's side.
    (
        "testing",
        &[
            "arch",
            "caps",
            "checkpoint",
            "config",
            "data",
            "error",
            "gpu",
            "kernels",
            "lower",
            "ops",
            "plan",
            "random",
            "session",
            "twins",
        ],
    ),
    // Lanes in browsers start `testing`.
    (
        "web",
        &["arch", "caps", "config", "data", "error", "gpu", "kernels", "ops", "session", "testing"],
    ),
];

/// Neither the twins, which are its tests' measure, nor graphs, which `lower` makes plans of.
const SESSION: [&str; 15] = [
    "arch",
    "caps",
    "checkpoint",
    "config",
    "data",
    "error",
    "gpu",
    "kernels",
    "lower",
    "ops",
    "params",
    "order",
    "plan",
    "random",
    "schedule",
];

/// Paths from the crate's root that lead out of a room to one that it may not import.
fn forbidden(room: &str, name: &str, text: &str, allowed: &[&str]) -> BTreeSet<String> {
    let may = |path: &Vec<String>| path[0] == room || allowed.contains(&path[0].as_str());
    let wrong = absolute(name, text).into_iter().filter(|path| !may(path));
    wrong.map(|path| format!("{name} imports {}", path.join("::"))).collect()
}

#[test]
fn forbidden_imports_are_found() {
    let found = |text: &str| forbidden("plan", "plan::slots", text, &["error", "caps"]);
    assert!(found("use crate::{error::Error, plan::Plan};\nuse super::Buffer;\n").is_empty());
    let text = "use crate::{caps::Limits, params::{Shard, Layout as L}};\nuse super::super::session;\n\
                fn f() -> crate::gpu::BufferId {}\n";
    let wrong = ["params::Shard", "params::Layout", "session", "gpu::BufferId"];
    assert_eq!(found(text), wrong.map(|path| format!("plan::slots imports {path}")).into());
}

#[test]
fn rooms_import_what_they_may() {
    let (mut wrong, mut without) = (vec![], BTreeSet::new());
    for (room, path, text) in rooms() {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
            without.insert(room);
            continue;
        };
        let name = module(path.strip_prefix(root()).unwrap());
        wrong.extend(forbidden(&room, &name, &text, allowed));
    }
    assert_eq!(without.into_iter().collect::<Vec<_>>(), ["lib"], "rooms without a row");
    assert!(wrong.is_empty(), "rooms import what they may not:\n{}", wrong.join("\n"));
}
