//! Family 10 on matrices that a subgroup holds: the gradients of attention of operands in f16, against f64 of the same
//! operands.

use super::backward::ENDS;
use super::forward::{HEADS, Setting, delta_of, group_sum_of, key_value_of, query_of};
use crate::arch::Rope;
use crate::caps::Capabilities;
use crate::data::document_ends;
use crate::error::Result;
use crate::kernels::attention::twin::causal::{
    CausalAttention, attention_backward, attention_forward,
};
use crate::kernels::attention::twin::gradient_rows::ForwardResults;
use crate::kernels::rope::twin::{rope_backward, rope_table};
use crate::kernels::{
    self as k, AttentionPass, AttentionTile, BackwardRows, Kernel, KeyValueOwner, Spec,
};
use crate::testing::harness::{Job, Operand, Outputs, POISON, in_halves};
use crate::testing::lane::Lane;
use crate::testing::ledger::Bits;
use crate::testing::measure::{ROUNDING, close_to_terms, dot, hold, narrow, of, text, wide};
use crate::testing::{Case, Outcome};
use half::f16;
use std::rc::Rc;

/// What rounding to f16 changes a number by at most, relative to it, with a little for what f32 adds.
const HALF: f64 = 1.02 / 2048.0;
/// Half of the least number that f16 has, which what is smaller may be off by.
const LEAST_HALF: f64 = 1.0 / (1 << 25) as f64;
/// Weights are multiplied by this before they are rounded.
const WEIGHT_UNIT: f64 = 64.0;
/// What f32 changes a sum of some hundred products by, relative to its terms.
const SINGLE: f64 = 4e-6;

/// Rows in f16 are those of plans, whose gradients the kernels rotate back.
const ALL: BackwardRows =
    BackwardRows { qkv_f16: true, d_output_f16: true, d_qkv_f16: true, rotated: true };

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("attention backward delta of rows in f16", delta)];
    for setting in settings() {
        for lie in [BackwardRows::default(), ALL] {
            let rows = if lie == ALL { ", rows in f16" } else { "" };
            let name = |what: &str| {
                format!("attention backward {what} by matrices {}{rows}", setting.name())
            };
            let of = move |lane, pass, owner| sides(lane, setting, lie, pass, owner);
            use AttentionPass::{KeyValue, Query};
            let group = KeyValueOwner::Group;
            cases.push(Case::new(name("query"), move |lane| of(lane, Query, group)));
            cases.push(Case::new(name("key, value"), move |lane| of(lane, KeyValue, group)));
            if setting.heads.0 > setting.heads.1 {
                let head = KeyValueOwner::Head;
                cases.push(Case::new(name("by head"), move |lane| of(lane, KeyValue, head)));
            }
        }
    }
    cases
}

