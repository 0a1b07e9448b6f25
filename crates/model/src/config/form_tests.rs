//! Configs in the forms that programs and people write.

use super::*;
use crate::arch::Architecture;

#[test]
fn qwen_has_windows_from_a_layer_on() {
    let windows = |fields: &str| {
        let text = format!(r#"{{"model_type":"qwen3","num_hidden_layers":3{fields}}}"#);
        let config = ModelConfig::from_json(&text)?;
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config, "{text}");
        let layers = Architecture::of(&config).layers;
        Ok::<_, crate::error::Error>(
            layers.iter().map(|layer| layer.heads().unwrap().window).collect::<Vec<_>>(),
        )
    };
    let none = [None, None, None];
    for fields in [
        "",
        r#","use_sliding_window":false,"sliding_window":64,"max_window_layers":1"#,
        r#","use_sliding_window":true,"sliding_window":64,"max_window_layers":3"#,
        r#","use_sliding_window":true,"sliding_window":64"#,
        r#","use_sliding_window":true,"sliding_window":null,"max_window_layers":0"#,
        r#","use_sliding_window":null,"sliding_window":64,"max_window_layers":0"#,
        r#","layer_types":["full_attention","full_attention","full_attention"]"#,
    ] {
        assert_eq!(windows(fields).unwrap(), none, "{fields}");
    }
    let from_one = r#","use_sliding_window":true,"sliding_window":64,"max_window_layers":1"#;
    assert_eq!(windows(from_one).unwrap(), [None, Some(64), Some(64)]);
    let all = r#","use_sliding_window":true,"sliding_window":64,"max_window_layers":0"#;
    assert_eq!(windows(all).unwrap(), [Some(64); 3]);
    let types = r#""layer_types":["sliding_attention","full_attention","sliding_attention"]"#;
    let listed = format!(r#","use_sliding_window":true,"sliding_window":8,{types}"#);
    assert_eq!(windows(&listed).unwrap(), [Some(8), None, Some(8)]);
    for fields in [
        format!(",{types}"),
        r#","use_sliding_window":true,"sliding_window":8,"layer_types":[]"#.into(),
    ] {
        assert!(windows(&fields).unwrap_err().message.contains("layer_types"), "{fields}");
    }
}

/// As published configs are: classes of base models, numbers as texts, fields that are null.
#[test]
fn configs_are_read_as_programs_write_them() {
    let read = |text: &str| ModelConfig::from_json(text).unwrap();
    let plain = read(r#"{"model_type":"llama","hidden_size":64,"num_attention_heads":2}"#);
    for classes in [
        "[]",
        r#"["LlamaModel"]"#,
        r#"["MyForCausalLM"]"#,
        r#"["LlamaForCausalLM","X"]"#,
        r#"["LlamaForSequenceClassification"]"#,
        "null",
    ] {
        let text = format!(
            r#"{{"model_type":"llama","hidden_size":64,"num_attention_heads":2,"architectures":{classes}}}"#
        );
        assert_eq!(read(&text), plain, "{classes}");
    }
    let texts = read(
        r#"{"model_type":"llama","hidden_size":"64","num_attention_heads":"2","rms_norm_eps":"1e-06",
            "head_dim":null,"num_key_value_heads":null,"rope_scaling":null,"rope_theta":"10000.0"}"#,
    );
    assert_eq!(texts, plain);
    for text in
        [r#"{"hidden_size":"wide"}"#, r#"{"rms_norm_eps":"1e-06x"}"#, r#"{"hidden_size":"6.5"}"#]
    {
        assert!(ModelConfig::from_json(text).is_err(), "{text}");
    }
    // transformers' Llama has no window, whatever the field says.
    let window = read(
        r#"{"model_type":"llama","hidden_size":64,"num_attention_heads":2,"sliding_window":8}"#,
    );
    assert!(
        Architecture::of(&window).layers.iter().all(|layer| layer
            .heads()
            .unwrap()
            .window
            .is_none())
    );
}

#[test]
fn the_text_model_of_a_model_of_images_is_read() {
    let inner = r#"{"model_type":"gemma3_text","hidden_size":2560,"num_hidden_layers":2,"num_attention_heads":8,
        "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024}"#;
    let outer = format!(
        r#"{{"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","text_config":{inner},
            "vision_config":{{"hidden_size":1152}},"mm_tokens_per_image":256}}"#
    );
    let [own, nested] = [inner, &outer].map(|text| ModelConfig::from_json(text).unwrap());
    assert_eq!(own, nested);
    // The config of another model stays another model's.
    let other = r#"{"model_type":"llava","text_config":{"model_type":"mamba"}}"#;
    assert!(ModelConfig::from_json(other).unwrap_err().message.contains("llava"));
    let both = r#"{"model_type":"llama","text_config":{"model_type":"gemma3_text"}}"#;
    assert_eq!(ModelConfig::from_json(both).unwrap().family.names[0], "llama");
}

#[test]
fn a_config_from_code_has_known_fields_alone() {
    let read = |text: &str| ModelConfig::from_code(text).map_err(|error| error.message);
    for text in [
        r#"{"vocab_size":64,"eos_token_id":2,"torch_dtype":"float32","use_cache":true}"#,
        r#"{"model_type":"llama","sliding_window":null,"attention_bias":false}"#,
        r#"{"model_type":"llama","sliding_window":64,"use_sliding_window":false}"#,
        r#"{"model_type":"mistral","sliding_window":64}"#,
        r#"{"model_type":"qwen2","sliding_window":64,"max_window_layers":3}"#,
    ] {
        read(text).unwrap();
    }
    let saved = ModelConfig::from_json(r#"{"model_type":"gemma2"}"#).unwrap().to_json();
    read(&saved).unwrap();
    for (text, name) in [
        (r#"{"heat_of_softmax":2}"#, "heat_of_softmax"),
        (r#"{"moe_layers":null}"#, "moe_layers"),
        (r#"{"model_type":"llama","sliding_window":8}"#, "sliding_window"),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(name), "{message}");
        ModelConfig::from_json(text).unwrap();
    }
}
