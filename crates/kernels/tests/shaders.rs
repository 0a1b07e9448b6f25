//! The shaders' files against what kernels are made from: names of files, and of constants.
#![cfg(feature = "testing")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_kernels::testing::{catalogue, gpu_adapters};

/// Words after a kernel's name in the name of a file that has one form of it.
const FORMS: [&str; 7] = ["row", "team", "tiled", "direct", "matrix", "f16", "summed"];
/// What entry points of one file add to its name: a direction, a form of product, a stage.
const ENDINGS: [&str; 6] = ["", "_forward", "_backward", "_t", "_at", "_split"];

/// By kernel file in `shaders`, without the ending: entry points, and the other files of their texts.
#[derive(Default)]
struct Use {
    entries: BTreeSet<&'static str>,
    others: BTreeSet<&'static str>,
}

/// The table, and the adapters on which plain WGSL stands in for matrices.
fn every_adapter() -> Vec<Capabilities> {
    let target = Target::Browser;
    gpu_adapters::table(target).into_iter().chain(gpu_adapters::emulated(target)).collect()
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
            of.others.extend(kernel.modules.iter().filter(|module| !numbered(module)));
        }
    }
    found
}

fn numbered(module: &str) -> bool {
    module.starts_with(|c: char| c.is_ascii_digit())
}

fn shaders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders")
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
    let shared: BTreeSet<_> = used.values().flat_map(|of| of.others.iter().copied()).collect();
    let unused: Vec<_> =
        files("lib").into_iter().filter(|file| !shared.contains(file.as_str())).collect();
    assert!(unused.is_empty(), "no kernel imports {unused:?}");
}

/// Words that WGSL reserves ("Reserved Words" of the specification). Texts of matrices are read by no
/// compiler but a browser's, on a GPU that has them: it refuses such names.
const RESERVED: &str = "
    NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become binding_array cast
    catch class co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast
    consteval constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum
    explicit export extends extern external fallthrough filter final finally friend from fxgroup get goto groupshared
    highp impl implements import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module
    move mut mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null
    nullptr of operator package packoffset partition pass patch pixelfragment precise precision premerge priv protected
    pub public readonly ref regardless register reinterpret_cast require resource restrict self set shared sizeof smooth
    snorm static static_assert static_cast std subroutine super target template this thread_local throw trait try type
    typedef typeid typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with
    writeonly yield";

#[test]
fn no_name_is_a_reserved_word() {
    let reserved: BTreeSet<&str> = RESERVED.split_whitespace().collect();
    let mut found = vec![];
    for file in files("").into_iter().chain(files("lib")) {
        let source = text(&file);
        for (line, number) in source.lines().zip(1..) {
            // Names of files may have any word.
            let code = if line.starts_with("#import") { "" } else { line };
            let code = code.split("//").next().unwrap_or_default();
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            found.extend(
                words
                    .filter(|word| reserved.contains(word))
                    .map(|word| format!("{file}:{number}: {word}")),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Names that each of several files defines, of which a kernel is joined with one.
const ALTERNATIVES: [(&str, &str); 2] = [("CHECK_N", "03_matmul_"), ("TILES_N", "03_matmul_")];

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
