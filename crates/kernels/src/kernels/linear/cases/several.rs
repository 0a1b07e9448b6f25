//! Products of a few decoded rows, and what rows that are of texts of their own need.

use crate::arch::Rope;
use crate::config::Activation;
use crate::kernels::activation::twin::gated_activation_forward;
use crate::kernels::attention::cases::decode::{Heads, shapes};
use crate::kernels::linear::cases::matvec::{EPSILON, of_both};
use crate::kernels::linear::twin::matvec_forward;
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::rope::twin::{rope_forward, rope_table};
use crate::kernels::weights::cases::packed;
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::kernels::{self as k, Kernel, MatvecInput, MatvecOutput, MatvecRows, WeightFormat};
use crate::testing::harness::{Job, Operand, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, close_to_terms, forbid, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// What becomes of the products of rows of a matrix in their order.
const OUTPUTS: [MatvecOutput; 5] = [
    MatvecOutput::Plain,
    MatvecOutput::Residual,
    MatvecOutput::Bias,
    MatvecOutput::BiasedResidual,
    MatvecOutput::Gated(Activation::Silu),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for format in WeightFormat::ALL {
        let name = format!("matvec_rows with {} weights", format.name());
        cases.push(Case::new(name, move |lane| products(lane, format)));
    }
    cases.push(Case::new("matvec_rows to the heads of several texts", heads_of_texts));
    cases
}

/// Cache rows of a text, and the ring in one of two runs.
pub(crate) const ROWS: usize = 9;

/// What says where rows are: the row less the position, which wraps.
pub(crate) fn documents(positions: &[usize]) -> Vec<u32> {
    let of = |(t, &position): (usize, &usize)| (t as u32).wrapping_sub(position as u32);
    positions.iter().enumerate().map(of).collect()
}

pub(crate) fn several(rows: usize, stride: usize) -> Step {
    Step { reserved: [stride as u32, 0], ..Step::of(rows) }
}

/// One row, fewer than a power of two, whole blocks of rows and one past them; rows of vectors and of single
/// elements, by each number of lanes that selection picks; fewer and more rows of the matrix than a workgroup takes.
async fn products(lane: Rc<Lane>, weights: WeightFormat) -> Outcome {
    let sizes: &[_] = if weights == WeightFormat::F32 {
        &[
            (1, 4),
            (131, 19),
            (70, 260),
            (3, 1),
            (2051, 36),
            (5, 768),
            (4099, 20),
            (6, 1028),
            (6, 2048),
        ]
    } else {
        &[(1, 32), (70, 256), (13, 2304), (4099, 64), (6, 4128)]
    };
    for (index, &(n, k)) in sizes.iter().enumerate() {
        for (turn, rows) in [1, 3, 16, 17].into_iter().enumerate() {
            let output = OUTPUTS[(index + turn) % 5];
            product(&lane, shape_of((n, k, rows), (index + turn) % 3 == 0, output, weights))
                .await?;
        }
    }
    Ok(lane.summary())
}

/// A part of a matrix: there are columns on both sides of the result's.
fn shape_of(
    (n, k, rows): (usize, usize, usize),
    normed: bool,
    output: MatvecOutput,
    weights: WeightFormat,
) -> MatvecRows {
    let input = if normed {
        MatvecInput::Norm { epsilon: k::Constant(EPSILON) }
    } else {
        MatvecInput::Plain
    };
    MatvecRows { n, k, rows, stride: n + 9, input, output, weights }
}

async fn product(lane: &Lane, shape: MatvecRows) -> Result<(), String> {
    let problem = RowsProblem::new(lane, shape).await?;
    let made = lane.variants_of(shape).map_err(text)?;
    problem.check(lane, &made).await
}

/// Operands of a product, and what it should give.
struct RowsProblem {
    shape: MatvecRows,
    operands: Vec<Operand>,
    expected: Vec<f64>,
    /// What rounding is relative to.
    terms: Vec<f64>,
}

/// A matrix that is held as `weights` says: the operand, and the numbers that it stands for.
async fn matrix(
    lane: &Lane,
    weights: WeightFormat,
    (rows, k): (usize, usize),
) -> Result<(Operand, Vec<f64>), String> {
    let mut values = lane.normal(rows * k);
    values.iter_mut().for_each(|x| *x /= (k as f32).sqrt());
    if weights == WeightFormat::F32 {
        return Ok((Operand::floats(&values), wide(&values)));
    }
    let words = packed(lane, weights, (rows, k), &values).await?.swap_remove(0);
    let matrix = unpack_weights_forward(weights, &words, values.len());
    Ok((Operand::words(&words), matrix))
}

impl RowsProblem {
    async fn new(lane: &Lane, shape: MatvecRows) -> Result<Self, String> {
        let MatvecRows { n, k, rows, stride, input, output, weights, .. } = shape;
        let column = 7;
        let (b, matrix) = matrix(lane, weights, (n * output.products(), k)).await?;
        let (a, weight) = (lane.normal(rows * k), lane.normal(k));
        let c = lane.normal(rows * stride);
        let (residual, bias) = (lane.normal(rows * stride), lane.normal(stride));
        let mut operands = vec![Operand::floats(&a), b, Operand::floats(&c)];
        let mut expected = wide(&c);
        let mut terms = expected.clone();
        for (row, result) in expected.chunks_exact_mut(stride).enumerate() {
            let mut x = wide(&a[row * k..][..k]);
            if let MatvecInput::Norm { epsilon } = input {
                x = rms_norm_forward(&x, &wide(&weight), epsilon.0);
            }
            let mut product = matvec_forward(&x, &matrix, None);
            if let MatvecOutput::Gated(activation) = output {
                let both = of_both(activation, &product, n);
                terms[row * stride + column..][..n].copy_from_slice(&both);
                product = gated_activation_forward(activation, &product, n);
            }
            for (i, x) in product.into_iter().enumerate() {
                let place = column + i;
                result[place] = x;
                if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
                    result[place] += f64::from(residual[row * stride + place]);
                }
                if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
                    result[place] += f64::from(bias[place]);
                }
            }
        }
        if let MatvecInput::Norm { .. } = input {
            operands.push(Operand::floats(&weight));
        }
        if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
            operands.push(Operand::floats(&residual));
        }
        if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
            operands.push(Operand::floats(&bias));
        }
        operands.push(Operand::range(0, rows, column, n));
        Ok(Self { shape, operands, expected, terms })
    }

    async fn check(&self, lane: &Lane, made: &[Kernel]) -> Result<(), String> {
        let MatvecRows { n, k, rows, output, .. } = self.shape;
        let job = |kernel| Job::new(kernel, rows, self.operands.clone());
        let jobs: Vec<_> = made.iter().map(job).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("{rows} rows by {n} × {k}, {output:?}");
            close_to_terms(&what, &got.floats(0), &self.expected, &self.terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
        Ok(())
    }
}

