//! Family 02: norms of each head's queries and keys, forward and backward.

use crate::kernels::attention::twin::causal::CausalAttention;
use crate::kernels::norm::cases::{EPSILON, RowBehind, norm_terms};
use crate::kernels::norm::twin::{head_norm_backward, head_norm_forward, norm_factors};
use crate::kernels::{self as k, AttentionShape as Shape};
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close_to_terms, directional, dot, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// Heads of queries, of keys, and their width: smaller than a workgroup, odd groups, one past it. And whether
/// the weight is stored as its distance from 1.
const SHAPES: [(usize, usize, usize, bool); 4] =
    [(1, 1, 4, false), (4, 2, 12, true), (3, 1, 80, false), (2, 1, 256, true)];
/// One row; one past whole blocks of the backward kernel.
const ROWS: [usize; 2] = [1, 17];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("head_norm_forward", forward), Case::new("head_norm_backward", backward)]
}

fn kernel_shape(twin: CausalAttention) -> Shape {
    Shape { heads: twin.n_heads, kv_heads: twin.n_kv_heads, head_dim: twin.head_dim }
}

async fn forward(lane: Rc<Lane>) -> Outcome {
    for (heads, kv_heads, head_dim, shifted) in SHAPES {
        for rows in ROWS {
            let twin = CausalAttention::new(heads, kv_heads, head_dim, rows);
            let elements = rows * twin.qkv_width();
            let (x, weight) = (lane.normal(elements), lane.normal(2 * head_dim));
            let factor = norm_factors(&wide(&weight), shifted);
            let expected = head_norm_forward(twin, &wide(&x), &factor, EPSILON);
            let (shape, terms) = (kernel_shape(twin), norm_terms(shifted));
            let made = lane.variants_of(k::HeadNormForward { shape, terms }).map_err(text)?;
            let operands = || {
                let (x, weight) = (Operand::floats(&x), Operand::floats(&weight));
                vec![x, weight, Operand::poison(elements), Operand::uniform(&Step::of(rows))]
            };
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                crate::testing::measure::close("y", &got.floats(0), &expected, ROUNDING)
                    .map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn backward(lane: Rc<Lane>) -> Outcome {
    for ((heads, kv_heads, head_dim, shifted), each) in SHAPES.into_iter().zip([8, 1, 2, 16]) {
        for rows in ROWS {
            let twin = CausalAttention::new(heads, kv_heads, head_dim, rows);
            one_backward(&lane, twin, shifted, each).await?;
        }
    }
    Ok(lane.summary())
}

/// The size of each weight's gradient, a sum over rows and heads, unless its terms cancel.
fn weight_slopes(twin: CausalAttention, x: &[f64], d_y: &[f64]) -> Vec<f64> {
    let (head_dim, queries) = (twin.head_dim, twin.n_heads);
    let normed = head_norm_forward(twin, x, &vec![1.0; 2 * head_dim], EPSILON);
    let slope = |column: usize| {
        let heads = if column < head_dim { 0..queries } else { queries..queries + twin.n_kv_heads };
        let at = |t: usize, head: usize| t * twin.qkv_width() + head * head_dim + column % head_dim;
        let all = (0..twin.tokens).flat_map(|t| heads.clone().map(move |head| at(t, head)));
        all.map(|i| (normed[i] * d_y[i]).powi(2)).sum::<f64>().sqrt()
    };
    (0..2 * head_dim).map(slope).collect()
}

/// `each` rows per workgroup.
async fn one_backward(
    lane: &Lane,
    twin: CausalAttention,
    shifted: bool,
    each: usize,
) -> Result<(), String> {
    let (rows, head_dim) = (twin.tokens, twin.head_dim);
    let (elements, blocks) = (rows * twin.qkv_width(), rows.div_ceil(each));
    let [x, d_y] = [(); 2].map(|()| lane.normal(elements));
    let weight = lane.normal(2 * head_dim);
    let (wide_x, wide_d) = (wide(&x), wide(&d_y));
    let wide_weight = norm_factors(&wide(&weight), shifted);
    let (d_x, d_weight) = head_norm_backward(twin, &wide_x, &wide_weight, &wide_d, EPSILON);
    // A row's own slope, and the sums over rows and heads.
    let terms = head_norm_forward(twin, &wide_x, &wide_weight, EPSILON);
    let terms: Vec<f64> =
        (0..elements).map(|i| (terms[i] / wide_x[i] * wide_d[i]).abs().max(d_x[i].abs())).collect();
    let slopes = weight_slopes(twin, &wide_x, &wide_d);
    let made = lane
        .variants_of(k::HeadNormBackward {
            shape: kernel_shape(twin),
            terms: norm_terms(shifted),
            rows: each,
        })
        .map_err(text)?;
    let behind = RowBehind::new(lane, twin.qkv_width());
    let jobs: Vec<_> = made
        .iter()
        .map(|kernel| {
            let [x, d_y] = [&x, &d_y].map(|rows| behind.added_to(rows));
            let mut operands = vec![x, Operand::floats(&weight), d_y];
            let partial = Operand::poison(blocks * 2 * head_dim);
            operands.extend([partial, Operand::uniform(&Step::of(rows))]);
            Job::new(kernel, rows, operands)
        })
        .collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let got_d_x = behind.cut_off(&got).map_err(&named)?;
        close_to_terms("d_x", &got_d_x, &d_x, &terms, 2.0 * ROUNDING).map_err(&named)?;
        let mut sums = vec![0.0f64; 2 * head_dim];
        for row in got.floats(1).chunks_exact(2 * head_dim) {
            sums.iter_mut().zip(row).for_each(|(sum, &part)| *sum += f64::from(part));
        }
        let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
        close_to_terms("d_weight", &sums, &d_weight, &slopes, ROUNDING).map_err(&named)?;
        let loss = |x: &[f64]| dot(&head_norm_forward(twin, x, &wide_weight, EPSILON), &wide_d);
        directional("d_x", &got_d_x, &wide_x, &lane.normal(elements), loss).map_err(&named)?;
    }
    Ok(())
}
