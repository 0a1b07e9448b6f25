//! The graph's twin against differences, and against itself.

use super::*;
use crate::config::LoraConfig;
use crate::data::IGNORE_INDEX;
use crate::twins::check::{assert_close, numeric_gradient};

fn config(extra: &str) -> ModelConfig {
    if extra.starts_with('{') {
        return ModelConfig::from_json(extra).unwrap();
    }
    let text = format!(
        r#"{{"vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":2,
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

/// With the same masks on every side. The mean over masks is not that of the whole inputs: the loss curves.
#[test]
fn gradients_under_dropout_match_finite_differences() {
    let (config, batch) = (config(r#","tie_word_embeddings":true"#), batch());
    let lora = LoraConfig { rank: 3, dropout: 0.3, ..LoraConfig::default() };
    let adapted = Architecture::of(&config).adapted(&lora).unwrap();
    let own = random_adapter::<f64>(&adapted, 5);
    let mut weights = random_tensors(&config, 1);
    weights.extend(own.clone());
    let masks = Some(Masks { seed: [8, 0], micro_step: 2 });
    let of = |weights: &Tensors<f64>| {
        let network = Network { architecture: &adapted, weights };
        network.loss_and_gradients_with(&batch, &|weight| adapted.is_low_rank(weight), masks)
    };
    let (loss, gradients) = of(&weights);
    let whole = Network { architecture: &adapted, weights: &weights }.loss(&batch);
    assert!((loss - whole).abs() > 1e-4, "{loss} and {whole}");
    assert!(gradients.keys().eq(own.keys()));
    for (name, gradient) in &gradients {
        let mut changed = weights.clone();
        let loss_at = |x: &[f64]| {
            changed.insert(name.clone(), x.to_vec());
            of(&changed).0
        };
        let numeric = numeric_gradient(loss_at, &weights[name], 1e-4);
        assert_close(name, gradient, &numeric, 1e-9, 1e-7);
        assert!(gradient.iter().any(|g| g.abs() > 1e-6), "{name} has no gradient");
    }
}

/// Weights to which the scaled product of A and B is added give what base and adapter give.
#[test]
fn an_adapter_is_a_change_of_its_modules_weights() {
    let (config, batch) = (config(""), batch());
    let adapted = adapted(&config, &SOME, false);
    let mut weights = random_tensors(&config, 1);
    weights.extend(random_adapter::<f64>(&adapted, 5));
    let logits = Network { architecture: &adapted, weights: &weights }
        .logits(&batch.tokens, &batch.documents);
    for low in &adapted.low_rank {
        let [a, b] = [low.a, low.b].map(|id| &weights[&adapted.weights[id].params[0].name]);
        let (rank, columns) = (b.len() / low.rows, adapted.weights[low.a].columns);
        let mut change = matmul(Product { m: low.rows, n: columns, k: rank }, b, a, None);
        scale_forward(&mut change, low.scale);
        let mut params = adapted.weights[low.target].params.iter();
        let (mut row0, mut param) = (0, params.next().unwrap());
        while row0 < low.row0 {
            row0 += param.shape[0];
            param = params.next().unwrap();
        }
        add_assign(weights.get_mut(&param.name).unwrap(), &change);
    }
    let merged = Model { config: &config, weights: &weights };
    let merged = merged.logits(&batch.tokens, &batch.documents);
    assert_close("logits", &logits, &merged, 1e-13, 1e-13);
}

#[test]
fn packed_documents_are_independent_sequences() {
    let (config, batch) = (config(""), batch());
    let weights = random_tensors::<f64>(&config, 2);
    let model = Model { config: &config, weights: &weights };
    let packed = model.logits(&batch.tokens, &batch.documents);
    for range in [0..3, 3..6, 6..7] {
        let alone = model.logits(&batch.tokens[range.clone()], &vec![0; range.len()]);
        assert_close("logits", &alone, &packed[range.start * 7..range.end * 7], 1e-14, 0.0);
    }
}

#[test]
fn f32_follows_f64() {
    let config = config("");
    let (wide, narrow) = (random_tensors::<f64>(&config, 3), random_tensors::<f32>(&config, 3));
    let (loss64, gradients64) =
        Model { config: &config, weights: &wide }.loss_and_gradients(&batch());
    let (loss32, gradients32) =
        Model { config: &config, weights: &narrow }.loss_and_gradients(&batch());
    assert_close("loss", &[loss32], &[loss64], 1e-6, 1e-6);
    for (name, gradient) in &gradients32 {
        assert_close(name, gradient, &gradients64[name], 1e-7, 1e-5);
    }
}
