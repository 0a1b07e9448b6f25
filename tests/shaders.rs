//! The shaders' files against what kernels are joined from: names, and each file's `// uses:` line.
#![cfg(feature = "testing")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tinyloom::caps::{Capabilities, Target};
use tinyloom::testing::{adapters, catalogue};

/// Words behind a kernel's name in the name of a file that has one form of it.
const FORMS: [&str; 11] = [
    "row", "team", "words", "tiled", "direct", "matrix", "quads", "f16", "int8", "turned", "parts",
];
/// What entry points of one file add to its name: a direction, a form of product, a stage.
const ENDINGS: [&str; 6] = ["", "_forward", "_backward", "_t", "_at", "_split"];

/// By file in `shaders`, without the ending: entry points, and every list of other modules.
#[derive(Default)]
struct Use {
    entries: BTreeSet<&'static str>,
    lists: BTreeSet<Vec<&'static str>>,
}

/// The table, and the adapters on which plain WGSL stands in for matrices.
fn every_adapter() -> Vec<Capabilities> {
    let target = Target::Browser;
    adapters::table(target).into_iter().chain(adapters::emulated(target)).collect()
}

fn uses() -> BTreeMap<&'static str, Use> {
    let mut found: BTreeMap<_, Use> = BTreeMap::new();
    for caps in every_adapter() {
        for (what, kernel) in catalogue::kernels(&caps) {
            let Ok(kernel) = kernel else { continue };
            let own: Vec<&&'static str> = kernel.modules.iter().filter(|m| numbered(m)).collect();
            assert_eq!(own.len(), 1, "{what}: {:?}", kernel.modules);
            let of = found.entry(*own[0]).or_default();
            of.entries.insert(kernel.name);
            let others = kernel.modules.iter().filter(|m| !numbered(m));
            of.lists.insert(others.map(|m| m.trim_start_matches("lib/")).collect());
        }
    }
    found
}

fn numbered(module: &str) -> bool {
    module.starts_with(|c: char| c.is_ascii_digit())
}

fn shaders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders")
}

fn text(file: &str) -> String {
    fs::read_to_string(shaders().join(file).with_extension("wgsl")).unwrap()
}

/// Files of a folder, without the ending, below `shaders`.
fn files(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(shaders().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let inside = path.strip_prefix(shaders()).unwrap().to_str().unwrap().replace('\\', "/");
        if path.is_dir() && !folder.is_empty() {
            found.extend(files(&inside));
        } else if let Some(name) = inside.strip_suffix(".wgsl") {
            found.insert(name.to_owned());
        }
    }
    found
}

/// Whether a file is one that an entry point's name leads to: its name without the number, or without
/// the number and the form, is what the entry point's begins with.
fn leads(entry: &str, file: &str) -> bool {
    let name = &file[3..];
    let formless = name.rsplit_once('_').filter(|(_, form)| FORMS.contains(form));
    let begins =
        |operation: &str| entry.strip_prefix(operation).is_some_and(|rest| ENDINGS.contains(&rest));
    begins(name) || formless.is_some_and(|(operation, _)| begins(operation))
}

#[test]
fn a_kernels_name_leads_to_its_files() {
    let used = uses();
    let all: BTreeSet<_> = used.values().flat_map(|of| of.entries.iter().copied()).collect();
    for entry in &all {
        let by_name: Vec<_> = used.keys().filter(|file| leads(entry, file)).collect();
        let joined: Vec<_> =
            used.iter().filter(|(_, of)| of.entries.contains(entry)).map(|(f, _)| f).collect();
        assert_eq!(by_name, joined, "{entry}");
    }
    for form in FORMS {
        assert!(used.keys().any(|file| file.ends_with(form)), "no file ends with {form}");
    }
    println!("{} entry points lead to {} files", all.len(), used.len());
}

#[test]
fn every_file_is_part_of_a_kernel() {
    let used = uses();
    let own: BTreeSet<_> = used.keys().map(|&file| file.to_owned()).collect();
    assert_eq!(files(""), own);
    let lists = used.values().flat_map(|of| &of.lists);
    let shared: BTreeSet<_> = lists.flatten().map(|module| format!("lib/{module}")).collect();
    let unused: Vec<_> = files("lib").into_iter().filter(|f| !shared.contains(f)).collect();
    assert!(unused.is_empty(), "no kernel is joined with {unused:?}");
}

/// A place in a `// uses:` line: names of which a kernel has exactly one, or with `none` at most one.
struct Slot<'a> {
    names: Vec<&'a str>,
    optional: bool,
}

fn slots(line: &str) -> Vec<Slot<'_>> {
    line.split(", ")
        .map(|slot| {
            let mut names: Vec<_> = slot.split(" or ").collect();
            let optional = names.last() == Some(&"none");
            names.retain(|name| *name != "none");
            Slot { names, optional }
        })
        .collect()
}

