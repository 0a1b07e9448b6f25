//! Family 10 by products: batches of several strips of rows, with tables of their tiles.

use super::backward::{BackwardBatch, summed};
use super::forward::{Setting, group_sum_of};
use crate::caps::Capabilities;
use crate::data::document_ends;
use crate::kernels::AttentionProducts::{self, KeyValueSums, QuerySums, Scores, Sums};
use crate::kernels::{self as k, Kernel, Spec};
use crate::plan::count_tiles;
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::text;
use crate::testing::{Case, Outcome};
use std::ops::Range;
use std::rc::Rc;

type Found<T> = std::result::Result<T, String>;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for setting in Setting::all().into_iter().filter(|setting| setting.heads.2.is_multiple_of(64)) {
        let name = |what: &str| format!("attention {what} {}", setting.name());
        let of = |turned| move |lane| backward(lane, setting, turned);
        cases.push(Case::new(name("backward by products"), of(false)));
        cases.push(Case::new(name("backward by products, rotated back,"), of(true)));
    }
    cases
}

/// Batches of several strips of rows: documents that end in and between them, and one of all.
fn strips(lane: &Lane) -> Vec<Vec<u32>> {
    let start = |first: u32, len: u32| vec![first; len as usize];
    let middle = 1 + lane.normal(1)[0].to_bits() % 140;
    let later = middle + 1 + lane.normal(1)[0].to_bits() % 30;
    let last = 256 + lane.normal(1)[0].to_bits() % 60;
    let parts = [(0, middle), (middle, later), (later, last), (last, last + 40)];
    let several = parts.iter().flat_map(|&(from, to)| start(from, to - from)).collect();
    vec![vec![0], start(0, 131), several]
}

/// Scores by one kernel and their sums by one or two, with room for more tiles than there are: as much for each
/// batch, so that one text serves all.
async fn backward(lane: Rc<Lane>, setting: Setting, turned: bool) -> Outcome {
    let batches = strips(&lane);
    let most = |count: fn(&[u32]) -> usize| 1 + batches.iter().map(|b| count(b)).max().unwrap_or(0);
    let strip_count = most(|documents| documents.len().div_ceil(k::STRIP));
    let tiles = most(|documents| count_tiles(documents, &mut [], &mut []));
    for documents in batches {
        let batch = BackwardBatch::new(&lane, setting, documents);
        let batch = if turned { batch.turned() } else { batch };
        let whole = k::BatchAttention { tokens: strip_count * k::STRIP, ..setting.batch() };
        let mut tables = batch.documents.clone();
        tables.resize(TABLES, u32::MAX);
        tables.extend(document_ends(&batch.documents));
        tables.resize(2 * TABLES + strip_count + tiles, u32::MAX);
        let (before, strip_of) = tables[2 * TABLES..].split_at_mut(strip_count);
        count_tiles(&batch.documents, before, strip_of);
        let products =
            Products { lane: &lane, batch: &batch, whole, rotated: turned, tiles, tables };
        // All heads at a time, and in two turns.
        for heads in [setting.heads.0, setting.heads.0.div_ceil(2)] {
            products.check(heads).await?;
        }
    }
    Ok(lane.summary())
}

/// Where ends begin after starts, and tables after ends.
const TABLES: usize = 384;

struct Products<'a> {
    lane: &'a Lane,
    batch: &'a BackwardBatch,
    whole: k::BatchAttention,
    rotated: bool,
    tiles: usize,
    tables: Vec<u32>,
}

