//! What TypeScript knows of the families: the fields of their configs, and how llama.cpp has them.

use super::Field;
use super::layers::of_layers;
use crate::arch::FAMILIES;
use crate::arch::gguf::{Change, Gguf};
use std::collections::BTreeMap;
use std::fmt::Write;

const BEGIN: &str = "\
// Written by `TINYLOOM_TYPES=write cargo test -p tinyloom-model typescript` from the families in crates/model/src/arch.

import type { RopeParameters } from \"./rope-parameters.js\";

/** The fields of `config.json` that tinyloom reads, of all families. */
export interface ConfigFields {
  model_type?:
";

fn typescript() -> String {
    let names: Vec<_> = FAMILIES.iter().map(|of| format!("    | \"{}\"", of.names[0])).collect();
    let mut text = format!("{BEGIN}{};\n", names.join("\n"));
    let mut written: BTreeMap<&str, ()> = BTreeMap::new();
    for field in FAMILIES.iter().flat_map(|family| family.fields()) {
        if written.insert(field.name, ()).is_some() {
            continue;
        }
        let Field { name, slot, .. } = field;
        // A field that is null in one family is null in a config of any.
        let mut all = FAMILIES.iter().flat_map(|family| family.fields());
        let nulls = all.any(|own| own.name == name && own.nulls);
        let about = if name == slot.name {
            slot.about.to_owned()
        } else {
            let of = |family: &&&_| has(family, &field);
            let families: Vec<_> = FAMILIES.iter().filter(of).map(|of| of.names[0]).collect();
            format!("`{}` of {}.", slot.name, families.join(" and "))
        };
        if !about.is_empty() {
            let _ = writeln!(text, "  /** {about} */");
        }
        let null = if nulls && !slot.typescript.ends_with("null") { " | null" } else { "" };
        let _ = writeln!(text, "  {name}?: {}{null};", slot.typescript);
    }
    text +=
        "}\n\n/** What a layer of a tinyloom model has other than the model's config says. */\n";
    text += "export interface LayerFields\n  extends Pick<\n    ConfigFields,\n";
    for family in FAMILIES {
        for field in of_layers(family) {
            let _ = writeln!(text, "    | \"{}\"", field.name);
        }
    }
    text + "  > {\n  /** For how many layers the entry stands that follow each other. Default 1. */\n  repeat?: number;\n}\n"
}

fn has(family: &crate::arch::Family, field: &Field) -> bool {
    family.fields().iter().any(|own| (own.name, own.slot.name) == (field.name, field.slot.name))
}

const GGUF_BEGIN: &str = "\
// Written by `TINYLOOM_TYPES=write cargo test -p tinyloom-model typescript` from the families in crates/model/src/arch.

import type { GgufNames } from \"./family.js\";

/** How llama.cpp has the families that it knows, by `model_type`. */
export const GGUF_NAMES: { readonly [type: string]: GgufNames } = {
";

fn gguf() -> String {
    let mut text = GGUF_BEGIN.to_owned();
    for family in FAMILIES {
        let Some(Gguf { architecture, modules, changes, expected }) = family.gguf else { continue };
        let mut names: Vec<(&str, &str)> = vec![];
        for &(module, name) in modules.iter().copied().flatten() {
            if names.iter().all(|(known, _)| *known != module) {
                names.push((module, name));
            }
        }
        let quoted = names.iter().map(|(module, name)| (*module, format!("\"{name}\"")));
        let change = |change: &Change| match change {
            Change::Pairs => "\"pairs\"",
            Change::PlusOne => "\"plus-one\"",
            Change::Transposed => "\"transposed\"",
            Change::Stacked => "\"stacked\"",
        };
        let changes = changes.iter().map(|(module, of)| (*module, change(of).to_owned()));
        let values = expected.iter().map(|(field, of)| (*field, format!("[{}]", of.join(", "))));
        let _ = writeln!(text, "  {}: {{\n    architecture: \"{architecture}\",", family.names[0]);
        object(&mut text, "modules", quoted);
        object(&mut text, "changes", changes);
        object(&mut text, "expected", values);
        text += "  },\n";
    }
    text + "};\n"
}

fn object<'a>(text: &mut String, name: &str, entries: impl Iterator<Item = (&'a str, String)>) {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        let _ = writeln!(text, "    {name}: {{}},");
        return;
    }
    let _ = writeln!(text, "    {name}: {{");
    for (key, value) in entries {
        let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let quote = if plain { "" } else { "\"" };
        let _ = writeln!(text, "      {quote}{key}{quote}: {value},");
    }
    *text += "    },\n";
}

#[test]
fn typescript_has_what_the_families_say() {
    for (path, text) in
        [("pkg/src/config-fields.ts", typescript()), ("pkg/src/gguf/names.ts", gguf())]
    {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var("TINYLOOM_TYPES").as_deref() == Ok("write") {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{path}");
    }
}
