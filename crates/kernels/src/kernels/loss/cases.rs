//! Family 07: cross-entropy with its gradient in place, and the sum of losses.

use super::{CrossEntropy, LossSumForward, ObjectiveCrossEntropy, SoftCap};
use crate::caps::Capabilities;
use crate::data::IGNORE_INDEX;
use crate::kernels::Objective;
use crate::kernels::loss::twin::{
    Steered, cross_entropy_backward, cross_entropy_forward, loss_sum_forward,
    objective_cross_entropy_backward, row_score, soft_cap_forward, softened,
    steered_cross_entropy_backward,
};
use crate::kernels::{self as k, Constant, LogitRow, SOFT_IDS, Spec, Steering, SteeringNumbers};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Job, Operand, Outputs, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{
    ROUNDING, close, close_to_terms, directional, forbid, of, same, text, wide,
};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// A vocabulary of one, one smaller than a workgroup, one past a workgroup, one past all of them, and one that
/// ends three past two rounds of eight loads of 256 invocations.
const VOCABULARIES: [usize; 5] = [1, 61, 257, 1031, 4099];

const CAP: Constant = Constant(30.0);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("cross_entropy_forward", |lane| cross_entropy(lane, false)),
        Case::new("cross_entropy_backward", |lane| cross_entropy(lane, true)),
        Case::new("cross_entropy of large and broken logits", extremes),
        Case::new("objective_cross_entropy_backward smoothed", smoothed),
        Case::new("objective_cross_entropy_forward capped", |lane| capped(lane, false)),
        Case::new("objective_cross_entropy_backward capped", |lane| capped(lane, true)),
        Case::new("objective_cross_entropy weighted", weighted),
        Case::new("objective_cross_entropy of soft targets", soft_targets),
        Case::new("objective_cross_entropy scored", scored),
        Case::new("soft_cap_forward", soft_cap),
        Case::new("loss_sum", loss_sum),
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![("loss sum".to_owned(), LossSumForward.kernel(caps))];
    for width in [1, 61, 768, 4096, 150_001] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {width}"), kernel));
        let row = LogitRow { vocabulary: width, stride: width.next_multiple_of(4) };
        let objective = objective((0.1, 1e-4));
        for gradient in [false, true] {
            add("loss", CrossEntropy { row, gradient }.kernel(caps));
            let capped = ObjectiveCrossEntropy { row, gradient, objective, cap: Some(CAP) };
            add("capped loss", capped.kernel(caps));
        }
        let smoothed = ObjectiveCrossEntropy { row, gradient: true, objective, cap: None };
        add("smoothed loss", smoothed.kernel(caps));
        for (what, steering, gradient, cap) in [
            ("weighted loss", Steering::Weights, true, None),
            ("loss of soft targets", Steering::SoftTargets, true, Some(CAP)),
            ("scores", Steering::Scores, false, None),
        ] {
            let objective = Objective { steering, ..objective };
            add(what, ObjectiveCrossEntropy { row, gradient, objective, cap }.kernel(caps));
        }
        add("soft cap", SoftCap { columns: width, cap: CAP }.kernel(caps));
    }
    entries
}

fn targets(lane: &Lane, rows: usize, vocabulary: usize) -> Vec<u32> {
    let mut targets = lane.integers(rows, vocabulary);
    targets.iter_mut().skip(2).step_by(3).for_each(|target| *target = IGNORE_INDEX);
    targets
}

/// Rows as long as the vocabulary, and rows padded to fours.
fn rows_of(vocabulary: usize) -> Vec<LogitRow> {
    let mut strides = vec![vocabulary, vocabulary.next_multiple_of(4)];
    strides.dedup();
    strides.into_iter().map(|stride| LogitRow { vocabulary, stride }).collect()
}

