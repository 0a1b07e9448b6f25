//! Names of tensors: what stands before them, tied ones, and those that no model has.

use super::tests::message;
use super::*;

/// A file of tensors of three values each, and the answer to its header.
fn added(reader: &mut CheckpointReader, file: &str, names: &[&str]) -> Result<Vec<Wanted>> {
    let tensors: Vec<_> = names.iter().map(|name| ((*name).to_owned(), vec![3])).collect();
    let header = write_header(&tensors, &[]);
    reader.add_file(file, &header[8..], (header.len() + 12 * names.len()) as u64)
}

fn reader_of(names: &[&str]) -> CheckpointReader {
    let tensors: Vec<_> = names.iter().map(|name| ((*name).to_owned(), vec![3])).collect();
    CheckpointReader::new(&tensors)
}

#[test]
fn names_are_read_with_what_programs_put_before_them_and_without_what_they_leave_out() {
    for (own, names) in [
        (
            "model.layers.0.mlp.up_proj.weight",
            &[
                "layers.0.mlp.up_proj.weight",
                "model.layers.0.mlp.up_proj.weight",
                "model.model.layers.0.mlp.up_proj.weight",
                "module.model.layers.0.mlp.up_proj.weight",
                "_orig_mod.model.layers.0.mlp.up_proj.weight",
                "module._orig_mod.layers.0.mlp.up_proj.weight",
                "base_model.model.model.layers.0.mlp.up_proj.weight",
                "language_model.model.layers.0.mlp.up_proj.weight",
                "model.language_model.layers.0.mlp.up_proj.weight",
            ][..],
        ),
        ("transformer.h.0.ln_1.weight", &["h.0.ln_1.weight", "module.transformer.h.0.ln_1.weight"]),
        ("gpt_neox.final_layer_norm.bias", &["final_layer_norm.bias"]),
        ("lm_head.weight", &["module.lm_head.weight", "_orig_mod.lm_head.weight"]),
    ] {
        for name in names {
            let wanted = added(&mut reader_of(&[own]), "f", &[name]).unwrap();
            assert_eq!(wanted.len(), 1, "{name}");
            assert_eq!(wanted[0].name, own, "{name}");
        }
    }
    let twice = ["model.norm.weight", "module.model.norm.weight"];
    let text = message(added(&mut reader_of(&["model.norm.weight"]), "f", &twice));
    assert!(text.contains("model.norm.weight is in f twice"), "{text}");
    // The text model of one that reads images too.
    let names = [
        "model.language_model.norm.weight",
        "model.vision_tower.patch.weight",
        "multi_modal_projector.mm_input_projection_weight",
    ];
    let wanted = added(&mut reader_of(&["model.norm.weight"]), "f", &names).unwrap();
    assert_eq!(
        wanted.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["model.norm.weight"]
    );
    // An adapter's names stay as they are.
    let own = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight";
    assert_eq!(added(&mut reader_of(&[own]), "f", &[own]).unwrap()[0].name, own);
}

