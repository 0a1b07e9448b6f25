//! Decode attention over tensors of any strides, with a batch axis.

use super::decode::{forms, ranges};
use super::forward::{HEADS, SOFTMAX, Setting};
use crate::kernels::attention::twin::causal::{CausalAttention, Head, attend};
use crate::kernels::{self as k, Element, Geometry, Kernel, PARTIAL_STATE, RANGE_KEYS, Strides};
use crate::testing::harness::{Job, Operand, POISON};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, close_to_terms, forbid, of, text};
use crate::testing::{Case, Outcome};
use half::f16;
use std::ops::Range;
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let capped = Setting { soft_cap: Some(0.7), ..Setting::plain(HEADS[1]) };
    for setting in HEADS.map(Setting::plain).into_iter().chain([capped]) {
        for element in [Element::F32, Element::F16] {
            let name = format!("{}, {} tensors", setting.name(), element.name());
            let case = format!("attention decode over tensors, {name}");
            cases.push(Case::new(case, move |lane| decode(lane, setting, element)));
        }
    }
    cases
}

/// How memory has a tensor `[batch, heads, rows, head_dim]`.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// `[batch, heads, rows, head_dim]`.
    HeadMajor,
    /// `[batch, rows, heads, head_dim]`.
    RowMajor,
    /// As `HeadMajor`, but with room for seven more rows and a vector between rows, after three vectors of something
    /// else.
    Roomy,
}

impl Order {
    const ALL: [Self; 3] = [Self::HeadMajor, Self::RowMajor, Self::Roomy];

    /// In vectors of four elements.
    fn strides(self, heads: usize, rows: usize, vectors: usize) -> Strides {
        let (head, row, from) = match self {
            Self::HeadMajor => (rows * vectors, vectors, 0),
            Self::RowMajor => (vectors, heads * vectors, 0),
            Self::Roomy => ((rows + 7) * (vectors + 1), vectors + 1, 3),
        };
        let item = (heads * head).max(rows * row);
        [item, head, row, from].map(|x| x as u32)
    }
}

/// A tensor as it is stored: NaN wherever nothing is put.
struct Tensor {
    element: Element,
    strides: Strides,
    words: Vec<u32>,
    /// What the words stand for.
    values: Vec<f64>,
}

impl Tensor {
    fn new(element: Element, strides: Strides, batch: usize) -> Self {
        let vectors = strides[0] as usize * batch + strides[3] as usize;
        let words = vec![u32::MAX; vectors * element.bytes()];
        Self { element, strides, words, values: vec![f64::NAN; vectors * 4] }
    }

    /// Index of a row's first element.
    fn at(&self, item: usize, head: usize, row: usize) -> usize {
        let [per_item, per_head, per_row, from] = self.strides.map(|x| x as usize);
        4 * (from + item * per_item + head * per_head + row * per_row)
    }

    fn put(&mut self, at: usize, row: &[f32]) {
        for (i, &x) in (at..).zip(row) {
            match self.element {
                Element::F32 => {
                    self.words[i] = x.to_bits();
                    self.values[i] = f64::from(x);
                }
                Element::F16 => {
                    let half = f16::from_f32(x);
                    let shift = i % 2 * 16;
                    let word = &mut self.words[i / 2];
                    *word = *word & !(0xffff << shift) | u32::from(half.to_bits()) << shift;
                    self.values[i] = half.to_f64();
                }
            }
        }
    }

    fn head(&self, item: usize, head: usize, head_dim: usize) -> Head<'_, f64> {
        let stride = 4 * self.strides[2] as usize;
        Head { data: &self.values, stride, offset: self.at(item, head, 0), head_dim }
    }
}

/// The elements that words of an output hold.
fn unpacked(element: Element, words: &[u32]) -> Vec<f32> {
    let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
    match element {
        Element::F32 => words.iter().map(|&bits| f32::from_bits(bits)).collect(),
        Element::F16 => words.iter().flat_map(|&w| [half(w & 0xffff), half(w >> 16)]).collect(),
    }
}

/// Queries of several batch items, the keys that each sees, all others NaN, and what comes out.
struct DecodeBatch {
    shape: CausalAttention,
    element: Element,
    seen: Vec<Range<usize>>,
    /// Query, keys, values.
    inputs: [Tensor; 3],
    output: Strides,
    mask: Vec<u32>,
    geometry: Geometry,
    expected: Vec<f64>,
    lse: Vec<f64>,
}