/// Random logits, and their words: what no kernel may read is NaN.
fn logits(lane: &Lane, row: LogitRow, rows: usize, at: f32) -> (Vec<f32>, Vec<f32>) {
    let logits: Vec<f32> =
        lane.normal(rows * row.vocabulary).into_iter().map(|x| at + 3.0 * x).collect();
    let mut lying = vec![f32::NAN; rows * row.stride];
    for (to, from) in lying.chunks_mut(row.stride).zip(logits.chunks(row.vocabulary)) {
        to[..row.vocabulary].copy_from_slice(from);
    }
    (logits, lying)
}

/// Gradients without their padding, which must be 0.
fn unpadded(got: &[f32], row: LogitRow) -> std::result::Result<Vec<f32>, String> {
    let (own, padding): (Vec<_>, Vec<_>) =
        got.chunks(row.stride).map(|row_of| row_of.split_at(row.vocabulary)).unzip();
    let message = || "the padding of a row of gradients is not 0".into();
    let kept = || padding.concat().iter().any(|x| *x != 0.0);
    forbid(("padding", row.vocabulary, row.stride), kept, message)?;
    Ok(own.concat())
}

/// Compares the losses of the rows from `row0` on, and finds that no others were written.
fn check_losses(
    what: &str,
    got: &Outputs,
    row0: usize,
    losses: &[f64],
    terms: &[f64],
) -> std::result::Result<(), String> {
    let rows = row0..row0 + losses.len();
    close_to_terms(what, &got.floats(1)[rows.clone()], losses, terms, ROUNDING)?;
    let around = got.words(1)[..rows.start].iter().chain(&got.words(1)[rows.end..]);
    same("rows around", &around.copied().collect::<Vec<_>>(), &vec![POISON; row0 + 2])
}

