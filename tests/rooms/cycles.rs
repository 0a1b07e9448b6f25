//! No circles of imports, between rooms or between files of some.

use crate::paths::{absolute, module};
use crate::sources::{rooms, root};
use std::collections::{BTreeMap, BTreeSet};

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
        // A family's file holds both: the fields of its config, and what they make.
        let one = |room: &str| if room == "config" { "arch".to_owned() } else { room.to_owned() };
        let targets = imports.entry(one(&room)).or_default();
        let name = module(path.strip_prefix(root()).unwrap());
        targets.extend(absolute(&name, &text).into_iter().map(|path| one(&path[0])));
        targets.remove(&one(&room));
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
