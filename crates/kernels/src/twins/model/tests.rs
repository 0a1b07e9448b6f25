//! The graph's twin against differences, and against itself.

use super::*;
use crate::arch::{AttentionBlock, BlockNorms, Layer, Rope};
use crate::config::LoraConfig;
use crate::data::IGNORE_INDEX;
use crate::twins::check::{assert_close, numeric_gradient};

/// The look-ups of a padding token are no part of its gradient, but they are of a difference: none is one here.
const UNPADDED: &str = r#"{"pad_token_id":null,"#;

fn config(extra: &str) -> ModelConfig {
    if let Some(fields) = extra.strip_prefix('{') {
        return ModelConfig::from_json(&format!("{UNPADDED}{fields}")).unwrap();
    }
    let text = format!(
        r#"{UNPADDED}"vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"initializer_range":0.5,
            "rms_norm_eps":1e-3,"rope_theta":50{extra}}}"#
    );
    ModelConfig::from_json(&text).unwrap()
}

/// Stand for the whole config.
const NEO: &str = r#"{"model_type":"gpt_neo","vocab_size":7,"hidden_size":8,"intermediate_size":5,
    "num_layers":2,"num_heads":2,"window_size":2,"max_position_embeddings":6,"initializer_range":0.5,
    "layer_norm_epsilon":1e-3}"#;
const NEOX: &str = r#"{"model_type":"gpt_neox","vocab_size":7,"hidden_size":16,"intermediate_size":5,
    "num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":6,"initializer_range":0.5,
    "layer_norm_eps":1e-3,"rotary_emb_base":50,"rotary_pct":0.5}"#;
const SEQUENTIAL: &str = r#"{"model_type":"gpt_neox","vocab_size":7,"hidden_size":8,"intermediate_size":5,
    "num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":6,"initializer_range":0.5,
    "layer_norm_eps":1e-3,"rotary_pct":0.5,"use_parallel_residual":false,"attention_bias":false}"#;
const GPT2: &str = r#"{"model_type":"gpt2","vocab_size":7,"n_embd":8,"n_inner":5,"n_layer":2,"n_head":2,
    "n_positions":6,"initializer_range":0.5,"layer_norm_epsilon":1e-3}"#;

const OLMO2: &str = r#"{"model_type":"olmo2","vocab_size":7,"hidden_size":6,"intermediate_size":5,
    "num_hidden_layers":2,"num_attention_heads":2,"head_dim":4,"initializer_range":0.5,
    "rms_norm_eps":1e-3,"rope_theta":50}"#;
const STABLELM: &str = r#"{"model_type":"stablelm","vocab_size":7,"hidden_size":16,"intermediate_size":5,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.5,
    "layer_norm_eps":1e-3,"rope_theta":50,"partial_rotary_factor":0.5,"use_qkv_bias":true}"#;

const PHI3: &str = r#"{"model_type":"phi3","vocab_size":7,"hidden_size":16,"intermediate_size":5,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.5,
    "rms_norm_eps":1e-3,"rope_theta":50,"partial_rotary_factor":0.75,"sliding_window":2}"#;

fn batch() -> Batch {
    Batch {
        tokens: vec![3, 1, 3, 0, 6, 6, 2],
        targets: vec![1, 3, IGNORE_INDEX, 6, 6, 2, 5],
        documents: vec![0, 0, 0, 3, 3, 3, 6],
    }
}

#[test]
fn every_gradient_matches_finite_differences() {
    for extra in [
        r#","tie_word_embeddings":true"#,
        r#","attention_bias":true,"mlp_bias":true"#,
        r#","model_type":"granite","embedding_multiplier":3,"residual_multiplier":0.4,
            "attention_multiplier":0.7,"logits_scaling":1.7"#,
        OLMO2,
        STABLELM,
        PHI3,
        r#","hidden_act":"gelu""#,
        r#","hidden_act":"gelu_new""#,
        r#","model_type":"qwen2""#,
        r#","model_type":"qwen3""#,
        GPT2,
        NEO,
        NEOX,
        SEQUENTIAL,
        r#","model_type":"gemma""#,
        r#","model_type":"gemma2","sliding_window":2,"attn_logit_softcapping":2,
            "final_logit_softcapping":1.5"#,
        r#","model_type":"gemma3_text","sliding_window":2,"sliding_window_pattern":2"#,
    ] {
        let (config, batch) = (config(extra), batch());
        let weights = random_tensors(&config, 1);
        let (loss, gradients) =
            Model { config: &config, weights: &weights }.loss_and_gradients(&batch);
        assert_eq!(loss, Model { config: &config, weights: &weights }.loss(&batch));
        assert!(gradients.keys().eq(weights.keys()));
        for (name, gradient) in &gradients {
            let mut changed = weights.clone();
            let loss_at = |x: &[f64]| {
                changed.insert(name.clone(), x.to_vec());
                Model { config: &config, weights: &changed }.loss(&batch)
            };
            let numeric = numeric_gradient(loss_at, &weights[name], 2e-4);
            assert_close(name, gradient, &numeric, 1e-9, 1e-7);
        }
    }
}

