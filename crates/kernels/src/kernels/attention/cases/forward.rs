//! Family 05: attention forward over packed documents and over the key-value cache.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::attention::twin::causal::{
    CausalAttention, attention_forward, attention_prefill,
};
use crate::kernels::dropout::twin::{KeyDropout, Masks};
use crate::kernels::{self as k, Element, Kernel, Spec};
use crate::random::split;
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, close_to_terms, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// Every head dimension with a number of heads that exercises grouping.
pub(crate) const HEADS: [(usize, usize, usize); 7] =
    [(3, 1, 4), (4, 2, 32), (2, 2, 64), (3, 1, 80), (2, 1, 96), (4, 2, 128), (2, 1, 256)];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for setting in Setting::dropped() {
        let name = format!("attention forward {}", setting.name());
        cases.push(Case::new(name, move |lane| forward(lane, setting)));
    }
    for setting in Setting::all() {
        let name = |what: &str| format!("attention {what} {}", setting.name());
        cases.push(Case::new(name("forward"), move |lane| forward(lane, setting)));
        // A prefill differs from the forward in strides and offsets alone.
        if matches!(setting.heads.2, 4 | 32 | 96) {
            cases.push(Case::new(name("prefill"), move |lane| prefill(lane, setting)));
        }
    }
    cases
}

/// Heads and what else of attention is constant in a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub heads: (usize, usize, usize),
    pub window: Option<usize>,
    pub soft_cap: Option<f32>,
    pub scale: Option<f32>,
    /// The rate for a batch. A cache has none.
    pub dropout: Option<f64>,
}

impl Setting {
    pub const fn plain(heads: (usize, usize, usize)) -> Self {
        Self { heads, window: None, soft_cap: None, scale: None, dropout: None }
    }

    /// The plain settings of [`HEADS`], and windows, caps and scales of several sizes.
    pub fn all() -> Vec<Self> {
        let special = [
            (HEADS[1], Some(5), None, Some(0.4)),
            (HEADS[2], Some(40), Some(1.5), Some(0.07)),
            (HEADS[3], None, Some(30.0), None),
            (HEADS[4], Some(1), None, None),
        ];
        let special = special.map(|(heads, window, soft_cap, scale)| Self {
            window,
            soft_cap,
            scale,
            ..Self::plain(heads)
        });
        HEADS.map(Self::plain).into_iter().chain(special).collect()
    }

    /// The cases whose queries leave keys out. Among them are every tile, each kind of rest, a window and a cap.
    pub fn dropped() -> [Self; 4] {
        let of = |heads, dropout| Self { dropout: Some(dropout), ..Self::plain(heads) };
        let special = Self { window: Some(40), soft_cap: Some(1.5), ..of(HEADS[5], 0.1) };
        [of(HEADS[1], 0.2), of(HEADS[2], 0.5), of(HEADS[3], 0.2), special]
    }

    /// The seed and micro-step of a batch's masks, and the number of their place.
    pub fn masks(&self, lane: &Lane) -> (Masks, usize) {
        (Masks { seed: split(lane.seed), micro_step: 77 }, 65_541)
    }

    /// The step of a batch, and after the other operands what dropout needs.
    pub fn step(&self, lane: &Lane, tokens: usize) -> (Operand, Option<Operand>) {
        let (Masks { seed, micro_step }, place) = self.masks(lane);
        let step = Step { draws: micro_step, reserved: seed, ..Step::of(tokens) };
        let range = self.dropout.map(|_| Operand::uniform(&[0u32, 0, place as u32, 0]));
        (Operand::uniform(&step), range)
    }

    pub fn name(&self) -> String {
        let (n, kv, dim) = self.heads;
        let window = self.window.map_or(String::new(), |w| format!(", window {w}"));
        let cap = self.soft_cap.map_or(String::new(), |c| format!(", capped at {c}"));
        let scale = self.scale.map_or(String::new(), |s| format!(", scaled by {s}"));
        let dropout = self.dropout.map_or(String::new(), |d| format!(", dropout {d}"));
        format!("{n}/{kv} heads of {dim}{window}{cap}{scale}{dropout}")
    }

    pub const fn shape(&self) -> k::AttentionShape {
        let (heads, kv_heads, head_dim) = self.heads;
        k::AttentionShape { heads, kv_heads, head_dim }
    }

    fn scores(&self) -> k::Scores {
        let constant = |x: f32| k::Constant(f64::from(x));
        k::Scores { soft_cap: self.soft_cap.map(constant), scale: self.scale.map(constant) }
    }

