//! Family 03: the matrix-vector product in every form, and the one that puts together what ranges of keys have left.

use crate::caps::{Capabilities, Decoding};
use crate::config::Activation;
use crate::kernels::activation::twin::{gated_activation_backward, gated_activation_forward};
use crate::kernels::attention::twin::causal::{PartialSoftmax, attention_decode_merge};
use crate::kernels::linear::twin::matvec_forward;
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::weights::cases as weights;
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::kernels::{
    self as k, AttentionShape, CacheAttention, DecodeSplits, Kernel, Matvec, MatvecInput,
    MatvecOutput, NewKey, PARTIAL_STATE, RANGE_KEYS, Spec, SplitReason, WeightFormat,
};
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::{Lane, Others};
use crate::testing::measure::{ROUNDING, close, close_to_terms, of, sum, text, wide};
use crate::testing::{Case, Outcome};
use crate::twins::add_assign;
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("matvec", matvec), Case::new("matvec of ranges", product_of_ranges)]
}

/// Every form of the matrix-vector product: the input as it is and normed; the products as they
/// are, added to a residual or to that and a bias, and gated.
async fn matvec(lane: Rc<Lane>) -> Outcome {
    let norm = MatvecInput::Norm { epsilon: k::Constant(EPSILON) };
    let gates = Activation::ALL.map(MatvecOutput::Gated);
    let (first, weights) = (7, WeightFormat::F32);
    for (n, k) in [(1, 4), (131, 19), (70, 260), (3, 1), (61, 2304)] {
        for output in [
            MatvecOutput::Plain,
            MatvecOutput::Added,
            MatvecOutput::Residual,
            MatvecOutput::Bias,
            MatvecOutput::BiasedResidual,
        ] {
            let input = MatvecInput::Plain;
            row(&lane, Matvec { n, k, first, input, output, weights }).await?;
        }
        for output in [MatvecOutput::Plain].into_iter().chain(gates) {
            row(&lane, Matvec { n, k, first, input: norm, output, weights }).await?;
        }
    }
    Ok(lane.summary())
}

pub(crate) const EPSILON: f64 = 1e-5;

/// The product with a matrix of numbers as they are.
async fn row(lane: &Lane, shape: Matvec) -> Result<(), String> {
    let b = matvec_matrix(lane, shape);
    row_by(lane, shape, Operand::floats(&b), &wide(&b)).await
}

/// A matrix for [`row_by`]. Products are of about 1, as a model's are: an activation makes an error of
/// a large one larger.
pub(crate) fn matvec_matrix(lane: &Lane, shape: Matvec) -> Vec<f32> {
    let Matvec { n, k, output, .. } = shape;
    let rows = n * output.products();
    let mut b = lane.normal(rows * k);
    b.iter_mut().for_each(|x| *x /= (k as f32).sqrt());
    b
}

/// Forms that a class may take: what one takes, and fewer and more results of a subgroup.
const FORMS: [Decoding; 3] = [
    Decoding::TEAMS,
    Decoding { merged_ranges: 4, team_rows: 1, workgroup_rows: 4, qkv_invocations: 64 },
    Decoding { merged_ranges: 16, team_rows: 32, workgroup_rows: 8, qkv_invocations: 0 },
];

/// The kernels that the table's adapters choose, and those of each form.
pub(crate) fn matvec_variants(lane: &Lane, shape: Matvec) -> Result<Vec<Kernel>, String> {
    let mut made = if matches!(shape.input, MatvecInput::PartialSoftmax(..)) {
        vec![]
    } else {
        lane.variants_of(shape).map_err(text)?
    };
    // All of them take long to compile on a CPU: the core has the first.
    let forms = if lane.mode.others == Others::Run { &FORMS[..] } else { &FORMS[..1] };
    for &form in forms {
        let formed = |caps: &Capabilities| {
            // A CPU's adapter keeps its own width in the table: a team is no wider than the device's.
            let subgroup_size = lane.caps().subgroup_size;
            let caps = Capabilities { decoding: Some(form), subgroup_size, ..caps.clone() };
            let merges = k::matvec_merges(&caps, shape.k);
            if matches!(shape.input, MatvecInput::PartialSoftmax(..)) && !merges {
                return Ok(vec![]);
            }
            shape.kernel(&caps).map(|kernel| vec![kernel])
        };
        for kernel in lane.chosen(formed).map_err(text)? {
            if !made.contains(&kernel) {
                made.push(kernel);
            }
        }
    }
    Ok(made)
}

/// The product with a matrix whose words are in `b` and stand for the numbers of `matrix`.
pub(crate) async fn row_by(
    lane: &Lane,
    shape: Matvec,
    b: Operand,
    matrix: &[f64],
) -> Result<(), String> {
    let Matvec { n, k, first: column, input, output, .. } = shape;
    let made = matvec_variants(lane, shape)?;
    let (a, weight) = (lane.normal(k), lane.normal(k));
    let (c, base) = (lane.normal(column + n), lane.normal(column + n));
    let mut operands = vec![Operand::floats(&a), b, Operand::floats(&c)];
    let x = match input {
        MatvecInput::Plain => wide(&a),
        MatvecInput::Norm { epsilon: k::Constant(epsilon) } => {
            operands.push(Operand::floats(&weight));
            rms_norm_forward(&wide(&a), &wide(&weight), epsilon)
        }
        MatvecInput::PartialSoftmax(..) => return Err("ranges have a case of their own".into()),
    };
    let added = match output {
        MatvecOutput::Residual | MatvecOutput::Bias => vec![base],
        MatvecOutput::BiasedResidual => vec![base, lane.normal(column + n)],
        _ => vec![],
    };
    operands.extend(added.iter().map(|x| Operand::floats(x)));
    let own = (output == MatvecOutput::Added).then_some(&c);
    let base = added.iter().chain(own).map(|x| wide(&x[column..])).reduce(sum);
    let products = matvec_forward(&x, matrix, base.as_deref());
    let mut expected = wide(&c[..column]);
    let mut terms = expected.clone();
    if let MatvecOutput::Gated(activation) = output {
        terms.extend(of_both(activation, &products, n));
    }
    expected.extend(match output {
        MatvecOutput::Gated(activation) => gated_activation_forward(activation, &products, n),
        MatvecOutput::Plain
        | MatvecOutput::Added
        | MatvecOutput::Residual
        | MatvecOutput::Bias
        | MatvecOutput::BiasedResidual => products,
        MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => {
            return Err("heads have a case of their own".into());
        }
    });
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close_to_terms("c", &got.floats(0), &expected, &terms, ROUNDING)
            .map_err(of(&job.kernel))?;
    }
    Ok(())
}

