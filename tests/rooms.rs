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

/// The Rust files of `src` with their first folder or file, `kernels` of `kernels/norm.rs`.
fn rooms() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    sources(&root, &mut files);
    assert!(files.len() > 100, "{} files", files.len());
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

/// Lines of code: no comments, and nothing from the first test module on.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = ["#[cfg(test)]", "#[cfg(all(test"];
    let end = tests.iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let lines = (1..).zip(text[..end].lines());
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn only_arch_and_config_know_an_architecture_by_name() {
    let names = ["llama", "mistral", "qwen", "gemma", "gpt2", "gpt_neox"];
    let mut found = vec![];
    for (room, path, text) in rooms() {
        if ["arch", "config", "testing"].contains(&room.as_str()) || path.ends_with("tests.rs") {
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
        if room == "lib" || path.ends_with("tests.rs") {
            continue;
        }
        let targets = imports.entry(room.clone()).or_default();
        for path in paths(&text) {
            if path[0] == "crate" && path[1] != room && path[1] != "lib" {
                targets.insert(path[1].clone());
            }
        }
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files: BTreeMap<String, String> = rooms()
        .into_iter()
        .filter(|(room, path, _)| room == wanted && !path.ends_with("tests.rs"))
        .map(|(_, path, text)| (module(path.strip_prefix(&root).unwrap()), text))
        .collect();
    let mut imports = Imports::new();
    for (name, text) in &files {
        // The innermost file that a path leads to; a name that a `mod.rs` hands on leads to that.
        let file = |path: &[String]| {
            (1..=path.len()).rev().map(|len| path[..len].join("::")).find(|p| files.contains_key(p))
        };
        let targets = imports.entry(name.clone()).or_default();
        for path in paths(text) {
            let own: Vec<String> = name.split("::").map(str::to_owned).collect();
            let ups = path.iter().take_while(|part| *part == "super").count();
            let whole = match path[0].as_str() {
                "crate" => path[1..].to_vec(),
                "super" => [&own[..own.len().saturating_sub(ups)], &path[ups..]].concat(),
                "self" => [&own[..], &path[1..]].concat(),
                _ => [&own[..], &path[..]].concat(),
            };
            targets.extend(file(&whole).filter(|target| target != name));
        }
    }
    imports
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
const MAY_IMPORT: [(&str, &[&str]); 16] = [
    ("error", &[]),
    ("format", &[]),
    ("random", &[]),
    ("products", &[]),
    ("caps", &["error", "products"]),
    ("config", &["error"]),
    ("schedule", &["error"]),
    ("arch", &["config"]),
    ("graph", &["arch", "config", "format"]),
    ("params", &["arch", "caps", "error"]),
    ("kernels", &["caps", "config", "error", "format", "products"]),
    ("plan", &["caps", "error", "kernels"]),
    ("ops", &["caps", "data", "error", "kernels", "plan"]),
    ("optim", &["caps", "error", "kernels", "params", "plan"]),
    ("lower", &["arch", "caps", "error", "graph", "kernels", "optim", "params", "plan"]),
    ("gpu", &["caps", "error", "kernels", "plan"]),
];

#[test]
fn rooms_import_what_they_may() {
    let mut wrong = vec![];
    for (room, path, text) in rooms() {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
            continue;
        };
        if path.ends_with("tests.rs") {
            continue;
        }
        for (number, line) in code(&text) {
            for imported in line.split("crate::").skip(1) {
                let end = imported.find(|c: char| !c.is_alphanumeric() && c != '_');
                let imported = &imported[..end.unwrap_or(imported.len())];
                if imported != room && !allowed.contains(&imported) && !imported.is_empty() {
                    wrong.push(format!("{}:{number} imports {imported}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "rooms import what they may not:\n{}", wrong.join("\n"));
}
