//! What a config of layers that say what they are gives, and what it refuses.

use super::*;

fn read(fields: &str) -> Result<ModelConfig> {
    ModelConfig::from_code(&format!(r#"{{"model_type":"tinyloom"{fields}}}"#))
}

fn architecture(fields: &str) -> Architecture {
    Architecture::of(&read(fields).unwrap())
}

const SMALL: &str =
    r#","vocab_size":64,"hidden_size":32,"num_hidden_layers":4,"num_attention_heads":4"#;

#[test]
fn a_short_config_is_a_llama() {
    let of = architecture(SMALL);
    let llama = r#"{"vocab_size":64,"hidden_size":32,"num_hidden_layers":4,"num_attention_heads":4,
        "intermediate_size":128,"tie_word_embeddings":true,"rms_norm_eps":1e-5}"#;
    let llama = Architecture::of(&ModelConfig::from_json(llama).unwrap());
    let sizes = |of: &Architecture| -> Vec<_> {
        of.weights.iter().map(|weight| (weight.rows, weight.columns)).collect()
    };
    assert_eq!(sizes(&of), sizes(&llama));
    assert_eq!((of.layers, of.ropes), (llama.layers, llama.ropes));
}

#[test]
fn layers_have_what_the_list_says_of_them() {
    let of = architecture(&format!(
        r#"{SMALL},"sliding_window":16,"layers":[
            {{"repeat":2,"mlp":false,"num_attention_heads":2,"rope_theta":50}},
            {{"attention":false,"gated":false,"intermediate_size":20,"norm":"both","norm_type":"layer"}}]"#
    ));
    let heads: Vec<_> = of.layers.iter().map(|layer| layer.heads().map(|it| it.heads)).collect();
    assert_eq!(heads, [Some(2), Some(2), None, Some(2)], "a list of three layers begins again");
    let first = of.layers[0].attention.as_ref().unwrap();
    assert_eq!((first.attention.head_dim, first.attention.kv_heads), (16, 2));
    assert_eq!((first.attention.window, first.attention.rope), (Some(16), Some(0)));
    assert!(of.layers[0].mlp.is_none());
    let mlp = of.layers[2].mlp.as_ref().unwrap();
    assert_eq!((mlp.feed, mlp.gated), (20, false));
    assert!(mlp.norms.before.is_some_and(|norm| norm.kind == NormKind::Layer));
    assert!(mlp.norms.behind.is_some() && mlp.norms.of_sum.is_none());
    assert_eq!((of.ropes.len(), of.window()), (1, Some(16)));
    let names = of.tensors();
    let has = |name: &str| names.iter().any(|(known, _)| known == name);
    assert!(
        has("model.layers.2.mlp_post_norm.bias") && !has("model.layers.2.mlp.gate_proj.weight")
    );
}

