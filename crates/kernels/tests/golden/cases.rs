//! The configurations whose plans are held to listings.

use tinyloom_kernels::caps::Capabilities;
use tinyloom_kernels::kernels::WeightFormat;
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::{ALL_LINEAR, LoraConfig, ModelConfig};
use tinyloom_model::error::Result;
use tinyloom_model::params::Params;

/// A configuration, and the tokens of its steps and of its cache.
pub struct Case {
    pub name: &'static str,
    pub config: &'static str,
    pub tokens: usize,
    pub capacity: usize,
}

impl Case {
    /// The parameters on a device, and after them a LoRA adapter's of rank 8 where there are `targets`.
    pub fn layout(&self, caps: &Capabilities, targets: &[&str]) -> Result<Params> {
        self.packed(caps, targets, WeightFormat::F32)
    }

    /// The parameters where the base holds its matrices in another format.
    pub fn packed(
        &self,
        caps: &Capabilities,
        targets: &[&str],
        weights: WeightFormat,
    ) -> Result<Params> {
        let architecture = Architecture::of(&ModelConfig::from_json(self.config).unwrap());
        let binding = caps.limits.binding_bytes().min(1 << 30);
        let params = Params::packed(architecture, binding, weights)?;
        if targets.is_empty() {
            return Ok(params);
        }
        let targets = targets.iter().map(|&name| name.to_owned()).collect();
        let lora = LoraConfig { rank: 8, alpha: 16.0, targets, ..LoraConfig::default() };
        params.adapted(params.architecture.adapted(&lora)?)
    }
}

/// Between them: tied and untied heads, grouped queries, every activation, odd sizes, a window, a
/// soft cap, long contexts, matrices cut into several bindings.
pub const CASES: [Case; 9] = [
    Case {
        name: "tied, two layers",
        config: r#"{"vocab_size":256,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
            "num_attention_heads":2,"num_key_value_heads":2,"head_dim":32,"tie_word_embeddings":true}"#,
        tokens: 96,
        capacity: 256,
    },
    Case {
        name: "tiny",
        config: r#"{"vocab_size":256,"hidden_size":128,"intermediate_size":384,"num_hidden_layers":3,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":32}"#,
        tokens: 768,
        capacity: 2048,
    },
    Case {
        name: "one token, odd sizes, one key-value head",
        config: r#"{"vocab_size":61,"hidden_size":40,"intermediate_size":37,"num_hidden_layers":1,
            "num_attention_heads":5,"num_key_value_heads":1,"head_dim":8,"tie_word_embeddings":true}"#,
        tokens: 1,
        capacity: 300,
    },
    Case {
        name: "odd sizes, untied",
        config: r#"{"vocab_size":61,"hidden_size":42,"intermediate_size":29,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":12,"hidden_act":"gelu_pytorch_tanh"}"#,
        tokens: 131,
        capacity: 256,
    },
    Case {
        name: "wide heads",
        config: r#"{"vocab_size":512,"hidden_size":512,"intermediate_size":1024,"num_hidden_layers":2,
            "num_attention_heads":2,"num_key_value_heads":1,"head_dim":256,"hidden_act":"gelu"}"#,
        tokens: 64,
        capacity: 512,
    },
    Case {
        name: "seed's sizes, two layers",
        config: r#"{"vocab_size":8192,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":2,
            "num_attention_heads":12,"num_key_value_heads":4,"head_dim":64,"max_position_embeddings":4096}"#,
        tokens: 4096,
        capacity: 4096,
    },
    Case {
        name: "a vocabulary cut into parts, tied",
        config: r#"{"vocab_size":150000,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":2,
            "num_attention_heads":14,"num_key_value_heads":2,"head_dim":64,"tie_word_embeddings":true}"#,
        tokens: 512,
        capacity: 2048,
    },
    Case {
        name: "a window and a soft cap",
        config: r#"{"model_type":"mistral","sliding_window":300,"vocab_size":256,"hidden_size":128,
            "intermediate_size":384,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
            "head_dim":32,"max_position_embeddings":4096,"attn_logit_softcapping":30.0}"#,
        tokens: 512,
        capacity: 4096,
    },
    Case {
        name: "heads wider than the hidden size, untied, cut",
        config: r#"{"vocab_size":50257,"hidden_size":192,"intermediate_size":512,"num_hidden_layers":2,
            "num_attention_heads":6,"num_key_value_heads":6,"head_dim":64}"#,
        tokens: 300,
        capacity: 1024,
    },
];

