//! How far a result may be from the twin's.

use super::ledger::{self, Bits, listed};
use std::hash::Hash;

/// Relative error in L2 that rounding to f32 explains for sums of up to a few thousand terms.
pub(crate) const ROUNDING: f64 = 2e-6;

/// Holds `got` against `expected`: the relative error in L2 at most `tolerance`, no element farther
/// than eight times that of the largest. NaN fails.
pub fn close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) -> Result<(), String> {
    close_to_terms(what, got, expected, &[], tolerance)
}

/// [`close`] for sums whose terms cancel: errors are relative to the terms where those are larger
/// than what is left of them.
pub(crate) fn close_to_terms(
    what: &str,
    got: &[f32],
    expected: &[f64],
    terms: &[f64],
    tolerance: f64,
) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err(format!("{what}: {} elements instead of {}", got.len(), expected.len()));
    }
    if listed((what, Bits(expected), Bits(terms), tolerance.to_bits())) {
        return Ok(());
    }
    let error = |i: usize| error_at(got, expected, i);
    let largest = expected.iter().chain(terms).fold(0.0, |most: f64, x| most.max(x.abs()));
    let worst = (0..got.len()).max_by(|&i, &j| error(i).total_cmp(&error(j))).unwrap_or(0);
    let relative = relative_error(got, expected, terms);
    if relative <= tolerance && (got.is_empty() || error(worst) <= 8.0 * tolerance * largest) {
        return Ok(());
    }
    Err(format!(
        "{what}: relative error {relative:.2e} in L2 (allowed {tolerance:.0e}), worst at {worst} of {}: {} for {}",
        got.len(),
        got[worst],
        expected[worst]
    ))
}

fn error_at(got: &[f32], expected: &[f64], i: usize) -> f64 {
    let error = (f64::from(got[i]) - expected[i]).abs();
    if error.is_nan() { f64::INFINITY } else { error }
}

/// The error in L2, relative to what is expected or to its terms, whichever is larger: what
/// [`close_to_terms`] holds to its tolerance.
pub(crate) fn relative_error(got: &[f32], expected: &[f64], terms: &[f64]) -> f64 {
    if ledger::listing() {
        return 0.0;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let distance = norm(&mut (0..got.len()).map(|i| error_at(got, expected, i)));
    let scale = norm(&mut expected.iter().copied()).max(norm(&mut terms.iter().copied()));
    if distance == 0.0 { 0.0 } else { distance / scale }
}

/// Holds every element by itself: its error at most `tolerance` of it or, where its terms cancel, of
/// the term. [`close`] would let an element of hundreds hide what is wrong with one near zero.
pub(crate) fn each_close(
    what: &str,
    got: &[f32],
    expected: &[f64],
    terms: &[f64],
    tolerance: f64,
) -> Result<(), String> {
    if [expected.len(), terms.len()] != [got.len(); 2] {
        return Err(format!("{what}: {} elements instead of {}", got.len(), expected.len()));
    }
    if listed((what, Bits(expected), Bits(terms), tolerance.to_bits())) {
        return Ok(());
    }
    // Below the normal numbers of f32 a GPU may give zero.
    let allowed =
        |i: usize| tolerance * expected[i].abs().max(terms[i].abs()) + f64::from(f32::MIN_POSITIVE);
    let excess = |i: usize| {
        let excess = (f64::from(got[i]) - expected[i]).abs() / allowed(i);
        if excess.is_nan() { f64::INFINITY } else { excess }
    };
    let worst = (0..got.len()).max_by(|&i, &j| excess(i).total_cmp(&excess(j))).unwrap_or(0);
    if got.is_empty() || excess(worst) <= 1.0 {
        return Ok(());
    }
    Err(format!(
        "{what}: {} for {} at {worst} of {}: {:.1} times the error allowed",
        got[worst],
        expected[worst],
        got.len(),
        excess(worst)
    ))
}

/// Fails unless every word is exactly as expected.
pub fn same(what: &str, got: &[u32], expected: &[u32]) -> Result<(), String> {
    if listed((what, expected)) {
        return Ok(());
    }
    match (0..got.len().max(expected.len())).find(|&i| got.get(i) != expected.get(i)) {
        None => Ok(()),
        Some(i) => {
            Err(format!("{what}: {:#x?} instead of {:#x?} at {i}", got.get(i), expected.get(i)))
        }
    }
}

/// Holds a gradient that the GPU computed against a central difference (of fourth order) of the
/// twin's forward in f64, along one direction: Σ gradient · direction.
pub(crate) fn directional(
    what: &str,
    gradient: &[f32],
    x: &[f64],
    direction: &[f32],
    loss: impl Fn(&[f64]) -> f64,
) -> Result<(), String> {
    directional_to_terms(what, gradient, &[], x, direction, loss)
}

/// [`directional`] for gradients whose terms cancel, as in [`close_to_terms`].
pub(crate) fn directional_to_terms(
    what: &str,
    gradient: &[f32],
    terms: &[f64],
    x: &[f64],
    direction: &[f32],
    loss: impl Fn(&[f64]) -> f64,
) -> Result<(), String> {
    const STEP: f64 = 1e-3;
    let at = |offset: f64| {
        let moved: Vec<f64> =
            x.iter().zip(direction).map(|(x, &d)| x + offset * STEP * f64::from(d)).collect();
        loss(&moved)
    };
    if ledger::listing() {
        let ends = [at(1.0), at(-1.0), at(2.0), at(-2.0)];
        listed((what, Bits(&ends), Bits(terms)));
        return Ok(());
    }
    let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * STEP);
    let along = |values: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
        values.zip(direction).map(|(g, &d)| g * f64::from(d)).collect()
    };
    let parts = along(&mut gradient.iter().map(|&g| f64::from(g)));
    let analytic: f64 = parts.iter().sum();
    // A random direction's sum is of the size of the gradient's norm, and so is its rounding.
    let norm = |parts: &[f64]| dot(parts, parts).sqrt();
    let scale = norm(&parts).max(norm(&along(&mut terms.iter().copied())));
    let error = (analytic - numeric).abs();
    if error <= 1e-7 + 1e-5 * scale {
        return Ok(());
    }
    Err(format!(
        "{what}: slope {analytic:.9} along a direction, {numeric:.9} by finite differences"
    ))
}

/// Holds outputs by a check of their own, which no other function here makes. A listing has no outputs: it takes what
/// is expected of them, by value, and leaves the check out.
pub(crate) fn hold(
    expected: impl Hash,
    check: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    if listed(("hold", expected)) { Ok(()) } else { check() }
}

/// [`hold`] of one condition, which must not be so.
pub(crate) fn forbid(
    expected: impl Hash,
    wrong: impl FnOnce() -> bool,
    message: impl FnOnce() -> String,
) -> Result<(), String> {
    hold(expected, || if wrong() { Err(message()) } else { Ok(()) })
}

/// A kernel's name and variant before a message.
pub(crate) fn of(kernel: &crate::kernels::Kernel) -> impl Fn(String) -> String {
    let name = format!("{} ({}, workgroup {})", kernel.name, kernel.variant, kernel.workgroup_size);
    move |message| format!("{name}: {message}")
}

/// An error of the library as a case's message.
pub fn text(error: crate::error::Error) -> String {
    format!("{}: {}", error.code, error.message)
}

/// Everything in f64, for the twins.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Everything in f32, for the kernels.
pub(crate) fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

/// a + b.
pub(crate) fn sum(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    crate::twins::add_assign(&mut a, &b);
    a
}

/// Σ a · b.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    crate::twins::dot(a, b)
}
