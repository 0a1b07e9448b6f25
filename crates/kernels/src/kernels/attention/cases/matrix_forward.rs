//! Family 05 by matrices: attention forward of operands rounded to f16, from f32 and from f16.

use super::forward::{SOFTMAX, Setting, prefill_of};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::attention::twin::causal::{
    CausalAttention, attention_forward, attention_prefill,
};
use crate::kernels::cache::cases::ring_of;
use crate::kernels::{self as k, Kernel, Spec, ring_rows};
use crate::plan::Step;
use crate::testing::harness::{Job, Operand, Outputs, in_halves};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, close_to_terms, of, text, wide};
use crate::testing::{Case, Outcome};
use half::f16;
use std::rc::Rc;

/// What rounding a weight to f16 changes it by, at most: half a unit in the last of 11 digits. Every weight of a row
/// is at least 1 once, and at most 2^8, so none that matters is below the normal numbers.
pub(crate) const HALF: f64 = 1.0 / 2048.0;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (setting, half) in
        settings().into_iter().flat_map(|setting| [(setting, false), (setting, true)])
    {
        let rows = if half { ", rows in f16" } else { "" };
        let name = format!("attention forward {} by matrices{rows}", setting.name());
        cases.push(Case::new(name, move |lane| forward(lane, setting, half)));
        if setting.dropout.is_none() {
            let output = if half { ", output in f16" } else { "" };
            let name = format!("attention prefill {} by matrices{output}", setting.name());
            cases.push(Case::new(name, move |lane| prefill(lane, setting, half)));
        }
    }
    cases
}

/// Heads that matrices can have, and windows, caps, scales and dropout.
pub(crate) fn settings() -> Vec<Setting> {
    let heads = [(2, 1, 16), (4, 2, 32), (3, 1, 64), (3, 1, 80), (2, 1, 96), (2, 2, 128)];
    let dropped = Setting { dropout: Some(0.2), ..Setting::plain(heads[2]) };
    let window = Setting { window: Some(40), scale: Some(0.4), ..Setting::plain(heads[1]) };
    let most = Setting {
        window: Some(33),
        soft_cap: Some(30.0),
        dropout: Some(0.5),
        ..Setting::plain(heads[2])
    };
    heads.map(Setting::plain).into_iter().chain([dropped, window, most]).collect()
}

/// What selection picks, and every tile.
fn kernels(
    caps: &Capabilities,
    shape: k::AttentionShape,
    make: impl Fn(Option<k::AttentionTile>) -> Result<Kernel>,
) -> Result<Vec<Kernel>> {
    let tiles = k::matrix_forward_tiles(caps, shape);
    if tiles.is_empty() {
        return Err(Error::limit("subgroupMatrixConfigs", 0, 1, "attention by matrices"));
    }
    [None].into_iter().chain(tiles.into_iter().map(Some)).map(make).collect()
}