async fn cross_entropy(lane: Rc<Lane>, gradient: bool) -> Outcome {
    const SCALE: f32 = 0.125;
    for row in VOCABULARIES.into_iter().flat_map(rows_of) {
        let vocabulary = row.vocabulary;
        let made = lane.variants_of(k::CrossEntropy { row, gradient }).map_err(text)?;
        // Chunk of a longer batch: rows before it and after it are not its own.
        for (row0, rows) in [(0, 1), (3, 7)] {
            let targets = targets(&lane, row0 + rows + 2, vocabulary);
            let own = &targets[row0..row0 + rows];
            let (logits, lying) = logits(&lane, row, rows, 0.0);
            let mut expected = wide(&logits);
            let losses = if gradient {
                cross_entropy_backward(&mut expected, own, vocabulary, f64::from(SCALE))
            } else {
                cross_entropy_forward(&expected, own, vocabulary)
            };
            let step = Step { loss_scale: SCALE, ..Step::of(row0 + rows) };
            let operands = [
                Operand::floats(&lying),
                Operand::words(&targets),
                Operand::poison(row0 + rows + 2),
                Operand::uniform(&step),
                Operand::range(row0, rows + 1, 0, 0),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                // Where the target is likely, loss and dLogits are small differences of numbers
                // near one: a logarithm's argument, a probability.
                let what = format!("losses of {vocabulary}");
                check_losses(&what, &got, row0, &losses, &vec![1.0; rows]).map_err(&named)?;
                if !gradient {
                    let before = Operand::floats(&lying);
                    same("logits", got.words(0), before.contents()).map_err(&named)?;
                    continue;
                }
                let terms = vec![f64::from(SCALE); rows];
                let d_logits = unpadded(&got.floats(0), row).map_err(&named)?;
                close_to_terms("d_logits", &d_logits, &expected, &terms, ROUNDING)
                    .map_err(&named)?;
                let loss = |x: &[f64]| {
                    let losses = cross_entropy_forward(x, own, vocabulary);
                    f64::from(SCALE) * losses.iter().sum::<f64>()
                };
                let direction = lane.normal(logits.len());
                directional("d_logits", &d_logits, &wide(&logits), &direction, loss)
                    .map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}

fn objective((smoothing, z_loss): (f64, f64)) -> Objective {
    Objective {
        label_smoothing: Constant(smoothing),
        z_loss: Constant(z_loss),
        ..Objective::default()
    }
}

/// Label smoothing and z-loss, alone and together.
async fn smoothed(lane: Rc<Lane>) -> Outcome {
    for row in VOCABULARIES.into_iter().flat_map(rows_of) {
        for objective in [(0.1, 0.0), (0.0, 1e-2), (0.25, 1e-3)].map(objective) {
            let spec = ObjectiveCrossEntropy { row, gradient: true, objective, cap: None };
            other(&lane, spec).await?;
        }
    }
    Ok(lane.summary())
}

/// A soft cap of logits with neither and with both.
async fn capped(lane: Rc<Lane>, gradient: bool) -> Outcome {
    for row in VOCABULARIES.into_iter().flat_map(rows_of) {
        for (of, cap) in [((0.0, 0.0), 2.5), ((0.0, 0.0), 30.0), ((0.25, 1e-3), 4.0)] {
            let (objective, cap) = (objective(of), Some(Constant(cap)));
            other(&lane, ObjectiveCrossEntropy { row, gradient, objective, cap }).await?;
        }
    }
    Ok(lane.summary())
}

const TEMPERATURE: f64 = 1.75;

/// Signed weights, some of them 0, at a temperature, with and without a cap, smoothing and z-loss.
async fn weighted(lane: Rc<Lane>) -> Outcome {
    for row in VOCABULARIES.into_iter().flat_map(rows_of) {
        for (of, cap) in [((0.0, 0.0), None), ((0.25, 1e-3), Some(Constant(4.0)))] {
            let objective = Objective { steering: Steering::Weights, ..objective(of) };
            let spec = ObjectiveCrossEntropy { row, gradient: true, objective, cap };
            let numbers = SteeringNumbers::of(TEMPERATURE);
            steered(&lane, spec, numbers, &|_| None).await?;
        }
    }
    Ok(lane.summary())
}

/// Both divergences, with the rest as a class and without, beside hard targets.
async fn soft_targets(lane: Rc<Lane>) -> Outcome {
    for row in [61, 1031, 4099].into_iter().flat_map(rows_of) {
        for (reverse, rest, cap) in
            [(0, 1, None), (1, 1, None), (0, 0, Some(Constant(4.0))), (1, 0, None)]
        {
            for count in [1, 5, SOFT_IDS.min(row.vocabulary - 1)] {
                let objective =
                    Objective { steering: Steering::SoftTargets, ..objective((0.1, 0.0)) };
                let spec = ObjectiveCrossEntropy { row, gradient: true, objective, cap };
                let numbers = SteeringNumbers {
                    soft_ratio: (TEMPERATURE / 2.0) as f32,
                    soft_factor: 0.75 * 4.0,
                    hard_share: 0.25,
                    soft_count: count as u32,
                    reverse,
                    rest,
                    ..SteeringNumbers::of(TEMPERATURE)
                };
                let soft = |rows| Some(teacher(&lane, row.vocabulary, rows, count, rest == 1));
                steered(&lane, spec, numbers, &soft).await?;
            }
        }
    }
    Ok(lane.summary())
}

/// Distinct ids of each row with probabilities, the last place of every second row empty.
fn teacher(lane: &Lane, vocabulary: usize, rows: usize, count: usize, rest: bool) -> Vec<u32> {
    let mut words = vec![];
    for row in 0..rows {
        let at = lane.integers(1, vocabulary)[0] as usize;
        let own = if row % 2 == 1 && count > 1 { count - 1 } else { count };
        let shares: Vec<f32> = lane.normal(own + 1).iter().map(|x| x.exp()).collect();
        let left = if rest { shares[own] } else { 0.0 };
        let sum = shares[..own].iter().sum::<f32>() + left;
        let apart = (vocabulary / count).max(1);
        let of = |place: usize| ((at + place * apart) % vocabulary) as u32;
        let given = shares[..own].iter().enumerate().map(|(place, x)| (of(place), x / sum));
        let none = std::iter::repeat_n((u32::MAX, 0.0f32), count - own);
        words.extend(given.chain(none).flat_map(|(id, p)| [id, p.to_bits()]));
        words.extend([u32::MAX, (left / sum).to_bits()]);
    }
    words
}

async fn steered(
    lane: &Lane,
    spec: ObjectiveCrossEntropy,
    numbers: SteeringNumbers,
    soft: &dyn Fn(usize) -> Option<Vec<u32>>,
) -> std::result::Result<(), String> {
    const SCALE: f32 = 0.125;
    let ObjectiveCrossEntropy { row, objective, cap, .. } = spec;
    let (vocabulary, cap) = (row.vocabulary, cap.map(|cap| cap.0));
    let made = lane.variants_of(spec).map_err(text)?;
    let more = [objective.label_smoothing, objective.z_loss].map(|x| f64::from(x.0 as f32));
    for (row0, rows) in [(0, 1), (3, 7)] {
        let targets = targets(lane, row0 + rows + 2, vocabulary);
        let (logits, lying) = logits(lane, row, rows, 0.0);
        let mut weights = lane.normal(row0 + rows + 2);
        weights[row0 + rows / 2] = 0.0;
        let soft = soft(row0 + rows + 2);
        let own = &targets[row0..row0 + rows];
        let mut expected = wide(&logits);
        let steered = Steered {
            temperature: f64::from(numbers.temperature),
            weights: wide(&weights[row0..row0 + rows]),
            soft: soft.as_ref().map(|words| softened(words, row0, rows, &numbers)),
        };
        let (scale, of_all) = (f64::from(SCALE), (more, cap));
        let losses =
            steered_cross_entropy_backward(&mut expected, own, vocabulary, scale, of_all, &steered);
        let mut operands = vec![
            Operand::floats(&lying),
            Operand::words(&targets),
            Operand::poison(row0 + rows + 2),
            Operand::uniform(&Step { loss_scale: SCALE, ..Step::of(row0 + rows) }),
            Operand::range(row0, rows + 1, 0, 0),
            Operand::uniform(&numbers),
            Operand::floats(&weights),
        ];
        operands.extend(soft.as_ref().map(|words| Operand::words(words)));
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            // Losses and slopes are differences of terms as large as these.
            let size = |weight: &f32| f64::from(weight.abs()) * 4.0 + 1e-6;
            let terms: Vec<f64> = weights[row0..row0 + rows].iter().map(size).collect();
            let what = format!("losses of {vocabulary}");
            check_losses(&what, &got, row0, &losses, &terms).map_err(&named)?;
            let d_logits = unpadded(&got.floats(0), row).map_err(&named)?;
            let terms: Vec<f64> = terms.iter().map(|term| scale * term).collect();
            close_to_terms("d_logits", &d_logits, &expected, &terms, ROUNDING).map_err(&named)?;
        }
    }
    Ok(())
}

/// Log-probabilities and entropies at a temperature.
async fn scored(lane: Rc<Lane>) -> Outcome {
    for row in VOCABULARIES.into_iter().flat_map(rows_of) {
        let vocabulary = row.vocabulary;
        let objective = Objective { steering: Steering::Scores, ..Objective::default() };
        let spec = ObjectiveCrossEntropy { row, gradient: false, objective, cap: None };
        let made = lane.variants_of(spec).map_err(text)?;
        let numbers = SteeringNumbers::of(TEMPERATURE);
        let (row0, rows) = (3, 7);
        let targets = targets(&lane, row0 + rows + 2, vocabulary);
        let (logits, lying) = logits(&lane, row, rows, 0.0);
        let rows_of = wide(&logits);
        let own = rows_of.chunks(vocabulary).zip(&targets[row0..]);
        let expected: Vec<f64> = own
            .flat_map(|(row, &target)| row_score(row, target, f64::from(numbers.temperature)))
            .collect();
        let operands = vec![
            Operand::floats(&lying),
            Operand::words(&targets),
            Operand::poison(4 * (row0 + rows + 2)),
            Operand::uniform(&Step::of(row0 + rows)),
            Operand::range(row0, rows + 1, 0, 0),
            Operand::uniform(&numbers),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            let own = 4 * row0..4 * (row0 + rows);
            let terms = vec![4.0; expected.len()];
            let scores = &got.floats(1)[own.clone()];
            close_to_terms("scores", scores, &expected, &terms, ROUNDING).map_err(&named)?;
            let around = got.words(1)[..own.start].iter().chain(&got.words(1)[own.end..]);
            let around: Vec<u32> = around.copied().collect();
            same("rows around", &around, &vec![POISON; 4 * (row0 + 2)]).map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

/// At logits around 0, and at some that are thousands.
async fn other(lane: &Lane, spec: ObjectiveCrossEntropy) -> std::result::Result<(), String> {
    const SCALE: f32 = 0.125;
    let ObjectiveCrossEntropy { row, gradient, objective, cap } = spec;
    let cap = cap.map(|cap| cap.0);
    let vocabulary = row.vocabulary;
    let made = lane.variants_of(spec).map_err(text)?;
    let more = [objective.label_smoothing, objective.z_loss].map(|x| f64::from(x.0 as f32));
    // Rows before the chunk and after it are not its own.
    for (row0, rows, at) in [(0, 1, 0.0), (3, 7, 0.0), (2, 5, 3000.0)] {
        let targets = targets(lane, row0 + rows + 2, vocabulary);
        let own = &targets[row0..row0 + rows];
        let (logits, lying) = logits(lane, row, rows, at);
        let (mut expected, scale) = (wide(&logits), f64::from(SCALE));
        let losses =
            objective_cross_entropy_backward(&mut expected, own, vocabulary, scale, more, cap);
        let operands = [
            Operand::floats(&lying),
            Operand::words(&targets),
            Operand::poison(row0 + rows + 2),
            Operand::uniform(&Step { loss_scale: SCALE, ..Step::of(row0 + rows) }),
            Operand::range(row0, rows + 1, 0, 0),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            // Losses and dLogits are differences of terms as large as these.
            let z = f64::from(at) + 20.0;
            let terms = vec![1.0 + more[1] * z * z; rows];
            let what = format!("losses of {vocabulary}");
            check_losses(&what, &got, row0, &losses, &terms).map_err(&named)?;
            if !gradient {
                let before = Operand::floats(&lying);
                same("logits", got.words(0), before.contents()).map_err(&named)?;
                continue;
            }
            let terms = vec![scale * (1.0 + 2.0 * more[1] * z); rows];
            let d_logits = unpadded(&got.floats(0), row).map_err(&named)?;
            close_to_terms("d_logits", &d_logits, &expected, &terms, ROUNDING).map_err(&named)?;
        }
    }
    Ok(())
}

/// Rows of the batch alone: what follows them stays. A logit beyond the range of drivers' own tanh is the cap.
async fn soft_cap(lane: Rc<Lane>) -> Outcome {
    for (columns, cap) in [(1, 30.0), (61, 1.5), (300, 30.0), (61, 1e6)] {
        let made = lane.variants_of(k::SoftCap { columns, cap: Constant(cap) }).map_err(text)?;
        for rows in [1, 9] {
            let mut before: Vec<f32> =
                lane.normal(9 * columns).into_iter().map(|x| 20.0 * x).collect();
            before[0] = 1e6;
            let mut expected = wide(&before);
            soft_cap_forward(&mut expected[..rows * columns], Some(cap));
            let operands = [Operand::floats(&before), Operand::uniform(&Step::of(rows))];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                close("logits", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// One load of logits, and several of which the last ends within the vocabulary; rows of both are padded.
async fn extremes(lane: Rc<Lane>) -> Outcome {
    for vocabulary in [67usize, 4099] {
        let stride = vocabulary.next_multiple_of(4);
        extreme_rows(&lane, LogitRow { vocabulary, stride }).await?;
    }
    Ok(lane.summary())
}

/// Ignored rows give exactly 0 whatever their logits hold; large logits do not overflow; NaN in a
/// counted row shows in its loss.
async fn extreme_rows(lane: &Lane, row: LogitRow) -> std::result::Result<(), String> {
    let LogitRow { vocabulary, stride } = row;
    let made = lane.variants_of(k::CrossEntropy { row, gradient: true }).map_err(text)?;
    let (_, mut lying) = logits(lane, row, 5, 0.0);
    lying[3] = f32::NAN;
    lying[vocabulary - 1] = f32::NAN;
    lying[stride + 5] = f32::INFINITY;
    lying[stride + 6] = f32::NEG_INFINITY;
    lying[2 * stride + 1] = 1e4;
    lying[2 * stride + 9] = 1e4;
    lying[2 * stride + 2] = -1e4;
    lying[4 * stride + vocabulary - 1] = f32::NAN;
    let own = lying.chunks(stride).map(|row_of| &row_of[..vocabulary]).collect::<Vec<_>>().concat();
    let targets = [IGNORE_INDEX, IGNORE_INDEX, 1, 7, 8];
    let operands = [
        Operand::floats(&lying),
        Operand::words(&targets),
        Operand::poison(5),
        Operand::uniform(&Step { loss_scale: 1.0, ..Step::of(5) }),
        Operand::range(0, 5, 0, 0),
    ];
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 5, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = |what| of(&job.kernel)(format!("{vocabulary} logits: {what}"));
        let zero = |words: &[u32]| words.iter().all(|bits| bits & 0x7fff_ffff == 0);
        let reached = || !zero(&got.words(0)[..2 * stride]) || !zero(&got.words(1)[..2]);
        let message = || "NaN or infinity in an ignored row reached its result".into();
        forbid(("ignored rows", stride), reached, message).map_err(named)?;
        let good = 2 * vocabulary..4 * vocabulary;
        let mut expected = wide(&own[good.clone()]);
        let losses = cross_entropy_backward(&mut expected, &targets[2..4], vocabulary, 1.0);
        let ones = [1.0; 2];
        close_to_terms("losses", &got.floats(1)[2..4], &losses, &ones, ROUNDING).map_err(named)?;
        let d_logits = unpadded(&got.floats(0), row).map_err(named)?;
        close_to_terms("d_logits", &d_logits[good], &expected, &ones, ROUNDING).map_err(named)?;
        let message = || "NaN in a counted row left its loss finite".into();
        forbid("a counted row", || got.floats(1)[4].is_finite(), message).map_err(named)?;
    }
    Ok(())
}

async fn loss_sum(lane: Rc<Lane>) -> Outcome {
    let made = lane.variants_of(k::LossSumForward).map_err(text)?;
    for (rows, accumulate) in [(1, 0), (1031, 0), (300, 1)] {
        let targets = targets(&lane, rows, 7);
        let losses: Vec<f32> = lane.normal(rows).into_iter().map(f32::abs).collect();
        let before = lane.normal(8);
        let (sum, count) = loss_sum_forward(&wide(&losses), &targets);
        let (first, second) = match accumulate {
            0 => (0.0, 0.0),
            _ => (f64::from(before[2]), f64::from(before[3])),
        };
        let mut expected = wide(&before);
        expected[..4].copy_from_slice(&[sum, count, sum + first, count + second]);
        let operands = [
            Operand::floats(&losses),
            Operand::words(&targets),
            Operand::floats(&before),
            Operand::uniform(&Step { accumulate, ..Step::of(rows) }),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close("metrics", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
