//! Attribution: gradients of a logit by the states behind layers.

use crate::data::{Batch, IGNORE_INDEX, write_document_ends, write_sorted_by_token};
use crate::error::{Error, Result, room};
use crate::gpu::{Gpu, PlanId, Region, Replay, create_checked, submit_checked};
use crate::graph::Captured;
use crate::lower::attribution_plan;
use crate::plan::{BatchLayout, Buffer, Plan, buffers};
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::resources::Resources;
use crate::session::step::{Step, rope_tables, write_rope_tables};
use crate::session::train::given::{Logits, cut};

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

    /// The gradient by rows of logits from `first` on.
    fn slopes(&self, first: usize, logits: &[f32], vocabulary: usize) -> Vec<f32> {
        let mut slopes = vec![0.0; logits.len()];
        let row = self.position.checked_sub(first).map(|row| row * vocabulary);
        if let Some(row) = row.and_then(|row| slopes.get_mut(row..row + vocabulary)) {
            row[self.target as usize] += 1.0;
            if let Some(against) = self.against {
                row[against as usize] -= 1.0;
            }
        }
        slopes
    }
}

impl Model {
    /// The gradient of a logit, or of one less another, by the state of each position behind each of some layers: for each
    /// layer `tokens.len() × hidden_size` numbers. 0 is the embedding, and the state behind the last layer is before the
    /// final norm. The text is one document.
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
        let (count, vocabulary) = (tokens.len(), self.config().vocab_size);
        logit.check(count, vocabulary)?;
        let captured: Vec<_> = layers.iter().map(|&layer| (Captured::Residual, layer)).collect();
        let layout = self.check_captured(&captured, count)?;
        let _: Vec<f32> = room("gradients by states", layout.bytes() / 4)?;
        progress.report(0, 1, "attribution")?;
        let (gpu, caps) = (&**self.gpu(), self.gpu().capabilities());
        let architecture = &self.layout().architecture;
        let plan = attribution_plan(caps, self.layout(), layout.clone(), layers)?;
        let (resources, pieces) = self.install_attribution(&plan).await?;
        let tables = rope_tables(&resources, architecture)?;
        write_rope_tables(gpu, tables, 0..count, architecture.is_long(count)).await?;
        create_checked(gpu, || write_text(gpu, &resources, tokens)).await?;
        let captured = resources.get(Buffer::Captured)?;
        let all = Region { buffer: captured, offset: 0, bytes: layout.bytes() };
        let mut bytes = vec![];
        for (plan, logits) in pieces {
            let region = match logits {
                Some(logits) => logits.region(resources.get(logits.buffer())?, count),
                None => all,
            };
            let read =
                submit_checked(gpu, || gpu.submit(&[Replay::new(plan, count)], 1, Some(region)))?;
            bytes = read.await?;
            if let Some(logits) = logits.filter(|logits| logits.rows_of(count) > 0) {
                let values = logits.read(&bytes);
                let slopes = logit.slopes(logits.first(), &values, vocabulary);
                let words = logits.written(&slopes, &values, 1.0);
                let write =
                    || gpu.write(region.buffer, region.offset, bytemuck::cast_slice(&words));
                create_checked(gpu, write).await?;
            }
        }
        progress.report(1, 1, "attribution")?;
        let of = |at: u64, count: u64| &bytes[at as usize..(at + count) as usize];
        let own = layout.slices.iter();
        Ok(own.map(|one| bytemuck::pod_collect_to_vec(of(one.offset, one.bytes))).collect())
    }
}

/// A part of the plan, up to the logits of some rows or to its end.
type Piece = (PlanId, Option<Logits>);

impl Model {
    /// The plan in pieces, and what it reads and writes besides the weights.
    async fn install_attribution(&self, plan: &Plan) -> Result<(Resources, Vec<Piece>)> {
        let (gpu, weights) = (&**self.gpu(), self.weights.buffers()?);
        let mut sizes = buffers([plan]);
        sizes.retain(|name, _| !weights.has(*name));
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges([plan]);
        let purpose = Purpose::Inference { tokens: plan.tokens, sequences: 1 };
        memory::check_memory(gpu, purpose, &asked)?;
        let pieces = cut(plan);
        let make = || {
            let mut resources = Resources::new(self.gpu());
            resources.allocate(&sizes, &[])?;
            let install = |(plan, logits): &(_, Option<Logits>)| {
                Ok((resources.install(plan, &[&weights])?, *logits))
            };
            let pieces = pieces.iter().map(install).collect::<Result<Vec<_>>>()?;
            Ok((resources, pieces))
        };
        let made = create_checked(gpu, make).await;
        made.map_err(|error| memory::explained(error, purpose, &asked))
    }
}

/// Writes a text as the one document of a batch.
fn write_text(gpu: &dyn Gpu, resources: &Resources, tokens: &[u32]) -> Result<()> {
    let batch = Batch::new(tokens.to_vec(), vec![IGNORE_INDEX; tokens.len()], None);
    let padded = BatchLayout::new(tokens.len()).padded;
    let mut words = vec![0u32; 5 * padded];
    let (own, rest) = words.split_at_mut(padded);
    own[..tokens.len()].copy_from_slice(tokens);
    let (targets, rest) = rest.split_at_mut(padded);
    targets[..tokens.len()].copy_from_slice(&batch.targets);
    let (order, rest) = rest.split_at_mut(padded);
    let (starts, ends) = rest.split_at_mut(padded);
    let count = tokens.len();
    write_sorted_by_token(tokens, &mut order[..count], &mut ends[..count]);
    starts[..count].copy_from_slice(&batch.documents);
    write_document_ends(&batch.documents, &mut ends[..count]);
    let buffer = resources.get(Buffer::Batch)?;
    let bytes = resources.bytes_of(Buffer::Batch).unwrap_or(0) as usize / 4;
    gpu.write(buffer, 0, bytemuck::cast_slice(&words[..bytes.min(5 * padded)]))?;
    gpu.write(resources.get(Buffer::Step)?, 0, bytemuck::bytes_of(&Step::of(count)))
}