    /// Attention over a batch.
    pub fn batch(&self) -> k::BatchAttention {
        k::BatchAttention {
            shape: self.shape(),
            scores: self.scores(),
            window: self.window,
            dropout: self.dropout.map(k::Constant),
            ..k::BatchAttention::default()
        }
    }

    /// Attention over a cache, which may be a ring of `ring` rows.
    pub fn cached(&self, ring: Option<usize>) -> k::CacheAttention {
        let Self { window, .. } = *self;
        k::CacheAttention { shape: self.shape(), scores: self.scores(), window, ring }
    }

    /// Attention over tensors.
    pub fn over_tensors(&self, element: Element, batch: usize) -> k::DecodeOver {
        k::DecodeOver::Tensors(self.shape(), self.scores(), element, batch)
    }

    /// With the masks of a lane's batch.
    pub fn twin_on(&self, lane: &Lane, tokens: usize) -> CausalAttention {
        let (masks, place) = self.masks(lane);
        let dropout = self.dropout.map(|rate| KeyDropout { rate, place, masks, tokens });
        CausalAttention { dropout, ..self.twin(tokens) }
    }

    pub fn twin(&self, tokens: usize) -> CausalAttention {
        let (n_heads, n_kv_heads, head_dim) = self.heads;
        CausalAttention {
            window: self.window,
            soft_cap: self.soft_cap.map(f64::from),
            scale: self.scale.map(f64::from),
            ..CausalAttention::new(n_heads, n_kv_heads, head_dim, tokens)
        }
    }
}

/// What selection picks, for one head dimension every tile that it may ever pick, and for small heads
/// those that these alone have.
pub(crate) fn with_tiles(
    caps: &Capabilities,
    setting: Setting,
    pass: k::AttentionPass,
    picked: Result<Kernel>,
    tiled: impl Fn(k::AttentionTile) -> Result<Kernel>,
) -> Result<Vec<Kernel>> {
    let mut kernels = vec![picked?];
    let of_small = |tile: &k::AttentionTile| tile.rows.max(tile.columns) > 32;
    let wanted = |tile: &k::AttentionTile| {
        setting.heads == HEADS[2] || setting.heads == HEADS[1] && of_small(tile)
    };
    if !caps.software {
        for tile in k::attention_tiles(caps, setting.shape(), pass).into_iter().filter(wanted) {
            kernels.push(tiled(tile)?);
        }
    }
    Ok(kernels)
}

/// One token; one past the largest tile as one document; several documents with borders inside
/// tiles.
pub(crate) fn batches(lane: &Lane) -> [Vec<u32>; 3] {
    [vec![0], vec![0; 65], lane.documents(70)]
}

/// The kernels divide by sums of up to 70 exponentials of products: a few roundings more.
pub(crate) const SOFTMAX: f64 = 2.0 * ROUNDING;

/// The forward pass of rows in f32.
pub(crate) const fn forward_of(
    batch: k::BatchAttention,
    tile: Option<k::AttentionTile>,
) -> k::AttentionForward {
    k::AttentionForward { batch, qkv_f16: false, output_f16: false, tile }
}

/// The forward pass over a cache.
pub(crate) const fn prefill_of(attention: k::CacheAttention) -> k::AttentionForwardCached {
    k::AttentionForwardCached { attention, tokens: 0, rounds: false, output_f16: false, tile: None }
}

/// The delta of rows in f32.
pub(crate) const fn delta_of(shape: k::AttentionShape, sums: k::PartialSums) -> k::AttentionDelta {
    k::AttentionDelta { shape, output_f16: false, d_output_f16: false, sums }
}

/// The gradient of queries of rows in f32.
pub(crate) fn query_of(
    batch: k::BatchAttention,
    tile: Option<k::AttentionTile>,
) -> k::AttentionBackwardQuery {
    k::AttentionBackwardQuery { batch, rows: k::BackwardRows::default(), tile }
}

/// The gradients of keys and values of rows in f32.
pub(crate) fn key_value_of(
    batch: k::BatchAttention,
    (owner, ends): (k::KeyValueOwner, usize),
    tile: Option<k::AttentionTile>,
) -> k::AttentionBackwardKeyValue {
    k::AttentionBackwardKeyValue { batch, rows: k::BackwardRows::default(), owner, ends, tile }
}

