//! What each family's config has of its own.

use super::*;
use crate::arch::{Architecture, Layer};

/// The config of Qwen2.5-0.5B, as transformers 4 wrote it.
#[test]
fn qwen2_has_biases_that_no_field_names() {
    let text = r#"{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,
        "eos_token_id":151643,"hidden_act":"silu","hidden_size":896,"initializer_range":0.02,
        "intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":24,
        "model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,
        "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
        "torch_dtype":"bfloat16","transformers_version":"4.40.1","use_cache":true,"use_mrope":false,
        "use_sliding_window":false,"vocab_size":151936}"#;
    let config = ModelConfig::from_json(text).unwrap();
    assert_eq!((config.head_dim, config.sliding_window), (64, None));
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 494_032_768);
    let tensors = architecture.tensors();
    for (name, size) in [("q_proj", 896), ("k_proj", 128), ("v_proj", 128)] {
        let name = format!("model.layers.23.self_attn.{name}.bias");
        assert!(tensors.contains(&(name, vec![size])));
    }
    assert_eq!(tensors.iter().filter(|(name, _)| name.ends_with(".bias")).count(), 3 * 24);
    let again = ModelConfig::from_json(&config.to_json()).unwrap();
    assert_eq!(again.to_json(), config.to_json());
    assert!(config.to_json().contains(r#""use_sliding_window": false"#));
    // Without `use_sliding_window` there is no window either.
    let text = r#"{"model_type":"qwen2","sliding_window":128}"#;
    assert_eq!(ModelConfig::from_json(text).unwrap().sliding_window, None);
}

#[test]
fn qwen3_has_norms_of_queries_and_keys() {
    let text = r#"{"model_type":"qwen3","num_hidden_layers":1,"hidden_size":64,"use_sliding_window":false,
        "sliding_window":null,"max_window_layers":28,"layer_types":["full_attention"]}"#;
    let config = ModelConfig::from_json(text).unwrap();
    assert_eq!((config.head_dim, config.vocab_size), (128, 151_936));
    let tensors = Architecture::of(&config).tensors();
    for name in ["q_norm", "k_norm"] {
        let name = format!("model.layers.0.self_attn.{name}.weight");
        assert!(tensors.contains(&(name, vec![128])));
    }
    let again = ModelConfig::from_json(&config.to_json()).unwrap();
    assert_eq!(again.to_json(), config.to_json());
}

#[test]
fn gpt2_keeps_its_own_names() {
    let config = ModelConfig::from_json(r#"{"model_type":"gpt2"}"#).unwrap();
    // GPT-2 of 124 million parameters.
    assert_eq!(Architecture::of(&config).parameter_count(), 124_439_808);
    assert_eq!((config.hidden_act, config.rms_norm_eps), (Activation::GeluTanh, 1e-5));
    let text = r#"{"model_type":"gpt2","vocab_size":67,"n_embd":36,"n_layer":2,"n_head":3,"n_inner":null,
        "n_ctx":64,"n_positions":64,"activation_function":"gelu_new","layer_norm_epsilon":1e-5,
        "scale_attn_weights":true,"scale_attn_by_inverse_layer_idx":false,"reorder_and_upcast_attn":false,
        "add_cross_attention":false,"attn_pdrop":0.1,"task_specific_params":{"a":{"max_length":50}}}"#;
    let config = ModelConfig::from_json(text).unwrap();
    assert_eq!((config.hidden_size, config.intermediate_size, config.head_dim), (36, 144, 12));
    let saved: Value = serde_json::from_str(&config.to_json()).unwrap();
    let read: Value = serde_json::from_str(text).unwrap();
    for (name, value) in read.as_object().unwrap() {
        assert_eq!(saved[name], *value, "{name}");
    }
    for name in ["hidden_size", "num_hidden_layers", "head_dim", "rope_theta", "rope_parameters"] {
        assert!(saved.get(name).is_none(), "{name}");
    }
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    let tensors = Architecture::of(&config).tensors();
    for (name, shape) in [
        ("transformer.wpe.weight", vec![64, 36]),
        ("transformer.h.1.attn.c_attn.weight", vec![36, 108]),
        ("transformer.h.1.attn.c_attn.bias", vec![108]),
        ("transformer.h.0.mlp.c_proj.weight", vec![144, 36]),
        ("transformer.ln_f.bias", vec![36]),
    ] {
        assert!(tensors.contains(&(name.into(), shape)), "{name}");
    }
    assert!(!tensors.iter().any(|(name, _)| name == "lm_head.weight"));
}

