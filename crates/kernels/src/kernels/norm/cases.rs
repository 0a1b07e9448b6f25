//! Family 02: RMSNorm forward and backward, and the sum of its partial weight gradients.

mod examples;
mod heads;
mod layer;

pub(crate) use examples::examples;

use crate::kernels::norm::twin::{norm_factors, rms_norm_backward, rms_norm_forward};
use crate::kernels::{self as k, NormForm, NormTerms, PartialSums, SummedWeights, WriteMode};
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{
    ROUNDING, close, close_to_terms, directional, directional_to_terms, dot, each_close, of, same,
    text, wide,
};
use crate::testing::{Case, Outcome};
use crate::twins::add_assign;
use std::rc::Rc;

pub(crate) const EPSILON: f64 = 1e-5;
/// By elements and by fours: one, less than a workgroup, one past each workgroup that a row's length leads to.
const WIDTHS: [usize; 8] = [1, 37, 261, 1029, 4, 260, 1028, 2052];
/// One row; one past whole blocks of the backward kernel, whatever their size.
const ROWS: [usize; 2] = [1, 17];
/// Half a step of f16, and the rounding before it.
const HALF: f64 = 1.0 / 2048.0 + 4e-6;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("rms_norm_forward", forward),
        Case::new("rms_norm_backward", backward),
        Case::new("column_sum", column_sum),
    ];
    cases.extend(layer::cases().into_iter().chain(heads::cases()));
    cases
}

/// A row behind the last one of a step, such as a longer step before it has left: nothing reads or changes it.
struct RowBehind(Vec<f32>);

impl RowBehind {
    fn new(lane: &Lane, width: usize) -> Self {
        Self(lane.normal(width))
    }

    fn added_to(&self, rows: &[f32]) -> Operand {
        Operand::floats(&[rows, &self.0].concat())
    }

    /// The first output without it.
    fn cut_off(&self, got: &Outputs) -> Result<Vec<f32>, String> {
        let mut rows = got.floats(0);
        let first = rows.len() - self.0.len();
        let kept = Operand::floats(&self.0);
        same("the row behind", &got.words(0)[first..], kept.contents())?;
        rows.truncate(first);
        Ok(rows)
    }
}

/// Terms of a weight that is stored as its distance from 1, or as it is.
pub(crate) const fn norm_terms(shifted: bool) -> NormTerms {
    NormTerms { shifted, ..NormTerms::plain(EPSILON) }
}

async fn forward(lane: Rc<Lane>) -> Outcome {
    for hidden in WIDTHS {
        one_forward(&lane, hidden, false, false).await?;
    }
    for (hidden, residual) in [(1, true), (37, true), (260, true), (1028, false)] {
        one_forward(&lane, hidden, true, residual).await?;
    }
    for (hidden, shifted) in [(4, false), (260, true), (1028, false)] {
        halves(&lane, hidden, shifted).await?;
    }
    for (hidden, count) in [(37, 2), (260, 8), (1028, 3), (2052, 6)] {
        summed(&lane, hidden, count).await?;
    }
    Ok(lane.summary())
}

/// The norm of the residual stream with `count` parts added to it. Between parts are numbers that are not to be read.
async fn summed(lane: &Lane, hidden: usize, count: usize) -> Result<(), String> {
    let apart = ROWS[1] * hidden.next_multiple_of(4) + 4;
    let form = NormForm { summed: PartialSums { count, apart }, ..NormForm::PLAIN };
    let made = lane
        .variants_of(k::RmsNormForward { hidden, terms: norm_terms(false), form })
        .map_err(text)?;
    for rows in ROWS {
        let all = rows * hidden;
        let (weight, before) = (lane.normal(hidden), lane.normal(all));
        let parts = lane.normal((count - 1) * apart + all);
        let mut stream = parts[..all].to_vec();
        for part in 1..count {
            add_assign(&mut stream, &parts[part * apart..][..all]);
        }
        add_assign(&mut stream, &before);
        let expected = rms_norm_forward(&wide(&stream), &wide(&weight), EPSILON);
        let operands = [
            Operand::floats(&parts),
            Operand::floats(&weight),
            Operand::poison(all),
            Operand::uniform(&Step::of(rows)),
            Operand::floats(&before),
            Operand::poison(all),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            let what = format!("{rows}x{hidden} in {count}");
            close(&what, &got.floats(0), &expected, ROUNDING).map_err(&named)?;
            close(&format!("{what}, stream"), &got.floats(1), &wide(&stream), ROUNDING)
                .map_err(&named)?;
        }
    }
    Ok(())
}

