//! Walls between the rooms of `src`, read from the sources.

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

/// What each room may import of the crate, the room itself aside.
const MAY_IMPORT: [(&str, &[&str]); 14] = [
    ("error", &[]),
    ("format", &[]),
    ("random", &[]),
    ("caps", &["error", "kernels"]),
    ("config", &["error"]),
    ("schedule", &["error"]),
    ("arch", &["config"]),
    ("graph", &["arch", "config", "format"]),
    ("params", &["arch", "caps", "error"]),
    ("kernels", &["caps", "config", "error", "format"]),
    ("plan", &["caps", "data", "error", "kernels"]),
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