impl Products<'_> {
    /// The kernels of some heads on devices that have a backward pass by products, whatever the window.
    fn kernels(&self, products: AttentionProducts, heads: &Range<usize>) -> Found<Vec<Kernel>> {
        let k::BatchAttention { shape, scores, window, tokens, .. } = self.whole;
        let spec = k::AttentionBackwardProducts {
            shape,
            scores,
            window,
            tokens,
            rotated: self.rotated,
            tiles: self.tiles,
            first_head: heads.start,
            heads: heads.len(),
            ends: TABLES,
            products,
        };
        // Heads and tokens of a batch that is large enough.
        let shape = k::AttentionShape { heads: 32, kv_heads: 32, ..shape };
        let whole = k::BatchAttention { shape, window: None, tokens: 512, ..self.whole };
        let made = |caps: &Capabilities| match k::attention_product_tiles(caps, whole) {
            Some(_) => Ok(vec![spec.kernel(caps)?]),
            None => Ok(vec![]),
        };
        self.lane.chosen(made).map_err(text)
    }

    /// All heads, `heads` at a time, with sums in one dispatch and in two.
    async fn check(&self, heads: usize) -> Found<()> {
        let room = k::ProductTiles { tiles: self.tiles, heads };
        let turns: Vec<_> = room.turns(self.whole.shape.heads).collect();
        for variant in 0..self.kernels(Scores, &turns[0])?.len() {
            let mut left = vec![];
            for turn in &turns {
                let kernel = &self.kernels(Scores, turn)?[variant];
                left.push(self.scores(kernel, turn.len()).await?);
            }
            for sums in [&[Sums][..], &[QuerySums, KeyValueSums]] {
                let mut got = None;
                for (turn, left) in turns.iter().zip(&left) {
                    for &products in sums {
                        let kernel = &self.kernels(products, turn)?[variant];
                        got = Some(self.sums(kernel, left, got.as_ref()).await?);
                    }
                }
                let got = got.ok_or("no dispatch")?;
                self.hold(&got).await.map_err(|what| format!("{sums:?} of {turns:?}: {what}"))?;
            }
        }
        Ok(())
    }

    /// The probabilities and score gradients of `heads` heads.
    async fn scores(&self, kernel: &Kernel, heads: usize) -> Found<Outputs> {
        let elements = heads * self.tiles * k::STRIP * k::STRIP;
        let mut job = self.batch.job(self.lane, kernel);
        job.operands[4] = Operand::words(&self.tables);
        job.operands[5] = Operand::poison(elements);
        job.operands.push(Operand::poison(elements));
        Ok(self.lane.run(&[job]).await.map_err(text)?.remove(0))
    }

    /// Holds what the kernels of sums have left.
    async fn hold(&self, got: &Outputs) -> Found<()> {
        let (lane, shape, batch) = (self.lane, self.whole.shape, self.batch);
        if shape.heads == shape.kv_heads {
            return batch.check(lane, got, &(0..shape.stride()));
        }
        batch.check(lane, got, &(0..shape.key_offset()))?;
        let sums = lane.variants_of(group_sum_of(shape)).map_err(text)?;
        summed(lane, batch, shape, &Outputs::of(got.words(1).to_vec()), &sums).await
    }

    /// What a kernel of sums leaves in the place of `before`.
    async fn sums(
        &self,
        kernel: &Kernel,
        left: &Outputs,
        before: Option<&Outputs>,
    ) -> Found<Outputs> {
        let batch = self.batch;
        let write = |index: usize, elements: usize| match before {
            Some(before) => Operand::words(before.words(index)),
            None => Operand::poison(elements),
        };
        let mut operands = vec![
            Operand::floats(&batch.qkv),
            Operand::floats(&batch.d_out),
            Operand::words(&self.tables),
            Operand::words(left.words(0)),
            Operand::words(left.words(1)),
            write(0, batch.qkv.len()),
            Operand::uniform(&Step::of(batch.shape.tokens)),
        ];
        let shape = self.whole.shape;
        if shape.heads > shape.kv_heads {
            operands.push(write(1, batch.shape.tokens * 2 * shape.width()));
        }
        operands.extend(batch.table());
        let job = Job::new(kernel, batch.shape.tokens, operands);
        Ok(self.lane.run(&[job]).await.map_err(text)?.remove(0))
    }
}
