//! Walls between the rooms of `src`, read from the sources.

mod crates;
mod cycles;
mod paths;
mod published;
mod sources;

use paths::{absolute, module};
use sources::{code, rooms, root};
use std::collections::BTreeSet;

#[test]
fn only_arch_and_config_know_an_architecture_by_name() {
    let names = ["llama", "mistral", "qwen", "gemma", "gpt2", "gpt_neo", "gptneo"];
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

/// What each room may import of the crate, the room itself aside.
const MAY_IMPORT: [(&str, &[&str]); 24] = [
    ("decimal", &[]),
    ("error", &[]),
    ("format", &[]),
    ("random", &[]),
    ("products", &["format"]),
    ("caps", &["error", "products"]),
    ("config", &["arch", "error"]),
    ("schedule", &["error"]),
    ("arch", &["config", "error"]),
    ("graph", &["arch", "config", "error", "format"]),
    ("params", &["arch", "caps", "error", "format"]),
    ("kernels", &["caps", "config", "decimal", "error", "format", "products"]),
    ("plan", &["caps", "error", "kernels"]),
    ("ops", &["caps", "data", "error", "kernels", "plan"]),
    ("optim", &["arch", "caps", "error", "kernels", "params", "plan"]),
    ("layout", &["arch", "caps", "error", "graph", "kernels", "params", "plan"]),
    ("lower", &["arch", "caps", "error", "graph", "kernels", "layout", "optim", "params", "plan"]),
    ("gpu", &["caps", "error", "kernels", "plan"]),
    ("checkpoint", &["decimal", "error"]),
    ("data", &["error", "random"]),
    ("session", &SESSION),
    (
        "twins",
        &[
            "arch", "caps", "config", "data", "error", "format", "gpu", "graph", "kernels",
            "optim", "plan", "random",
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
            "optim",
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
const SESSION: [&str; 17] = [
    "arch",
    "caps",
    "checkpoint",
    "config",
    "data",
    "decimal",
    "error",
    "format",
    "gpu",
    "kernels",
    "lower",
    "ops",
    "optim",
    "params",
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
