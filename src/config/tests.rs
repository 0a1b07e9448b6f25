use super::*;
use crate::arch::Architecture;
use crate::error::ErrorCode;

#[test]
fn defaults_are_those_of_transformers() {
    let config = ModelConfig::from_json("{}").unwrap();
    assert_eq!(
        config,
        ModelConfig {
            model_type: ModelType::Llama,
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
            rope_local_base_freq: None,
            tie_word_embeddings: false,
            hidden_act: Activation::Silu,
            initializer_range: 0.02,
            sliding_window: None,
            layer_types: vec![],
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            query_pre_attn_scalar: None,
            attention_bias: false,
            parallel_residual: false,
            extra: SortedMap::new(),
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
        (r#"{"sliding_window":256}"#, "sliding_window"),
        (r#"{"model_type":"mistral","sliding_window":0}"#, "sliding_window"),
        (r#"{"model_type":"mistral","architectures":["LlamaForCausalLM"]}"#, "architectures"),
        (r#"{"model_type":"gptj"}"#, "model_type"),
        (r#"{"attn_logit_softcapping":-1}"#, "attn_logit_softcapping"),
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
        (r#"{"architectures":["LlamaForSequenceClassification"]}"#, "architectures"),
        (r#"{"rope_scaling":{"rope_type":"longrope","factor":8}}"#, "rope_scaling.rope_type"),
        (r#"{"rope_scaling":{"type":"dynamic","factor":8}}"#, "rope_scaling.rope_type"),
        (r#"{"rope_scaling":{"rope_type":"llama3","factor":8}}"#, "rope_scaling.low_freq_factor"),
        (r#"{"rope_scaling":{"type":"linear"}}"#, "rope_scaling.factor is missing"),
        (r#"{"rope_scaling":{"type":"linear","factor":-1}}"#, "rope_scaling.factor is -1"),
        (r#"{"rope_parameters":{"rope_type":"yarn","mscale":0.7}}"#, "rope_parameters.mscale"),
        (
            r#"{"rope_parameters":{"rope_type":"linear","factor":2},"rope_scaling":{"rope_type":"linear","factor":4}}"#,
            "disagree",
        ),
        (r#"{"model_type":"qwen3","use_sliding_window":true}"#, "use_sliding_window is true"),
        (r#"{"model_type":"qwen2","use_sliding_window":true}"#, "use_sliding_window is true"),
        (r#"{"model_type":"qwen2","attention_bias":true}"#, "attention_bias is true"),
        (r#"{"model_type":"qwen2_moe"}"#, "model_type is \"qwen2_moe\""),
        (r#"{"model_type":"qwen3","layer_types":["sliding_attention"]}"#, "layer_types"),
        (r#"{"rope_scaling":{"factor":8}}"#, "rope_scaling.factor"),
        (r#"{"rope_parameters":7}"#, "rope_parameters"),
        (r#"{"rope_theta":1e4,"rope_parameters":{"rope_theta":1e5}}"#, "disagree"),
        (r#"{"partial_rotary_factor":0.5}"#, "partial_rotary_factor"),
        (r#"{"attention_bias":true}"#, "attention_bias"),
        (r#"{"mlp_bias":true}"#, "mlp_bias"),
        (r#"{"attention_dropout":0.1}"#, "attention_dropout"),
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
        (r#"{"model_type":"gemma","sliding_window":8}"#, "sliding_window"),
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
                {"rope_type":"linear","factor":2}}}"#,
            "sliding_attention must be unscaled",
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
        (r#"{"num_hidden_layers":"2"}"#, ["num_hidden_layers is \"2\"", "integer"]),
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
        (r#"{"num_attention_heads":8}"#, ["is 512", "to 256"]),
        (r#"{"head_dim":33}"#, ["head_dim is 33", "multiple of 4 up to 256"]),
        (r#"{"head_dim":512}"#, ["head_dim is 512", "multiple of 4 up to 256"]),
        (r#"{"rms_norm_eps":0}"#, ["rms_norm_eps is 0", "above 0"]),
        (r#"{"rms_norm_eps":1e30}"#, ["rms_norm_eps", "at most 1"]),
        (r#"{"rms_norm_eps":1e-60}"#, ["rms_norm_eps", "above 0"]),
        (r#"{"rope_theta":-1}"#, ["rope_theta is -1", "above 0"]),
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
fn scaled_rope_is_written_as_it_was_read() {
    for text in [
        r#"{"rope_theta":500000.0,"max_position_embeddings":131072,"rope_scaling":{"factor":8.0,
            "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
            "rope_type":"llama3"}}"#,
        r#"{"rope_scaling":{"type":"linear","factor":2.0}}"#,
        r#"{"max_position_embeddings":8192,"rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,
            "original_max_position_embeddings":2048}}"#,
    ] {
        let config = ModelConfig::from_json(text).unwrap();
        assert_ne!(config.rope.scaling, RopeScaling::Default);
        let again = ModelConfig::from_json(&config.to_json()).unwrap();
        assert_eq!(again.rope, config.rope);
    }
}

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
        ("sliding_window", "8"),
        ("architectures", "[\"GPT2Model\",\"GPT2LMHeadModel\"]"),
    ] {
        let text = format!(r#"{{"model_type":"gpt2","{field}":{value}}}"#);
        let message = ModelConfig::from_json(&text).unwrap_err().message;
        assert!(message.contains(field), "{field}: {message}");
    }
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
    let windows: Vec<_> = architecture.layers.iter().map(|layer| layer.attention.window).collect();
    assert_eq!(windows[..3], [Some(4096), None, Some(4096)]);
    // A full layer reaches back to the first position.
    assert_eq!(architecture.window(), None);
    assert_eq!(architecture.embedding_scale, Some(48.0));
    assert_eq!(architecture.logit_soft_cap, Some(30.0));
    let again = ModelConfig::from_json(&config.to_json()).unwrap();
    assert_eq!(again.to_json(), config.to_json());
    // What the file has is what stands for missing fields.
    let missing = ModelConfig::from_json(r#"{"model_type":"gemma2"}"#).unwrap();
    assert_eq!(missing, ModelConfig { extra: SortedMap::new(), ..config });
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
    let windows: Vec<_> = architecture.layers.iter().map(|layer| layer.attention.window).collect();
    assert_eq!(windows[3..8], [Some(512), Some(512), None, Some(512), Some(512)]);
    let thetas = (config.rope.theta, config.rope_local_base_freq);
    assert_eq!(thetas, (1e6, Some(1e4)));
    assert_eq!(
        (architecture.logit_soft_cap, architecture.layers[0].attention.soft_cap),
        (None, None)
    );
    assert!(architecture.layers.iter().all(|layer| layer.head_norms.is_some()));
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
    assert_eq!(four.rope_local_base_freq, Some(5e3));
    assert_eq!(ModelConfig::from_json(&four.to_json()).unwrap(), four);
    let missing = ModelConfig::from_json(r#"{"model_type":"gemma3_text"}"#).unwrap();
    assert_eq!((missing.rope.theta, missing.rope_local_base_freq), (1e6, Some(1e4)));
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
        "attention_dropout":0,"attention_layers":["global","local","global","local"],
        "attention_types":[[["global","local"],2]],"bos_token_id":50256,"embed_dropout":0,
        "eos_token_id":50256,"gradient_checkpointing":false,"hidden_size":768,"initializer_range":0.02,
        "intermediate_size":null,"layer_norm_epsilon":1e-05,"max_position_embeddings":2048,
        "model_type":"gpt_neo","num_heads":16,"num_layers":4,"resid_dropout":0,
        "summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,
        "summary_type":"cls_index","summary_use_proj":true,"torch_dtype":"float32",
        "transformers_version":"4.28.1","use_cache":true,"vocab_size":50257,"window_size":256}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let architecture = Architecture::of(&config);
    assert_eq!(architecture.parameter_count(), 68_514_048);
    assert_eq!((config.head_dim, config.intermediate_size), (48, 3072));
    let attention: Vec<_> = architecture.layers.iter().map(|layer| layer.attention).collect();
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
    assert_eq!((config.rotary_dims(), architecture.rope.unwrap().head_dim), (16, 16));
    assert!(architecture.layers.iter().all(|layer| layer.parallel && layer.output.bias.is_some()));
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
    assert!(!layer.parallel && layer.qkv.bias.is_none() && layer.output.bias.is_none());
    assert!(layer.down.bias.is_some());
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
        (r#""attention_dropout":0.1"#, "attention_dropout"),
        (r#""attention_bias":1"#, "attention_bias is 1"),
        (r#""use_parallel_residual":"yes""#, "use_parallel_residual is"),
        (r#""sliding_window":8"#, "sliding_window"),
        (r#""rope_scaling":{"type":"dynamic","factor":2}"#, "rope_scaling.rope_type"),
        (r#""architectures":["GPTNeoXModel"]"#, "architectures"),
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
        ("attention_dropout", "0.1"),
        ("num_heads", "5"),
        ("layer_norm_epsilon", "0"),
        ("window_size", "0"),
        ("intermediate_size", "0"),
        ("architectures", "[\"GPTNeoModel\"]"),
    ] {
        let text = format!(r#"{{"model_type":"gpt_neo","{field}":{value}}}"#);
        let message = ModelConfig::from_json(&text).unwrap_err().message;
        assert!(message.contains(field), "{field}: {message}");
    }
}
