//! The errors that the documentation promises of attention, and scores as large as ±10,000.

use super::backward::ENDS;
use super::batch::{Side, TwinBatch};
use super::forward::{HEADS, Setting, delta_of};
use super::long::{Kernels, run};
use crate::kernels::{self as k, Kernel, Spec};
use crate::testing::lane::Lane;
use crate::testing::measure::{forbid, of, text};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// Errors relative in L2: of the output, and of the gradients.
pub(crate) const FORWARD: f64 = 2e-6;
pub(crate) const GRADIENTS: f64 = 1e-5;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("attention bounds at 1024 tokens", |lane| bounds(lane, (1, 1, 64), 1024)),
        Case::full("attention bounds at 8192 tokens", |lane| bounds(lane, (1, 1, 32), 8192)),
        Case::new("attention of large scores", large_scores),
    ]
}

/// The kernels to hold to the bounds: on a software adapter its own and, of a length that takes
/// seconds, the first that selection picks for another adapter, which is WebGPU's floor.
fn some<'a>(lane: &Lane, kernels: &'a [Kernel], tokens: usize) -> &'a [Kernel] {
    let most = match (lane.caps().software, tokens) {
        (false, _) => kernels.len(),
        (true, ..=1024) => 2,
        (true, _) => 1,
    };
    &kernels[..most.min(kernels.len())]
}

/// The whole chain as a training step runs it, each kernel on what the one before left, against
/// f64 from the beginning. Errors are relative to the results themselves.
async fn bounds(lane: Rc<Lane>, heads: (usize, usize, usize), tokens: usize) -> Outcome {
    let setting = Setting::plain(heads);
    let kernels = Kernels::new(&lane, setting, tokens)?;
    let mut batch = TwinBatch::new(&lane, setting, vec![0; tokens], 1.0);
    let mut forward = vec![];
    for kernel in some(&lane, &kernels.forward, tokens) {
        let got = run(&lane, &batch, &[batch.forward(kernel)]).await?.remove(0);
        let error = batch.check_forward(&got, FORWARD).map_err(of(kernel))?;
        forward.push((error, got));
    }
    let (_, own) = &forward[0];
    let delta =
        delta_of(setting.shape(), k::PartialSums::WHOLE).kernel(lane.caps()).map_err(text)?;
    let delta = run(&lane, &batch, &[batch.delta_job(&delta, &own.floats(0))]).await?.remove(0);
    (batch.lse, batch.delta) = (own.floats(1), delta.floats(0));
    let mut errors = [0.0f64; 2];
    for (side, kernels) in [(Side::Query, &kernels.query), (Side::KeyValue, &kernels.key_value)] {
        for kernel in some(&lane, kernels, tokens) {
            let job = batch.backward(kernel, tokens, batch.words());
            let got = run(&lane, &batch, &[job]).await?.remove(0);
            batch.check_gradient(&got, side, GRADIENTS).map_err(of(kernel))?;
            let error = batch.gradient_error(&got, side);
            let message = || format!("{side:?} gradient: error {error:.2e} of itself in L2");
            forbid(GRADIENTS.to_bits(), || error > GRADIENTS, message).map_err(of(kernel))?;
            errors[side as usize] = errors[side as usize].max(error);
        }
    }
    let worst = forward.iter().fold(0.0, |worst: f64, (error, _)| worst.max(*error));
    let [query, key_value] = errors;
    Ok(format!(
        "errors in L2: output {worst:.2e}, d_query {query:.2e}, d_key and d_value {key_value:.2e}; {}",
        lane.summary()
    ))
}

/// Scores of ±10,000: one key takes nearly all the weight, and rounding of scores is all there is.
/// Squashed by a cap, nearly all slopes vanish.
async fn large_scores(lane: Rc<Lane>) -> Outcome {
    const TOLERANCE: f64 = 2e-2;
    for (heads, soft_cap) in [(HEADS[1], None), (HEADS[3], Some(30.0))] {
        let setting = Setting { soft_cap, ..Setting::plain(heads) };
        let kernels = Kernels::new(&lane, setting, ENDS)?;
        let batch = TwinBatch::new(&lane, setting, lane.documents(70), 1e4);
        if soft_cap.is_none() && batch.largest_score() < 1e4 {
            return Err(format!("scores of at most {:.0}", batch.largest_score()));
        }
        kernels.check(&lane, &batch, [TOLERANCE; 2]).await?;
    }
    Ok(lane.summary())
}
