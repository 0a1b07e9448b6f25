//! The newest row of a decoded text in one dispatch, and the product that adds its key to the ranges of those before.

use super::forward::{SOFTMAX, Setting};
use crate::arch::Rope;
use crate::caps::{Capabilities, Decoding};
use crate::kernels::attention::twin::causal::{
    CausalAttention, PartialSoftmax, attention_decode, attention_decode_merge,
    attention_decode_split,
};
use crate::kernels::linear::cases::matvec::{matvec_matrix, matvec_variants};
use crate::kernels::linear::twin::matvec_forward;
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::rope::twin::{rope_forward, rope_table};
use crate::kernels::weights::cases as weights;
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::kernels::{
    self as k, DecodeQkvShape, DecodeSplits, Kernel, Matvec, MatvecInput, MatvecOutput, NewKey,
    PARTIAL_STATE, RANGE_KEYS, Spec, SplitReason, WeightFormat,
};
use crate::testing::harness::{Job, Operand, Outputs, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, of, same, text, wide};
use crate::testing::{Case, Outcome};
use crate::twins::add_assign;
use std::rc::Rc;

const EPSILON: f64 = 1e-5;
const COUNT: usize = 3;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("product of ranges and the newest key", product)];
    for weights in WeightFormat::ALL {
        let named = format!("attention decode of the newest row, matrix in {}", weights.name());
        cases.push(Case::new(named, move |lane| rows(lane, weights)));
    }
    cases
}

const fn splits(count: usize) -> DecodeSplits {
    DecodeSplits { count, reason: SplitReason::Merged { keys: 1024 } }
}

/// The widest head whose vectors a subgroup has one each of, up to 64.
fn head_dim(lane: &Lane) -> usize {
    (4 * lane.caps().subgroup_size[0] as usize).clamp(8, 64)
}

/// A newest row, the text before it, and what comes of it.
struct DecodedRow {
    shape: DecodeQkvShape,
    setting: Setting,
    position: usize,
    rows: usize,
    /// The words of the cache before.
    kept: Vec<u32>,
    operands: Vec<Operand>,
    /// The row of rotated queries, keys and values.
    row: Vec<f64>,
    /// Keys and values by position, the newest last.
    cache: Vec<f64>,
}

impl DecodedRow {
    async fn new(
        lane: &Lane,
        setting: Setting,
        (columns, weights, biased): (usize, WeightFormat, bool),
        (position, ring): (usize, Option<usize>),
    ) -> Result<Self, String> {
        let twin = setting.twin(1);
        let heads = setting.cached(ring);
        let epsilon = k::Constant(EPSILON);
        let shape = DecodeQkvShape { heads, k: columns, epsilon, biased, weights };
        let (width, cached) = (twin.qkv_width(), twin.cache_width());
        let plain = Matvec {
            n: width,
            k: columns,
            first: 0,
            input: MatvecInput::Plain,
            output: MatvecOutput::Plain,
            weights,
        };
        let values = matvec_matrix(lane, plain);
        let (matrix, words) = if !weights.packs(columns) {
            (wide(&values), values.iter().map(|x| x.to_bits()).collect())
        } else {
            let words =
                weights::packed(lane, weights, (width, columns), &values).await?.swap_remove(0);
            (unpack_weights_forward(weights, &words, values.len()), words)
        };
        let (x, norm) = (lane.normal(columns), lane.normal(columns));
        let bias = biased.then(|| lane.normal(width));
        let normed = rms_norm_forward(&wide(&x), &wide(&norm), EPSILON);
        let mut row = matvec_forward(&normed, &matrix, bias.as_deref().map(wide).as_deref());
        let rope = Rope::plain(twin.head_dim, 100.0);
        rope_forward(twin, &mut row, &[0], position, &rope);
        let table: Vec<f32> =
            rope_table(position + 1, &rope).concat().iter().map(|&x| x as f32).collect();
        let rows = ring.unwrap_or(position + 3);
        // What no query sees is NaN.
        let mut kept = vec![POISON; rows * cached];
        let mut cache = vec![f64::NAN; position * cached];
        for seen in position.saturating_sub(setting.window.unwrap_or(usize::MAX) - 1)..position {
            let keys = lane.normal(cached);
            let at = seen % rows * cached;
            kept[at..][..cached].iter_mut().zip(&keys).for_each(|(to, x)| *to = x.to_bits());
            cache[seen * cached..][..cached].copy_from_slice(&wide(&keys));
        }
        cache.extend(&row[twin.key_offset()..]);
        let step = Step { position: position as u32, ..Step::of(1) };
        let mut operands = vec![
            Operand::floats(&x),
            Operand::words(&words),
            Operand::floats(&norm),
            Operand::floats(&table[position * twin.head_dim..]),
            Operand::words(&kept),
            Operand::poison(heads.shape.width()),
            Operand::poison(splits(COUNT).partials(&heads.shape)),
            Operand::uniform(&step),
        ];
        operands.extend(bias.as_deref().map(Operand::floats));
        Ok(Self { shape, setting, position, rows, kept, operands, row, cache })
    }

