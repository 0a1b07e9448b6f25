//! The training plans: forward and backward of a micro-step, the optimizer, evaluation.

use super::head::{aligned_rows, logits_chunk};
use super::{CaptureLayout, Lowering, PassInputs, PassRows};
use crate::arch::{DropoutRates, WeightId};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::graph::{self, Graph};
use crate::kernels::{self as k, Constant, Kernel, KernelSpec, Objective, WeightFormat};
use crate::layout::{DocumentLength, Matrices, PassKind, Request};
use crate::optim::{self, Optimizer};
use crate::params::Params;
use crate::plan::{BatchLayout, Buffer, Builder, Phase, Plan};
use std::rc::Rc;

/// Everything a trainer replays.
#[derive(Clone, Debug)]
pub struct TrainPlans {
    pub micro_step: Plan,
    /// The first dispatches of a pass over a batch, which write [`Buffer::Mirror`].
    pub rounding: usize,
    /// Tiles of each head for which its attention has room; none where the host counts none.
    pub tiles: Option<usize>,
    /// As [`Self::micro_step`], for batches of long documents, which have more tiles. None where no batch has more.
    pub long: Option<Plan>,
    /// Tiles of each head for which attention has room in [`Self::long`].
    pub long_tiles: Option<usize>,
    pub optimizer: Plan,
    pub evaluate: Plan,
    /// Begins the averages of weights, or exchanges them with the weights; only where there are any.
    pub averages: Option<Plan>,
    /// The layout of gradients and optimizer state.
    pub state: Rc<Params>,
    /// Sizes of the activation slots, shared by the plans.
    pub slots: Vec<u64>,
    pub batch: BatchLayout,
    /// What the gradients of a micro-step are multiplied by, up to the optimizer: a power of two, 1 unless some are
    /// rounded to f16.
    pub gradient_unit: f64,
    /// Rows of logits held at a time.
    pub logits_rows: usize,
}

impl TrainPlans {
    pub fn all(&self) -> Vec<&Plan> {
        let always = [&self.micro_step, &self.optimizer, &self.evaluate];
        always.into_iter().chain(&self.averages).chain(&self.long).collect()
    }
}

/// What training plans depend on besides the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainChoices {
    /// Most tokens per micro-step.
    pub tokens: usize,
    /// Activations are computed again in the backward pass.
    pub recompute: bool,
    /// Products read the weights in f16.
    pub mixed: bool,
    /// Only this many of the last layers are trained, and what follows them. None: all layers, or a LoRA adapter.
    pub last_layers: Option<usize>,
    pub objective: Objective,
    /// The rates of the model itself. A LoRA adapter has its own.
    pub dropout: DropoutRates,
    pub optimizer: Optimizer,
    /// How much of the average of weights a step keeps; none: no average.
    pub average: Option<Constant>,
}

/// Turns of heads that long documents are tried in: the fewest whose tiles have room.
const TURNS: [usize; 3] = [1, 2, 4];

/// What the passes over a batch have in common.
struct TrainPass<'a> {
    caps: &'a Capabilities,
    params: &'a Params,
    state: &'a Params,
    choices: TrainChoices,
    /// Rows of logits held at a time.
    logits: usize,
}

impl TrainPass<'_> {
    /// What lowers the nodes of a graph. With `by_products` attention's backward pass may be by products.
    fn lowering<'a>(
        &'a self,
        graph: &'a Graph,
        by_products: Option<DocumentLength>,
    ) -> Lowering<'a> {
        let Self { caps, params, state, choices, logits } = *self;
        let TrainChoices { tokens, recompute, mixed, objective, .. } = choices;
        let request = Request {
            caps,
            graph,
            nodes: 0..graph.nodes.len(),
            outside: None,
            matrices: Matrices { params, weights: params.weights, mixed, rounds: false },
            state,
            tokens,
            kind: PassKind::Batch { recompute, by_products, logits },
        };
        let builder = Builder::new(caps, Phase::Forward, tokens, Buffer::Step);
        let batch = BatchLayout::new(tokens);
        let inputs =
            PassInputs { tokens: batch.tokens(), documents: batch.documents(), positions: tokens };
        Lowering::new(request, builder, PassRows::Batch { batch, logits, objective }, inputs)
    }

    /// The plan of a graph's nodes, with slots that are at least as large as these.
    fn plan(
        &self,
        graph: &Graph,
        by_products: Option<DocumentLength>,
        slots: &[u64],
    ) -> Result<Plan> {
        let mut lowering = self.lowering(graph, by_products);
        if self.choices.mixed {
            // Each time: a step, a load or the user may have changed the weights since.
            lowering.round_weights()?;
        }
        lowering.nodes(0..graph.nodes.len())?;
        Ok(lowering.builder.finish(slots))
    }

    /// The plan for batches that have more tiles than the one for short documents has room for, if there can be any.
    fn long(&self, training: &Graph, short: &Plan) -> Result<Option<Plan>> {
        let all = k::all_tiles(self.choices.tokens.div_ceil(k::STRIP) as u64);
        if product_tiles(short).is_none_or(|tiles| tiles as u64 >= all) {
            return Ok(None);
        }
        for turns in TURNS {
            let by_products = Some(DocumentLength::Any { turns });
            let long = self.plan(training, by_products, &short.slots)?;
            if takes_little_more(&long, short) {
                return Ok(Some(long));
            }
        }
        self.plan(training, None, &short.slots).map(Some)
    }
}

