//! Family 04: the rotary embedding.

mod parts;

use super::twin::{rope_backward, rope_forward, rope_table};
use super::{RopeAppend, RopeRows, rope_has_halves, rope_norms_heads};
use crate::arch::Rope;
use crate::caps::Capabilities;
use crate::kernels::attention::twin::causal::CausalAttention;
use crate::kernels::{AttentionShape, CacheRows, NormTerms, PartialSums, RopeShape, Spec};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Step, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, each_close, narrow, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("rope", rope)];
    cases.extend(parts::cases());
    cases
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, row_heads, head_dim) in
        [(2, 3, 4), (6, 8, 32), (16, 24, 64), (4, 5, 80), (16, 20, 96), (10, 12, 128), (5, 6, 256)]
    {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {head_dim}"), kernel));
        for dims in [head_dim, head_dim / 4 * 2] {
            let shape = RopeShape { heads, head_dim, dims, stride: row_heads * head_dim };
            for forward in [true, false] {
                let rope = RopeRows::new(shape, forward);
                let what = if forward { "rope" } else { "rope backward" };
                add(what, rope.kernel(caps));
                if rope_has_halves(shape) {
                    add(&format!("{what} into f16"), RopeRows { half: true, ..rope }.kernel(caps));
                }
            }
            if shape.rotates_sums() {
                let sums = PartialSums { count: 3, apart: 4096 };
                add("rope of parts", RopeRows { sums, ..RopeRows::new(shape, true) }.kernel(caps));
                let shape_of = AttentionShape {
                    heads: 2 * heads - row_heads,
                    kv_heads: row_heads - heads,
                    head_dim,
                };
                for sums in [PartialSums::WHOLE, sums] {
                    let cache = CacheRows { shape: shape_of, ring: None };
                    let rope = RopeAppend { shape, sums, cache, norms: None };
                    add("rope to a cache", rope.kernel(caps));
                    if rope_norms_heads(caps, shape) {
                        let norms = Some(NormTerms::plain(1e-6));
                        add("rope of normed heads", RopeAppend { norms, ..rope }.kernel(caps));
                    }
                }
            }
        }
    }
    entries
}

async fn rope(lane: Rc<Lane>) -> Outcome {
    const THETA: f64 = 10_000.0;
    for (n_heads, n_kv_heads, head_dim, dims) in
        [(1, 1, 4, 4), (6, 2, 12, 6), (6, 2, 12, 4), (3, 1, 80, 80)]
    {
        for (tokens, position) in [(1, 0), (19, 0), (19, 23)] {
            let shape = CausalAttention::new(n_heads, n_kv_heads, head_dim, tokens);
            let (heads, stride) = (n_heads + n_kv_heads, shape.qkv_width());
            let turned = RopeShape { heads, head_dim, dims, stride };
            let documents = if position > 0 { vec![0; tokens] } else { lane.documents(tokens) };
            let qkv = lane.normal(tokens * shape.qkv_width());
            let angles = Rope::plain(dims, THETA);
            let table: Vec<f32> =
                rope_table(64, &angles).iter().flat_map(|pair| narrow(pair)).collect();
            let step = Step { position: position as u32, ..Step::of(tokens) };
            let mut operands = vec![
                Operand::floats(&qkv),
                Operand::floats(&table),
                Operand::words(&documents),
                Operand::uniform(&step),
            ];
            for forward in [true, false] {
                let made = lane.variants_of(RopeRows::new(turned, forward)).map_err(text)?;
                let mut expected = wide(&qkv);
                let rotate = if forward { rope_forward } else { rope_backward };
                rotate(shape, &mut expected, &documents, position, &angles);
                let jobs = jobs(&made, tokens, &operands);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    close("qkv", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
                }
            }
            if !rope_has_halves(turned) {
                continue;
            }
            operands.insert(3, Operand::poison(qkv.len() / 2));
            for forward in [true, false] {
                let mut expected = wide(&qkv);
                let rotate = if forward { rope_forward } else { rope_backward };
                rotate(shape, &mut expected, &documents, position, &angles);
                // A sum that cancels is rounded in f32 before it is in f16; below 2^-14 f16 has steps of one size.
                let terms: Vec<f64> = expected.iter().map(|x| x.abs().max(0.01)).collect();
                let allowed = 1.0 / 2048.0 + ROUNDING;
                let made = lane
                    .variants_of(RopeRows { half: true, ..RopeRows::new(turned, forward) })
                    .map_err(text)?;
                let jobs = jobs(&made, tokens, &operands);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    each_close("rotated", &got.halves(0), &expected, &terms, allowed)
                        .map_err(of(&job.kernel))?;
                }
            }
        }
    }
    Ok(lane.summary())
}
