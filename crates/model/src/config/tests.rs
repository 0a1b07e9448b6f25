use super::*;
use crate::arch::Architecture;
use crate::error::ErrorCode;

#[test]
fn defaults_are_those_of_transformers() {
    let config = ModelConfig::from_json("{}").unwrap();
    assert_eq!(
        config,
        ModelConfig {
            family: FAMILIES[0],
            vocab_size: 32_000,
            hidden_size: 4096,
            intermediate_size: 11_008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: 32,
            head_dim: 128,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope: RopeConfig { theta: 10_000.0, scaling: RopeScaling::Default },
            partial_rotary_factor: 1.0,
            rope_local: None,
            tie_word_embeddings: false,
            hidden_act: Activation::Silu,
            initializer_range: 0.02,
            sliding_window: None,
            layer_types: vec![],
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            query_pre_attn_scalar: None,
            layers: vec![],
            own: BTreeMap::new(),
            dropout: DropoutRates::default(),
            extra: BTreeMap::new(),
        }
    );
    // Llama 2 7B with its 32,000-word vocabulary.
    assert_eq!(Architecture::of(&config).parameter_count(), 6_738_415_616);
}

#[test]
fn mistral_has_a_window() {
    let read = |text| ModelConfig::from_json(text).unwrap();
    let config = read(r#"{"model_type":"mistral"}"#);
    assert_eq!(
        (config.sliding_window, config.num_key_value_heads, config.intermediate_size),
        (Some(4096), 8, 14_336)
    );
    // Mistral 7B.
    assert_eq!(Architecture::of(&config).parameter_count(), 7_241_732_096);
    assert_eq!(read(r#"{"model_type":"mistral","sliding_window":null}"#).sliding_window, None);
    let saved = read(r#"{"model_type":"mistral","sliding_window":256}"#).to_json();
    assert!(saved.contains("MistralForCausalLM"), "{saved}");
    assert_eq!(read(&saved).sliding_window, Some(256));
    for (text, name) in [
        (r#"{"model_type":"mistral","sliding_window":0}"#, "sliding_window"),
        (r#"{"model_type":"mistral","architectures":"MistralForCausalLM"}"#, "architectures"),
        (r#"{"model_type":"gptj"}"#, "model_type"),
        (r#"{"attn_logit_softcapping":-1}"#, "attn_logit_softcapping"),
        (r#"{"attn_logit_softcapping":2.4e38}"#, "from 0.001 to 1000000"),
        (r#"{"rope_theta":1e40}"#, "from 1.2e-38 to 3.4e38"),
    ] {
        let error = ModelConfig::from_json(text).unwrap_err();
        assert!(error.message.contains(name), "{}", error.message);
    }
}

#[test]
fn a_soft_cap_is_kept_and_explained() {
    let config = ModelConfig::from_json(r#"{"attn_logit_softcapping":50.0}"#).unwrap();
    assert_eq!(config.attn_logit_softcapping, Some(50.0));
    let saved = config.to_json();
    assert!(saved.contains("transformers ignores attn_logit_softcapping"), "{saved}");
    assert_eq!(ModelConfig::from_json(&saved).unwrap(), config);
}

#[test]
fn both_generations_of_transformers_are_read() {
    let four = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,
        "num_attention_heads":4,"rope_theta":500000.0,"rope_scaling":null,"head_dim":null,
        "num_key_value_heads":null,"attention_bias":false,"attention_dropout":0.0,"mlp_bias":false,
        "pretraining_tp":1,"torch_dtype":"bfloat16","eos_token_id":[1,2]}"#;
    let five = r#"{"model_type":"llama","hidden_size":64,"num_attention_heads":4,"dtype":"bfloat16",
        "rope_parameters":{"rope_theta":500000.0,"rope_type":"default"}}"#;
    for text in [four, five] {
        let config = ModelConfig::from_json(text).unwrap();
        assert_eq!(
            (config.rope.theta, config.head_dim, config.num_key_value_heads),
            (500_000.0, 16, 4)
        );
    }
    let legacy = r#"{"rope_scaling":{"type":"default"},"rope_theta":5e3}"#;
    assert_eq!(ModelConfig::from_json(legacy).unwrap().rope.theta, 5e3);
}

#[test]
fn what_is_written_reads_back_the_same() {
    let text = r#"{"hidden_size":48,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
        "vocab_size":11,"bos_token_id":null,"eos_token_id":[1,2],"hidden_act":"gelu_new",
        "tie_word_embeddings":true,"rms_norm_eps":1e-05,"attention_dropout":0.0,"custom":{"a":[1.5,"x"]}}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let written = config.to_json();
    assert_eq!(ModelConfig::from_json(&written).unwrap(), config);
    let value: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["custom"], json!({"a": [1.5, "x"]}));
    assert_eq!(value["eos_token_id"], json!([1, 2]));
    assert_eq!(value["hidden_act"], "gelu_pytorch_tanh");
    assert_eq!(value["rope_parameters"], json!({"rope_theta": 10000.0, "rope_type": "default"}));
    assert_eq!(value["architectures"], json!(["LlamaForCausalLM"]));
    assert_eq!(value["dtype"], "float32");
}

#[test]
fn tensors_follow_the_shapes_of_grouped_query_attention() {
    let text = r#"{"vocab_size":7,"hidden_size":6,"intermediate_size":10,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":8}"#;
    let mut config = ModelConfig::from_json(text).unwrap();
    let find = |config: &ModelConfig, name: &str| {
        Architecture::of(config)
            .tensors()
            .into_iter()
            .find(|(n, _)| n == name)
            .map(|(_, shape)| shape)
    };
    assert_eq!(find(&config, "model.layers.1.self_attn.q_proj.weight"), Some(vec![32, 6]));
    assert_eq!(find(&config, "model.layers.1.self_attn.v_proj.weight"), Some(vec![16, 6]));
    assert_eq!(find(&config, "model.layers.0.self_attn.o_proj.weight"), Some(vec![6, 32]));
    assert_eq!(find(&config, "model.layers.0.mlp.down_proj.weight"), Some(vec![6, 10]));
    assert_eq!(find(&config, "lm_head.weight"), Some(vec![7, 6]));
    assert_eq!(Architecture::of(&config).tensors().len(), 1 + 2 * 9 + 2);
    let untied = Architecture::of(&config).parameter_count();
    config.tie_word_embeddings = true;
    assert_eq!(find(&config, "lm_head.weight"), None);
    assert_eq!(untied - Architecture::of(&config).parameter_count(), 42);
}

#[test]
fn whatever_is_not_supported_is_refused_by_name() {
    for (text, needle) in [
        (r#"{"architectures":["GPTJForCausalLM"]}"#, "architectures"),
        (r#"{"rope_scaling":{"rope_type":"longrope","factor":8}}"#, "rope_scaling.short_factor"),
        (r#"{"rope_scaling":{"type":"mrope","factor":8}}"#, "rope_scaling.rope_type"),
        (r#"{"rope_scaling":{"type":"dynamic"}}"#, "rope_scaling.factor is missing"),
        (r#"{"rope_scaling":{"rope_type":"llama3","factor":8}}"#, "rope_scaling.low_freq_factor"),
        (r#"{"rope_scaling":{"type":"linear"}}"#, "rope_scaling.factor is missing"),
        (r#"{"rope_scaling":{"type":"linear","factor":-1}}"#, "rope_scaling.factor is -1"),
        (r#"{"rope_parameters":{"rope_type":"yarn","mscales":0.7}}"#, "rope_parameters.mscales"),
        (
            r#"{"rope_parameters":{"rope_type":"yarn","truncate":0}}"#,
            "rope_parameters.truncate is 0; it must be true or false",
        ),
        (
            r#"{"rope_parameters":{"rope_type":"yarn","factor":4,"attention_factor":1e300}}"#,
            "attention_factor is 1e+300; it must be above 0 and a number of f32",
        ),
        (
            r#"{"rope_scaling":{"rope_type":"yarn","truncate":"false"}}"#,
            "rope_scaling.truncate is \"false\"; it must be true or false",
        ),
        (
            r#"{"rope_parameters":{"rope_type":"linear","factor":2},"rope_scaling":{"rope_type":"linear","factor":4}}"#,
            "disagree",
        ),
        (r#"{"model_type":"qwen3","use_sliding_window":1}"#, "use_sliding_window is 1"),
        (
            r#"{"model_type":"qwen2","use_sliding_window":true,"max_window_layers":0,"sliding_window":0}"#,
            "sliding_window is 0",
        ),
        (r#"{"model_type":"qwen2","attention_bias":true}"#, "attention_bias is true"),
        (r#"{"model_type":"qwen2_moe"}"#, "model_type is \"qwen2_moe\""),
        (r#"{"model_type":"qwen3","layer_types":["sliding_attention"]}"#, "layer_types"),
        (r#"{"rope_scaling":{"factor":8}}"#, "rope_scaling.factor"),
        (r#"{"rope_parameters":7}"#, "rope_parameters"),
        (r#"{"rope_theta":1e4,"rope_parameters":{"rope_theta":1e5}}"#, "disagree"),
        (r#"{"partial_rotary_factor":0.5}"#, "partial_rotary_factor"),
        (r#"{"model_type":"mistral","attention_bias":true}"#, "attention_bias is true"),
        (r#"{"attention_bias":1}"#, "attention_bias is 1"),
        (r#"{"model_type":"qwen3","mlp_bias":true}"#, "mlp_bias is true"),
        (r#"{"attention_dropout":1}"#, "attention_dropout"),
        (r#"{"pretraining_tp":2}"#, "pretraining_tp"),
        (r#"{"quantization_config":{"bits":4}}"#, "quantization_config"),
        (r#"{"use_qk_norm":true}"#, "use_qk_norm is true"),
        (r#"{"qk_layernorm":true}"#, "qk_layernorm"),
        (r#"{"no_rope_layers":[1,1,0]}"#, "no_rope_layers is [1,1,0]"),
        (r#"{"rope_interleaved":true}"#, "rope_interleaved is true"),
        (r#"{"final_logit_softcapping":30.0}"#, "final_logit_softcapping is 30.0"),
        (r#"{"logits_scaling":8.0}"#, "logits_scaling"),
        (r#"{"attention_multiplier":0.015}"#, "attention_multiplier"),
        (r#"{"rope_parameters":{"partial_rotary_factor":0.5}}"#, "rope_parameters.partial_rotary"),
        (r#"{"hidden_act":"relu"}"#, "hidden_act is \"relu\""),
        (r#"{"hidden_act":null}"#, "hidden_act"),
    ] {
        let error = ModelConfig::from_json(text).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert!(error.message.contains(needle), "{text} -> {}", error.message);
    }
}

#[test]
fn what_the_alternating_families_lack_is_refused_by_name() {
    for (text, needle) in [
        (r#"{"model_type":"gemma3"}"#, "model_type"),
        (r#"{"model_type":"gemma2","use_bidirectional_attention":true}"#, "use_bidirectional"),
        (r#"{"model_type":"gemma2","sliding_window":null}"#, "sliding_window is null"),
        (r#"{"model_type":"gemma2","hidden_act":"gelu"}"#, "hidden_act is \"gelu\""),
        (r#"{"model_type":"gemma","hidden_activation":"silu"}"#, "hidden_activation is \"silu\""),
        (r#"{"model_type":"gemma","final_logit_softcapping":30.0}"#, "final_logit_softcapping"),
        (
            r#"{"model_type":"gemma3_text","rope_parameters":{"rope_theta":1e4}}"#,
            "rope_parameters.sliding_attention is null",
        ),
        (
            r#"{"model_type":"gemma3_text","rope_local_base_freq":5e3,
                "rope_parameters":{"full_attention":{},"sliding_attention":{"rope_theta":1e4}}}"#,
            "disagree",
        ),
        (
            r#"{"model_type":"gemma3_text","rope_parameters":{"full_attention":{},"sliding_attention":
                {"rope_type":"yarn","factor":2,"truncate":false}}}"#,
            "sliding_attention.truncate is false; it must be true in here",
        ),
        (r#"{"model_type":"gemma3_text","rope_local_base_freq":0}"#, "rope_local_base_freq is 0"),
        (
            r#"{"model_type":"gemma3_text","sliding_window_pattern":0}"#,
            "sliding_window_pattern is 0",
        ),
        (r#"{"model_type":"gemma2","query_pre_attn_scalar":0}"#, "query_pre_attn_scalar is 0"),
        (r#"{"model_type":"gemma2","query_pre_attn_scalar":40.5}"#, "an integer"),
        (r#"{"model_type":"gemma2","layer_types":["full_attention"]}"#, "layer_types is"),
        (
            r#"{"model_type":"gemma2","num_hidden_layers":1,"layer_types":["chunked_attention"]}"#,
            "layer_types is",
        ),
    ] {
        let error = ModelConfig::from_json(text).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert!(error.message.contains(needle), "{text} -> {}", error.message);
    }
}

#[test]
fn fields_that_ask_for_nothing_load_and_stay() {
    let text = r#"{"use_qk_norm":false,"no_rope_layers":[1,1],"rope_interleaved":false,
        "final_logit_softcapping":null,"logits_scaling":1.0,"attention_multiplier":null,
        "attention_bias":null,"attention_dropout":0,"pretraining_tp":1}"#;
    let written = ModelConfig::from_json(text).unwrap().to_json();
    let value: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["no_rope_layers"], json!([1, 1]));
    assert_eq!(value["rope_interleaved"], json!(false));
    ModelConfig::from_json(r#"{"no_rope_layers":[]}"#).unwrap();
}

/// Another family's names for its fields are no slips.
#[test]
fn an_unknown_family_is_refused_before_its_names() {
    for text in [
        r#"{"model_type":"gptj","n_ctx":1024,"n_embd":768,"n_head":12,"n_layer":12}"#,
        r#"{"n_ctx":1024,"architectures":["GPTJForCausalLM"],"model_type":"gptj"}"#,
    ] {
        let message = ModelConfig::from_json(text).unwrap_err().message;
        assert!(message.contains(r#"model_type is "gptj""#), "{message}");
        assert!(!message.contains("n_ctx"), "{message}");
    }
}

#[test]
fn a_long_config_is_refused_unread() {
    let refused = |text: &str| ModelConfig::from_json(text).unwrap_err();
    let zeros = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(32 << 20));
    let error = refused(&zeros);
    assert_eq!(error.code, ErrorCode::InvalidConfig);
    assert!(error.message.contains(&format!("{} bytes", zeros.len())), "{error}");
    assert!(error.message.contains("at most 1048576"), "{error}");
    // Its length alone is read: this is not even JSON.
    assert!(refused(&"x".repeat(64 << 20)).message.contains("at most 1048576"));
    let many: Vec<String> = (0..2000).map(|i| format!(r#""hidden_sizes{i}":0"#)).collect();
    let error = refused(&format!("{{{}}}", many.join(",")));
    assert!(error.message.contains("more than 1024 fields"), "{error}");
    let long = format!(r#"{{"hidden_size":[{}0]}}"#, "0,".repeat(20_000));
    let error = refused(&long);
    assert!(error.message.contains("hidden_size is [0,0") && error.message.len() < 400, "{error}");
}

/// Fields that are not read stay the text that they are, however deep or long.
#[test]
fn unread_fields_are_kept_as_text() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let list = format!("[{}0]", "0, ".repeat(1000));
    let text =
        format!(r#"{{"deep":{deep},"list":{list},"exact":1.00e2,"":{{}},"naïve \n":"\u0041"}}"#);
    let config = ModelConfig::from_json(&text).unwrap();
    assert_eq!(config.extra["exact"], "1.00e2");
    assert_eq!(config.extra["deep"], deep);
    let written = config.to_json();
    assert!(written.contains(&list) && written.contains("1.00e2"), "{written:.300}");
    assert_eq!(ModelConfig::from_json(&written).unwrap(), config);
}

#[test]
fn bad_sizes_name_field_value_and_what_is_allowed() {
    for (text, needles) in [
        (r#"{"vocab_size":0}"#, ["vocab_size is 0", "from 1 to"]),
        (r#"{"hidden_size":-8}"#, ["hidden_size is -8", "from 1 to"]),
        (r#"{"num_hidden_layers":1.5}"#, ["num_hidden_layers is 1.5", "integer"]),
        (r#"{"num_hidden_layers":"two"}"#, ["num_hidden_layers is \"two\"", "integer"]),
        (r#"{"num_hidden_layers":1e30}"#, ["num_hidden_layers", "integer"]),
        (r#"{"vocab_size":18446744073709551615}"#, ["vocab_size", "from 1 to"]),
        (r#"{"vocab_size":16777216}"#, ["vocab_size × hidden_size", "at most"]),
        (r#"{"hidden_size":1048576,"head_dim":64,"vocab_size":10}"#, ["tensor", "at most"]),
        (r#"{"num_attention_heads":6,"num_key_value_heads":4,"head_dim":64}"#, ["(6)", "(4)"]),
        (
            r#"{"num_attention_heads":2,"num_key_value_heads":4}"#,
            ["num_key_value_heads is 4", "from 1 to 2"],
        ),
        (r#"{"hidden_size":100,"num_attention_heads":3}"#, ["not a multiple", "head_dim"]),
        (r#"{"hidden_size":30,"num_attention_heads":2}"#, ["is 15", "multiple of 4"]),
        (r#"{"num_attention_heads":8}"#, ["is 512", "to 256 (fields left out"]),
        (r#"{"head_dim":33}"#, ["head_dim is 33", "multiple of 4 up to 256"]),
        (r#"{"head_dim":512}"#, ["head_dim is 512", "multiple of 4 up to 256"]),
        (r#"{"rms_norm_eps":0}"#, ["rms_norm_eps is 0", "1.2e-38"]),
        (r#"{"rms_norm_eps":1e30}"#, ["rms_norm_eps", "to 1"]),
        (r#"{"rms_norm_eps":1e-60}"#, ["rms_norm_eps", "1.2e-38"]),
        (r#"{"rope_theta":-1}"#, ["rope_theta is -1", "1.2e-38"]),
        (r#"{"initializer_range":2}"#, ["initializer_range is 2", "from 0 to 1"]),
        (r#"{"tie_word_embeddings":1}"#, ["tie_word_embeddings is 1", "true or false"]),
        (r#"[1]"#, ["JSON object", "config"]),
        (r#"{"vocab_size":"#, ["not valid JSON", "config"]),
    ] {
        let error = ModelConfig::from_json(text).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert!(needles.iter().all(|n| error.message.contains(n)), "{text} -> {}", error.message);
    }
}

#[test]
fn only_false_keeps_yarn_from_being_truncated() {
    for (value, expected) in [("null", true), ("true", true), ("false", false)] {
        let text = format!(r#"{{"rope_scaling":{{"rope_type":"yarn","truncate":{value}}}}}"#);
        let scaling = ModelConfig::from_json(&text).unwrap().rope.scaling;
        assert!(
            matches!(scaling, RopeScaling::Yarn { truncate, .. } if truncate == expected),
            "{value}: {scaling:?}"
        );
    }
}

#[test]
fn scaled_rope_is_written_as_it_was_read() {
    for text in [
        r#"{"rope_theta":500000.0,"max_position_embeddings":131072,"rope_scaling":{"factor":8.0,
            "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
            "rope_type":"llama3"}}"#,
        r#"{"rope_scaling":{"type":"linear","factor":2.0}}"#,
        r#"{"rope_scaling":{"type":"dynamic","factor":2.0}}"#,
        r#"{"rope_scaling":{"type":"yarn","factor":4,"mscale":0.7,"mscale_all_dim":0.5,"finetuned":true}}"#,
        r#"{"hidden_size":8,"num_attention_heads":2,"rope_scaling":{"type":"longrope","short_factor":[1,1.5],
            "long_factor":[2,3],"original_max_position_embeddings":32}}"#,
        r#"{"max_position_embeddings":8192,"rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,
            "original_max_position_embeddings":2048}}"#,
    ] {
        let config = ModelConfig::from_json(text).unwrap();
        assert_ne!(config.rope.scaling, RopeScaling::Default);
        let again = ModelConfig::from_json(&config.to_json()).unwrap();
        assert_eq!(again.rope, config.rope);
    }
}