/// Compiles a model into the plans of training with up to `tokens` tokens per micro-step. With `recompute` the backward
/// pass computes a layer's activations again from the layer's input ([`graph::remat`]): the same kernels, so the same
/// bits; up to a quarter more arithmetic. With `mixed` the products of activations with weights, forward and backward,
/// read these in f16. Where the device multiplies f16 by matrices, they also round activations and their gradients, and
/// what only they read is in f16. Sums, the gradients of weights, the weights that the optimizer changes and its
/// moments stay f32 (after Micikevicius et al., "Mixed Precision Training", arXiv:1710.03740). Those that are rounded
/// to f16 are multiplied by [`TrainPlans::gradient_unit`].
///
/// # Errors
/// `limit-exceeded`, naming the limit, when an activation or a kernel does not fit the device;
/// `invalid-options` as [`Architecture::first_trained`](crate::arch::Architecture::first_trained), and where what
/// is to be trained is packed.
pub fn train_plans(
    caps: &Capabilities,
    params: &Params,
    choices: TrainChoices,
) -> Result<TrainPlans> {
    let first = params.architecture.first_trained(choices.last_layers)?;
    if params.matrices[first..].iter().any(|matrix| matrix.format != WeightFormat::F32) {
        return Err(Error::options(format!(
            "this model holds its matrices in {}, and a packed matrix has no gradient: train an adapter on it, or \
             load the model with weights: \"f32\"",
            params.weights.name()
        )));
    }
    train_plans_of(caps, params, choices, &|weight| weight >= first)
}

/// The plans of training for any choice of weights. Gradients and moments have the layout of [`Params::trained`].
///
/// # Errors
/// As [`train_plans`].
pub fn train_plans_of(
    caps: &Capabilities,
    params: &Params,
    choices: TrainChoices,
    trained: &dyn Fn(WeightId) -> bool,
) -> Result<TrainPlans> {
    let TrainChoices { tokens, recompute, mixed, .. } = choices;
    let state = params.trained(trained)?;
    let forward = graph::build(&params.architecture);
    let training = graph::build_training(&params.architecture, choices.dropout);
    let mut training = graph::differentiate(&training, trained)?;
    if recompute {
        training = graph::remat(&training);
    }
    let logits_rows = logits_chunk(caps, params, tokens);
    let batch = TrainPass { caps, params, state: &state, choices, logits: logits_rows };
    let micro_step = batch.plan(&training, Some(DocumentLength::Short), &[])?;
    let long = batch.long(&training, &micro_step)?;
    let last = long.as_ref().unwrap_or(&micro_step);
    let evaluate = batch.plan(&forward, None, &last.slots)?;
    let share = choices.average.map(|kept| 1.0 - kept.0);
    let optimizer = optim::plan(caps, &choices.optimizer, params, &state, &evaluate.slots, share)?;
    let averages =
        share.map(|share| optim::average_plan(caps, params, &state, share)).transpose()?;
    // What the optimizer computes with begins with the slots of the others.
    let last = if optimizer.slots.is_empty() { &evaluate } else { &optimizer };
    let (slots, state) = (last.slots.clone(), Rc::new(state));
    let gradient_unit = if mixed && rounds(caps) { sums_over(tokens) } else { 1.0 };
    Ok(TrainPlans {
        state,
        rounding: if mixed { params.shards.len() } else { 0 },
        tiles: product_tiles(&micro_step),
        long_tiles: long.as_ref().and_then(product_tiles),
        micro_step,
        long,
        optimizer,
        evaluate,
        averages,
        slots,
        batch: BatchLayout::new(tokens),
        gradient_unit,
        logits_rows,
    })
}

/// The forward pass of one text of `layout.tokens` tokens, and gradients of the states after some layers into
/// [`Buffer::Captured`]. It computes few rows of the logits: `row`, and those that share a tile with it. The caller
/// writes the gradient by these logits, and zeros where [`Plan::head`] has the gradient by the states.
///
/// # Errors
/// `limit-exceeded`, as [`train_plans`].
pub fn attribution_plan(
    caps: &Capabilities,
    params: &Params,
    layout: CaptureLayout,
    states: &[usize],
    row: usize,
) -> Result<Plan> {
    let tokens = layout.tokens;
    let state = params.trained(&|_| false)?;
    let graph = graph::differentiate_states(&graph::build(&params.architecture), states)?;
    let logits = aligned_rows(params.architecture.hidden).min(tokens);
    let choices = TrainChoices { tokens, ..TrainChoices::default() };
    let batch = TrainPass { caps, params, state: &state, choices, logits };
    let mut lowering = batch.lowering(&graph, None);
    lowering.captured = layout;
    lowering.logit_row = Some(row as u32);
    lowering.nodes(0..graph.nodes.len())?;
    Ok(lowering.builder.finish(&[]))
}

/// Whether activations of a plan for long documents take at most a quarter more than those of the plan for short ones,
/// to whose users they are of no use.
fn takes_little_more(long: &Plan, short: &Plan) -> bool {
    let [long, short] = [long, short].map(|plan| plan.slots.iter().sum::<u64>());
    long - short <= short / 4
}

/// Tiles of each head for which a plan's backward pass of attention has room, if it is by products.
fn product_tiles(plan: &Plan) -> Option<usize> {
    let of = |kernel: &Kernel| match kernel.spec {
        KernelSpec::AttentionBackwardProducts(spec) => Some(spec.tiles),
        _ => None,
    };
    // Layers of other heads may have other room.
    plan.kernels.iter().filter_map(of).min()
}

/// Whether products round gradients to f16.
fn rounds(caps: &Capabilities) -> bool {
    caps.half_matrix().is_some()
}

/// The power of two by which gradients of a mean over `tokens` tokens become about those of a sum. Their size then does
/// not depend on the number of tokens. f16 has normal numbers from 6e-5 to 65,504
/// (`docs/decisions/053-gradients-in-f16.md`).
fn sums_over(tokens: usize) -> f64 {
    tokens.next_power_of_two() as f64
}