/// Models by what their plans have that no plan above has. A new model goes to the end, so that the rows of the others
/// keep their numbers.
pub const MODELS: &[(Case, &[&str])] = &[
    // Biases of queries, keys and values; norms of heads; a LoRA adapter on some modules, and one on all modules.
    (
        Case {
            name: "qwen2, tied",
            config: r#"{"model_type":"qwen2","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":true,
                "max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "qwen3, heads wider than the hidden size",
            config: r#"{"model_type":"qwen3","vocab_size":512,"hidden_size":96,"intermediate_size":256,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,
                "max_position_embeddings":2048}"#,
            tokens: 300,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on queries, values and down",
            config: r#"{"vocab_size":256,"hidden_size":128,"intermediate_size":384,"num_hidden_layers":2,
                "num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &["q_proj", "v_proj", "down_proj"],
    ),
    (
        Case {
            name: "an adapter on all modules of a qwen2",
            config: r#"{"model_type":"qwen2","vocab_size":256,"hidden_size":64,"intermediate_size":128,
                "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"tie_word_embeddings":true,
                "max_position_embeddings":2048}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
    (
        Case {
            name: "gpt2, an odd vocabulary",
            config: r#"{"model_type":"gpt2","vocab_size":509,"n_embd":128,"n_layer":2,"n_head":4}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on all modules of a gpt2",
            config: r#"{"model_type":"gpt2","vocab_size":61,"n_embd":40,"n_layer":1,"n_head":2,"n_inner":58,
                "n_positions":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
    // Windows in some layers.
    (
        Case {
            name: "gemma2, both kinds of layers",
            config: r#"{"model_type":"gemma2","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
                "sliding_window":300,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on some modules of a gemma3, both kinds of layers",
            config: r#"{"model_type":"gemma3_text","vocab_size":61,"hidden_size":40,"intermediate_size":58,
                "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":20,
                "sliding_window":70,"sliding_window_pattern":2,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &["q_proj", "o_proj", "down_proj"],
    ),
    // Layer norms, biases and no gate.
    (
        Case {
            name: "gpt_neo, both kinds of layers",
            config: r#"{"model_type":"gpt_neo","vocab_size":509,"hidden_size":128,"num_layers":2,"num_heads":4,
                "window_size":200,"max_position_embeddings":1024}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on all modules of a gpt_neo",
            config: r#"{"model_type":"gpt_neo","vocab_size":61,"hidden_size":40,"num_layers":2,"num_heads":2,
                "intermediate_size":58,"window_size":70,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
    (
        Case {
            name: "gpt_neox, blocks side by side",
            config: r#"{"model_type":"gpt_neox","vocab_size":509,"hidden_size":128,"intermediate_size":512,
                "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":1024}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on some modules of a gpt_neox, blocks in turn",
            config: r#"{"model_type":"gpt_neox","vocab_size":61,"hidden_size":40,"intermediate_size":58,
                "num_hidden_layers":1,"num_attention_heads":2,"rotary_pct":0.5,"attention_bias":false,
                "use_parallel_residual":false,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &["query_key_value", "dense_4h_to_h"],
    ),
    // Some layers without RoPE.
    (
        Case {
            name: "smollm3, every second layer without RoPE",
            config: r#"{"model_type":"smollm3","vocab_size":512,"hidden_size":128,"intermediate_size":320,
            "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
            "no_rope_layer_interval":2,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    // Biases of all products, norms after blocks and over all heads, factors, layer norms beside a gate.
    (
        Case {
            name: "phi3",
            config: r#"{"model_type":"phi3","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
                "max_position_embeddings":2048,"partial_rotary_factor":0.75}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "llama with biases",
            config: r#"{"vocab_size":512,"hidden_size":128,"intermediate_size":320,"num_hidden_layers":2,
                "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":2048,
                "attention_bias":true,"mlp_bias":true}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "olmo2",
            config: r#"{"model_type":"olmo2","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on a granite",
            config: r#"{"model_type":"granite","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
                "max_position_embeddings":2048,"embedding_multiplier":12,"residual_multiplier":0.25,
                "attention_multiplier":0.125,"logits_scaling":8}"#,
            tokens: 512,
            capacity: 1024,
        },
        &["all-linear"],
    ),
    (
        Case {
            name: "stablelm",
            config: r#"{"model_type":"stablelm","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
                "max_position_embeddings":2048,"use_qkv_bias":true}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
];

/// Adapters on models that hold their matrices packed, in a listing of their own: a vocabulary cut into parts, and
/// an odd one.
pub const PACKED: [(Case, &[&str]); 2] = [
    (
        Case {
            name: "a packed base, its vocabulary cut",
            config: r#"{"vocab_size":150000,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":1,
                "num_attention_heads":14,"num_key_value_heads":2,"head_dim":64,"tie_word_embeddings":true}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[ALL_LINEAR],
    ),
    (
        Case {
            name: "a packed base of odd vocabulary, untied",
            config: r#"{"model_type":"qwen2","vocab_size":4099,"hidden_size":64,"intermediate_size":100,
                "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1}"#,
            tokens: 96,
            capacity: 256,
        },
        &["q_proj", "down_proj"],
    ),
];
