//! The fields of all families as a type of TypeScript, which `pkg/src/config-fields.ts` holds.

use super::Field;
use crate::arch::FAMILIES;
use std::collections::BTreeMap;
use std::fmt::Write;

const PATH: &str = "pkg/src/config-fields.ts";
const BEGIN: &str = "\
// Written by `TINYLOOM_TYPES=write cargo test --features testing --lib typescript` from the families in src/arch.

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
        let Field { name, slot, nulls, .. } = field;
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
    text + "}\n"
}

fn has(family: &crate::arch::Family, field: &Field) -> bool {
    family.fields().iter().any(|own| (own.name, own.slot.name) == (field.name, field.slot.name))
}

#[test]
fn typescript_has_the_fields_of_the_families() {
    let text = typescript();
    if std::env::var("TINYLOOM_TYPES").as_deref() == Ok("write") {
        std::fs::write(PATH, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(PATH).unwrap(), text);
}
