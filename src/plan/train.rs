//! The training plans: forward and backward of a micro-step, the optimizer, evaluation.

use super::builder::Builder;
use super::model::Model;
use super::{BatchLayout, Buffer, Phase, Plan, Range, Slice};
use crate::caps::Capabilities;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::kernels::{self as k, KeyValueOwner, WeightFormat, WriteMode};
use crate::layout::{ALIGN, Layout};

/// Everything a trainer replays.
#[derive(Clone, Debug)]
pub struct TrainPlans {
    pub micro_step: Plan,
    pub optimizer: Plan,
    pub evaluate: Plan,
    /// Sizes of the activation slots, shared by the plans.
    pub slots: Vec<u64>,
    pub batch: BatchLayout,
    /// Rows of logits held at a time.
    pub logits_rows: usize,
}

impl TrainPlans {
    pub fn all(&self) -> [&Plan; 3] {
        [&self.micro_step, &self.optimizer, &self.evaluate]
    }
}

/// Most bytes of logits held at a time; more rows go in several chunks.
const LOGITS_BYTES: u64 = 64 << 20;

/// Activations of one layer that the backward pass reads again.
#[derive(Clone, Copy, Debug)]
struct Saved {
    input: Slice,
    attention_norm: Slice,
    qkv: Slice,
    attention: Slice,
    lse: Slice,
    middle: Slice,
    mlp_norm: Slice,
    gate_up: Slice,
}

/// Bytes of [`Buffer::Metrics`] and of [`Buffer::Optimizer`].
pub const METRICS_BYTES: u64 = 32;
pub const OPTIMIZER_BYTES: u64 = 16;