/// The pre-pass of rows in f16, which it reads as they are.
async fn delta(lane: Rc<Lane>) -> Outcome {
    for (output, d_output) in [(true, false), (false, true), (true, true)] {
        let setting = Setting::plain(HEADS[1]);
        let shape = setting.shape();
        let spec = k::AttentionDelta {
            output_f16: output,
            d_output_f16: d_output,
            ..delta_of(shape, k::PartialSums::WHOLE)
        };
        let made = lane.variants_of(spec).map_err(text)?;
        let tokens = 70;
        let rows = [(); 2].map(|()| as_halves(lane.normal(tokens * shape.width())));
        let [out, d_out] = rows.each_ref().map(|rows| wide(rows));
        let heads = out.chunks_exact(shape.head_dim).zip(d_out.chunks_exact(shape.head_dim));
        let expected: Vec<f64> = heads.map(|(out, slope)| dot(out, slope)).collect();
        let lying = |half: bool, values: &[f32]| {
            if half { Operand::words(&in_halves(values)) } else { Operand::floats(values) }
        };
        let operands = vec![
            lying(output, &rows[0]),
            lying(d_output, &rows[1]),
            Operand::poison(expected.len()),
            setting.step(&lane, tokens).0,
        ];
        for kernel in &made {
            let job = Job::new(kernel, tokens, operands.clone());
            let got = lane.run(&[job]).await.map_err(text)?.remove(0);
            let terms = vec![(shape.head_dim as f64).sqrt(); expected.len()];
            close_to_terms("delta", &got.floats(0), &expected, &terms, ROUNDING)
                .map_err(of(kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Heads that matrices divide, and each kind of mask.
fn settings() -> Vec<Setting> {
    let [small, usual, large, largest] = [HEADS[1], HEADS[2], HEADS[4], HEADS[5]];
    let plain = [small, usual, large, largest].map(Setting::plain);
    let special = [
        Setting { window: Some(5), scale: Some(0.4), ..Setting::plain(small) },
        Setting { window: Some(40), soft_cap: Some(1.5), ..Setting::plain(usual) },
        Setting { soft_cap: Some(30.0), ..Setting::plain(large) },
        Setting { dropout: Some(0.2), ..Setting::plain(small) },
        Setting {
            dropout: Some(0.5),
            window: Some(40),
            soft_cap: Some(1.5),
            ..Setting::plain(usual)
        },
    ];
    plain.into_iter().chain(special).collect()
}

/// One token; lengths around a tile; several documents with borders inside tiles; more tiles than buffers.
fn batches(lane: &Lane) -> [Vec<u32>; 5] {
    let mut between = vec![0; 7];
    between.resize(7 + 70, 7);
    between.resize(ENDS - 3, 77);
    [vec![0], vec![0; 33], vec![0; 65], lane.documents(70), between]
}

/// A batch of numbers that f16 has, and the gradients with how far they may be off.
struct F16Batch {
    lie: BackwardRows,
    setting: Setting,
    documents: Vec<u32>,
    qkv: Vec<f32>,
    d_out: Vec<f32>,
    lse: Vec<f64>,
    delta: Vec<f64>,
    expected: Vec<f64>,
    bounds: Vec<f64>,
}

fn as_halves(values: Vec<f32>) -> Vec<f32> {
    values.into_iter().map(|x| f16::from_f32(x).to_f32()).collect()
}

impl F16Batch {
    /// Gradients in f16 are rotated back.
    fn new(lane: &Lane, setting: Setting, lie: BackwardRows, documents: Vec<u32>) -> Self {
        let twin = setting.twin_on(lane, documents.len());
        let qkv = as_halves(lane.normal(twin.tokens * twin.qkv_width()));
        let d_out = as_halves(lane.normal(twin.tokens * twin.out_width()));
        let (exact, slopes) = (wide(&qkv), wide(&d_out));
        let (out, lse) = attention_forward(twin, &exact, &documents);
        let mut expected = attention_backward(twin, &exact, &documents, &out, &lse, &slopes);
        let heads = out.chunks_exact(twin.head_dim).zip(slopes.chunks_exact(twin.head_dim));
        let delta: Vec<f64> = heads.map(|(out, slope)| dot(out, slope)).collect();
        let (seen, known) = (&documents[..], &lse[..]);
        let pass = ForwardResults {
            shape: twin,
            qkv: &exact,
            documents: seen,
            lse: known,
            delta: &delta,
            d_out: &slopes,
        };
        let mut bounds = bounds(&pass);
        if lie.rotated {
            rope_backward(twin, &mut expected, &documents, 0, &turns(setting));
            turn_bounds(twin, &mut bounds, &expected);
        }
        Self { lie, setting, documents, qkv, d_out, lse, delta, expected, bounds }
    }

    fn job(&self, lane: &Lane, kernel: &Kernel, output: usize) -> Job {
        let mut documents = self.documents.clone();
        documents.resize(ENDS, u32::MAX);
        documents.extend(document_ends(&self.documents));
        let rows = |half: bool, values: &[f32]| {
            if half { Operand::words(&in_halves(values)) } else { Operand::floats(values) }
        };
        let (step, place) = self.setting.step(lane, self.documents.len());
        let mut operands = vec![
            rows(self.lie.qkv_f16, &self.qkv),
            rows(self.lie.d_output_f16, &self.d_out),
            Operand::floats(&narrow(&self.lse)),
            Operand::floats(&narrow(&self.delta)),
            Operand::words(&documents),
            Operand::poison(output),
            step,
        ];
        operands.extend(place);
        if self.lie.rotated {
            let table = rope_table(self.documents.len(), &turns(self.setting));
            let table: Vec<f32> = table.iter().flat_map(|pair| narrow(pair)).collect();
            operands.push(Operand::floats(&table));
        }
        Job::new(kernel, self.documents.len(), operands)
    }

    /// Words of d_qkv.
    fn words(&self) -> usize {
        self.qkv.len() / if self.lie.d_qkv_f16 { 2 } else { 1 }
    }

    /// Holds each element of a side by itself; those of the other side must not have been written.
    fn check(&self, got: &Outputs, pass: AttentionPass) -> Result<(), String> {
        let shape = self.setting.shape();
        let (width, keys) = (shape.stride(), shape.key_offset());
        let half = self.lie.d_qkv_f16;
        let values = if half { got.halves(0) } else { got.floats(0) };
        let bounds = [&self.expected[..], &self.bounds, &[HALF, LEAST_HALF]].map(Bits);
        hold(("each", width, keys, pass.kernel_name(), half, bounds), || {
            self.each(got, &values, pass)
        })
    }

    fn each(&self, got: &Outputs, values: &[f32], pass: AttentionPass) -> Result<(), String> {
        let shape = self.setting.shape();
        let (width, keys) = (shape.stride(), shape.key_offset());
        let half = self.lie.d_qkv_f16;
        let mut worst = 0.0f64;
        for (i, &value) in values.iter().enumerate() {
            let written = got.words(0)[if half { i / 2 } else { i }] != POISON;
            let (row, column) = (i / width, i % width);
            if written != ((column < keys) == (pass == AttentionPass::Query)) {
                return Err(format!("row {row}, column {column}: written {written}"));
            }
            if !written {
                continue;
            }
            let stored = if half { HALF * self.expected[i].abs() + LEAST_HALF } else { 0.0 };
            let error = (f64::from(value) - self.expected[i]).abs();
            let share = error / (self.bounds[i] + stored);
            if share.is_nan() || share > 1.0 {
                let expected = self.expected[i];
                let tokens = self.documents.len();
                return Err(format!(
                    "{tokens} tokens, row {row}, column {column}: {value} for {expected}, {share:.2} times what is allowed"
                ));
            }
            worst = worst.max(share);
        }
        // A bound that nothing comes near would find nothing.
        let expected = if self.documents.len() > 1 { 0.02 } else { 0.0 };
        if worst < expected {
            Err(format!("errors of {worst:.1e} of what is allowed"))
        } else {
            Ok(())
        }
    }
}

pub(crate) fn turns(setting: Setting) -> Rope {
    Rope::plain(setting.heads.2, 100.0)
}

/// Bounds of pairs that are turned: by at most the length of both, and what f32 rounds sines and products by.
pub(crate) fn turn_bounds(twin: CausalAttention, bounds: &mut [f64], expected: &[f64]) {
    let rounding = 4.0 * f64::from(f32::EPSILON);
    let (width, half) = (twin.qkv_width(), twin.head_dim / 2);
    let rows = bounds.chunks_exact_mut(width).zip(expected.chunks_exact(width));
    for (row, values) in rows {
        let heads = row[..twin.value_offset()].chunks_exact_mut(twin.head_dim);
        for (head, values) in heads.zip(values.chunks_exact(twin.head_dim)) {
            for i in 0..half {
                let length = values[i].hypot(values[i + half]);
                let bound = head[i].hypot(head[i + half]) + rounding * length;
                (head[i], head[i + half]) = (bound, bound);
            }
        }
    }
}

/// How far the gradients of a batch may be off: each weight is rounded to f16, relative to itself or in its unit, and
/// what f32 computes it from may cancel.
fn bounds(pass: &ForwardResults<'_, f64>) -> Vec<f64> {
    let (shape, width) = (pass.shape, pass.shape.qkv_width());
    let mut bounds = vec![0.0; shape.tokens * width];
    let fused = |row: usize, offset: usize| row * width + offset;
    let scale = shape.scale.unwrap_or(1.0 / (shape.head_dim as f64).sqrt());
    for (head, s) in (0..shape.n_heads).flat_map(|head| (0..shape.tokens).map(move |s| (head, s))) {
        let of_kv = shape.kv_head(head) * shape.head_dim;
        let query = fused(s, head * shape.head_dim);
        let slope = (s * shape.n_heads + head) * shape.head_dim;
        for j in shape.keys(pass.documents[s] as usize, s) {
            let (key, value) =
                (fused(j, shape.key_offset() + of_kv), fused(j, shape.value_offset() + of_kv));
            let (p, whole, shared) = pass.weight_terms(head, s, j);
            let of_p = HALF * p + SINGLE * p + LEAST_HALF / WEIGHT_UNIT;
            // What f32 sums up to the gradient of a probability may cancel too; the scale is a factor of the sums.
            let products = pass.d_out[slope..][..shape.head_dim].iter().zip(&pass.qkv[value..]);
            let products: f64 = products.map(|(slope, value)| (slope * value).abs()).sum();
            let terms = scale * p * products + shared.abs();
            let least = LEAST_HALF / WEIGHT_UNIT * scale;
            let of_d_s = HALF * (whole - shared).abs() + SINGLE * terms + least;
            for d in 0..shape.head_dim {
                bounds[query + d] += of_d_s * pass.qkv[key + d].abs();
                bounds[key + d] += of_d_s * pass.qkv[query + d].abs();
                bounds[value + d] += of_p * pass.d_out[slope + d].abs();
            }
        }
    }
    bounds
}

fn kernels(
    caps: &Capabilities,
    (setting, rows): (Setting, BackwardRows),
    pass: AttentionPass,
    owner: KeyValueOwner,
) -> Result<Vec<Kernel>> {
    let batch = k::BatchAttention { rounds: true, ..setting.batch() };
    let of = |tile: AttentionTile| match pass {
        AttentionPass::KeyValue => {
            k::AttentionBackwardKeyValue { rows, ..key_value_of(batch, (owner, ENDS), Some(tile)) }
                .kernel(caps)
        }
        _ => k::AttentionBackwardQuery { rows, ..query_of(batch, Some(tile)) }.kernel(caps),
    };
    k::attention_matrix_tiles(caps, setting.shape(), pass).into_iter().map(of).collect()
}

/// Gradients of scores that f16 does not hold leave numbers, not infinities or NaN.
async fn steep(
    lane: &Lane,
    setting: Setting,
    lie: BackwardRows,
    made: &[Kernel],
) -> std::result::Result<(), String> {
    const STEEP: f32 = 4096.0;
    let mut batch = F16Batch::new(lane, setting, lie, vec![0; 40]);
    batch.d_out.iter_mut().for_each(|x| *x *= STEEP);
    batch.delta.iter_mut().for_each(|x| *x *= f64::from(STEEP));
    let jobs: Vec<_> = made.iter().map(|kernel| batch.job(lane, kernel, batch.words())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let half = batch.lie.d_qkv_f16;
        let values = if half { got.halves(0) } else { got.floats(0) };
        let written = |i: usize| got.words(0)[if half { i / 2 } else { i }] != POISON;
        let steep = |&i: &usize| written(i) && !values[i].is_finite();
        hold("finite", || match (0..values.len()).find(steep) {
            Some(i) => Err(format!("steep gradients: {} at {i}", values[i])),
            None => Ok(()),
        })
        .map_err(of(&job.kernel))?;
    }
    Ok(())
}

async fn sides(
    lane: Rc<Lane>,
    setting: Setting,
    lie: BackwardRows,
    pass: AttentionPass,
    owner: KeyValueOwner,
) -> Outcome {
    let shape = setting.shape();
    let made = lane
        .kernels_by_matrices(|caps| kernels(caps, (setting, lie), pass, owner))
        .map_err(text)?;
    let sums = match owner {
        KeyValueOwner::Group => vec![],
        KeyValueOwner::Head => {
            let d_qkv_f16 = lie.d_qkv_f16;
            lane.variants_of(k::AttentionGroupSum { d_qkv_f16, ..group_sum_of(shape) })
                .map_err(text)?
        }
    };
    if sums.is_empty() {
        steep(&lane, setting, lie, &made).await?;
    }
    for documents in batches(&lane) {
        let batch = F16Batch::new(&lane, setting, lie, documents);
        let tokens = batch.documents.len();
        let parts = tokens * 2 * shape.width();
        let words = if sums.is_empty() { batch.words() } else { parts };
        let jobs: Vec<_> = made.iter().map(|kernel| batch.job(&lane, kernel, words)).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            if sums.is_empty() {
                batch.check(&got, pass).map_err(of(&job.kernel))?;
            }
            for sum in &sums {
                let operands = vec![
                    Operand::words(got.words(0)),
                    Operand::poison(batch.words()),
                    setting.step(&lane, tokens).0,
                ];
                let summed = lane.run(&[Job::new(sum, tokens, operands)]).await.map_err(text)?;
                batch.check(&summed[0], pass).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}