/// How much a gated output changes with a factor on one of its two products, and with one on the other: each is a sum
/// that rounding may change.
pub(crate) fn of_both(activation: Activation, products: &[f64], n: usize) -> Vec<f64> {
    let (slopes, _) = gated_activation_backward(activation, products, &vec![1.0; n], n);
    let by_one = |i: usize| (slopes[i] * products[i]).abs();
    (0..n).map(|i| by_one(i) + by_one(n + i)).collect()
}

/// Ranges that are all there, ranges without keys, which hold NaN, and those of a window; what is added, and formats.
async fn product_of_ranges(lane: Rc<Lane>) -> Outcome {
    let (plain, windowed) = (None, Some(2 * RANGE_KEYS + 5));
    for (heads, count, keys, window, output, weights) in [
        (2, 3, 3 * RANGE_KEYS, plain, MatvecOutput::Added, WeightFormat::F32),
        (4, 8, 1, plain, MatvecOutput::BiasedResidual, WeightFormat::F32),
        (4, 8, 5 * RANGE_KEYS + 1, windowed, MatvecOutput::Plain, WeightFormat::F16),
        (2, 16, 16 * RANGE_KEYS + 1, plain, MatvecOutput::Added, WeightFormat::Int8),
        (4, 5, RANGE_KEYS + 1, plain, MatvecOutput::Residual, WeightFormat::Int4),
    ] {
        let shape = AttentionShape { heads, kv_heads: 1, head_dim: 160 };
        let shape = CacheAttention { shape, window, ..CacheAttention::default() };
        let splits = DecodeSplits { count, reason: SplitReason::Merged { keys: 1024 } };
        let input = MatvecInput::PartialSoftmax(shape, splits, NewKey::Among);
        let shape = Matvec { n: 37, k: 160 * heads, first: 5, input, output, weights };
        ranges(&lane, shape, (shape_of(input), count, keys)).await?;
    }
    Ok(lane.summary())
}

fn shape_of(input: MatvecInput) -> CacheAttention {
    let MatvecInput::PartialSoftmax(shape, ..) = input else { panic!("a product of ranges") };
    shape
}

/// What ranges leave, NaN where they see no key, and the row that they stand for.
fn left(lane: &Lane, shape: &AttentionShape, count: usize, active: usize) -> (Vec<f32>, Vec<f64>) {
    let (mut partials, mut row) = (vec![], vec![]);
    for _ in 0..shape.heads {
        let mut whole = PartialSoftmax::empty(shape.head_dim);
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
                whole = attention_decode_merge(&whole, &PartialSoftmax { sum, largest, total });
            }
            partials.extend(part);
        }
        row.extend(whole.sum.iter().map(|x| x / whole.total));
    }
    (partials, row)
}

async fn ranges(
    lane: &Lane,
    shape: Matvec,
    (heads, count, keys): (CacheAttention, usize, usize),
) -> Result<(), String> {
    let Matvec { n, k, first: column, output, weights, .. } = shape;
    let seen = heads.keys(keys);
    let active = seen.div_ceil(seen.div_ceil(count).next_multiple_of(RANGE_KEYS));
    let (partials, row) = left(lane, &heads.shape, count, active);
    let values = matvec_matrix(lane, shape);
    let (words, matrix) = if weights == WeightFormat::F32 {
        (values.iter().map(|x| x.to_bits()).collect(), wide(&values))
    } else {
        let words = weights::packed(lane, weights, (n, k), &values).await?.swap_remove(0);
        let matrix = unpack_weights_forward(weights, &words, values.len());
        (words, matrix)
    };
    let c = lane.normal(column + n);
    let added: Vec<Vec<f32>> = match output {
        MatvecOutput::Residual => vec![lane.normal(column + n)],
        MatvecOutput::BiasedResidual => vec![lane.normal(column + n), lane.normal(column + n)],
        _ => vec![],
    };
    let step = Step { position: keys as u32 - 1, ..Step::of(1) };
    let mut operands =
        vec![Operand::floats(&partials), Operand::words(&words), Operand::floats(&c)];
    operands.extend(added.iter().map(|x| Operand::floats(x)));
    operands.push(Operand::uniform(&step));
    let mut expected = wide(&c[..column]);
    let mut products = matvec_forward(&row, &matrix, None);
    let own = (output == MatvecOutput::Added).then_some(&c);
    added.iter().chain(own).for_each(|x| add_assign(&mut products, &wide(&x[column..])));
    expected.extend(products);
    let made = matvec_variants(lane, shape)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close("c", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}
