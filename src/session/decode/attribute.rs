//! Attribution: gradients of a logit by the states after layers.

use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, PlanId, Region, Replay, create_checked, submit_checked};
use crate::graph::Captured;
use crate::lower::attribution_plan;
use crate::plan::{BatchLayout, Buffer, Plan, Slice, buffers};
use crate::session::decode::capture::{expect_room, tensors};
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::resources::Resources;
use crate::session::step::{Step, rope_tables, write_rope_tables};
use crate::session::throughput::Work;
use crate::session::train::batch::fill;
use crate::session::train::given::{Cut, Logits, cut};

/// Which number's gradient is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributedLogit {
    /// The position that gives the logit.
    pub position: usize,
    /// The token whose logit it is.
    pub target: u32,
    /// A token whose logit is taken from it.
    pub against: Option<u32>,
}

impl AttributedLogit {
    fn check(&self, tokens: usize, vocabulary: usize) -> Result<()> {
        let Self { position, target, against } = *self;
        if position >= tokens {
            return Err(Error::options(format!(
                "position is {position}; of {tokens} tokens it must be below {tokens}"
            )));
        }
        for (name, id) in [("target", Some(target)), ("against", against)] {
            if let Some(id) = id.filter(|&id| id as usize >= vocabulary) {
                return Err(Error::options(format!(
                    "{name} is {id}; token ids must be below vocab_size, {vocabulary}"
                )));
            }
        }
        Ok(())
    }

    /// The tokens whose logits it differentiates, with their factors.
    fn terms(&self) -> impl Iterator<Item = (u32, f32)> {
        std::iter::once((self.target, 1.0)).chain(self.against.map(|against| (against, -1.0)))
    }
}

impl Model {
    /// The gradient of a logit, or of one less another, by the state of each position after each of some layers: for
    /// each layer `tokens.len() × hidden_size` numbers. 0 is the embedding. The state after the last layer is before
    /// the final norm. The text is one document.
    ///
    /// # Errors
    /// `invalid-tokens`, `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn attribute(
        &self,
        tokens: &[u32],
        logit: AttributedLogit,
        layers: &[usize],
        progress: Progress<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        self.check_tokens(tokens)?;
        let count = tokens.len();
        logit.check(count, self.config().vocab_size)?;
        let captured: Vec<_> = layers.iter().map(|&layer| (Captured::Residual, layer)).collect();
        let layout = self.check_captured(&captured, count)?;
        expect_room("gradients by states", &layout)?;
        progress.report(0, 2, "attribution")?;
        let (gpu, caps) = (&**self.gpu(), self.gpu().capabilities());
        let architecture = &self.layout().architecture;
        let plan = attribution_plan(caps, self.layout(), layout.clone(), layers, logit.position)?;
        let pass = self.install_attribution(&plan).await?;
        let tables = rope_tables(&pass.resources, architecture)?;
        write_rope_tables(gpu, tables, 0..count, architecture.is_long(count)).await?;
        create_checked(gpu, || write_text(gpu, &pass.resources, tokens)).await?;
        let slopes = pass.slopes(self, logit).await?;
        create_checked(gpu, || pass.write_gradient(gpu, logit.position, &slopes)).await?;
        progress.report(1, 2, "attribution")?;
        let captured = pass.resources.get(Buffer::Captured)?;
        let all = Region { buffer: captured, offset: 0, bytes: layout.bytes() };
        let bytes = pass.backward.run(self, count, all).await?;
        progress.report(2, 2, "attribution")?;
        Ok(tensors(&layout, &bytes))
    }

    /// The plan in two pieces, and what it reads and writes besides the weights.
    async fn install_attribution(&self, plan: &Plan) -> Result<Attribution> {
        let (gpu, weights) = (&**self.gpu(), self.weights.buffers()?);
        let mut sizes = buffers([plan]);
        sizes.retain(|name, _| !weights.has(*name));
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges([plan]);
        let purpose = Purpose::Inference { tokens: plan.tokens, sequences: 1 };
        memory::check_memory(gpu, purpose, &asked)?;
        let unlike =
            || Error::internal("an attribution has logits of some rows, and their gradient");
        let mut pieces = cut(plan).into_iter();
        let (Some((forward, Some(Cut::Loss(logits)))), Some(head), Some(layers), None) =
            (pieces.next(), pieces.next(), pieces.next(), pieces.next())
        else {
            return Err(unlike());
        };
        let backward =
            Plan { dispatches: [head.0.dispatches, layers.0.dispatches].concat(), ..layers.0 };
        let gradient = plan.head.and_then(|head| head.gradient).ok_or_else(unlike)?;
        let make = || {
            let mut resources = Resources::new(self.gpu());
            resources.allocate(&sizes, &[])?;
            let mut piece = |plan: &Plan| {
                let plan_id = resources.install(plan, &[&weights])?;
                Ok(CostedPlan {
                    plan: plan_id,
                    work: Work::of(plan),
                    largest: Work::of_largest(plan),
                })
            };
            let (forward, backward) = (piece(&forward)?, piece(&backward)?);
            Ok(Attribution { resources, forward, logits, gradient, backward, rows: plan.tokens })
        };
        let made = create_checked(gpu, make).await;
        made.map_err(|error| memory::explained(error, purpose, &asked))
    }
}