/// Queries turned at the beginning of each row, keys and values in the cache of the row's text, of texts of their own,
/// of one text, and of texts whose caches have begun anew; with a bias and without.
async fn heads_of_texts(lane: Rc<Lane>) -> Outcome {
    for (heads, columns, weights, biased) in [
        ((1, 1, 4), 19, WeightFormat::F32, false),
        ((6, 2, 20), 260, WeightFormat::F32, true),
        ((3, 3, 32), 96, WeightFormat::Int8, false),
    ] {
        for (positions, stride, ring) in
            [([0, 8, 3, 5], ROWS, None), ([2, 3, 4, 5], 0, None), ([25, 0, 9, 8], ROWS, Some(ROWS))]
        {
            let place = (positions, stride, ring);
            newest_rows(&lane, heads, (columns, weights, biased), place).await?;
        }
    }
    Ok(lane.summary())
}

async fn newest_rows(
    lane: &Lane,
    heads: Heads,
    (columns, weights, biased): (usize, WeightFormat, bool),
    (positions, apart, ring): ([usize; 4], usize, Option<usize>),
) -> Result<(), String> {
    let rows = positions.len();
    let (shape, kernel_shape) = shapes(heads, rows);
    let width = shape.qkv_width();
    let of_cache = k::CacheRows { ring, ..kernel_shape.cache() };
    let output = if biased { MatvecOutput::BiasedHeads } else { MatvecOutput::Heads }(of_cache);
    let product =
        MatvecRows { stride: width, ..shape_of((width / 2, columns, rows), true, output, weights) };
    let (b, matrix) = matrix(lane, weights, (width, columns)).await?;
    let (x, weight) = (lane.normal(rows * columns), lane.normal(columns));
    let bias = lane.normal(width);
    let rope = Rope::plain(shape.head_dim, 100.0);
    let table = rope_table(26, &rope).concat();
    let table: Vec<f32> = table.iter().map(|&x| x as f32).collect();
    let (cached, poison) = (shape.cache_width(), f64::from(f32::from_bits(POISON)));
    let (mut queries, mut cache) = (vec![poison; rows * width], vec![poison; rows * ROWS * cached]);
    for (t, position) in positions.into_iter().enumerate() {
        let normed = rms_norm_forward(&wide(&x[t * columns..][..columns]), &wide(&weight), EPSILON);
        let added = biased.then(|| wide(&bias));
        let mut row = matvec_forward(&normed, &matrix, added.as_deref());
        rope_forward(shape, &mut row, &[0], position, &rope);
        let (query, key_value) = row.split_at(shape.key_offset());
        queries[t * width..][..query.len()].copy_from_slice(query);
        cache[(t * apart + position % ROWS) * cached..][..cached].copy_from_slice(key_value);
    }
    let mut operands = vec![
        Operand::floats(&x),
        b,
        Operand::poison(queries.len()),
        Operand::floats(&weight),
        Operand::uniform(&several(rows, apart)),
        Operand::floats(&table),
        Operand::poison(cache.len()),
        Operand::words(&documents(&positions)),
    ];
    operands.extend(biased.then(|| Operand::floats(&bias)));
    let made = lane.variants_of(product).map_err(text)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        for (what, index, expected) in [("query", 0, &queries), ("keys and values", 1, &cache)] {
            let named = of(&job.kernel);
            let written: Vec<_> = (0..expected.len()).filter(|&i| !expected[i].is_nan()).collect();
            let (words, floats) = (got.words(index), got.floats(index));
            let at = |&i: &usize| (floats[i], expected[i]);
            let (floats, expected): (Vec<f32>, Vec<f64>) = written.iter().map(at).unzip();
            close(what, &floats, &expected, ROUNDING).map_err(&named)?;
            let others = words.iter().filter(|&&word| word == POISON).count();
            let unwritten = words.len() - written.len();
            let message = || format!("{what}: written where nothing should be");
            forbid(("unwritten", unwritten), || others != unwritten, message).map_err(&named)?;
        }
    }
    Ok(())
}
