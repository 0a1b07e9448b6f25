//! A whole Llama from the twins: logits, loss and every gradient, as the oracle of the plans.

use super::activation::{gated_activation_backward, gated_activation_forward};
use super::attention::{AttentionShape, attention_backward, attention_forward};
use super::embedding::{embedding_backward, embedding_forward};
use super::linear::{Product, matmul, matmul_at, matmul_t};
use super::loss::{cross_entropy_backward, cross_entropy_forward, loss_sum_forward};
use super::norm::{rms_norm_backward, rms_norm_forward};
use super::normal::fill_normal;
use super::rope::{rope_backward, rope_forward};
use super::{Real, add_assign, cast};
use crate::config::ModelConfig;
use crate::data::Batch;
use std::collections::BTreeMap;

/// Weights or gradients by safetensors name.
pub type Tensors<R> = BTreeMap<String, Vec<R>>;

const EMBEDDING: &str = "model.embed_tokens.weight";
const FINAL_NORM: &str = "model.norm.weight";
const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
const GATE_UP: [&str; 2] = ["mlp.gate_proj", "mlp.up_proj"];

/// Test weights: norms near 1, everything else normal with the config's `initializer_range`.
pub fn random_tensors<R: Real>(config: &ModelConfig, seed: u64) -> Tensors<R> {
    let fill = |(stream, (name, shape)): (usize, (String, Vec<usize>))| {
        let mut values = vec![0.0; shape.iter().product()];
        fill_normal(seed, stream as u64, 0, config.initializer_range as f32, &mut values);
        if shape.len() == 1 {
            values.iter_mut().for_each(|x| *x += 1.0);
        }
        (name, cast(&values))
    };
    config.tensors().into_iter().enumerate().map(fill).collect()
}

/// The model on one batch.
#[derive(Debug)]
pub struct Model<'a, R> {
    pub config: &'a ModelConfig,
    pub weights: &'a Tensors<R>,
}

/// What a layer's backward needs of its forward.
struct LayerState<R> {
    input: Vec<R>,
    normed: Vec<R>,
    qkv: Vec<R>,
    attention: Vec<R>,
    lse: Vec<R>,
    middle: Vec<R>,
    middle_normed: Vec<R>,
    gate_up: Vec<R>,
    gated: Vec<R>,
}

struct Forward<R> {
    layers: Vec<LayerState<R>>,
    last: Vec<R>,
    normed: Vec<R>,
    logits: Vec<R>,
}