#[test]
fn metadata_may_be_null() {
    let a = r#""a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}"#;
    for header in [format!(r#"{{"__metadata__":null,{a}}}"#), format!(r#"{{{a}}}"#)] {
        let length = (8 + header.len() + 12) as u64;
        assert_eq!(reader_of(&["a"]).add_file("f", header.as_bytes(), length).unwrap().len(), 1);
    }
    for value in [r#"{"x":null}"#, "true", "\"text\"", "1.5"] {
        let header = format!(r#"{{"__metadata__":{value},{a}}}"#);
        let length = (8 + header.len() + 12) as u64;
        let text = message(reader_of(&["a"]).add_file("f", header.as_bytes(), length));
        assert!(text.contains("__metadata__"), "{value}: {text}");
    }
}

#[test]
fn unexpected_tensors_come_with_the_cure() {
    let own = ["model.layers.0.mlp.up_proj.weight", "lm_head.weight"];
    for (name, cure) in [
        ("v_head.summary.weight", "AutoModelForCausalLM"),
        ("score.weight", "AutoModelForCausalLM"),
        ("model.layers.7.mlp.up_proj.weight", "fewer layers"),
        ("base_model.model.model.layers.0.mlp.up_proj.lora_A.default.weight", "Adapter.load"),
        ("model.layers.0.mlp.up_proj.weight.absmax", "not quantised"),
        ("model.mtp.layers.0.norm.weight", "further tokens"),
        ("model.layers.0.mlp.up_proj.bias", "no such biases"),
        ("something.else.weight", "config.json of this checkpoint"),
    ] {
        let names = [own[0], own[1], name];
        let text = message(added(&mut reader_of(&own), "f", &names));
        assert!(text.contains(name) && text.contains(cure), "{text}");
    }
}

/// Decodes a tensor of three values.
fn decoded_as(reader: &mut CheckpointReader, name: &str, values: [f32; 3]) {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    reader.decode(name, 0, &bytes, &mut vec![]).unwrap();
}

#[test]
fn of_two_tied_names_one_is_enough_and_two_have_to_agree() {
    let (embedding, norm) = ("model.embed_tokens.weight", "model.norm.weight");
    let tied = |compared| {
        let mut reader = reader_of(&[embedding, norm]);
        reader.tie(embedding, compared);
        reader
    };
    // The embedding alone, as most have it.
    let mut reader = tied(true);
    added(&mut reader, "f", &[embedding, norm]).unwrap();
    reader.expect_all().unwrap();
    // The head alone: it is the embedding.
    let mut reader = tied(true);
    let wanted = added(&mut reader, "f", &["lm_head.weight", norm]).unwrap();
    reader.expect_all().unwrap();
    assert_eq!(wanted[0].name, "lm_head.weight");
    assert_eq!(reader.target("lm_head.weight").unwrap(), embedding);
    decoded_as(&mut reader, "lm_head.weight", [1.0, 2.0, 3.0]);
    decoded_as(&mut reader, norm, [1.0; 3]);
    reader.finish().unwrap();
    // Both, in two files and in either order.
    for (other, same) in
        [([1.0, 2.0, 3.0], true), ([1.0, 2.0, 3.5], false), ([2.0, 1.0, 3.0], false)]
    {
        let mut reader = tied(true);
        added(&mut reader, "1", &["lm_head.weight", norm]).unwrap();
        added(&mut reader, "2", &[embedding]).unwrap();
        assert_eq!(reader.target("lm_head.weight"), None);
        decoded_as(&mut reader, "lm_head.weight", other);
        decoded_as(&mut reader, norm, [1.0; 3]);
        decoded_as(&mut reader, embedding, [1.0, 2.0, 3.0]);
        let finished = reader.finish();
        assert_eq!(finished.is_ok(), same);
        if let Err(error) = finished {
            let words = ["lm_head.weight of 1", embedding, "tie_word_embeddings", "false"];
            assert!(words.iter().all(|word| error.message.contains(word)), "{}", error.message);
        }
    }
    // Where values are not looked at, one is taken.
    for (names, wanted) in [
        (&["lm_head.weight", norm][..], &[embedding, norm][..]),
        (&["lm_head.weight", embedding, norm], &[embedding, norm]),
    ] {
        let mut reader = tied(false);
        let found = added(&mut reader, "f", names).unwrap();
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), wanted);
        reader.expect_all().unwrap();
    }
}

#[test]
fn a_missing_head_names_the_field_that_ties_it() {
    let mut reader = reader_of(&["model.embed_tokens.weight", "lm_head.weight"]);
    added(&mut reader, "f", &["model.embed_tokens.weight"]).unwrap();
    let text = reader.expect_all().unwrap_err().message;
    assert!(text.contains("lm_head.weight") && text.contains("tie_word_embeddings"), "{text}");
}
