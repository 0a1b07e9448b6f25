//! Which crates of others each room names: what separate crates would say in their manifests.

use crate::paths::used;
use crate::sources::{all_files, bare, of_family_tests, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates that a room, or one file of it, names. WebGPU and the browser are for `gpu` and `web` alone.
const MAY_NAME: [(&str, &[&str]); 29] = [
    ("arch", &["libm", "serde_json"]),
    ("caps", &["serde"]),
    ("checkpoint", &["half", "safetensors", "serde", "serde_json"]),
    ("config", &["libm", "serde", "serde_json"]),
    ("data", &["serde", "serde_json"]),
    ("decimal", &["serde_json"]),
    ("error", &["thiserror"]),
    ("format", &["half", "serde"]),
    ("kernels", &["bytemuck", "serde"]),
    ("lower", &["serde"]),
    ("ops", &["bytemuck", "serde_json"]),
    ("optim", &["serde"]),
    ("plan", &["bytemuck", "serde"]),
    ("random", &["libm"]),
    ("schedule", &["libm", "serde"]),
    ("session", &["bytemuck", "futures_util", "libm", "serde", "serde_json"]),
    ("gpu", &["bytemuck", "futures_channel", "futures_util", "serde", "wgpu"]),
    ("gpu/cuts.rs", &[]),
    ("gpu/program.rs", &[]),
    ("gpu/host.rs", &["js_sys", "wasm_bindgen", "wasm_bindgen_futures", "web_sys"]),
    ("gpu/device/browser.rs", &["js_sys", "wasm_bindgen", "wasm_bindgen_futures", "wgpu"]),
    (
        "gpu/device/readback_poller.rs",
        &["futures_channel", "futures_util", "wasm_bindgen_futures", "wgpu"],
    ),
    ("gpu/device/readback.rs", &["futures_channel", "wgpu"]),
    (
        "gpu/device/scopes.rs",
        &["futures_util", "js_sys", "wasm_bindgen", "wasm_bindgen_futures", "wgpu"],
    ),
    (
        "web",
        &[
            "console_error_panic_hook",
            "js_sys",
            "serde",
            "serde_json",
            "wasm_bindgen",
            "wasm_bindgen_futures",
        ],
    ),
    ("web/adapter.rs", &["js_sys", "wasm_bindgen", "wasm_bindgen_futures", "wgpu"]),
    ("testing", &["bytemuck", "half", "serde"]),
    ("testing/device.rs", &["wgpu"]),
    ("twins", &["bytemuck", "futures_util", "half", "libm", "safetensors", "serde_json"]),
];

/// Lines that would hide from this test which crate a name is of.
const HIDING: [&str; 5] = ["extern crate", "#[macro_use", "#[macro_export", "#[path", "include!("];

/// Whether a line hides whose a name is, or hands a crate on under a path of this one.
fn hides(line: &str, known: &BTreeSet<String>) -> bool {
    let handed = line.trim().starts_with("pub") && line.contains(" use ");
    HIDING.iter().any(|hiding| line.contains(hiding)) || handed && !named(line, known).is_empty()
}

/// The names of the manifest's dependencies, as code writes them: all, and those of tests alone.
fn dependencies() -> (BTreeSet<String>, BTreeSet<String>) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let (mut all, mut of_tests, mut section) = (BTreeSet::new(), BTreeSet::new(), String::new());
    for line in fs::read_to_string(manifest).unwrap().lines() {
        if let Some(name) = line.strip_prefix('[') {
            name.trim_end_matches(']').clone_into(&mut section);
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let name = name.trim().replace('-', "_");
            if section.ends_with("dependencies") {
                all.insert(name.clone());
            }
            if section == "dev-dependencies" {
                of_tests.insert(name);
            }
        }
    }
    assert!(all.contains("wgpu") && all.contains("js_sys") && of_tests.contains("naga"), "{all:?}");
    (all, of_tests)
}