#[test]
fn what_gpt2_has_and_tinyloom_not_is_refused_by_name() {
    for (field, value) in [
        ("scale_attn_weights", "false"),
        ("scale_attn_by_inverse_layer_idx", "true"),
        ("reorder_and_upcast_attn", "true"),
        ("add_cross_attention", "true"),
        ("activation_function", "\"relu\""),
        ("n_ctx", "512"),
        ("n_head", "5"),
        ("layer_norm_epsilon", "0"),
        ("n_inner", "0"),
        ("architectures", "\"GPT2LMHeadModel\""),
    ] {
        let text = format!(r#"{{"model_type":"gpt2","{field}":{value}}}"#);
        let message = ModelConfig::from_json(&text).unwrap_err().message;
        assert!(message.contains(field), "{field}: {message}");
    }
    let text = r#"{"model_type":"gpt2","n_positions":64,"n_ctx":5}"#;
    let message = ModelConfig::from_json(text).unwrap_err().message;
    assert!(message.contains("n_ctx is 5; it must be n_positions, 64"), "{message}");
}

/// The config of Gemma 2 2B, as transformers 4 wrote it: embeddings are tied, which it leaves out.
#[test]
fn gemma2_alternates_windows() {
    let text = r#"{"architectures":["Gemma2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "attn_logit_softcapping":50.0,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":1,
        "final_logit_softcapping":30.0,"head_dim":256,"hidden_act":"gelu_pytorch_tanh",
        "hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"initializer_range":0.02,
        "intermediate_size":9216,"max_position_embeddings":8192,"model_type":"gemma2",
        "num_attention_heads":8,"num_hidden_layers":26,"num_key_value_heads":4,"pad_token_id":0,
        "query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_theta":10000.0,"sliding_window":4096,
        "torch_dtype":"float32","transformers_version":"4.42.4","use_cache":true,"vocab_size":256000}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 2_614_341_888);
    let windows: Vec<_> =
        architecture.layers.iter().map(|layer| layer.heads().unwrap().window).collect();
    assert_eq!(windows[..3], [Some(4096), None, Some(4096)]);
    // A full layer reaches back to the first position.
    assert_eq!(architecture.window(), None);
    assert_eq!(architecture.embedding_scale, Some(48.0));
    assert_eq!(architecture.logit_soft_cap, Some(30.0));
    let again = ModelConfig::from_json(&config.to_json()).unwrap();
    assert_eq!(again.to_json(), config.to_json());
    // What the file has is what stands for missing fields.
    let missing = ModelConfig::from_json(r#"{"model_type":"gemma2"}"#).unwrap();
    assert_eq!(missing, ModelConfig { extra: BTreeMap::new(), ..config });
    let uncapped = r#"{"model_type":"gemma2","attn_logit_softcapping":null,
        "final_logit_softcapping":null,"num_hidden_layers":2,
        "layer_types":["full_attention","sliding_attention"]}"#;
    let config = ModelConfig::from_json(uncapped).unwrap();
    assert_eq!((config.attn_logit_softcapping, config.final_logit_softcapping), (None, None));
    assert_eq!((config.window(0), config.window(1)), (None, Some(4096)));
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
}

