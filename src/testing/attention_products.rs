//! Families 05 and 10 by products: batches of several strips of rows, with tables of their tiles.

use super::attention::{SOFTMAX, Setting, alone};
use super::attention_backward::{Batch, summed};
use super::harness::{Job, Operand, Outputs, Step};
use super::lane::Lane;
use super::measure::{close, close_to_terms, dot, of, text, wide};
use super::{Case, Outcome};
use crate::caps::Capabilities;
use crate::data::document_ends;
use crate::kernels::{self as k, AttentionProducts, Kernel};
use crate::plan::count_tiles;
use crate::twins::attention::{AttentionShape as TwinShape, attention_forward};
use std::f64::consts::LN_2;
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let settings = Setting::all().into_iter().filter(|setting| setting.heads.2.is_multiple_of(64));
    for setting in settings.chain([Setting::plain((3, 1, 192))]) {
        let name = |what: &str| format!("attention {what} {}", setting.name());
        let forward = move |lane| forward(lane, setting);
        cases.push(Case::new(name("forward by products"), forward));
        let of = |turned| move |lane| backward(lane, setting, turned);
        if setting.heads.2 != 192 {
            cases.push(Case::new(name("backward by products"), of(false)));
        }
        if !matches!(setting.heads.2, 128 | 256) && setting.window.is_none() {
            cases.push(Case::new(name("backward by products, turned back,"), of(true)));
        }
    }
    cases
}

/// Batches of several strips of rows: documents that end in and between them, and one of all.
fn strips(lane: &Lane) -> [Vec<u32>; 3] {
    let start = |first: u32, len: u32| vec![first; len as usize];
    let middle = 1 + lane.normal(1)[0].to_bits() % 140;
    let later = middle + 1 + lane.normal(1)[0].to_bits() % 30;
    let last = 256 + lane.normal(1)[0].to_bits() % 60;
    let parts = [(0, middle), (middle, later), (later, last), (last, last + 40)];
    let several = parts.iter().flat_map(|&(from, to)| start(from, to - from)).collect();
    [vec![0], start(0, 131), several]
}

/// Where ends begin behind starts, and tables behind ends.
const TABLES: usize = 384;

/// A batch's documents and tables, with room for more tiles than there are.
struct Tables {
    tokens: usize,
    tiles: usize,
    words: Vec<u32>,
}

impl Tables {
    fn new(documents: &[u32]) -> Self {
        let strips = documents.len().div_ceil(k::STRIP) + 1;
        let tiles = count_tiles(documents, &mut [], &mut []) + 1;
        let mut words = documents.to_vec();
        words.resize(TABLES, u32::MAX);
        words.extend(document_ends(documents));
        words.resize(2 * TABLES + strips + tiles, u32::MAX);
        let (before, strip_of) = words[2 * TABLES..].split_at_mut(strips);
        count_tiles(documents, before, strip_of);
        Self { tokens: strips * k::STRIP, tiles, words }
    }

    /// The kernels of a role on devices that have the pass by products in some batch, whatever the window.
    fn kernels(
        &self,
        lane: &Lane,
        shape: k::AttentionShape,
        products: AttentionProducts,
    ) -> std::result::Result<Vec<Kernel>, String> {
        use AttentionProducts::{Output, Weights};
        let whole =
            k::AttentionShape { window: None, heads: 32, kv_heads: 32, tokens: 1024, ..shape };
        let made = |caps: &Capabilities| {
            let tiles = match products {
                Weights | Output => k::attention_forward_products(caps, whole),
                _ => k::attention_product_tiles(caps, whole),
            };
            let places = (self.tiles, TABLES);
            tiles
                .map(|_| k::attention_by_products(caps, shape, places, products))
                .into_iter()
                .collect()
        };
        let kernels = lane.chosen(made).map_err(text)?;
        if kernels.is_empty() {
            return Err(format!("no device has {products:?} by products: nothing holds them"));
        }
        Ok(kernels)
    }
}

/// Weights by one kernel and their sums by another: of scores of some size, and of such that most weights vanish.
async fn forward(lane: Rc<Lane>, setting: Setting) -> Outcome {
    const STEEP: f32 = 64.0;
    let [one, short, several] = strips(&lane);
    for (documents, size) in [(one, 1.0), (short, 1.0), (several.clone(), 1.0), (several, STEEP)] {
        let twin = setting.twin(documents.len());
        let mut qkv = lane.normal(twin.tokens * twin.qkv_width());
        for row in qkv.chunks_exact_mut(twin.qkv_width()) {
            row[..twin.out_width()].iter_mut().for_each(|x| *x *= size);
        }
        let expected = attention_forward(twin, &wide(&qkv), &documents);
        let tables = Tables::new(&documents);
        let tolerance = SOFTMAX * f64::from(size);
        Forward { lane: &lane, setting, twin, documents, qkv, expected, tables, tolerance }
            .check()
            .await?;
    }
    Ok(lane.summary())
}