impl Model<'_> {
    /// A layer as far as its backward pass reads it again: all but its last product.
    fn layer_forward(
        &mut self,
        layer: usize,
        input: Slice,
        batch: BatchLayout,
        table: Slice,
    ) -> Result<Saved> {
        let shape = self.attention_shape();
        let matrices = self.layout.layers[layer];
        let rows = self.builder.all_rows();
        let name = |what: &str| format!("layer {layer} {what}");
        let saved = Saved {
            input,
            attention_norm: self.tensor("attention norm", self.hidden())?,
            qkv: self.tensor("qkv", shape.stride())?,
            attention: self.tensor("attention output", shape.width())?,
            lse: self.tensor("logsumexp", shape.heads)?,
            middle: self.tensor("residual", self.hidden())?,
            mlp_norm: self.tensor("mlp norm", self.hidden())?,
            gate_up: self.tensor("gate and up", 2 * self.config.intermediate_size)?,
        };
        self.norm(&name("attention norm"), matrices.attention_norm, input, saved.attention_norm)?;
        self.linear(&name("q, k, v"), matrices.qkv, saved.attention_norm, saved.qkv, None, rows)?;
        self.rope(&name("rope"), saved.qkv, batch.documents(), table, true)?;
        let kernel = k::attention_forward(self.builder.caps, shape, false)?;
        let slices = vec![
            saved.qkv,
            saved.qkv,
            batch.documents(),
            saved.attention,
            saved.lse,
            self.builder.step(),
        ];
        let flops = self.attention_flops(2.0);
        self.builder.dispatch(name("attention"), kernel, slices, flops)?;
        self.linear(
            &name("output"),
            matrices.output,
            saved.attention,
            saved.middle,
            Some(input),
            rows,
        )?;
        self.norm(&name("mlp norm"), matrices.mlp_norm, saved.middle, saved.mlp_norm)?;
        self.linear(
            &name("gate, up"),
            matrices.gate_up,
            saved.mlp_norm,
            saved.gate_up,
            None,
            rows,
        )?;
        Ok(saved)
    }

    /// A layer's output from what [`Model::layer_forward`] left.
    fn layer_output(&mut self, layer: usize, saved: &Saved, output: Slice) -> Result<()> {
        let name = |what: &str| format!("layer {layer} {what}");
        let rows = self.builder.all_rows();
        let down = self.layout.layers[layer].down;
        let activated = self.activate(&name("activation"), saved.gate_up)?;
        self.linear(&name("down"), down, activated, output, Some(saved.middle), rows)
    }

    /// `products` of tokens × tokens / 2 × head_dim for every head.
    fn attention_flops(&self, products: f64) -> f64 {
        let tokens = self.builder.tokens as f64;
        products * tokens * tokens * self.attention_shape().width() as f64
    }

    /// The gradients of queries, keys and values. `reads` are the first bindings of both kernels.
    fn attention_backward(
        &mut self,
        layer: usize,
        reads: [Slice; 5],
        d_qkv: Slice,
        batch: BatchLayout,
    ) -> Result<()> {
        let (caps, shape) = (self.builder.caps, self.attention_shape());
        let name = |what: &str| format!("layer {layer} {what}");
        let step = self.builder.step();
        let owner = k::key_value_owner(caps, shape);
        let (of_query, of_key, kept) = match k::attention_kept(caps, shape) {
            None => (
                k::attention_backward_query(caps, shape)?,
                k::attention_backward_key_value(caps, shape, owner, batch.padded)?,
                vec![],
            ),
            Some(elements) => (
                k::attention_backward_query_kept(caps, shape)?,
                k::attention_backward_key_value_kept(caps, shape, owner, batch.padded)?,
                vec![
                    self.builder.tensor("probabilities", elements)?,
                    self.builder.tensor("score gradients", elements)?,
                ],
            ),
        };
        let slices = |output: Slice| [&reads[..], &[output, step], &kept].concat();
        let products = if kept.is_empty() { 4.0 } else { 2.0 };
        let (of_query_flops, flops) = (self.attention_flops(3.0), self.attention_flops(products));
        self.builder.dispatch(name("attention query"), of_query, slices(d_qkv), of_query_flops)?;
        let label = name("attention key, value");
        if owner == KeyValueOwner::Group {
            return self.builder.dispatch(label, of_key, slices(d_qkv), flops);
        }
        let parts = self.tensor("key and value gradients by head", 2 * shape.width())?;
        self.builder.dispatch(label, of_key, slices(parts), flops)?;
        let kernel = k::attention_group_sum(caps, shape)?;
        let flops = (2 * self.builder.tokens * shape.width()) as f64;
        let slices = vec![parts, d_qkv, step];
        self.builder.dispatch(name("attention group sum"), kernel, slices, flops)
    }

    fn layer_backward(
        &mut self,
        layer: usize,
        saved: &Saved,
        d_x: Slice,
        batch: BatchLayout,
        table: Slice,
    ) -> Result<()> {
        let shape = self.attention_shape();
        let matrices = self.layout.layers[layer];
        let rows = self.builder.all_rows();
        let feed = self.config.intermediate_size;
        let add = WriteMode::AddAfterFirst;
        let name = |what: &str| format!("layer {layer} {what}");

        let d_activated = self.tensor("activation gradient", feed)?;
        self.input_gradient(&name("down input"), matrices.down, d_x, d_activated, rows)?;
        let d_gate_up = self.tensor("gate and up gradient", 2 * feed)?;
        let activated = self.tensor("activation", feed)?;
        let kernel = k::gated_activation_backward(self.builder.caps, self.activation())?;
        let slices = vec![saved.gate_up, d_activated, d_gate_up, activated, self.builder.step()];
        self.builder.dispatch(
            name("activation"),
            kernel,
            slices,
            16.0 * (self.builder.tokens * feed) as f64,
        )?;
        self.weight_gradient(&name("down weight"), matrices.down, d_x, activated, rows, add)?;
        let d_norm = self.tensor("norm gradient", self.hidden())?;
        self.input_gradient(&name("gate, up input"), matrices.gate_up, d_gate_up, d_norm, rows)?;
        self.weight_gradient(
            &name("gate, up weight"),
            matrices.gate_up,
            d_gate_up,
            saved.mlp_norm,
            rows,
            add,
        )?;
        self.norm_backward(
            &name("mlp norm"),
            matrices.mlp_norm,
            saved.middle,
            d_norm,
            d_x,
            WriteMode::Add,
        )?;

        let d_attention = self.tensor("attention gradient", shape.width())?;
        self.input_gradient(&name("output input"), matrices.output, d_x, d_attention, rows)?;
        self.weight_gradient(
            &name("output weight"),
            matrices.output,
            d_x,
            saved.attention,
            rows,
            add,
        )?;
        let delta = self.tensor("delta", shape.heads)?;
        let kernel = k::attention_delta(self.builder.caps, shape)?;
        let slices = vec![saved.attention, d_attention, delta, self.builder.step()];
        self.builder.dispatch(
            name("attention delta"),
            kernel,
            slices,
            2.0 * (self.builder.tokens * shape.width()) as f64,
        )?;
        let d_qkv = self.tensor("qkv gradient", shape.stride())?;
        let reads = [saved.qkv, d_attention, saved.lse, delta, batch.documents()];
        self.attention_backward(layer, reads, d_qkv, batch)?;
        self.rope(&name("rope"), d_qkv, batch.documents(), table, false)?;
        let d_norm = self.tensor("norm gradient", self.hidden())?;
        self.input_gradient(&name("q, k, v input"), matrices.qkv, d_qkv, d_norm, rows)?;
        self.weight_gradient(
            &name("q, k, v weight"),
            matrices.qkv,
            d_qkv,
            saved.attention_norm,
            rows,
            add,
        )?;
        self.norm_backward(
            &name("attention norm"),
            matrices.attention_norm,
            saved.input,
            d_norm,
            d_x,
            WriteMode::Add,
        )
    }

    /// Logits, loss and, with `d_normed`, the gradients of the head, a chunk of rows at a time.
    fn loss(
        &mut self,
        normed: Slice,
        d_normed: Option<Slice>,
        batch: BatchLayout,
        chunk: usize,
    ) -> Result<()> {
        let (tokens, hidden, vocabulary) =
            (self.builder.tokens, self.hidden(), self.config.vocab_size);
        let head = self.layout.lm_head;
        let logits = self.builder.tensor("logits", chunk.min(tokens) as u64 * vocabulary as u64)?;
        let losses = Slice::new(Buffer::Losses, 0, tokens as u64 * 4);
        for row0 in (0..tokens).step_by(chunk) {
            let rows = Range {
                row0: row0 as u32,
                rows: chunk.min(tokens - row0) as u32,
                col0: 0,
                cols: 0,
            };
            let cut = |slice: Slice| Slice {
                offset: slice.offset + (row0 * hidden) as u64 * 4,
                bytes: u64::from(rows.rows) * hidden as u64 * 4,
                ..slice
            };
            self.builder.phase = Phase::Forward;
            self.linear("logits", head, cut(normed), logits, None, rows)?;
            let kernel = k::cross_entropy(self.builder.caps, vocabulary, d_normed.is_some())?;
            let slices = vec![
                logits,
                batch.targets(),
                losses,
                self.builder.step(),
                self.builder.range(rows),
            ];
            let flops = 6.0 * f64::from(rows.rows) * vocabulary as f64;
            self.builder.dispatch_rows("cross-entropy", kernel, slices, rows, flops)?;
            if let Some(d_normed) = d_normed {
                self.builder.phase = Phase::Backward;
                self.input_gradient("head input", head, logits, cut(d_normed), rows)?;
                let mode = if row0 == 0 { WriteMode::AddAfterFirst } else { WriteMode::Add };
                self.weight_gradient("head weight", head, logits, cut(normed), rows, mode)?;
            }
        }
        let kernel = k::loss_sum(self.builder.caps)?;
        let metrics = Slice::new(Buffer::Metrics, 0, METRICS_BYTES);
        self.builder.dispatch(
            "loss sum",
            kernel,
            vec![losses, batch.targets(), metrics, self.builder.step()],
            tokens as f64,
        )
    }

    fn embedding_backward(&mut self, d_x: Slice, batch: BatchLayout) -> Result<()> {
        let matrix = self.layout.embedding;
        let tied = matrix == self.layout.lm_head;
        let shape = self.layout.matrices[matrix].clone();
        for (index, part) in shape.parts.iter().enumerate() {
            let gradient = self.part(matrix, index, Buffer::Gradients);
            if !tied {
                let kernel = k::zero(self.builder.caps, part.rows * shape.cols)?;
                self.builder.dispatch(
                    "embedding zero",
                    kernel,
                    vec![gradient, self.builder.step()],
                    0.0,
                )?;
            }
            let kernel = k::embedding_backward(self.builder.caps, self.hidden())?;
            let range =
                Range { col0: part.row0 as u32, cols: part.rows as u32, ..self.builder.all_rows() };
            let slices = vec![
                batch.order(),
                batch.tokens(),
                d_x,
                gradient,
                self.builder.step(),
                self.builder.range(range),
            ];
            let flops = (self.builder.tokens * self.hidden()) as f64;
            self.builder.dispatch_rows("embedding", kernel, slices, range, flops)?;
        }
        Ok(())
    }
}