/// Gemma 7B.
#[test]
fn gemma_has_norms_by_one_more_than_the_weight() {
    let config = ModelConfig::from_json(r#"{"model_type":"gemma"}"#).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 8_537_680_896);
    assert_eq!((config.hidden_act, config.tie_word_embeddings), (Activation::GeluTanh, true));
    let norms = architecture.params().filter(|param| param.name.contains("norm"));
    assert!(norms.into_iter().all(|param| param.init == crate::arch::Init::Zeros));
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
}

/// The config of Gemma 3 1B, as transformers 4 wrote it.
#[test]
fn gemma3_turns_by_two_tables() {
    let text = r#"{"architectures":["Gemma3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "attn_logit_softcapping":null,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":[1,106],
        "final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
        "hidden_size":1152,"initializer_range":0.02,"intermediate_size":6912,
        "max_position_embeddings":32768,"model_type":"gemma3_text","num_attention_heads":4,
        "num_hidden_layers":26,"num_key_value_heads":1,"pad_token_id":0,"query_pre_attn_scalar":256,
        "rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,
        "sliding_window":512,"sliding_window_pattern":6,"torch_dtype":"bfloat16",
        "transformers_version":"4.50.0.dev0","use_cache":true,"vocab_size":262144}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 999_885_952);
    let windows: Vec<_> =
        architecture.layers.iter().map(|layer| layer.heads().unwrap().window).collect();
    assert_eq!(windows[3..8], [Some(512), Some(512), None, Some(512), Some(512)]);
    let thetas = (config.rope.theta, config.rope_local.as_ref().map(|rope| rope.theta));
    assert_eq!(thetas, (1e6, Some(1e4)));
    assert_eq!(
        (architecture.logit_soft_cap, architecture.layers[0].heads().unwrap().soft_cap),
        (None, None)
    );
    assert!(
        architecture.layers.iter().all(|layer| layer
            .attention
            .as_ref()
            .unwrap()
            .head_norms
            .is_some())
    );
    let again = ModelConfig::from_json(&config.to_json()).unwrap();
    assert_eq!(again.to_json(), config.to_json());
    assert_eq!(again, config);
}

#[test]
fn both_generations_of_gemma3_are_read() {
    let four = r#"{"model_type":"gemma3_text","num_hidden_layers":2,"rope_theta":5e5,"rope_local_base_freq":5e3,
        "sliding_window_pattern":2,"rope_scaling":{"rope_type":"linear","factor":8.0}}"#;
    let five = r#"{"model_type":"gemma3_text","num_hidden_layers":2,
        "layer_types":["sliding_attention","full_attention"],"rope_parameters":{
        "full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":5e5},
        "sliding_attention":{"rope_type":"default","rope_theta":5e3}}}"#;
    let [four, five] = [four, five].map(|text| ModelConfig::from_json(text).unwrap());
    assert_eq!(four, five);
    assert_eq!(four.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(four.rope_local.as_ref().map(|rope| rope.theta), Some(5e3));
    assert_eq!(ModelConfig::from_json(&four.to_json()).unwrap(), four);
    let missing = ModelConfig::from_json(r#"{"model_type":"gemma3_text"}"#).unwrap();
    assert_eq!((missing.rope.theta, missing.rope_local.map(|rope| rope.theta)), (1e6, Some(1e4)));
}

#[test]
fn gemma3_keeps_what_transformers_notes_of_its_layers() {
    // As of version 4.54 the period stands under a name that only transformers reads.
    let text = r#"{"model_type":"gemma3_text","num_hidden_layers":2,"_sliding_window_pattern":6,
        "layer_types":["full_attention","sliding_attention"]}"#;
    let config = ModelConfig::from_json(text).unwrap();
    assert_eq!((config.window(0), config.window(1)), (None, Some(4096)));
    let saved = config.to_json();
    assert!(saved.contains("\"_sliding_window_pattern\": 6"), "{saved}");
    assert_eq!(ModelConfig::from_json(&saved).unwrap(), config);
}

