//! Family 02: LayerNorm forward and backward.

use crate::kernels::norm::cases::RowBehind;
use crate::kernels::norm::twin::{layer_norm_backward, layer_norm_forward};
use crate::kernels::{self as k, Constant, WriteMode};
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{
    ROUNDING, close_to_terms, directional, directional_to_terms, dot, of, text, wide,
};
use crate::testing::{Case, Outcome};
use crate::twins::{add_assign, cast};
use std::rc::Rc;

const EPSILON: f64 = 1e-5;
/// By elements and by fours: less than a workgroup, one past each workgroup that a row's length leads to.
const WIDTHS: [usize; 6] = [3, 37, 261, 4, 260, 1028];
/// One row; one past whole blocks of the backward kernel, whatever their size.
const ROWS: [usize; 2] = [1, 17];
/// Rows' means as a multiple of their deviation: squares summed before the mean is taken off would cancel.
const FAR: f32 = 30.0;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("layer_norm_forward", forward), Case::new("layer_norm_backward", backward)]
}

/// Rows far from zero, each by another multiple of [`FAR`].
fn far(lane: &Lane, rows: usize, hidden: usize) -> Vec<f32> {
    let offset = |i: usize| FAR * ((i / hidden % 3) as f32 - 1.0);
    lane.normal(rows * hidden).iter().enumerate().map(|(i, x)| x + offset(i)).collect()
}

/// For each row: 1 / deviation, and its largest element in deviations. Normed elements have the rounding of that.
fn scales(x: &[f64], hidden: usize) -> Vec<(f64, f64)> {
    let row = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / hidden as f64;
        let squares: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
        let scale = 1.0 / (squares / hidden as f64 + EPSILON).sqrt();
        (scale, scale * row.iter().fold(0.0, |most: f64, x| most.max(x.abs())))
    };
    x.chunks_exact(hidden).map(row).collect()
}

async fn forward(lane: Rc<Lane>) -> Outcome {
    for (hidden, residual) in WIDTHS.into_iter().zip([false, true].into_iter().cycle()) {
        one_forward(&lane, hidden, residual).await?;
    }
    one_forward(&lane, 260, false).await?;
    one_forward(&lane, 261, true).await?;
    Ok(lane.summary())
}