/// The crates of `known` that code names: in a `use`, or before `::` in a path, a macro or an attribute.
fn named(text: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let text = bare(text);
    let imported = used(&text).into_iter().filter_map(|path| path.into_iter().next());
    let mut found: BTreeSet<String> = imported.filter(|name| known.contains(name)).collect();
    for name in known {
        let first = |at: usize| {
            let before = text[..at].trim_end_matches("::");
            let path = before.len() < at && before.ends_with(|c: char| is_word(c) || c == '>');
            !path && !text[..at].ends_with(|c: char| is_word(c) || c == '.')
        };
        let follows = |at: usize| text[at + name.len()..].trim_start().starts_with("::");
        if text.match_indices(name.as_str()).any(|(at, _)| first(at) && follows(at)) {
            found.insert(name.clone());
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What the table says of a file: the row of the file, or else of its room.
fn allowed(place: &str) -> Option<(&'static str, &'static [&'static str])> {
    let own = place.split('/').next().unwrap().trim_end_matches(".rs");
    let room = if of_family_tests(place) { "twins" } else { own };
    let row = |wanted: &str| MAY_NAME.iter().find(|(name, _)| *name == wanted).copied();
    row(place).or_else(|| row(room))
}

#[test]
fn crates_of_others_are_found() {
    let known = ["wgpu", "half", "serde", "js_sys", "wasm_bindgen"].map(str::to_owned).into();
    let found = |text: &str| named(text, &known).into_iter().collect::<Vec<_>>();
    assert!(
        found("// wgpu::Buffer\nlet half = self.half; crate::half::x(); own_wgpu::y();\n")
            .is_empty()
    );
    assert_eq!(found("use wgpu;\n"), ["wgpu"]);
    assert_eq!(found("use {half as h, serde::{Serialize, de}};\n"), ["half", "serde"]);
    assert_eq!(found("pub(crate) use ::wgpu as gpu;\n"), ["wgpu"]);
    assert_eq!(found("fn f(buffer: &::wgpu::Buffer) {}\n"), ["wgpu"]);
    assert_eq!(found("let a = wgpu :: include_wgsl!(\"a\");\n"), ["wgpu"]);
    assert_eq!(
        found("#[derive(serde::Serialize)]\n#[wasm_bindgen::prelude::wasm_bindgen]\n"),
        ["serde", "wasm_bindgen"]
    );
    assert_eq!(found("type A = Vec<js_sys::Function>;\n"), ["js_sys"]);
    assert!(hides("pub(crate) use wgpu::Buffer;", &known) && !hides("use wgpu::Buffer;", &known));
}

#[test]
fn rooms_name_the_crates_that_they_may() {
    let (known, of_tests) = dependencies();
    let (mut wrong, mut names) = (vec![], BTreeMap::<&str, BTreeSet<String>>::new());
    for path in all_files() {
        let place = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        // The list of shaders that the build script writes names no crate.
        let shaders = |line: &str| line.contains("OUT_DIR\"), \"/shaders.rs\"");
        let hidden = |line: &&str| hides(line, &known) && !shaders(line);
        wrong.extend(text.lines().filter(hidden).map(|line| format!("{place}: {}", line.trim())));
        let (row, allowed) = allowed(&place).unwrap_or(("", &[]));
        for name in named(&text, &known).difference(&of_tests) {
            if !allowed.contains(&name.as_str()) {
                wrong.push(format!("{place} names {name}"));
            }
            names.entry(row).or_default().insert(name.clone());
        }
    }
    assert!(wrong.is_empty(), "rooms name crates that they may not:\n{}", wrong.join("\n"));
    for (row, allowed) in MAY_NAME {
        let named: Vec<&str> = names.get(row).into_iter().flatten().map(String::as_str).collect();
        println!("{row}: {}", named.join(", "));
        assert_eq!(named, allowed, "the row of {row}, in order, has what it names");
    }
}
