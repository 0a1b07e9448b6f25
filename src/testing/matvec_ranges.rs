//! The product that puts together what ranges of keys have left.

use super::Outcome;
use super::harness::{Job, Operand, Step};
use super::lane::Lane;
use super::linear::{matvec_matrix, matvec_variants};
use super::measure::{ROUNDING, close, of, text, wide};
use super::weights;
use crate::kernels::{
    AttentionShape, DecodeSplits, MatvecInput, MatvecOutput, MatvecShape, PARTIAL_STATE,
    RANGE_KEYS, SplitReason, WeightFormat,
};
use crate::twins::add_assign;
use crate::twins::attention::{Part, attention_decode_merge};
use crate::twins::linear::matvec_forward;
use crate::twins::weights::unpack_weights_forward;
use std::rc::Rc;

/// Ranges that are all there, ranges without keys, which hold NaN, and those of a window; what is added, and formats.
pub(super) async fn product_of_ranges(lane: Rc<Lane>) -> Outcome {
    let (plain, windowed) = (None, Some(2 * RANGE_KEYS + 5));
    for (heads, count, keys, window, output, weights) in [
        (2, 3, 3 * RANGE_KEYS, plain, MatvecOutput::Residual, WeightFormat::F32),
        (4, 8, 1, plain, MatvecOutput::BiasedResidual, WeightFormat::F32),
        (4, 8, 5 * RANGE_KEYS + 1, windowed, MatvecOutput::Plain, WeightFormat::F16),
        (2, 16, 16 * RANGE_KEYS + 1, plain, MatvecOutput::Residual, WeightFormat::Int8),
        (4, 5, RANGE_KEYS + 1, plain, MatvecOutput::Residual, WeightFormat::Int4),
    ] {
        let shape = AttentionShape {
            heads,
            kv_heads: 1,
            head_dim: 160,
            window,
            ..AttentionShape::default()
        };
        let splits = DecodeSplits { count, reason: SplitReason::Near { keys: 1024 } };
        let input = MatvecInput::Ranges(shape, splits);
        let shape = MatvecShape { n: 37, k: 160 * heads, input, output, weights };
        ranges(&lane, shape, (shape_of(input), count, keys)).await?;
    }
    Ok(lane.summary())
}

fn shape_of(input: MatvecInput) -> AttentionShape {
    let MatvecInput::Ranges(shape, _) = input else { panic!("a product of ranges") };
    shape
}

/// What ranges leave, NaN where they see no key, and the row that they stand for.
fn left(lane: &Lane, shape: &AttentionShape, count: usize, active: usize) -> (Vec<f32>, Vec<f64>) {
    let (mut partials, mut row) = (vec![], vec![]);
    for _ in 0..shape.heads {
        let mut whole = Part::empty(shape.head_dim);
        for range in 0..count {
            let idle = range >= active;
            let mut part = lane.normal(shape.head_dim + PARTIAL_STATE);
            part[shape.head_dim] *= 5.0;
            part[shape.head_dim + 1] = 0.1 + part[shape.head_dim + 1].abs();
            if idle {
                part.fill(f32::NAN);
            } else {
                let [largest, total] = [0, 1].map(|i| f64::from(part[shape.head_dim + i]));
                let sum = wide(&part[..shape.head_dim]);
                whole = attention_decode_merge(&whole, &Part { sum, largest, total });
            }
            partials.extend(part);
        }
        row.extend(whole.sum.iter().map(|x| x / whole.total));
    }
    (partials, row)
}

async fn ranges(
    lane: &Lane,
    shape: MatvecShape,
    (heads, count, keys): (AttentionShape, usize, usize),
) -> Result<(), String> {
    let MatvecShape { n, k, output, weights, .. } = shape;
    let seen = heads.window.map_or(keys, |window| window.min(keys));
    let active = seen.div_ceil(seen.div_ceil(count).next_multiple_of(RANGE_KEYS));
    let (partials, row) = left(lane, &heads, count, active);
    let values = matvec_matrix(lane, shape);
    let (words, matrix) = if weights == WeightFormat::F32 {
        (values.iter().map(|x| x.to_bits()).collect(), wide(&values))
    } else {
        let words = weights::packed(lane, weights, (n, k), &values).await?.swap_remove(0);
        let matrix = unpack_weights_forward(weights, &words, values.len());
        (words, matrix)
    };
    let column = 5;
    let c = lane.normal(column + n);
    let added: Vec<Vec<f32>> = match output {
        MatvecOutput::Residual => vec![lane.normal(column + n)],
        MatvecOutput::BiasedResidual => vec![lane.normal(column + n), lane.normal(column + n)],
        _ => vec![],
    };
    let step = Step { position: keys as u32 - 1, ..Step::of(1) };
    let mut operands = vec![
        Operand::floats(&partials),
        Operand::words(&words),
        Operand::floats(&c),
        Operand::range(0, 1, column, n),
    ];
    operands.extend(added.iter().map(|x| Operand::floats(x)));
    operands.push(Operand::uniform(&step));
    let mut expected = wide(&c[..column]);
    let mut products = matvec_forward(&row, &matrix, None);
    added.iter().for_each(|x| add_assign(&mut products, &wide(&x[column..])));
    expected.extend(products);
    let made = matvec_variants(lane, shape)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close("c", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}