/// A part of the plan, and what it costs.
struct CostedPlan {
    plan: PlanId,
    work: Work,
    largest: Work,
}

impl CostedPlan {
    /// Runs it in several submits, so that each is short, and reads a region back.
    async fn run(&self, model: &Model, rows: usize, read: Region) -> Result<Vec<u8>> {
        let (gpu, throughput) = (&**model.gpu(), &model.chunk_throughput);
        let submits = throughput.submits(self.work, self.largest);
        let sent = throughput.sent(gpu, self.work);
        let replay = [Replay::new(self.plan, rows)];
        let done = submit_checked(gpu, || gpu.submit(&replay, submits, Some(read)))?;
        throughput.arrival(gpu, sent, done).await
    }
}

/// The plan of an attribution, bound.
struct Attribution {
    resources: Resources,
    /// Computes the logits of some rows. The one that is asked for is among them.
    forward: CostedPlan,
    logits: Logits,
    /// Where the head writes the gradient by the states. It computes the rows that have logits; the caller writes zeros to
    /// the others.
    gradient: Slice,
    backward: CostedPlan,
    /// Rows of the text.
    rows: usize,
}

impl Attribution {
    /// Runs the forward pass. Returns the tokens, each with the derivative by its logit before a cap.
    async fn slopes(&self, model: &Model, logit: AttributedLogit) -> Result<Vec<(u32, f32)>> {
        let buffer = self.resources.get(self.logits.buffer())?;
        let mut slopes = vec![];
        for (id, factor) in logit.terms() {
            let number = self.logits.number(buffer, logit.position, id as usize);
            let bytes = if slopes.is_empty() {
                self.forward.run(model, self.rows, number).await?
            } else {
                model.gpu().read(number)?.await?
            };
            slopes.push((id, factor * self.logits.slope(self.logits.read(&bytes)[0])));
        }
        Ok(slopes)
    }

    /// Writes the gradient by the logits that were computed. Writes zeros for the states of all rows: the head overwrites
    /// those of rows with logits.
    fn write_gradient(&self, gpu: &dyn Gpu, row: usize, slopes: &[(u32, f32)]) -> Result<()> {
        let buffer = self.resources.get(self.logits.buffer())?;
        let all = self.logits.region(buffer, self.rows);
        let mut words = vec![0f32; all.bytes as usize / 4];
        for &(id, slope) in slopes {
            let at = self.logits.number(buffer, row, id as usize).offset - all.offset;
            words[at as usize / 4] += slope;
        }
        gpu.write(all.buffer, all.offset, bytemuck::cast_slice(&words))?;
        let Slice { buffer, offset, bytes } = self.gradient;
        gpu.write(self.resources.get(buffer)?, offset, &vec![0; bytes as usize])
    }
}

/// Writes a text as the one document of a batch.
fn write_text(gpu: &dyn Gpu, resources: &Resources, tokens: &[u32]) -> Result<()> {
    let batch = Batch::new(tokens.to_vec(), vec![IGNORE_INDEX; tokens.len()], None);
    let padded = BatchLayout::new(tokens.len()).padded;
    let mut words = vec![0u32; 5 * padded];
    fill(&mut words, padded, &batch)?;
    let buffer = resources.get(Buffer::Batch)?;
    let bytes = resources.bytes_of(Buffer::Batch).unwrap_or(0) as usize / 4;
    gpu.write(buffer, 0, bytemuck::cast_slice(&words[..bytes.min(5 * padded)]))?;
    gpu.write(resources.get(Buffer::Step)?, 0, bytemuck::bytes_of(&Step::of(tokens.len())))
}