/// With `residual` the result is added to one, whose rounding is of its size.
async fn one_forward(lane: &Lane, hidden: usize, residual: bool) -> Result<(), String> {
    let made = lane
        .variants_of(k::LayerNormForward { hidden, epsilon: Constant(EPSILON), residual })
        .map_err(text)?;
    for rows in ROWS {
        let (x, weight) = (far(lane, rows, hidden), lane.normal(2 * hidden));
        let added = if residual { lane.normal(rows * hidden) } else { vec![0.0; rows * hidden] };
        let mut expected = layer_norm_forward(&wide(&x), &wide(&weight), EPSILON);
        add_assign(&mut expected, &wide(&added));
        let of_row = |(_, most)| {
            let (factors, shifts) = weight.split_at(hidden);
            let size = move |(w, b): (&f32, &f32)| most * f64::from(w.abs()) + f64::from(b.abs());
            factors.iter().zip(shifts).map(size).collect::<Vec<f64>>()
        };
        let sizes = scales(&wide(&x), hidden).into_iter().flat_map(of_row).zip(&added);
        let sizes: Vec<f64> = sizes.map(|(size, added)| size + f64::from(added.abs())).collect();
        let operands = || {
            let (x, weight) = (Operand::floats(&x), Operand::floats(&weight));
            let (y, step) = (Operand::poison(rows * hidden), Operand::uniform(&Step::of(rows)));
            let mut operands = vec![x, weight, y, step];
            operands.extend(residual.then(|| Operand::floats(&added)));
            operands
        };
        let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, rows, operands())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("{rows}x{hidden}, residual {residual}");
            close_to_terms(&what, &got.floats(0), &expected, &sizes, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

async fn backward(lane: Rc<Lane>) -> Outcome {
    use WriteMode::{Add, AddAfterFirst, Overwrite};
    let forms = [(Overwrite, 8), (Add, 1), (Overwrite, 2), (Add, 16)];
    for (hidden, (mode, each)) in WIDTHS.into_iter().zip(forms.into_iter().cycle()) {
        one_backward(&lane, hidden, mode, false, each).await?;
    }
    one_backward(&lane, 64, AddAfterFirst, false, 4).await?;
    one_backward(&lane, 64, AddAfterFirst, true, 4).await?;
    Ok(lane.summary())
}

/// `each` rows per workgroup.
async fn one_backward(
    lane: &Lane,
    hidden: usize,
    mode: WriteMode,
    later: bool,
    each: usize,
) -> Result<(), String> {
    let made = lane
        .variants_of(k::LayerNormBackward { hidden, epsilon: Constant(EPSILON), mode, rows: each })
        .map_err(text)?;
    let adds = mode == WriteMode::Add || (mode == WriteMode::AddAfterFirst && later);
    for rows in ROWS {
        let blocks = rows.div_ceil(each);
        let problem = NormProblem::new(lane, rows, hidden, adds);
        let NormProblem { x, weight, d_y, before, .. } = &problem;
        let behind = RowBehind::new(lane, hidden);
        let jobs: Vec<_> = made
            .iter()
            .map(|kernel| {
                let step = Step { accumulate: u32::from(later), ..Step::of(rows) };
                let [x, d_y, before] = [x, d_y, before].map(|rows| behind.added_to(rows));
                let mut operands = vec![x, Operand::floats(weight), d_y, before];
                operands.extend([Operand::poison(blocks * 2 * hidden), Operand::uniform(&step)]);
                Job::new(kernel, rows, operands)
            })
            .collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let mut sums = vec![0.0f64; 2 * hidden];
            for row in got.floats(1).chunks_exact(2 * hidden) {
                sums.iter_mut().zip(row).for_each(|(sum, &part)| *sum += f64::from(part));
            }
            let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
            let hold = |d_x: Vec<f32>| problem.hold(lane, &d_x, &sums);
            behind.cut_off(&got).and_then(hold).map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

/// Rows and their gradients, with what is expected of them.
struct NormProblem {
    x: Vec<f32>,
    weight: Vec<f32>,
    d_y: Vec<f32>,
    /// What d_x held before.
    before: Vec<f32>,
    adds: bool,
}

impl NormProblem {
    fn new(lane: &Lane, rows: usize, hidden: usize, adds: bool) -> Self {
        let (x, weight) = (far(lane, rows, hidden), lane.normal(2 * hidden));
        let [d_y, before] = [(); 2].map(|()| lane.normal(rows * hidden));
        let before = if adds { before } else { vec![f32::NAN; rows * hidden] };
        Self { x, weight, d_y, before, adds }
    }

    /// Both gradients against the twin, and against finite differences of the twin's forward.
    fn hold(&self, lane: &Lane, d_x: &[f32], d_weight: &[f32]) -> Result<(), String> {
        let hidden = self.weight.len() / 2;
        let (x, weight, d_y) = (wide(&self.x), wide(&self.weight), wide(&self.d_y));
        let (exact, exact_weight) = layer_norm_backward(&x, &weight, &d_y, EPSILON);
        let base = |i: usize| if self.adds { self.before[i] } else { 0.0 };
        let expected: Vec<f64> =
            exact.iter().enumerate().map(|(i, d)| d + f64::from(base(i))).collect();
        let (scales, gradients) = (scales(&x, hidden), d_y.chunks_exact(hidden));
        // The terms of d_x cancel: they are of this size in a row.
        let terms: Vec<f64> = scales
            .iter()
            .zip(gradients)
            .flat_map(|((scale, most), d_row)| {
                let slopes = weight.iter().zip(d_row).map(|(w, d)| (w * d).abs());
                let term = scale * slopes.fold(0.0, f64::max) * most.max(1.0);
                vec![term; hidden]
            })
            .collect();
        close_to_terms("d_x", d_x, &expected, &terms, ROUNDING)?;
        // A weight's gradient is a sum over the rows, of this size unless its terms cancel.
        let slopes: Vec<f64> = (0..2 * hidden)
            .map(|i| {
                let size = |row: usize| if i < hidden { scales[row].1 } else { 1.0 };
                let column = (i % hidden..x.len()).step_by(hidden);
                column.map(|j| (d_y[j] * size(j / hidden)).powi(2)).sum::<f64>().sqrt()
            })
            .collect();
        close_to_terms("d_weight", d_weight, &exact_weight, &slopes, ROUNDING)?;
        let loss = |x: &[f64], weight: &[f64]| dot(&layer_norm_forward(x, weight, EPSILON), &d_y);
        // The twin's d_x, with which d_x is compared above: what terms leave that cancel may be less than their
        // rounding. Steps are relative to the deviation of their row, within which the loss bends.
        let step = |(i, d): (usize, f32)| d * (1.0 / scales[i / hidden].0).min(1.0) as f32;
        let direction: Vec<f32> = lane.normal(x.len()).into_iter().enumerate().map(step).collect();
        directional("d_x", &cast(&exact), &x, &direction, |x| loss(x, &weight))?;
        let direction = lane.normal(weight.len());
        directional_to_terms("d_weight", d_weight, &slopes, &weight, &direction, |w| loss(&x, w))
    }
}