struct Forward<'a> {
    lane: &'a Lane,
    setting: Setting,
    twin: TwinShape,
    documents: Vec<u32>,
    qkv: Vec<f32>,
    /// The output and the logarithms.
    expected: (Vec<f64>, Vec<f64>),
    tables: Tables,
    /// Scores are rounded relative to their size, and weights as much relative to themselves.
    tolerance: f64,
}

impl Forward<'_> {
    async fn check(&self) -> std::result::Result<(), String> {
        let Self { lane, twin, tables, tolerance, .. } = self;
        let shape = k::AttentionShape { tokens: tables.tokens, ..self.setting.kernel() };
        let job = |kernel: &Kernel, more: [Operand; 2], results: &[Operand]| {
            let step = Operand::uniform(&Step::of(twin.tokens));
            let first = [Operand::floats(&self.qkv), Operand::words(&tables.words)];
            Job::new(kernel, twin.tokens, [&first, &more, results, &[step]].concat())
        };
        for of_weights in tables.kernels(lane, shape, AttentionProducts::Weights)? {
            let weights = k::tile_elements(shape, tables.tiles) as usize;
            let statistics = k::statistic_elements(shape, tables.tiles) as usize;
            let more = [weights, statistics].map(Operand::poison);
            let left = lane.run(&[job(&of_weights, more, &[])]).await.map_err(text)?.remove(0);
            self.hold_weights(&left).map_err(of(&of_weights))?;
            for of_output in tables.kernels(lane, shape, AttentionProducts::Output)? {
                let more = [0, 1].map(|i| Operand::words(left.words(i)));
                let (out, lse) = &self.expected;
                let results = [out.len(), lse.len()].map(Operand::poison);
                let job = job(&of_output, more, &results);
                let got = lane.run(&[job]).await.map_err(text)?.remove(0);
                let named = of(&of_output);
                let what = |name: &str| format!("{name} of {} tokens", twin.tokens);
                close(&what("output"), &got.floats(0), out, *tolerance).map_err(&named)?;
                // A logarithm near zero is as exact as its argument, which is near one.
                let ones = vec![1.0; lse.len()];
                close_to_terms(&what("lse"), &got.floats(1), lse, &ones, *tolerance)
                    .map_err(&named)?;
                alone(*twin, &self.documents, &self.qkv, &got.floats(0)).map_err(&named)?;
            }
        }
        Ok(())
    }

    /// Holds each weight, in units of its statistic, and the sums of weights against the probabilities of the keys.
    fn hold_weights(&self, left: &Outputs) -> std::result::Result<(), String> {
        let (weights, statistics) = (left.floats(0), left.floats(1));
        let (twin, before) = (self.twin, &self.tables.words[2 * TABLES..]);
        let (mut got, mut exact) = (vec![], vec![]);
        for (head, row) in (0..twin.n_heads).flat_map(|h| (0..twin.tokens).map(move |row| (h, row)))
        {
            let strip = row / k::STRIP;
            let seen = twin.keys(self.documents[row] as usize, row);
            let lse = self.expected.1[row * twin.n_heads + head];
            let probability = |key| match seen.contains(&key) {
                true => (self.score(head, row, key) - lse).exp(),
                false => 0.0,
            };
            for first in (seen.start / KEYS * KEYS..seen.end).step_by(KEYS) {
                let tile = before[strip].wrapping_add((first / k::STRIP) as u32) as usize
                    + head * self.tables.tiles;
                let line = tile * k::STRIP + row % k::STRIP;
                let part = (tile * k::STRIP / KEYS + first % k::STRIP / KEYS) * k::STRIP;
                let statistic = &statistics[2 * (part + row % k::STRIP)..][..2];
                let unit = (f64::from(statistic[0]) * LN_2 - lse).exp();
                let weights = &weights[line * k::STRIP + first % k::STRIP..][..KEYS];
                let values = weights.iter().chain(&statistic[1..]);
                got.extend(values.map(|&x| (f64::from(x) * unit) as f32));
                let shares: Vec<f64> = (first..first + KEYS).map(probability).collect();
                exact.extend(&shares);
                exact.push(shares.iter().sum());
            }
        }
        close("weights", &got, &exact, self.tolerance)
    }

    fn score(&self, head: usize, row: usize, key: usize) -> f64 {
        let (twin, dim) = (self.twin, self.twin.head_dim);
        let vector =
            |row: usize, offset: usize| wide(&self.qkv[row * twin.qkv_width() + offset..][..dim]);
        let key = vector(key, twin.key_offset() + twin.kv_head(head) * dim);
        twin.score(dot(&vector(row, head * dim), &key)).0
    }
}