/// What follows from a layer's heads is not pinned by a save.
#[test]
fn a_saved_config_reads_as_the_same() {
    for fields in [
        SMALL.to_owned(),
        format!(r#"{SMALL},"layers":[{{"num_attention_heads":2}},{{}}]"#),
        format!(r#"{SMALL},"learned_positions":true,"layers":[{{"rope_theta":100}},{{}}]"#),
        format!(r#"{SMALL},"rope_theta":null,"attention":false,"norm":"none","final_norm":false"#),
        format!(
            r#"{SMALL},"final_logit_softcapping":3.0,"layers":[{{"attn_logit_softcapping":2.0}},{{}}]"#
        ),
        format!(
            r#"{SMALL},"partial_rotary_factor":0.5,"attention":false,"layers":[{{"attention":true}}]"#
        ),
        format!(r#"{SMALL},"head_dim":8,"num_key_value_heads":2,"qk_norm":true,"norm":"sum""#),
    ] {
        let config = read(&fields).unwrap();
        let again = ModelConfig::from_json(&config.to_json()).unwrap();
        assert_eq!(again, config, "{}", config.to_json());
        assert_eq!(Architecture::of(&again), Architecture::of(&config));
    }
    let text = read(SMALL).unwrap().to_json();
    assert!(text.contains(r#""TinyloomForCausalLM""#), "{text}");
}

#[test]
fn positions_are_learned_rotated_or_none() {
    let learned = architecture(&format!(r#"{SMALL},"learned_positions":true"#));
    assert!(learned.position_embedding.is_some() && learned.ropes.is_empty());
    let none = architecture(&format!(r#"{SMALL},"rope_theta":null"#));
    assert!(none.position_embedding.is_none() && none.ropes.is_empty());
    let own = architecture(&format!(
        r#"{SMALL},"layers":[{{"rope_theta":100}},{{"rope_theta":200}},{{"rope_theta":100}},{{}}]"#
    ));
    let ropes: Vec<_> = own.layers.iter().map(|layer| layer.heads().unwrap().rope).collect();
    assert_eq!(ropes, [Some(0), Some(1), Some(0), Some(2)]);
    let parts = architecture(&format!(
        r#"{SMALL},"partial_rotary_factor":0.5,"layers":[{{}},{{"partial_rotary_factor":1}},{{"head_dim":16}},{{"attention":false}}]"#
    ));
    let turned: Vec<_> = parts.ropes.iter().map(|rope| rope.head_dim).collect();
    assert_eq!(turned, [4, 8], "elements of heads of 8, 8 and 16");
}

#[test]
fn scores_of_layers_and_logits_are_capped() {
    let fields = r#","attn_logit_softcapping":5,"final_logit_softcapping":3,
        "layers":[{},{"attn_logit_softcapping":null},{"attn_logit_softcapping":2}]"#;
    let of = architecture(&format!("{SMALL}{fields}"));
    let caps: Vec<_> = of.layers.iter().map(|layer| layer.heads().unwrap().soft_cap).collect();
    assert_eq!(caps, [Some(5.0), None, Some(2.0), Some(5.0)]);
    assert_eq!(of.logit_soft_cap, Some(3.0));
    let saved = read(&format!("{SMALL}{fields}")).unwrap().to_json();
    assert!(!saved.contains("transformers ignores"), "{saved}");
}

#[test]
fn what_no_layer_can_be_is_refused_by_name() {
    for (fields, named) in [
        (r#","layers":[{"attention":false,"mlp":false}]"#, "layers[0].mlp is false"),
        (r#","layers":[{},{"windows":3}]"#, "layers[1].windows is unknown"),
        (r#","layers":[{},{"hidden_size":3}]"#, "layers[1].hidden_size is unknown"),
        (r#","layers":[{"num_attention_heads":3}]"#, "layers[0]: hidden_size (32)"),
        (r#","layers":[{"repeat":3},{"repeat":2}]"#, "more than 4 layers"),
        (r#","layers":[{"repeat":0}]"#, "layers[0].repeat is 0"),
        (r#","layers":[]"#, "layers is []"),
        (r#","layers":{"0":{}}"#, "a list of objects"),
        (r#","layers":[1]"#, "layers[0]"),
        (r#","layers":[{"sliding_window":-1}]"#, "layers[0].sliding_window is -1"),
        (r#","layers":[{"attn_logit_softcapping":-1}]"#, "layers[0].attn_logit_softcapping is -1"),
        (r#","layers":[{"norm":"post"}]"#, "one of \"before\", \"after\""),
        (r#","layers":[{"norm_type":"batch"}]"#, "layers[0].norm_type is \"batch\""),
        (r#","norm":"sum","parallel":true"#, "where parallel is true"),
        (r#","layers":[{"rope_theta":0}]"#, "layers[0].rope_theta is 0"),
        (r#","partial_rotary_factor":0.4"#, "a share of a head that is an even number"),
        (r#","layers":[{"partial_rotary_factor":2}]"#, "layers[0].partial_rotary_factor is 2"),
        (r#","partial_rotary_factor":"half""#, "partial_rotary_factor is \"half\""),
        (r#","rope_scaling":{"rope_type":"linear","factor":2}"#, "rope_scaling is"),
        (r#","attention_dropout":0.1"#, "give dropout to the trainer"),
        (r#","layer_types":["full_attention"]"#, "sliding_window in layers"),
        (r#","head_dim":6"#, "head_dim is 6"),
        (r#","num_key_value_heads":3"#, "num_key_value_heads"),
        (r#","hidden_act":"relu""#, "hidden_act is \"relu\""),
        (r#","normType":"rms""#, "looks like a misspelt norm_type"),
        (r#","n_inner":3"#, "misspelt intermediate_size"),
        (r#","window_size":3"#, "window_size is unknown"),
    ] {
        let error = read(&format!("{SMALL}{fields}")).unwrap_err();
        assert!(error.message.contains(named), "{fields}: {error}");
    }
}

/// What these models alone have would change nothing of others.
#[test]
fn fields_of_layers_are_refused_in_other_families() {
    for field in [r#""gated":false"#, r#""norm":"none""#, r#""attention":false"#, r#""mlp":false"#]
    {
        let error = ModelConfig::from_code(&format!("{{{field}}}")).unwrap_err();
        assert!(error.message.contains("is unknown, and would change nothing"), "{error}");
    }
}

#[test]
fn a_long_list_is_refused_before_it_is_read() {
    let list = vec!["{}"; 60_000].join(",");
    let error = read(&format!(r#"{SMALL},"layers":[{list}]"#)).unwrap_err();
    assert!(error.message.contains("more than 4 layers"), "{error}");
}