/// Rows of logits held at a time: within one binding. Chunks of the rows that they are products of
/// are bound at offsets, which are aligned after every `aligned` rows; [`ALIGN`] rows always are.
fn logits_chunk(caps: &Capabilities, config: &ModelConfig, tokens: usize) -> usize {
    let most = (LOGITS_BYTES.min(caps.limits.binding_bytes()) / 4) as usize / config.vocab_size;
    if most >= tokens {
        return tokens;
    }
    let aligned = ALIGN >> config.hidden_size.trailing_zeros().min(ALIGN.trailing_zeros());
    let step = if most >= ALIGN { ALIGN } else { aligned };
    (most / step * step).max(aligned)
}

fn rope_table(config: &ModelConfig, positions: usize) -> Slice {
    Slice::new(Buffer::RopeTable, 0, positions as u64 * config.head_dim as u64 * 4)
}

/// What training plans depend on besides the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainChoices {
    /// Most tokens a micro-step.
    pub tokens: usize,
    /// Activations are computed again in the backward pass.
    pub recompute: bool,
    /// Products read the weights in f16.
    pub mixed: bool,
}

/// Compiles a model into the plans of training with up to `tokens` tokens a micro-step. With
/// `recompute` the backward pass computes a layer's activations again from the layer's input, by the
/// same kernels and so to the same bits: up to a quarter more arithmetic, for the memory of one layer in place
/// of all (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). With `mixed` the
/// products of activations with weights, forward and backward, read these in f16; sums, activations,
/// gradients, the weights that the optimizer changes and its moments stay f32 (after Micikevicius et
/// al., "Mixed Precision Training", arXiv:1710.03740; gradients need no scaling, being f32).
///
/// # Errors
/// `limit-exceeded`, naming the limit, when an activation or a kernel does not fit the device.
pub fn train_plans(
    caps: &Capabilities,
    config: &ModelConfig,
    layout: &Layout,
    TrainChoices { tokens, recompute, mixed }: TrainChoices,
) -> Result<TrainPlans> {
    let batch = BatchLayout::new(tokens);
    let chunk = logits_chunk(caps, config, tokens);
    let table = rope_table(config, tokens);
    let model = || {
        let builder = Builder::new(caps, Phase::Forward, tokens, Buffer::Step);
        Model { config, layout, builder, weights: WeightFormat::F32, mirrored: mixed }
    };
    let micro_step = micro_step(model(), batch, table, chunk, recompute)?;
    let evaluate = evaluate(model(), batch, table, chunk, &micro_step.slots)?;
    let optimizer = optimizer(caps, layout)?;
    let slots = evaluate.slots.clone();
    Ok(TrainPlans { micro_step, optimizer, evaluate, slots, batch, logits_rows: chunk })
}