/// Keys that share a statistic.
const KEYS: usize = 64;

/// Scores by one kernel and their sums by one or two.
async fn backward(lane: Rc<Lane>, setting: Setting, turned: bool) -> Outcome {
    // What is turned differs by documents and strips: the last batch has several of both.
    let first = if turned { 2 } else { 0 };
    for documents in strips(&lane).into_iter().skip(first) {
        let batch = Batch::new(&lane, setting, documents);
        let batch = if turned { batch.turned() } else { batch };
        let tables = Tables::new(&batch.documents);
        let shape = k::AttentionShape { tokens: tables.tokens, turned, ..setting.kernel() };
        Products { lane: &lane, batch: &batch, shape, tables }.check().await?;
    }
    Ok(lane.summary())
}

struct Products<'a> {
    lane: &'a Lane,
    batch: &'a Batch,
    shape: k::AttentionShape,
    tables: Tables,
}

impl Products<'_> {
    async fn check(&self) -> std::result::Result<(), String> {
        let (shape, batch) = (self.shape, self.batch);
        let elements = k::tile_elements(shape, self.tables.tiles) as usize;
        let kernels = |products| self.tables.kernels(self.lane, shape, products);
        for of_scores in kernels(AttentionProducts::Scores)? {
            let mut job = batch.job(self.lane, &of_scores);
            job.operands[4] = Operand::words(&self.tables.words);
            job.operands[5] = Operand::poison(elements);
            job.operands.push(Operand::poison(elements));
            let left = self.lane.run(&[job]).await.map_err(text)?.remove(0);
            for of_all in kernels(AttentionProducts::Sums)? {
                let got = self.run(&of_all, &left, None).await?;
                self.hold(&got).await.map_err(of(&of_all))?;
            }
            for of_query in kernels(AttentionProducts::QuerySums)? {
                let got = self.run(&of_query, &left, None).await?;
                batch.check(self.lane, &got, &(0..shape.key_offset())).map_err(of(&of_query))?;
                for of_key in kernels(AttentionProducts::KeyValueSums)? {
                    let got = self.run(&of_key, &left, Some(&got)).await?;
                    self.hold(&got).await.map_err(of(&of_key))?;
                }
            }
        }
        Ok(())
    }

    /// Holds what the kernels of sums have left.
    async fn hold(&self, got: &Outputs) -> std::result::Result<(), String> {
        let (lane, shape, batch) = (self.lane, self.shape, self.batch);
        if shape.heads == shape.kv_heads {
            return batch.check(lane, got, &(0..shape.stride()));
        }
        batch.check(lane, got, &(0..shape.key_offset()))?;
        let shape = k::AttentionShape { turned: false, ..shape };
        let sums = lane.variants(|caps| k::attention_group_sum(caps, shape)).map_err(text)?;
        summed(lane, batch, shape, &Outputs::of(got.words(1).to_vec()), &sums).await
    }

    /// What a kernel of sums leaves where `before` lies.
    async fn run(
        &self,
        kernel: &Kernel,
        left: &Outputs,
        before: Option<&Outputs>,
    ) -> std::result::Result<Outputs, String> {
        let batch = self.batch;
        let gradient = match before {
            Some(before) => Operand::words(before.words(0)),
            None => Operand::poison(batch.qkv.len()),
        };
        let mut operands = vec![
            Operand::floats(&batch.qkv),
            Operand::floats(&batch.d_out),
            Operand::words(&self.tables.words),
            Operand::words(left.words(0)),
            Operand::words(left.words(1)),
            gradient,
            Operand::uniform(&Step::of(batch.shape.tokens)),
        ];
        if self.shape.heads > self.shape.kv_heads {
            operands.push(Operand::poison(batch.shape.tokens * 2 * self.shape.width()));
        }
        operands.extend(batch.table());
        let job = Job::new(kernel, batch.shape.tokens, operands);
        Ok(self.lane.run(&[job]).await.map_err(text)?.remove(0))
    }
}
