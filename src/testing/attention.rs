//! Family 05: attention forward over packed documents and over the key-value cache.

use super::harness::{Job, Operand, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, close_to_terms, of, text, wide};
use super::{Case, Outcome};
use crate::kernels as k;
use crate::reference::attention::{AttentionShape, attention_forward, attention_prefill};
use std::rc::Rc;

/// Every head dimension with a number of heads that exercises grouping.
pub(super) const HEADS: [(usize, usize, usize); 7] =
    [(3, 1, 4), (4, 2, 32), (2, 2, 64), (3, 1, 80), (2, 1, 96), (4, 2, 128), (2, 1, 256)];

pub(super) fn cases() -> Vec<Case> {
    HEADS
        .into_iter()
        .flat_map(|heads| {
            let (n, kv, dim) = heads;
            let name = |what: &str| format!("attention {what} {n}/{kv} heads of {dim}");
            // A prefill differs from the forward in strides and offsets alone.
            let cached = matches!(dim, 4 | 32 | 96);
            let prefill = || Case::new(name("prefill"), move |lane| prefill(lane, heads));
            let forward = Case::new(name("forward"), move |lane| forward(lane, heads));
            std::iter::once(forward).chain(cached.then(prefill)).collect::<Vec<_>>()
        })
        .collect()
}

pub(super) fn shapes(
    (n_heads, n_kv_heads, head_dim): (usize, usize, usize),
    tokens: usize,
) -> (AttentionShape, k::AttentionShape) {
    (
        AttentionShape { n_heads, n_kv_heads, head_dim, tokens },
        k::AttentionShape { heads: n_heads, kv_heads: n_kv_heads, head_dim },
    )
}

/// One token; one past the largest tile as one document; several documents with borders inside
/// tiles.
pub(super) fn batches(lane: &Lane) -> [Vec<u32>; 3] {
    [vec![0], vec![0; 33], lane.documents(45)]
}

/// The kernels divide by sums of up to 45 exponentials of products: a few roundings more.
pub(super) const SOFTMAX: f64 = 2.0 * ROUNDING;

async fn forward(lane: Rc<Lane>, heads: (usize, usize, usize)) -> Outcome {
    let made = lane
        .variants(|caps| k::attention_forward(caps, shapes(heads, 0).1, false))
        .map_err(text)?;
    for documents in batches(&lane) {
        let (shape, _) = shapes(heads, documents.len());
        let qkv = lane.normal(shape.tokens * shape.qkv_width());
        let (out, lse) = attention_forward(shape, &wide(&qkv), &documents);
        let operands = [
            Operand::floats(&qkv),
            Operand::floats(&qkv),
            Operand::words(&documents),
            Operand::poison(out.len()),
            Operand::poison(lse.len()),
            Operand::uniform(&Step::of(shape.tokens)),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, shape.tokens, operands.to_vec())).collect();
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
fn alone(shape: AttentionShape, documents: &[u32], qkv: &[f32], out: &[f32]) -> Result<(), String> {
    for s in (0..shape.tokens).filter(|&s| documents[s] as usize == s) {
        for h in 0..shape.n_heads {
            let value =
                s * shape.qkv_width() + shape.value_offset() + shape.kv_head(h) * shape.head_dim;
            let row = &out[(s * shape.n_heads + h) * shape.head_dim..][..shape.head_dim];
            close("first row", row, &wide(&qkv[value..value + shape.head_dim]), 2e-7)?;
        }
    }
    Ok(())
}

/// A cache of `rows` random rows and NaN behind them.
fn cache(lane: &Lane, shape: AttentionShape, rows: usize) -> Vec<f32> {
    let mut cache = lane.normal(rows * shape.cache_width());
    cache.resize((rows + 40) * shape.cache_width(), f32::NAN);
    cache
}

async fn prefill(lane: Rc<Lane>, heads: (usize, usize, usize)) -> Outcome {
    let made =
        lane.variants(|caps| k::attention_forward(caps, shapes(heads, 0).1, true)).map_err(text)?;
    for (position, tokens) in [(0, 5), (37, 1), (30, 35)] {
        let (shape, _) = shapes(heads, tokens);
        let qkv = lane.normal(tokens * shape.qkv_width());
        let cache = cache(&lane, shape, position + tokens);
        let expected = attention_prefill(shape, &wide(&qkv), &wide(&cache), position);
        let step = Step { position: position as u32, ..Step::of(tokens) };
        let operands = [
            Operand::floats(&qkv),
            Operand::floats(&cache),
            Operand::words(&vec![0; tokens]),
            Operand::poison(expected.len()),
            Operand::poison(tokens * shape.n_heads),
            Operand::uniform(&step),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, tokens, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("{tokens} rows behind {position}");
            close(&what, &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