/// Embedding, layers and final norm. Gives what the backward pass reads again of each layer, the
/// last layer's output, and the normed rows.
fn forward(
    model: &mut Model,
    batch: BatchLayout,
    table: Slice,
) -> Result<(Vec<Saved>, Slice, Slice)> {
    let hidden = model.hidden();
    if model.mirrored {
        // Each time anew: whatever has changed the weights since, a step, a load, the user.
        model.mirror_weights()?;
    }
    let mut x = model.tensor("embedding", hidden)?;
    model.embed(batch.tokens(), x)?;
    let mut saved = Vec::new();
    for layer in 0..model.config.num_hidden_layers {
        let next = model.tensor("residual", hidden)?;
        let layer_saved = model.layer_forward(layer, x, batch, table)?;
        model.layer_output(layer, &layer_saved, next)?;
        saved.push(layer_saved);
        x = next;
    }
    let normed = model.tensor("final norm", hidden)?;
    model.norm("final norm", model.layout.final_norm, x, normed)?;
    Ok((saved, x, normed))
}

fn micro_step(
    mut model: Model,
    batch: BatchLayout,
    table: Slice,
    chunk: usize,
    recompute: bool,
) -> Result<Plan> {
    let (saved, x, normed) = forward(&mut model, batch, table)?;
    let hidden = model.hidden();
    let d_normed = model.tensor("final norm gradient", hidden)?;
    model.loss(normed, Some(d_normed), batch, chunk)?;
    model.builder.phase = Phase::Backward;
    let d_x = model.tensor("residual gradient", hidden)?;
    let mode = WriteMode::Overwrite;
    model.norm_backward("final norm", model.layout.final_norm, x, d_normed, d_x, mode)?;
    let last = saved.len() - 1;
    for (layer, mut saved) in saved.into_iter().enumerate().rev() {
        // What the forward pass left of the last layer is the memory that the others use again.
        if recompute && layer < last {
            saved = model.layer_forward(layer, saved.input, batch, table)?;
        }
        model.layer_backward(layer, &saved, d_x, batch, table)?;
    }
    model.embedding_backward(d_x, batch)?;
    Ok(model.builder.finish(&[]))
}