impl DecodeBatch {
    fn new(
        lane: &Lane,
        setting: Setting,
        element: Element,
        order: Order,
        seen: &[Range<usize>],
    ) -> Self {
        let shape = setting.twin(1);
        let (vectors, batch) = (shape.head_dim / 4, seen.len());
        let rows = seen.iter().map(|keys| keys.end).max().unwrap_or(0);
        let of = |strides| Tensor::new(element, strides, batch);
        let query = of(Order::Roomy.strides(shape.n_heads, 1, vectors));
        let kv = || of(order.strides(shape.n_kv_heads, rows, vectors));
        let mut inputs = [query, kv(), kv()];
        for (item, keys) in seen.iter().enumerate() {
            let places = [(shape.n_heads, 0..1), (shape.n_kv_heads, keys.clone())];
            for (index, tensor) in inputs.iter_mut().enumerate() {
                let (heads, rows) = places[index.min(1)].clone();
                for (head, row) in (0..heads).flat_map(|h| rows.clone().map(move |r| (h, r))) {
                    tensor.put(tensor.at(item, head, row), &lane.normal(shape.head_dim));
                }
            }
        }
        // Intervals five words apart, the words between them as large as can be.
        let mut mask = vec![u32::MAX; 5 * batch];
        for (item, keys) in seen.iter().enumerate() {
            mask[5 * item..][..2].copy_from_slice(&[keys.start as u32, keys.end as u32]);
        }
        let output = Order::Roomy.strides(shape.n_heads, 1, vectors);
        let geometry = Geometry {
            query: inputs[0].strides,
            key: inputs[1].strides,
            value: inputs[2].strides,
            output,
            intervals: [5, 0, 0, 0],
            batch: batch as u32,
            query_rows: 1,
            key_rows: rows as u32,
            ..Geometry::default()
        };
        let (expected, lse) = twin(shape, &inputs, seen);
        let seen = seen.to_vec();
        Self { shape, element, seen, inputs, output, mask, geometry, expected, lse }
    }

    /// What both the reading kernels and the merge are followed by.
    fn results(&self) -> [Operand; 3] {
        let output = Tensor::new(self.element, self.output, self.seen.len());
        [
            Operand::poison(output.words.len()),
            Operand::poison(self.lse.len()),
            Operand::uniform(&self.geometry),
        ]
    }

    fn job(&self, kernel: &Kernel, results: impl IntoIterator<Item = Operand>) -> Job {
        let inputs = self.inputs.iter().map(|tensor| Operand::words(&tensor.words));
        let operands = inputs.chain([Operand::words(&self.mask)]).chain(results).collect();
        Job::new(kernel, 1, operands)
    }

    /// Checks the output, what is between its heads, and the logsumexp.
    fn check(&self, words: &[u32], lse: &[f32]) -> Result<(), String> {
        let output = Tensor::new(self.element, self.output, self.seen.len());
        let per_word = 4 / self.element.bytes();
        let mut rest = words.to_vec();
        let mut got = vec![];
        for i in 0..self.lse.len() {
            let at = output.at(i / self.shape.n_heads, i % self.shape.n_heads, 0) / per_word;
            let row = &mut rest[at..][..self.shape.head_dim / per_word];
            got.extend(unpacked(self.element, row));
            row.fill(POISON);
        }
        let between = || rest.iter().any(|&word| word != POISON);
        forbid(("between", self.output), between, || {
            "wrote between the heads of the output".into()
        })?;
        let seen = &self.seen;
        // Rounding to f16, to the nearest or towards zero.
        let tolerance = if self.element == Element::F16 { 1e-3 } else { SOFTMAX };
        close(&format!("output of {seen:?}"), &got, &self.expected, tolerance)?;
        for (item, keys) in seen.iter().enumerate() {
            let own = item * self.shape.n_heads..(item + 1) * self.shape.n_heads;
            let (got, lse) = (&lse[own.clone()], &self.lse[own]);
            if keys.is_empty() {
                let sees = || got.iter().any(|&x| x.is_nan() || x > -1e29);
                forbid(("no key", item), sees, || format!("lse {got:?} of no key"))?;
            } else {
                // A logarithm near zero is as exact as its argument, which is near one.
                let ones = vec![1.0; lse.len()];
                close_to_terms(&format!("lse of {keys:?}"), got, lse, &ones, SOFTMAX)?;
            }
        }
        Ok(())
    }