/// What is wrong with a line for a file's lists of modules.
fn wrong(line: &str, lists: &BTreeSet<Vec<&str>>) -> Option<String> {
    let slots = slots(line);
    for list in lists {
        for slot in &slots {
            let count = slot.names.iter().filter(|name| list.contains(name)).count();
            if count > 1 || (count == 0 && !slot.optional) {
                return Some(format!("{count} of {:?} in {list:?}", slot.names));
            }
        }
        let named = |module: &&&str| slots.iter().any(|slot| slot.names.contains(*module));
        if let Some(module) = list.iter().find(|module| !named(module)) {
            return Some(format!("{module} is not named"));
        }
    }
    for slot in &slots {
        let seen = |name: &&&str| lists.iter().any(|list| list.contains(*name));
        if let Some(name) = slot.names.iter().find(|name| !seen(name)) {
            return Some(format!("{name} is never joined"));
        }
        let absent = lists.iter().any(|list| !slot.names.iter().any(|name| list.contains(name)));
        if slot.optional && !absent {
            return Some(format!("one of {:?} is always there", slot.names));
        }
    }
    None
}

#[test]
fn the_first_line_says_what_a_kernel_is_joined_with() {
    let mut found = vec![];
    for (file, of) in uses() {
        let text = text(file);
        let first = text.lines().next().unwrap_or_default();
        let why = match first.strip_prefix("// uses: ") {
            Some(line) => wrong(line, &of.lists),
            None => Some("begins with another line".into()),
        };
        if let Some(why) = why {
            found.push(format!("{file}: {why}; joined from {:?}", of.lists));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_wrong_line_is_noticed() {
    let lists = BTreeSet::from([vec!["step", "tree"], vec!["step", "subgroup", "f16"]]);
    assert_eq!(wrong("step, tree or subgroup, f16 or none", &lists), None);
    for line in [
        "step, tree or subgroup",
        "step, tree or subgroup, f16",
        "step or none, tree or subgroup, f16 or none",
        "step, tree, subgroup or none, f16 or none",
        "step, tree or subgroup, f16 or none, range or none",
        "step or tree, subgroup or none, f16 or none",
    ] {
        assert!(wrong(line, &lists).is_some(), "{line}");
    }
}

/// Names that each of several files defines, of which a kernel is joined with one.
const ALTERNATIVES: [(&str, &str); 10] = [
    ("COLUMNS_A", "lib/matrix/a_"),
    ("COLUMNS_B", "lib/matrix/b_"),
    ("CHECK_N", "03_matmul_"),
    ("TILES_N", "03_matmul_"),
    ("CHECK_K", "lib/linear/rows_"),
    ("CHECK_M", "lib/linear/rows_"),
    ("DENSE", "lib/attention/dense_"),
    ("NAN_WORD", "lib/weights/pack_"),
    ("PER_WORD", "lib/element/word_"),
    ("SCALED", "lib/weights/pack_"),
];

/// Names of the constants that a text defines for the whole module.
fn constants(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("const ")?.split(':').next())
}

#[test]
fn a_constant_is_defined_in_one_place() {
    let mut defined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut texts = BTreeMap::new();
    for file in files("").into_iter().chain(files("lib")) {
        let text = text(&file);
        for name in constants(&text) {
            defined.entry(name.to_owned()).or_default().insert(file.clone());
        }
        texts.insert(file, text);
    }
    let is_alternative = |name: &str, files: &BTreeSet<String>| {
        let prefix =
            ALTERNATIVES.iter().find(|(known, _)| *known == name).map(|(_, prefix)| prefix);
        prefix.is_some_and(|prefix| files.iter().all(|file| file.starts_with(prefix)))
    };
    let mut twice: BTreeSet<String> = BTreeSet::new();
    for (name, files) in &defined {
        if files.len() > 1 && !is_alternative(name, files) {
            twice.insert(format!("{name} in {files:?}"));
        }
    }
    for caps in every_adapter() {
        for (_, kernel) in catalogue::kernels(&caps) {
            let Ok(kernel) = kernel else { continue };
            let files = || kernel.modules.iter().filter_map(|module| texts.get(*module));
            let by_files: BTreeSet<&str> = files().flat_map(|text| constants(text)).collect();
            let whole = kernel.wgsl.text();
            for name in constants(&whole).filter(|name| !by_files.contains(name)) {
                if let Some(files) = defined.get(name) {
                    twice.insert(format!("{name} by Rust for {} and in {files:?}", kernel.name));
                }
            }
        }
    }
    let twice: Vec<_> = twice.into_iter().collect();
    assert!(twice.is_empty(), "constants with more than one definition:\n{}", twice.join("\n"));
}