#[test]
fn a_slip_in_what_shapes_gemma3_is_refused_by_name() {
    for (fields, named) in [
        (r#""layerTypes":["full_attention"]"#, "layer_types"),
        (r#""slidingWindowPattern":6"#, "sliding_window_pattern"),
        (
            r#""rope_parameters":{"full_attention":{"rope_theta":1e6},
            "sliding_attention":{"rope_theta":1e4},"rope_theta":5e5}"#,
            "rope_parameters.rope_theta",
        ),
    ] {
        let text = format!(r#"{{"model_type":"gemma3_text","num_hidden_layers":1,{fields}}}"#);
        let error = ModelConfig::from_json(&text).unwrap_err();
        assert!(error.message.contains(named), "{error}");
    }
}

/// The config of TinyStories-33M, as transformers 4 wrote it.
#[test]
fn gpt_neo_has_windows_in_every_second_layer() {
    let text = r#"{"activation_function":"gelu_new","architectures":["GPTNeoForCausalLM"],
        "attention_dropout":0.0,"attention_layers":["global","local","global","local"],
        "attention_types":[[["global","local"],2]],"bos_token_id":50256,"embed_dropout":0.0,
        "eos_token_id":50256,"gradient_checkpointing":false,"hidden_size":768,"initializer_range":0.02,
        "intermediate_size":null,"layer_norm_epsilon":1e-05,"max_position_embeddings":2048,
        "model_type":"gpt_neo","num_heads":16,"num_layers":4,"resid_dropout":0.0,
        "summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,
        "summary_type":"cls_index","summary_use_proj":true,"torch_dtype":"float32",
        "transformers_version":"4.28.1","use_cache":true,"vocab_size":50257,"window_size":256}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 68_514_048);
    assert_eq!((config.head_dim, config.intermediate_size), (48, 3072));
    let attention: Vec<_> = architecture.layers.iter().filter_map(Layer::heads).collect();
    assert_eq!(
        attention.iter().map(|a| a.window).collect::<Vec<_>>(),
        [None, Some(256), None, Some(256)]
    );
    assert!(attention.iter().all(|a| a.scale == Some(1.0)));
    let saved: Value = serde_json::from_str(&config.to_json()).unwrap();
    let read: Value = serde_json::from_str(text).unwrap();
    for (name, value) in read.as_object().unwrap() {
        assert_eq!(saved[name], *value, "{name}");
    }
    for name in ["num_hidden_layers", "head_dim", "rope_theta", "sliding_window", "layer_types"] {
        assert!(saved.get(name).is_none(), "{name}");
    }
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    let tensors = architecture.tensors();
    for (name, shape) in [
        ("transformer.h.1.attn.attention.k_proj.weight", vec![768, 768]),
        ("transformer.h.1.attn.attention.out_proj.bias", vec![768]),
        ("transformer.h.0.mlp.c_fc.weight", vec![3072, 768]),
    ] {
        assert!(tensors.contains(&(name.into(), shape)), "{name}");
    }
    assert!(!tensors.iter().any(|(name, _)| name.ends_with("q_proj.bias")));
}