async fn forward(lane: Rc<Lane>, setting: Setting, half: bool) -> Outcome {
    let batch = k::BatchAttention { rounds: true, ..setting.batch() };
    let spec = k::AttentionForward { batch, qkv_f16: half, output_f16: half, tile: None };
    let every = |caps: &Capabilities| {
        kernels(caps, spec.batch.shape, |tile| k::AttentionForward { tile, ..spec }.kernel(caps))
    };
    let made = lane.kernels_by_matrices(every).map_err(text)?;
    // Queries of the last are so large that rows leave the range of their weights from tile to tile.
    let plain = [vec![0], lane.documents(70), vec![0; 133]].map(|documents| (documents, 1.0));
    for (documents, size) in plain.into_iter().chain([(lane.documents(150), 8.0)]) {
        let batch = ForwardBatch::new(&lane, setting, documents, size);
        let job = |kernel: &Kernel| batch.job(&lane, kernel, half);
        let jobs: Vec<_> = made.iter().map(job).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            batch.check(&got, half).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Rows after others in a cache, which where there is a window is a ring. What no query sees of it is NaN.
async fn prefill(lane: Rc<Lane>, setting: Setting, half: bool) -> Outcome {
    const CHUNK: usize = 133;
    let ring = setting.window.map(|window| ring_rows(window, CHUNK));
    let spec = k::AttentionForwardCached {
        rounds: true,
        output_f16: half,
        ..prefill_of(setting.cached(ring))
    };
    let every = |caps: &Capabilities| {
        let make = |tile| k::AttentionForwardCached { tile, ..spec }.kernel(caps);
        kernels(caps, setting.shape(), make)
    };
    let made = lane.kernels_by_matrices(every).map_err(text)?;
    let round = |values: &[f32]| values.iter().map(|x| f16::from_f32(*x).to_f64()).collect();
    for (position, tokens) in [(0, 5), (37, 1), (30, 70), (150, CHUNK)] {
        let shape = setting.twin(tokens);
        let (qkv, rows) = (
            lane.normal(tokens * shape.qkv_width()),
            lane.normal((position + tokens) * shape.cache_width()),
        );
        let [exact, mut kept]: [Vec<f64>; 2] = [&qkv, &rows].map(|values| round(values));
        let expected = attention_prefill(shape, &exact, &kept, position);
        kept.iter_mut().for_each(|x| *x = x.abs());
        // Keys decide the weights: those of the values' sizes are the same.
        let keys = shape.n_kv_heads * shape.head_dim;
        for (row, own) in kept.chunks_exact_mut(2 * keys).zip(rows.chunks_exact(2 * keys)) {
            row[..keys].copy_from_slice(&round(&own[..keys]));
        }
        let terms = attention_prefill(shape, &exact, &kept, position);
        let first = setting.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let cache = ring_of(shape, &rows, first, ring.unwrap_or(position + tokens + 40));
        let operands = [
            Operand::floats(&qkv),
            Operand::floats(&cache),
            Operand::words(&vec![0; tokens]),
            Operand::poison(expected.len() / if half { 2 } else { 1 }),
            Operand::poison(tokens * shape.n_heads),
            Operand::uniform(&Step { position: position as u32, ..Step::of(tokens) }),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, tokens, operands.to_vec())).collect();
        let what = format!("{tokens} rows behind {position}");
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let (out, own) = if half { (got.halves(0), HALF) } else { (got.floats(0), 0.0) };
            close_to_terms(&what, &out, &expected, &terms, HALF + own + SOFTMAX)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Rows of numbers that f16 holds, and what the twin makes of them.
struct ForwardBatch {
    setting: Setting,
    shape: CausalAttention,
    documents: Vec<u32>,
    qkv: Vec<f32>,
    out: Vec<f64>,
    lse: Vec<f64>,
    /// The sizes of what the output sums.
    terms: Vec<f64>,
}

impl ForwardBatch {
    /// Queries are `size` times as large as standard normal ones.
    fn new(lane: &Lane, setting: Setting, documents: Vec<u32>, size: f32) -> Self {
        let shape = setting.twin_on(lane, documents.len());
        let mut qkv = lane.normal(shape.tokens * shape.qkv_width());
        for row in qkv.chunks_exact_mut(shape.qkv_width()) {
            row[..shape.key_offset()].iter_mut().for_each(|x| *x *= size);
        }
        // What kernels read of f32 they round so.
        let mut exact: Vec<f64> = qkv.iter().map(|x| f16::from_f32(*x).to_f64()).collect();
        let (out, lse) = attention_forward(shape, &exact, &documents);
        for row in exact.chunks_exact_mut(shape.qkv_width()) {
            row[shape.value_offset()..].iter_mut().for_each(|x| *x = x.abs());
        }
        let (terms, _) = attention_forward(shape, &exact, &documents);
        Self { setting, shape, documents, qkv, out, lse, terms }
    }

    fn job(&self, lane: &Lane, kernel: &Kernel, half: bool) -> Job {
        let (step, place) = self.setting.step(lane, self.shape.tokens);
        let qkv =
            if half { Operand::words(&in_halves(&self.qkv)) } else { Operand::floats(&self.qkv) };
        let mut operands = vec![
            qkv.clone(),
            qkv,
            Operand::words(&self.documents),
            Operand::poison(self.out.len() / if half { 2 } else { 1 }),
            Operand::poison(self.lse.len()),
            step,
        ];
        operands.extend(place);
        Job::new(kernel, self.shape.tokens, operands)
    }

    fn check(&self, got: &Outputs, half: bool) -> std::result::Result<(), String> {
        let what = |name: &str| format!("{name} of {} tokens", self.shape.tokens);
        let (out, own) = if half { (got.halves(0), HALF) } else { (got.floats(0), 0.0) };
        close_to_terms(&what("output"), &out, &self.out, &self.terms, HALF + own + SOFTMAX)?;
        // A logarithm near zero is as exact as its argument, which is near one.
        let ones = vec![1.0; self.lse.len()];
        close_to_terms(&what("lse"), &got.floats(1), &self.lse, &ones, SOFTMAX)?;
        self.alone(&out, own + 2e-7)
    }

    /// The first position of a document sees itself alone, by a weight of 1: its output is its value.
    fn alone(&self, out: &[f32], tolerance: f64) -> std::result::Result<(), String> {
        let shape = self.shape;
        for s in (0..shape.tokens).filter(|&s| self.documents[s] as usize == s) {
            for h in 0..shape.n_heads {
                let kept: f64 = shape.kept(h, s, s);
                let offset = shape.value_offset() + shape.kv_head(h) * shape.head_dim;
                let value = &self.qkv[s * shape.qkv_width() + offset..][..shape.head_dim];
                let rounded: Vec<f32> = value.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
                let expected: Vec<f64> = wide(&rounded).iter().map(|x| kept * x).collect();
                let row = &out[(s * shape.n_heads + h) * shape.head_dim..][..shape.head_dim];
                close("first row", row, &expected, tolerance)?;
            }
        }
        Ok(())
    }
}