fn attention(of: &mut Architecture, layer: usize) -> &mut AttentionBlock {
    of.layers[layer].attention.as_mut().unwrap()
}

/// The norms of both blocks.
fn norms(layer: &mut Layer) -> [&mut BlockNorms; 2] {
    let attention = layer.attention.as_mut().unwrap();
    [&mut attention.norms, &mut layer.mlp.as_mut().unwrap().norms]
}

/// What layers may have of norms and of RoPE: models change it layer by layer.
const OPTIONS: [fn(&mut Architecture); 4] = [
    |of| attention(of, 1).attention.rope = None,
    // Angles of its own, whatever its window.
    |of| {
        of.ropes.push(Rope::plain(4, 7.0));
        attention(of, 0).attention.rope = Some(of.ropes.len() - 1);
    },
    // Norms after the blocks alone, then none.
    |of| {
        for (layer, behind) in of.layers.iter_mut().zip([true, false]) {
            for norms in norms(layer) {
                let norm = norms.before.take();
                norms.behind = norm.filter(|_| behind);
            }
        }
    },
    // One block with its norm before, one with its norm after.
    |of| {
        let [_, norms] = norms(&mut of.layers[0]);
        norms.behind = norms.before.take();
    },
];

#[test]
fn options_of_layers_match_finite_differences() {
    let (config, batch) = (config(""), batch());
    let weights = random_tensors(&config, 1);
    let plain = Model { config: &config, weights: &weights }.loss(&batch);
    for change in OPTIONS {
        let mut architecture = Architecture::of(&config);
        change(&mut architecture);
        let loss = |weights: &_| Network { architecture: &architecture, weights }.loss(&batch);
        assert_ne!(loss(&weights), plain);
        let network = Network { architecture: &architecture, weights: &weights };
        let (whole, gradients) = network.loss_and_gradients(&batch, &|_| true);
        assert_eq!(whole, loss(&weights));
        // The norms of a layer without any are no part of the model.
        assert!(gradients.len() + 2 >= weights.len());
        for (name, gradient) in &gradients {
            let mut changed = weights.clone();
            let loss_at = |x: &[f64]| {
                changed.insert(name.clone(), x.to_vec());
                loss(&changed)
            };
            let numeric = numeric_gradient(loss_at, &weights[name], 2e-4);
            assert_close(name, gradient, &numeric, 1e-9, 1e-7);
        }
    }
}

#[test]
fn architectures_match_finite_differences() {
    let sizes = r#"{"vocab_size":7,"hidden_size":8,"intermediate_size":5,"num_hidden_layers":4,
        "num_attention_heads":2,"max_position_embeddings":6,"initializer_range":0.3}"#;
    for (name, config) in crate::testing::architectures(sizes) {
        let (config, batch) = (ModelConfig::from_code(&config).unwrap(), batch());
        let weights = random_tensors(&config, 1);
        let (loss, gradients) =
            Model { config: &config, weights: &weights }.loss_and_gradients(&batch);
        assert_eq!(loss, Model { config: &config, weights: &weights }.loss(&batch), "{name}");
        assert!(gradients.keys().eq(weights.keys()), "{name}");
        for (tensor, gradient) in &gradients {
            let mut changed = weights.clone();
            let loss_at = |x: &[f64]| {
                changed.insert(tensor.clone(), x.to_vec());
                Model { config: &config, weights: &changed }.loss(&batch)
            };
            let numeric = numeric_gradient(loss_at, &weights[tensor], 2e-5);
            assert_close(&format!("{name}: {tensor}"), gradient, &numeric, 1e-9, 1e-7);
        }
    }
}

/// Every third module, so that of stacked ones some are adapted and some not.
const SOME: [&str; 5] = ["q_proj", "v_proj", "o_proj", "up_proj", "1.mlp.down_proj"];

fn adapted(config: &ModelConfig, targets: &[&str], rs_lora: bool) -> Architecture {
    let targets = targets.iter().map(|&target| target.into()).collect();
    let lora = LoraConfig { rank: 3, alpha: 4.0, rs_lora, targets, ..LoraConfig::default() };
    Architecture::of(config).adapted(&lora).unwrap()
}