/// The forward pass and the loss, in the micro-step's slots.
fn evaluate(
    mut model: Model,
    batch: BatchLayout,
    table: Slice,
    chunk: usize,
    slots: &[u64],
) -> Result<Plan> {
    let (_, _, normed) = forward(&mut model, batch, table)?;
    model.loss(normed, None, batch, chunk)?;
    Ok(model.builder.finish(slots))
}

fn optimizer(caps: &Capabilities, layout: &Layout) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Optimizer, 1, Buffer::Step);
    let partials = k::GRAD_NORM_GROUPS;
    let squares_bytes = (partials * layout.shards.len()) as u64 * 4;
    for (index, shard) in layout.shards.iter().enumerate() {
        let gradients = Slice::new(Buffer::Gradients(index), 0, shard.len as u64 * 4);
        let squares =
            Slice::new(Buffer::Squares, (index * partials) as u64 * 4, partials as u64 * 4);
        let kernel = k::grad_norm(caps)?;
        builder.dispatch(
            "gradient norm",
            kernel,
            vec![gradients, squares, builder.step()],
            2.0 * shard.len as f64,
        )?;
    }
    let optimizer = Slice::new(Buffer::Optimizer, 0, OPTIMIZER_BYTES);
    let slices = vec![
        Slice::new(Buffer::Squares, 0, squares_bytes),
        Slice::new(Buffer::Metrics, 0, METRICS_BYTES),
        optimizer,
        builder.step(),
    ];
    let kernel = k::step_decision(caps, partials * layout.shards.len())?;
    builder.dispatch("step decision", kernel, slices, squares_bytes as f64 / 4.0)?;
    for (index, shard) in layout.shards.iter().enumerate() {
        let whole = |set: fn(usize) -> Buffer| Slice::new(set(index), 0, shard.len as u64 * 4);
        let range =
            builder.range(Range { row0: 0, rows: 1, col0: 0, cols: shard.decay_end as u32 });
        let slices = vec![
            whole(Buffer::Weights),
            whole(Buffer::Gradients),
            whole(Buffer::Moment1),
            whole(Buffer::Moment2),
            optimizer,
            builder.step(),
            range,
        ];
        let kernel = k::adamw(caps, shard.len)?;
        builder.dispatch("adamw", kernel, slices, 14.0 * shard.len as f64)?;
    }
    Ok(builder.finish(&[]))
}