/// With results in f16.
async fn halves(lane: &Lane, hidden: usize, shifted: bool) -> Result<(), String> {
    let form = NormForm { half: true, ..NormForm::PLAIN };
    let made = lane
        .variants_of(k::RmsNormForward { hidden, terms: norm_terms(shifted), form })
        .map_err(text)?;
    for rows in ROWS {
        let (x, weight) = (lane.normal(rows * hidden), lane.normal(hidden));
        let expected = rms_norm_forward(&wide(&x), &norm_factors(&wide(&weight), shifted), EPSILON);
        let operands = [
            Operand::floats(&x),
            Operand::floats(&weight),
            Operand::poison(rows * hidden / 2),
            Operand::uniform(&Step::of(rows)),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            // Below that f16 has steps of one size.
            let terms: Vec<f64> = expected.iter().map(|y| y.abs().max(1.0 / 16384.0)).collect();
            each_close(&format!("{rows}x{hidden}"), &got.halves(0), &expected, &terms, HALF)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

async fn one_forward(
    lane: &Lane,
    hidden: usize,
    shifted: bool,
    residual: bool,
) -> Result<(), String> {
    let form = NormForm { residual, ..NormForm::PLAIN };
    let made = lane
        .variants_of(k::RmsNormForward { hidden, terms: norm_terms(shifted), form })
        .map_err(text)?;
    for rows in ROWS {
        let (x, weight) = (lane.normal(rows * hidden), lane.normal(hidden));
        let added = lane.normal(rows * hidden);
        let normed = rms_norm_forward(&wide(&x), &norm_factors(&wide(&weight), shifted), EPSILON);
        let mut expected = normed.clone();
        let mut operands =
            vec![Operand::floats(&x), Operand::floats(&weight), Operand::poison(rows * hidden)];
        operands.push(Operand::uniform(&Step::of(rows)));
        if residual {
            operands.push(Operand::floats(&added));
            add_assign(&mut expected, &wide(&added));
        }
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("{rows}x{hidden}");
            close_to_terms(&what, &got.floats(0), &expected, &normed, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

async fn backward(lane: Rc<Lane>) -> Outcome {
    use WriteMode::{Add, AddAfterFirst, Overwrite};
    let forms = [(Overwrite, 8), (Add, 1), (Overwrite, 2), (Add, 16)];
    for (hidden, (mode, each)) in WIDTHS.into_iter().zip(forms.into_iter().cycle()) {
        one_backward(&lane, hidden, false, mode, false, (each, 1)).await?;
    }
    one_backward(&lane, 64, false, AddAfterFirst, false, (4, 1)).await?;
    one_backward(&lane, 64, false, AddAfterFirst, true, (4, 1)).await?;
    for (hidden, parts) in [(37, 2), (260, 8), (1028, 3), (2052, 7)] {
        one_backward(&lane, hidden, false, Add, false, (2, parts)).await?;
    }
    for (hidden, mode, each) in [(1, Overwrite, 2), (131, Overwrite, 4), (260, Add, 8)] {
        one_backward(&lane, hidden, true, mode, false, (each, 1)).await?;
    }
    Ok(lane.summary())
}

/// What an error of the gradients is relative to, since their terms can cancel: of the input's the first of its
/// two, and of a weight's the size that a sum over the rows has unless they do.
fn gradient_terms(x: &[f64], factor: &[f64], d_y: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let hidden = factor.len();
    let normed = rms_norm_forward(x, &vec![1.0; hidden], EPSILON);
    let terms = (0..x.len()).map(|i| normed[i] / x[i] * factor[i % hidden] * d_y[i]).collect();
    let slopes = (0..hidden)
        .map(|i| (i..x.len()).step_by(hidden))
        .map(|column| column.map(|i| normed[i] * d_y[i]))
        .map(|terms| terms.map(|term| term * term).sum::<f64>().sqrt())
        .collect();
    (terms, slopes)
}

/// `each` rows per workgroup; `count` parts of the gradient, with numbers between them that are not to be read.
async fn one_backward(
    lane: &Lane,
    hidden: usize,
    shifted: bool,
    mode: WriteMode,
    later: bool,
    (each, count): (usize, usize),
) -> Result<(), String> {
    let apart = if count == 1 { 0 } else { ROWS[1] * hidden.next_multiple_of(4) + 4 };
    let (terms, form) = (norm_terms(shifted), (each, PartialSums { count, apart }));
    let made = lane
        .variants_of(k::RmsNormBackward { hidden, terms, mode, rows: form.0, sums: form.1 })
        .map_err(text)?;
    let adds = mode == WriteMode::Add || (mode == WriteMode::AddAfterFirst && later);
    for rows in ROWS {
        let blocks = rows.div_ceil(each);
        let [x, before] = [(); 2].map(|()| lane.normal(rows * hidden));
        let parts = lane.normal((count - 1) * apart + rows * hidden);
        let mut d_y = parts[..rows * hidden].to_vec();
        for part in 1..count {
            add_assign(&mut d_y, &parts[part * apart..][..rows * hidden]);
        }
        let weight = lane.normal(hidden);
        // The twins' weight. Its gradient is that of the kernel's.
        let factor = norm_factors(&wide(&weight), shifted);
        let (d_x, d_weight) = rms_norm_backward(&wide(&x), &factor, &wide(&d_y), EPSILON);
        let (terms, slopes) = gradient_terms(&wide(&x), &factor, &wide(&d_y));
        let before = if adds { before } else { vec![f32::NAN; rows * hidden] };
        let behind = RowBehind::new(lane, hidden);
        let expected: Vec<f64> = d_x
            .iter()
            .zip(&before)
            .map(|(d, &b)| d + if adds { f64::from(b) } else { 0.0 })
            .collect();
        let jobs: Vec<_> = made
            .iter()
            .map(|kernel| {
                let step = Step { accumulate: u32::from(later), ..Step::of(rows) };
                let [x, parts, before] = [&x, &parts, &before].map(|rows| behind.added_to(rows));
                let mut operands = vec![x, Operand::floats(&weight), parts, before];
                operands.extend([Operand::poison(blocks * hidden), Operand::uniform(&step)]);
                Job::new(kernel, rows, operands)
            })
            .collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            let what = format!("d_x {rows}x{hidden}");
            let d_x = behind.cut_off(&got).map_err(&named)?;
            close_to_terms(&what, &d_x, &expected, &terms, 2.0 * ROUNDING).map_err(&named)?;
            let mut sums = vec![0.0f64; hidden];
            for row in got.floats(1).chunks_exact(hidden) {
                sums.iter_mut().zip(row).for_each(|(sum, &part)| *sum += f64::from(part));
            }
            let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
            close_to_terms("d_weight", &sums, &d_weight, &slopes, ROUNDING).map_err(&named)?;
            let before = if adds { Some(&before) } else { None };
            let operands = [&wide(&x), &factor, &wide(&d_y)];
            differences(lane, &d_x, &sums, &slopes, operands, before).map_err(&named)?;
        }
    }
    Ok(())
}

/// Both gradients against finite differences of the twin's forward; `slopes` are the sizes of the
/// weight's.
fn differences(
    lane: &Lane,
    d_x: &[f32],
    d_weight: &[f32],
    slopes: &[f64],
    [x, weight, d_y]: [&Vec<f64>; 3],
    before: Option<&Vec<f32>>,
) -> Result<(), String> {
    let base = |i: usize| before.map_or(0.0, |before| before[i]);
    let own: Vec<f32> = d_x.iter().enumerate().map(|(i, d)| d - base(i)).collect();
    let loss = |x: &[f64], weight: &[f64]| dot(&rms_norm_forward(x, weight, EPSILON), d_y);
    // Close to the origin a row of one element bends more than a difference of this step follows.
    if weight.len() > 1 {
        directional("d_x", &own, x, &lane.normal(x.len()), |x| loss(x, weight))?;
    }
    let direction = lane.normal(weight.len());
    directional_to_terms("d_weight", d_weight, slopes, weight, &direction, |w| loss(x, w))
}

async fn column_sum(lane: Rc<Lane>) -> Outcome {
    for (hidden, count) in [(1, 1), (131, 1), (1, 3), (131, 3)] {
        // Gaps of two elements between gradients. Room for 300 blocks, more than all lanes load at a time.
        let weights = SummedWeights { count, partials: 300 * hidden, outputs: hidden + 2 };
        let made = lane.variants_of(k::ColumnSum { hidden, rows: 2, weights }).map_err(text)?;
        for (rows, later) in [(1usize, true), (599, false), (16, true)] {
            let partial = lane.normal(count * weights.partials);
            let mut before = lane.normal(count * weights.outputs);
            let mut expected = wide(&before);
            let mut terms: Vec<f64> = expected.iter().map(|value| value.abs()).collect();
            for (weight, own) in partial.chunks(weights.partials).enumerate() {
                for i in 0..hidden {
                    let place = (count - 1 - weight) * weights.outputs + i;
                    let of = || own[i..].iter().step_by(hidden).take(rows.div_ceil(2));
                    let sum: f64 = of().map(|&p| f64::from(p)).sum();
                    if later {
                        expected[place] += sum;
                    } else {
                        expected[place] = sum;
                        before[place] = f32::NAN;
                    }
                    terms[place] = of().map(|&p| f64::from(p * p)).sum::<f64>().sqrt();
                }
            }
            let step = Step { accumulate: u32::from(later), ..Step::of(rows) };
            let operands = || {
                let (partial, before) = (Operand::floats(&partial), Operand::floats(&before));
                vec![partial, before, Operand::uniform(&step)]
            };
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                close_to_terms("sum", &got.floats(0), &expected, &terms, ROUNDING)
                    .map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}