impl<R: Real> Model<'_, R> {
    /// Logits `[tokens, vocab_size]`.
    pub fn logits(&self, tokens: &[u32], documents: &[u32]) -> Vec<R> {
        self.forward(tokens, documents).logits
    }

    /// Mean loss over the targets that count, in nats.
    pub fn loss(&self, batch: &Batch) -> R {
        let logits = self.logits(&batch.tokens, &batch.documents);
        let losses = cross_entropy_forward(&logits, &batch.targets, self.config.vocab_size);
        let (sum, count) = loss_sum_forward(&losses, &batch.targets);
        sum / count
    }

    /// The mean loss and its gradient by every tensor.
    pub fn loss_and_gradients(&self, batch: &Batch) -> (R, Tensors<R>) {
        let config = self.config;
        let Forward { layers, last, normed, mut logits } =
            self.forward(&batch.tokens, &batch.documents);
        let scale = R::ONE / R::from_usize(batch.counted());
        let losses = cross_entropy_backward(&mut logits, &batch.targets, config.vocab_size, scale);
        let (sum, count) = loss_sum_forward(&losses, &batch.targets);

        let mut gradients = Tensors::new();
        let head = self.head_name().to_owned();
        let d_normed =
            self.linear_backward(&mut gradients, &[head], &logits, &normed, config.hidden_size);
        let final_norm = FINAL_NORM.to_owned();
        let mut d_x = self.norm_backward(&mut gradients, final_norm, &last, &d_normed);
        for (layer, state) in layers.iter().enumerate().rev() {
            d_x = self.layer_backward(&mut gradients, layer, state, d_x, &batch.documents);
        }
        let d_embedding =
            embedding_backward(&batch.tokens, &d_x, config.hidden_size, config.vocab_size);
        match gradients.get_mut(EMBEDDING) {
            Some(tied) => add_assign(tied, &d_embedding),
            None => _ = gradients.insert(EMBEDDING.to_owned(), d_embedding),
        }
        (sum / count, gradients)
    }

    fn forward(&self, tokens: &[u32], documents: &[u32]) -> Forward<R> {
        let config = self.config;
        let mut x = embedding_forward(tokens, &self.weights[EMBEDDING], config.hidden_size);
        let mut layers = vec![];
        for layer in 0..config.num_hidden_layers {
            let (state, output) = self.layer_forward(layer, x, documents);
            layers.push(state);
            x = output;
        }
        let normed = rms_norm_forward(&x, &self.weights[FINAL_NORM], config.rms_norm_eps);
        let logits = self.linear(&[self.head_name().to_owned()], &normed, config.hidden_size, None);
        Forward { layers, last: x, normed, logits }
    }

    fn layer_forward(
        &self,
        layer: usize,
        input: Vec<R>,
        documents: &[u32],
    ) -> (LayerState<R>, Vec<R>) {
        let config = self.config;
        let shape = self.attention_shape(documents.len());
        let norm = |name, x: &[R]| {
            rms_norm_forward(x, &self.weights[&weight(layer, name)], config.rms_norm_eps)
        };
        let linear = |names: &[&str], x: &[R], width, base| {
            self.linear(&weights(layer, names), x, width, base)
        };

        let normed = norm("input_layernorm", &input);
        let mut qkv = linear(&QKV, &normed, config.hidden_size, None);
        rope_forward(shape, &mut qkv, documents, 0, config.rope_theta);
        let (attention, lse) = attention_forward(shape, &qkv, documents);
        let middle = linear(&["self_attn.o_proj"], &attention, shape.out_width(), Some(&input));
        let middle_normed = norm("post_attention_layernorm", &middle);
        let gate_up = linear(&GATE_UP, &middle_normed, config.hidden_size, None);
        let gated = gated_activation_forward(config.hidden_act, &gate_up, config.intermediate_size);
        let output = linear(&["mlp.down_proj"], &gated, config.intermediate_size, Some(&middle));
        (
            LayerState {
                input,
                normed,
                qkv,
                attention,
                lse,
                middle,
                middle_normed,
                gate_up,
                gated,
            },
            output,
        )
    }

    /// Takes the gradient of the layer's output, returns that of its input.
    fn layer_backward(
        &self,
        gradients: &mut Tensors<R>,
        layer: usize,
        state: &LayerState<R>,
        d_output: Vec<R>,
        documents: &[u32],
    ) -> Vec<R> {
        let config = self.config;
        let shape = self.attention_shape(documents.len());
        let (hidden, feed) = (config.hidden_size, config.intermediate_size);
        let mut linear = |names: &[&str], d_y: &[R], x: &[R], width: usize| {
            self.linear_backward(gradients, &weights(layer, names), d_y, x, width)
        };

        let d_gated = linear(&["mlp.down_proj"], &d_output, &state.gated, feed);
        let (d_gate_up, _) =
            gated_activation_backward(config.hidden_act, &state.gate_up, &d_gated, feed);
        let d_middle_normed = linear(&GATE_UP, &d_gate_up, &state.middle_normed, hidden);
        let name = weight(layer, "post_attention_layernorm");
        let mut d_middle = self.norm_backward(gradients, name, &state.middle, &d_middle_normed);
        add_assign(&mut d_middle, &d_output);

        let mut linear = |names: &[&str], d_y: &[R], x: &[R], width: usize| {
            self.linear_backward(gradients, &weights(layer, names), d_y, x, width)
        };
        let d_attention =
            linear(&["self_attn.o_proj"], &d_middle, &state.attention, shape.out_width());
        let LayerState { qkv, attention, lse, .. } = state;
        let mut d_qkv = attention_backward(shape, qkv, documents, attention, lse, &d_attention);
        rope_backward(shape, &mut d_qkv, documents, 0, config.rope_theta);
        let d_normed = linear(&QKV, &d_qkv, &state.normed, hidden);
        let mut d_input = self.norm_backward(
            gradients,
            weight(layer, "input_layernorm"),
            &state.input,
            &d_normed,
        );
        add_assign(&mut d_input, &d_middle);
        d_input
    }

    fn head_name(&self) -> &'static str {
        if self.config.tie_word_embeddings { EMBEDDING } else { "lm_head.weight" }
    }

    fn attention_shape(&self, tokens: usize) -> AttentionShape {
        let ModelConfig { num_attention_heads, num_key_value_heads, head_dim, .. } = *self.config;
        AttentionShape {
            window: self.config.sliding_window,
            soft_cap: self.config.attn_logit_softcapping,
            ..AttentionShape::new(num_attention_heads, num_key_value_heads, head_dim, tokens)
        }
    }

    /// Weights that share an input, as one matrix `[out, in]`.
    fn fused(&self, names: &[String]) -> Vec<R> {
        names.iter().flat_map(|name| &self.weights[name]).copied().collect()
    }

    fn linear(&self, names: &[String], x: &[R], inputs: usize, base: Option<&[R]>) -> Vec<R> {
        let matrix = self.fused(names);
        let size = Product { m: x.len() / inputs, n: matrix.len() / inputs, k: inputs };
        matmul_t(size, x, &matrix, base)
    }

    /// Stores the gradients of the weights and returns that of the input.
    fn linear_backward(
        &self,
        gradients: &mut Tensors<R>,
        names: &[String],
        d_y: &[R],
        x: &[R],
        inputs: usize,
    ) -> Vec<R> {
        let matrix = self.fused(names);
        let (rows, outputs) = (x.len() / inputs, matrix.len() / inputs);
        let d_matrix = matmul_at(Product { m: outputs, n: inputs, k: rows }, d_y, x, None);
        let mut rest = d_matrix.as_slice();
        for name in names {
            let (part, tail) = rest.split_at(self.weights[name].len());
            gradients.insert(name.clone(), part.to_vec());
            rest = tail;
        }
        matmul(Product { m: rows, n: inputs, k: outputs }, d_y, &matrix, None)
    }

    /// Stores the gradient of the norm's weight and returns that of its input.
    fn norm_backward(
        &self,
        gradients: &mut Tensors<R>,
        name: String,
        x: &[R],
        d_y: &[R],
    ) -> Vec<R> {
        let (d_x, d_weight) =
            rms_norm_backward(x, &self.weights[&name], d_y, self.config.rms_norm_eps);
        gradients.insert(name, d_weight);
        d_x
    }
}

fn weight(layer: usize, name: &str) -> String {
    format!("model.layers.{layer}.{name}.weight")
}

fn weights(layer: usize, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| weight(layer, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::IGNORE_INDEX;
    use crate::reference::check::{assert_close, numeric_gradient};

    fn config(extra: &str) -> ModelConfig {
        let text = format!(
            r#"{{"vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":2,
                "num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"initializer_range":0.5,
                "rms_norm_eps":1e-3,"rope_theta":50{extra}}}"#
        );
        ModelConfig::from_json(&text).unwrap()
    }

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
}