#[test]
fn lists_of_the_most_layers_are_read_as_they_are_written() {
    for (family, layers) in [
        ("gpt_neo", r#""num_layers":4096"#),
        ("gpt_neo", r#""num_layers":4095"#),
        ("gemma3_text", r#""num_hidden_layers":4096,"sliding_window":64"#),
    ] {
        let text = format!(r#"{{"model_type":"{family}",{layers}}}"#);
        let config = ModelConfig::from_json(&text).unwrap();
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config, "{text}");
    }
}

#[test]
fn both_lists_of_attention_are_read() {
    let kinds = |fields: &str| {
        let text = format!(r#"{{"model_type":"gpt_neo","num_layers":3{fields}}}"#);
        ModelConfig::from_json(&text).map(|config| config.layer_types)
    };
    use LayerType::{Full, Sliding};
    assert_eq!(kinds("").unwrap(), [Full, Sliding, Full]);
    let pattern = r#","attention_types":[[["local"],2],[["global"],1]]"#;
    assert_eq!(kinds(pattern).unwrap(), [Sliding, Sliding, Full]);
    let listed = r#","attention_layers":["global","global","local"]"#;
    assert_eq!(kinds(listed).unwrap(), [Full, Full, Sliding]);
    for (fields, name) in [
        (r#","attention_types":[[["local"],2]]"#, "attention_types"),
        (r#","attention_types":[[["local"],1000000000000]]"#, "attention_types"),
        (r#","attention_types":[[[],3]]"#, "attention_types"),
        (r#","attention_types":[[["sparse"],3]]"#, "attention_types"),
        (r#","attention_types":[["local",3]]"#, "attention_types"),
        (r#","attention_layers":["local"]"#, "attention_layers"),
        (r#","attention_layers":"local""#, "attention_layers"),
        (
            r#","attention_types":[[["local"],3]],"attention_layers":["local","local","global"]"#,
            "the same as attention_types",
        ),
    ] {
        let message = kinds(fields).unwrap_err().message;
        assert!(message.contains(name), "{fields}: {message}");
    }
}

/// The config of Pythia 160M, as transformers 4 wrote it, and as version 5 does.
#[test]
fn gpt_neox_turns_a_part_of_each_head() {
    let four = r#"{"architectures":["GPTNeoXForCausalLM"],"bos_token_id":0,"eos_token_id":0,
        "hidden_act":"gelu","hidden_size":768,"initializer_range":0.02,"intermediate_size":3072,
        "layer_norm_eps":1e-05,"max_position_embeddings":2048,"model_type":"gpt_neox",
        "num_attention_heads":12,"num_hidden_layers":12,"rotary_emb_base":10000,"rotary_pct":0.25,
        "tie_word_embeddings":false,"torch_dtype":"float16","transformers_version":"4.24.0",
        "use_cache":true,"use_parallel_residual":true,"vocab_size":50304}"#;
    let config = ModelConfig::from_json(four).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 162_322_944);
    assert_eq!((config.rotary_dims(), architecture.ropes[0].head_dim), (16, 16));
    let output = |layer: &Layer| layer.attention.as_ref().unwrap().output;
    assert!(architecture.layers.iter().all(|it| it.parallel && output(it).bias.is_some()));
    let saved: Value = serde_json::from_str(&config.to_json()).unwrap();
    let parameters =
        json!({"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.25});
    assert_eq!(saved["rope_parameters"], parameters);
    assert_eq!((&saved["rotary_pct"], &saved["rotary_emb_base"]), (&json!(0.25), &json!(10000.0)));
    for name in ["rope_theta", "head_dim", "num_key_value_heads", "rms_norm_eps"] {
        assert!(saved.get(name).is_none(), "{name}");
    }
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    let shape = r#""hidden_size":64,"num_attention_heads":2,"num_hidden_layers":1"#;
    let read = |fields: &str| {
        ModelConfig::from_json(&format!(r#"{{"model_type":"gpt_neox",{shape},{fields}}}"#))
    };
    // Later versions of transformers 4 repeat both under the names of others.
    let both = r#""rotary_pct":0.5,"partial_rotary_factor":0.5,"rotary_emb_base":5e3,"rope_theta":5e3,
        "use_parallel_residual":false,"attention_bias":false"#;
    let five = r#""rope_parameters":{"rope_theta":5e3,"partial_rotary_factor":0.5,"rope_type":"default"},
        "use_parallel_residual":false,"attention_bias":false"#;
    let [both, five] = [both, five].map(|fields| read(fields).unwrap());
    assert_eq!(both, five);
    assert_eq!((both.rotary_dims(), both.rope.theta), (16, 5e3));
    let layer = Architecture::of(&both).layers[0].clone();
    let (attention, mlp) = (layer.attention.unwrap(), layer.mlp.unwrap());
    let of_attention = [attention.qkv.bias, attention.output.bias];
    assert_eq!((layer.parallel, of_attention), (false, [None; 2]));
    assert!(mlp.down.bias.is_some());
    for (fields, name) in [
        (r#""rotary_pct":0.3"#, "rotary_pct is 0.3"),
        (r#""rotary_pct":0"#, "rotary_pct is 0"),
        (r#""rotary_pct":1.5"#, "rotary_pct is 1.5"),
        (r#""rotary_pct":-0.5"#, "rotary_pct is -0.5"),
        (r#""rotary_pct":0.5,"rope_parameters":{"partial_rotary_factor":0.25}"#, "disagree"),
        (r#""rotary_pct":0.5,"partial_rotary_factor":0.25"#, "disagree"),
        (r#""rotary_emb_base":1e4,"rope_theta":1e5"#, "disagree"),
        (r#""rotary_emb_base":-1"#, "rotary_emb_base is -1"),
        (r#""hidden_act":"gelu_fast""#, "hidden_act is \"gelu_fast\""),
        (r#""hidden_act":"relu""#, "hidden_act is \"relu\""),
        (r#""attention_dropout":1.5"#, "attention_dropout"),
        (r#""attention_bias":1"#, "attention_bias is 1"),
        (r#""use_parallel_residual":"yes""#, "use_parallel_residual is"),
        (r#""rope_scaling":{"type":"mrope","factor":2}"#, "rope_scaling.rope_type"),
        (r#""architectures":[1]"#, "architectures"),
    ] {
        let message = read(fields).unwrap_err().message;
        assert!(message.contains(name), "{fields}: {message}");
    }
}

#[test]
fn what_gpt_neo_has_and_tinyloom_not_is_refused_by_name() {
    for (field, value) in [
        ("activation_function", "\"relu\""),
        ("activation_function", "\"gelu_fast\""),
        ("attention_dropout", "1"),
        ("num_heads", "5"),
        ("layer_norm_epsilon", "0"),
        ("window_size", "0"),
        ("intermediate_size", "0"),
        ("architectures", "{}"),
    ] {
        let text = format!(r#"{{"model_type":"gpt_neo","{field}":{value}}}"#);
        let message = ModelConfig::from_json(&text).unwrap_err().message;
        assert!(message.contains(field), "{field}: {message}");
    }
}
