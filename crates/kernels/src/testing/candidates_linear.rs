//! Products for the benchmark: every tile with every split of K.

use super::candidates::Candidate;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::Element;
use crate::kernels::{
    self as k, Form, LinearProduct, LinearShape, LinearTile, Output, Spec, WeightFormat, WriteMode,
};
use serde::{Deserialize, Serialize};

/// C[m, n] = a product over k.
#[derive(Clone, Debug, Deserialize)]
pub struct LinearWork {
    /// `matmul_t`, `matmul` or `matmul_at`.
    pub form: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The second operand is in f16.
    #[serde(default)]
    pub half: bool,
    /// Operands may be rounded to f16 for subgroup matrices, and the second one is in f16.
    #[serde(default)]
    pub matrix: bool,
    /// With `matrix`: the first operand is in f16 too.
    #[serde(default)]
    pub halves: bool,
}

/// One way to compute it: a product, and where K is split the sum of `parts_bytes`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinearCandidate {
    pub picked: bool,
    pub parts_bytes: u64,
    pub stages: Vec<Candidate>,
}

/// Workgroups beyond which a smaller tile or another split is not worth its measurement.
const MOST_GROUPS: usize = 2048;

/// Every way worth it, the picked one first.
///
/// # Errors
/// `invalid-options` for an unknown form; `limit-exceeded` when the device has no kernel.
pub fn linear(caps: &Capabilities, work: &LinearWork) -> Result<Vec<LinearCandidate>> {
    let form = Form::ALL
        .into_iter()
        .find(|form| form.name() == work.form)
        .ok_or_else(|| Error::options(format!("there is no product {}", work.form)))?;
    let (k, tokens) = match form {
        Form::MatmulAt => (work.m, work.k),
        Form::MatmulT | Form::Matmul => (work.k, work.m),
    };
    let b = if work.half || work.matrix { WeightFormat::F16 } else { WeightFormat::F32 };
    let a = if work.halves { Element::F16 } else { Element::F32 };
    let half = work.matrix;
    let shape = LinearShape { a, b, half, ..LinearShape::new(form, work.n, k, tokens) };
    let output = Output::Mode(WriteMode::Overwrite);
    let mut candidates =
        vec![candidate(caps, LinearProduct::picked(caps, shape, output), work.m, true)?];
    for tile in k::linear_tiles(caps, &shape) {
        for splits in 1..=8 {
            let deep = work.k / splits >= 32 && [work.n, work.k, work.m].iter().all(|x| x % 4 == 0);
            let tiled = !matches!(tile, LinearTile::Direct { .. });
            if splits > 1 && !(deep && tiled) || tile.groups(&shape) * splits > MOST_GROUPS {
                continue;
            }
            let product = LinearProduct { shape, output, splits, tile: Some(tile) };
            let made = candidate(caps, product, work.m, false)?;
            if made.stages[0].wgsl != candidates[0].stages[0].wgsl {
                candidates.push(made);
            }
        }
    }
    Ok(candidates)
}

fn candidate(
    caps: &Capabilities,
    product: LinearProduct,
    rows: usize,
    picked: bool,
) -> Result<LinearCandidate> {
    let mut stages = vec![Candidate::new(caps, product.kernel(caps)?, rows, picked)?];
    let mut parts_bytes = 0;
    if let Some(sum) = product.sum() {
        parts_bytes = sum.elements() * 4;
        stages.push(Candidate::new(caps, sum.kernel(caps)?, rows, picked)?);
    }
    Ok(LinearCandidate { picked, parts_bytes, stages })
}