    async fn whole(&self, lane: &Lane, kernels: &[Kernel]) -> Result<(), String> {
        let jobs: Vec<_> = kernels.iter().map(|kernel| self.job(kernel, self.results())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            self.check(got.words(0), &got.floats(1)).map_err(of(&job.kernel))?;
        }
        Ok(())
    }

    /// Every kernel that reads in `count` ranges, each with every kernel that merges them.
    async fn split(
        &self,
        lane: &Lane,
        [splits, merges]: [&[Kernel]; 2],
        count: usize,
    ) -> Result<(), String> {
        let row = self.shape.head_dim + PARTIAL_STATE;
        let partials = Operand::poison(self.lse.len() * count * row);
        let [output, lse, geometry] = self.results();
        let jobs: Vec<_> = splits
            .iter()
            .map(|kernel| self.job(kernel, [partials.clone(), geometry.clone()]))
            .collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            let partials = got.words(0).to_vec();
            self.check_ranges(&partials, count).map_err(&named)?;
            let operands = [
                Operand::words(&partials),
                Operand::words(&self.mask),
                output.clone(),
                lse.clone(),
                geometry.clone(),
            ];
            let merged: Vec<_> =
                merges.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
            for (job, got) in merged.iter().zip(lane.run(&merged).await.map_err(text)?) {
                let checked = self.check(got.words(0), &got.floats(1));
                checked.map_err(of(&job.kernel)).map_err(&named)?;
            }
        }
        Ok(())
    }

    /// The ranges that have keys are written whole, the others left alone.
    fn check_ranges(&self, partials: &[u32], count: usize) -> Result<(), String> {
        let row = self.shape.head_dim + PARTIAL_STATE;
        for (index, words) in partials.chunks_exact(row).enumerate() {
            let keys = self.seen[index / count / self.shape.n_heads].len();
            let length = keys.div_ceil(count).max(1).next_multiple_of(RANGE_KEYS);
            let idle = index % count >= keys.div_ceil(length);
            let wrong = || words.iter().any(|&word| (word == POISON) != idle);
            let message = || format!("{keys} keys, range {}: written wrongly", index % count);
            forbid(("idle", idle), wrong, message)?;
        }
        Ok(())
    }
}

/// Output and logsumexp in f64, by batch item and head.
fn twin(
    shape: CausalAttention,
    [query, keys, values]: &[Tensor; 3],
    seen: &[Range<usize>],
) -> (Vec<f64>, Vec<f64>) {
    let dim = shape.head_dim;
    let (mut expected, mut lse) = (vec![], vec![]);
    for (item, range) in seen.iter().enumerate() {
        for head in 0..shape.n_heads {
            let kv = shape.kv_head(head);
            let [query, keys, values] =
                [(query, head), (keys, kv), (values, kv)].map(|(t, head)| t.head(item, head, dim));
            let mut out = vec![0.0; dim];
            let score = |product| shape.score(product).0;
            lse.push(attend(query.row(0), keys, values, range.clone(), score, &mut out));
            expected.extend(out);
        }
    }
    (expected, lse)
}

async fn decode(lane: Rc<Lane>, setting: Setting, element: Element) -> Outcome {
    const COUNT: usize = 3;
    let shape = setting.shape();
    // One key; a window; then a batch with a query that sees nothing, and one, two and three ranges.
    let seen = [0..1, 9..200, 3..80, 40..40, 0..133];
    for seen in [&seen[..1], &seen[1..2], &seen[2..]] {
        let over = setting.over_tensors(element, seen.len());
        let decoders = |count| {
            lane.variants_of(k::AttentionDecode { over, splits: ranges(count) })
                .map(forms)
                .map_err(text)
        };
        let mergers = lane
            .variants_of(k::AttentionDecodeMerge { of: over.partials(), splits: ranges(COUNT) })
            .map(forms)
            .map_err(text)?;
        let splits = decoders(COUNT)?;
        // One range differs from several in where its result goes alone.
        let whole = if matches!(shape.head_dim, 4 | 64) { decoders(1)? } else { vec![] };
        for order in Order::ALL {
            let made = DecodeBatch::new(&lane, setting, element, order, seen);
            made.whole(&lane, &whole).await?;
            made.split(&lane, [&splits, &mergers], COUNT).await?;
        }
    }
    Ok(lane.summary())
}