/// The sum of the parts of query heads, in f32.
pub(crate) const fn group_sum_of(shape: k::AttentionShape) -> k::AttentionGroupSum {
    k::AttentionGroupSum { shape, d_qkv_f16: false, rotated: false }
}

async fn forward(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let make = |caps: &Capabilities| {
        let picked = forward_of(setting.batch(), None).kernel(caps);
        with_tiles(caps, setting, k::AttentionPass::Forward, picked, |tile| {
            forward_of(setting.batch(), Some(tile)).kernel(caps)
        })
    };
    let made = lane.kernels(make).map_err(text)?;
    for documents in batches(&lane) {
        let shape = setting.twin_on(&lane, documents.len());
        let qkv = lane.normal(shape.tokens * shape.qkv_width());
        let (out, lse) = attention_forward(shape, &wide(&qkv), &documents);
        let (step, place) = setting.step(&lane, shape.tokens);
        let mut operands = vec![
            Operand::floats(&qkv),
            Operand::floats(&qkv),
            Operand::words(&documents),
            Operand::poison(out.len()),
            Operand::poison(lse.len()),
            step,
        ];
        operands.extend(place);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, shape.tokens, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            let what = |name: &str| format!("{name} of {} tokens", shape.tokens);
            close(&what("output"), &got.floats(0), &out, SOFTMAX).map_err(&named)?;
            // A logarithm near zero is as exact as its argument, which is near one.
            let ones = vec![1.0; lse.len()];
            close_to_terms(&what("lse"), &got.floats(1), &lse, &ones, SOFTMAX).map_err(&named)?;
            alone(shape, &documents, &qkv, &got.floats(0)).map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

/// The first position of a document sees itself alone: its output is its value, to the rounding of
/// one division.
fn alone(
    shape: CausalAttention,
    documents: &[u32],
    qkv: &[f32],
    out: &[f32],
) -> std::result::Result<(), String> {
    for s in (0..shape.tokens).filter(|&s| documents[s] as usize == s) {
        for h in 0..shape.n_heads {
            // With dropout itself, or nothing.
            let kept: f64 = shape.kept(h, s, s);
            let value =
                s * shape.qkv_width() + shape.value_offset() + shape.kv_head(h) * shape.head_dim;
            let row = &out[(s * shape.n_heads + h) * shape.head_dim..][..shape.head_dim];
            let expected: Vec<f64> =
                wide(&qkv[value..value + shape.head_dim]).iter().map(|x| kept * x).collect();
            close("first row", row, &expected, 2e-7)?;
        }
    }
    Ok(())
}

/// A cache of `rows` random rows and NaN after them.
fn cache(lane: &Lane, shape: CausalAttention, rows: usize) -> Vec<f32> {
    let mut cache = lane.normal(rows * shape.cache_width());
    cache.resize((rows + 40) * shape.cache_width(), f32::NAN);
    cache
}

async fn prefill(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let made = lane.variants_of(prefill_of(setting.cached(None))).map_err(text)?;
    for (position, tokens) in [(0, 5), (37, 1), (30, 70)] {
        let shape = setting.twin(tokens);
        let qkv = lane.normal(tokens * shape.qkv_width());
        let cache = cache(&lane, shape, position + tokens);
        let expected = attention_prefill(shape, &wide(&qkv), &wide(&cache), position);
        let what = format!("{tokens} rows behind {position}");
        prefill_close(&lane, &what, &made, shape, position, [&qkv, &cache], &expected).await?;
    }
    Ok(lane.summary())
}

/// Runs prefill kernels on the rows of `qkv` after `position` cached ones, and compares each with `expected`.
pub(crate) async fn prefill_close(
    lane: &Lane,
    what: &str,
    made: &[Kernel],
    shape: CausalAttention,
    position: usize,
    [qkv, cache]: [&[f32]; 2],
    expected: &[f64],
) -> Result<(), String> {
    let tokens = shape.tokens;
    let operands = [
        Operand::floats(qkv),
        Operand::floats(cache),
        Operand::words(&vec![0; tokens]),
        Operand::poison(expected.len()),
        Operand::poison(tokens * shape.n_heads),
        Operand::uniform(&Step { position: position as u32, ..Step::of(tokens) }),
    ];
    let job = |kernel: &Kernel| Job::new(kernel, tokens, operands.to_vec());
    let jobs: Vec<_> = made.iter().map(job).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close(what, &got.floats(0), expected, SOFTMAX).map_err(of(&job.kernel))?;
    }
    Ok(())
}