    fn check(&self, got: &Outputs) -> Result<(), String> {
        let twin = self.setting.twin(1);
        let (cached, head_dim) = (twin.cache_width(), twin.head_dim);
        let mut words = got.words(0).to_vec();
        let at = self.position % self.rows * cached;
        let own: Vec<f32> =
            words[at..][..cached].iter().map(|&bits| f32::from_bits(bits)).collect();
        words[at..][..cached].copy_from_slice(&self.kept[at..][..cached]);
        same("other rows", &words, &self.kept)?;
        close("keys and values", &own, &self.row[twin.key_offset()..], ROUNDING)?;
        close("queries", &got.floats(1), &self.row[..twin.key_offset()], ROUNDING)?;
        let keys = self.position
            - self.position.saturating_sub(self.setting.window.unwrap_or(usize::MAX) - 1);
        let active = keys.div_ceil(keys.div_ceil(COUNT).next_multiple_of(RANGE_KEYS).max(1));
        let (each, partials) = (head_dim + PARTIAL_STATE, got.floats(2));
        let mut heads = vec![];
        for head in 0..twin.n_heads {
            let newest = self.position..self.position + 1;
            let own = attention_decode_split(twin, &self.row, &self.cache, head, newest);
            let parts = partials[head * COUNT * each..][..active * each].chunks(each);
            let whole = parts.fold(own, |whole, part| {
                let [largest, total] = [0, 1].map(|i| f64::from(part[head_dim + i]));
                attention_decode_merge(
                    &whole,
                    &PartialSoftmax { sum: wide(&part[..head_dim]), largest, total },
                )
            });
            heads.extend(whole.sum.iter().map(|x| (x / whole.total) as f32));
        }
        let expected = attention_decode(twin, &self.row, &self.cache, self.position + 1);
        close("all keys", &heads, &expected, SOFTMAX)
    }
}

/// The kernels of workgroups of several sizes, where a subgroup has a head's vectors.
fn made(lane: &Lane, shape: DecodeQkvShape) -> Result<Vec<Kernel>, String> {
    let mut made = vec![];
    for qkv_invocations in [512, 64, 16] {
        let formed = |caps: &Capabilities| {
            let decoding = Some(Decoding { qkv_invocations, ..Decoding::TEAMS });
            let subgroup_size = lane.caps().subgroup_size;
            let caps = Capabilities { decoding, subgroup_size, ..caps.clone() };
            if !k::decode_qkv_fuses(&caps, &shape) {
                return Ok(vec![]);
            }
            k::AttentionDecodeQkv { shape, splits: splits(COUNT) }
                .kernel(&caps)
                .map(|kernel| vec![kernel])
        };
        for kernel in lane.chosen(formed).map_err(text)? {
            if !made.contains(&kernel) {
                made.push(kernel);
            }
        }
    }
    Ok(made)
}