#[test]
fn an_adapters_gradients_match_finite_differences() {
    for (extra, targets, rs_lora) in [
        (r#","tie_word_embeddings":true"#, &["all-linear"][..], false),
        (r#","hidden_act":"gelu""#, &SOME[..], true),
        (r#","model_type":"qwen2""#, &SOME[..], false),
        (r#","model_type":"qwen3""#, &["k_proj", "gate_proj"][..], false),
        (GPT2, &["c_attn", "mlp.c_proj"][..], false),
        (NEO, &["v_proj", "out_proj", "c_fc"][..], false),
        (NEOX, &["query_key_value", "dense_4h_to_h"][..], true),
        (r#","model_type":"gemma2","sliding_window":2"#, &["o_proj", "down_proj"][..], false),
    ] {
        let (config, batch) = (config(extra), batch());
        let adapted = adapted(&config, targets, rs_lora);
        let own = random_adapter::<f64>(&adapted, 5);
        let mut weights = random_tensors(&config, 1);
        weights.extend(own.clone());
        let network = |weights| Network { architecture: &adapted, weights };
        let trained = |weight| adapted.is_low_rank(weight);
        let (loss, gradients) = network(&weights).loss_and_gradients(&batch, &trained);
        assert_eq!(loss, network(&weights).loss(&batch));
        assert_ne!(loss, Model { config: &config, weights: &weights }.loss(&batch));
        assert!(gradients.keys().eq(own.keys()));
        for (name, gradient) in &gradients {
            let mut changed = weights.clone();
            let loss_at = |x: &[f64]| {
                changed.insert(name.clone(), x.to_vec());
                Network { architecture: &adapted, weights: &changed }.loss(&batch)
            };
            // Half the step of the model's own test: B multiplies what the third derivative adds.
            let numeric = numeric_gradient(loss_at, &weights[name], 1e-4);
            assert_close(name, gradient, &numeric, 1e-9, 1e-7);
            assert!(gradient.iter().any(|g| g.abs() > 1e-6), "{name} has no gradient");
        }
    }
}

/// What a rate of dropout may touch: an adapter with its own, and models with the rates of all places.
#[test]
fn gradients_under_dropout_match_finite_differences() {
    let lora = LoraConfig { rank: 3, dropout: 0.3, ..LoraConfig::default() };
    let rates = DropoutRates { embedding: 0.2, attention: 0.4, residual: 0.3 };
    for (extra, lora, rates) in [
        (r#","tie_word_embeddings":true"#, Some(&lora), DropoutRates::default()),
        (GPT2, Some(&lora), rates),
        (r#","tie_word_embeddings":true"#, None, rates),
        (GPT2, None, rates),
        (GPT2, None, DropoutRates { attention: 0.4, ..DropoutRates::default() }),
        (NEOX, None, DropoutRates { residual: 0.4, ..DropoutRates::default() }),
        (r#","model_type":"gemma2","sliding_window":2"#, None, rates),
    ] {
        differ_by_their_gradients(&config(extra), lora, rates);
    }
}

/// With the same masks on every side. The mean over masks is not the loss of everything: it curves.
fn differ_by_their_gradients(config: &ModelConfig, lora: Option<&LoraConfig>, rates: DropoutRates) {
    let (batch, base) = (batch(), Architecture::of(config));
    let architecture = lora.map_or_else(|| base.clone(), |lora| base.adapted(lora).unwrap());
    let mut weights = random_tensors(config, 1);
    weights.extend(random_adapter::<f64>(&architecture, 5));
    let masks = Some(Masks { seed: [8, 0], micro_step: 2 });
    let trained = |weight| lora.is_none() || architecture.is_low_rank(weight);
    let of = |weights: &Tensors<f64>, trained: &dyn Fn(WeightId) -> bool| {
        let network = Network { architecture: &architecture, weights };
        network.loss_and_gradients_with(&batch, trained, rates, masks)
    };
    let (loss, gradients) = of(&weights, &trained);
    let whole = Network { architecture: &architecture, weights: &weights }.loss(&batch);
    assert!((loss - whole).abs() > 1e-4, "{loss} and {whole}");
    assert!(!gradients.is_empty());
    for (name, gradient) in &gradients {
        let mut changed = weights.clone();
        let loss_at = |x: &[f64]| {
            changed.insert(name.clone(), x.to_vec());
            of(&changed, &|_| false).0
        };
        // What is kept is scaled up, and with it the third derivative.
        let numeric = numeric_gradient(loss_at, &weights[name], 3e-5);
        assert_close(name, gradient, &numeric, 1e-9, 1e-7);
    }
}
