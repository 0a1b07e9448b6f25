//! Family 08: packing a matrix, and the matrix-vector product that reads it packed.

use super::PackWeights;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::kernels::linear::cases::matvec::{EPSILON, matvec_matrix, row_by};
use crate::kernels::weights::twin::{packing_errors, unpack_weights_forward};
use crate::kernels::{self as k, Matvec, MatvecInput, MatvecOutput, Spec, WeightFormat};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Job, Operand};
use crate::testing::lane::Lane;
use crate::testing::ledger::Bits;
use crate::testing::measure::{forbid, hold, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    WeightFormat::ALL
        .into_iter()
        .filter(|format| *format != WeightFormat::F32)
        .flat_map(|format| {
            let name = format.name();
            [
                Case::new(format!("weights {name}: packed"), move |lane| kept(lane, format)),
                Case::new(format!("weights {name}: matvec"), move |lane| products(lane, format)),
            ]
        })
        .collect()
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (rows, columns) in crate::testing::catalogue::MATRICES {
        for format in WeightFormat::ALL.into_iter().filter(|format| format.packs(columns)) {
            let what = format!("{rows}x{columns} in {}", format.name());
            let pack = PackWeights { format, rows, columns }.kernel(caps);
            entries.push((format!("pack {what}"), pack));
        }
    }
    entries
}

/// Rows of whole groups: one group; more groups than a vector of scales; several workgroups.
const MATRICES: [(usize, usize); 3] = [(1, 32), (5, 96), (61, 768)];

/// A matrix with a row of zeros and one of numbers whose squares would vanish.
fn matrix(lane: &Lane, rows: usize, columns: usize) -> Vec<f32> {
    let mut values = lane.normal(rows * columns);
    if rows > 2 {
        values[..columns].fill(0.0);
        values[columns..2 * columns].iter_mut().for_each(|x| *x *= 1e-20);
    }
    values
}

/// The words of a matrix in a form, by each kernel that packs it.
pub(crate) async fn packed(
    lane: &Lane,
    format: WeightFormat,
    (rows, columns): (usize, usize),
    values: &[f32],
) -> Result<Vec<Vec<u32>>, String> {
    let made = lane.variants_of(k::PackWeights { format, rows, columns }).map_err(text)?;
    let words = (format.bytes(rows, columns) / 4) as usize;
    let operands = vec![Operand::floats(values), Operand::poison(words)];
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    let results = lane.run(&jobs).await.map_err(text)?;
    Ok(results.iter().map(|got| got.words(0).to_vec()).collect())
}

async fn kept(lane: Rc<Lane>, format: WeightFormat) -> Outcome {
    for (rows, columns) in MATRICES {
        let values = matrix(&lane, rows, columns);
        for words in packed(&lane, format, (rows, columns), &values).await? {
            let unpacked = unpack_weights_forward(format, &words, values.len());
            let most: Vec<f64> =
                values.chunks(32).flat_map(|group| packing_errors(format, group)).collect();
            hold(("kept", Bits(&wide(&values)), Bits(&most)), || {
                for (i, (x, y)) in values.iter().zip(&unpacked).enumerate() {
                    let (error, most) = ((f64::from(*x) - y).abs(), most[i]);
                    if error.is_nan() || error > most {
                        return Err(format!("{x} as {y}, {error:.1e} off; {most:.1e} allowed"));
                    }
                }
                Ok(())
            })?;
        }
    }
    not_finite(&lane, format).await?;
    Ok(lane.summary())
}

/// What is not finite does not become a number.
async fn not_finite(lane: &Lane, format: WeightFormat) -> Result<(), String> {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = lane.normal(2 * 32);
        values[40] = bad;
        for words in packed(lane, format, (2, 32), &values).await? {
            let unpacked = unpack_weights_forward(format, &words, values.len());
            let wrong =
                || unpacked[40].is_finite() || unpacked[..32].iter().any(|x| !x.is_finite());
            let message = || format!("{bad} among weights became {}", unpacked[40]);
            forbid("a number that is not finite", wrong, message)?;
        }
    }
    Ok(())
}

async fn products(lane: Rc<Lane>, format: WeightFormat) -> Outcome {
    let norm = MatvecInput::Norm { epsilon: k::Constant(EPSILON) };
    let (first, gated) = (3, MatvecOutput::Gated(Activation::Silu));
    for (n, k) in [(1, 32), (70, 256), (13, 2304)] {
        for (input, output) in [
            (MatvecInput::Plain, MatvecOutput::Plain),
            (MatvecInput::Plain, MatvecOutput::Added),
            (MatvecInput::Plain, MatvecOutput::Residual),
            (MatvecInput::Plain, MatvecOutput::Bias),
            (MatvecInput::Plain, MatvecOutput::BiasedResidual),
            (norm, MatvecOutput::Plain),
            (norm, gated),
        ] {
            product(&lane, Matvec { n, k, first, input, output, weights: format }).await?;
        }
    }
    // A subgroup has several results.
    for input in [norm, MatvecInput::Plain] {
        let (n, k, output) = (8203, 288, MatvecOutput::Plain);
        product(&lane, Matvec { n, k, first, input, output, weights: format }).await?;
    }
    Ok(lane.summary())
}

async fn product(lane: &Lane, shape: Matvec) -> Result<(), String> {
    let values = matvec_matrix(lane, shape);
    let size = (values.len() / shape.k, shape.k);
    let words = packed(lane, shape.weights, size, &values).await?.swap_remove(0);
    let matrix = unpack_weights_forward(shape.weights, &words, values.len());
    row_by(lane, shape, Operand::words(&words), &matrix).await
}