/// No key before the newest, one, ranges full and begun, rows that end within a turn, windows, rings and biases.
async fn rows(lane: Rc<Lane>, weights: WeightFormat) -> Outcome {
    let dim = head_dim(&lane);
    let plain = Setting::plain((4, 2, dim));
    let special = Setting {
        window: Some(RANGE_KEYS + 5),
        soft_cap: Some(0.7),
        scale: Some(0.3),
        ..Setting::plain((3, 1, dim))
    };
    for (setting, columns, biased, position, ring) in [
        (plain, 96, false, 0, None),
        (plain, 288, false, 1, None),
        (plain, 32, true, RANGE_KEYS, None),
        (plain, 544, false, RANGE_KEYS + 1, None),
        (plain, 64, false, 5 * RANGE_KEYS + 3, None),
        (special, 72, true, 3 * RANGE_KEYS, Some(2 * RANGE_KEYS)),
        (special, 40, false, 7, None),
    ] {
        let row =
            DecodedRow::new(&lane, setting, (columns, weights, biased), (position, ring)).await?;
        let made = made(&lane, row.shape)?;
        if made.is_empty() && lane.caps().reduces_by_subgroup() {
            return Err(format!("no kernel has heads of {dim}"));
        }
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, row.operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            row.check(&got).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// What ranges of the keys from `first` on leave; those without keys hold NaN.
fn left(
    twin: CausalAttention,
    row: &[f32],
    cache: &[f32],
    (first, position): (usize, usize),
) -> Vec<f32> {
    let length = (position - first).div_ceil(COUNT).next_multiple_of(RANGE_KEYS).max(RANGE_KEYS);
    let mut partials = vec![];
    for (head, range) in
        (0..twin.n_heads).flat_map(|head| (0..COUNT).map(move |range| (head, range)))
    {
        let keys = first + range * length..position.min(first + (range + 1) * length);
        if keys.is_empty() {
            partials.extend(vec![f32::NAN; twin.head_dim + PARTIAL_STATE]);
            continue;
        }
        let part = attention_decode_split(twin, &wide(row), &wide(cache), head, keys);
        partials.extend(part.sum.iter().map(|&x| x as f32));
        partials.extend([part.largest as f32, part.total as f32, 0.0, 0.0]);
    }
    partials
}

/// A cache of which the ring has the last rows; without one it is as it was.
fn in_ring(cache: &[f32], width: usize, ring: Option<usize>) -> Vec<f32> {
    let Some(ring) = ring else { return cache.to_vec() };
    let mut kept = vec![f32::NAN; ring * width];
    for (position, row) in cache.chunks(width).enumerate() {
        kept[position % ring * width..][..width].copy_from_slice(row);
    }
    kept
}

/// The newest key alone, beside one range, and beside several of which one has no keys and holds NaN.
async fn product(lane: Rc<Lane>) -> Outcome {
    let dim = head_dim(&lane);
    let heads = (8 * lane.caps().subgroup_size[0].max(4) as usize).next_multiple_of(2 * dim) / dim;
    for (position, window, output, shared) in [
        (0, None, MatvecOutput::Added, 2),
        (RANGE_KEYS, None, MatvecOutput::BiasedResidual, 1),
        (RANGE_KEYS + 9, Some(40), MatvecOutput::Plain, 2),
        (2 * RANGE_KEYS, None, MatvecOutput::Residual, heads),
    ] {
        let soft_cap = window.map(|_| 0.9);
        let setting = Setting { window, soft_cap, ..Setting::plain((heads, heads / shared, dim)) };
        let ring = window.map(|window| window + 10);
        let (twin, shape) = (setting.twin(1), setting.cached(ring));
        let input = MatvecInput::PartialSoftmax(shape, splits(COUNT), NewKey::Apart);
        let weights = WeightFormat::F32;
        let product = Matvec { n: 37, k: heads * dim, first: 5, input, output, weights };
        let row = lane.normal(twin.qkv_width());
        let cache = lane.normal((position + 1) * twin.cache_width());
        let first = position.saturating_sub(window.unwrap_or(usize::MAX) - 1);
        let partials = left(twin, &row, &cache, (first, position));
        let matrix = matvec_matrix(&lane, product);
        let c = lane.normal(5 + 37);
        let added: Vec<Vec<f32>> = match output {
            MatvecOutput::Residual => vec![lane.normal(c.len())],
            MatvecOutput::BiasedResidual => vec![lane.normal(c.len()), lane.normal(c.len())],
            _ => vec![],
        };
        let step = Step { position: position as u32, ..Step::of(1) };
        let mut operands =
            vec![Operand::floats(&partials), Operand::floats(&matrix), Operand::floats(&c)];
        operands.extend(added.iter().map(|x| Operand::floats(x)));
        operands.extend([
            Operand::floats(&row[..twin.key_offset()]),
            Operand::floats(&in_ring(&cache, twin.cache_width(), ring)),
            Operand::uniform(&step),
        ]);
        let attended = attention_decode(twin, &wide(&row), &wide(&cache), position + 1);
        let mut products = matvec_forward(&attended, &wide(&matrix), None);
        let own = (output == MatvecOutput::Added).then_some(&c);
        added.iter().chain(own).for_each(|x| add_assign(&mut products, &wide(&x[5..])));
        let expected = [wide(&c[..5]), products].concat();
        let made = matvec_variants(&lane, product)?;
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close("c", &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
