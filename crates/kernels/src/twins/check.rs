//! Tools of the numeric tests.

use super::Real;
use super::normal::fill_normal;

/// Deterministic standard-normal test data. Each `stream` gives other data.
pub fn noise<R: Real>(stream: u64, length: usize) -> Vec<R> {
    let mut values = vec![0.0f32; length];
    fill_normal(0x7e57, stream, 0, 1.0, &mut values);
    super::cast(&values)
}

/// Gradient of `f` at `x` by central differences of fourth order: error about `step`⁴.
pub fn numeric_gradient(mut f: impl FnMut(&[f64]) -> f64, x: &[f64], step: f64) -> Vec<f64> {
    let mut point = x.to_vec();
    (0..x.len())
        .map(|i| {
            let mut at = |offset: f64| {
                point[i] = x[i] + offset * step;
                let value = f(&point);
                point[i] = x[i];
                value
            };
            (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * step)
        })
        .collect()
}

/// Panics with the worst element unless |got − expected| ≤ absolute + relative · max |expected|
/// everywhere. NaN fails.
pub fn assert_close<A: Real, B: Real>(
    what: &str,
    got: &[A],
    expected: &[B],
    absolute: f64,
    relative: f64,
) {
    assert_eq!(got.len(), expected.len(), "{what}: lengths");
    let scale = expected.iter().map(|x| x.to_f64().abs()).fold(0.0, f64::max);
    let error = |i: usize| {
        let error = (got[i].to_f64() - expected[i].to_f64()).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    };
    let Some(worst) = (0..got.len()).max_by(|&i, &j| error(i).total_cmp(&error(j))) else { return };
    assert!(
        error(worst) <= absolute + relative * scale,
        "{what}[{worst}]: got {:?}, expected {:?}, error {:e} of scale {scale:e}",
        got[worst],
        expected[worst],
        error(worst)
    );
}

/// Checks an analytic gradient of Σ `f`(x) · `weights` against central differences.
pub fn assert_gradient(
    what: &str,
    gradient: &[f64],
    x: &[f64],
    weights: &[f64],
    mut f: impl FnMut(&[f64]) -> Vec<f64>,
) {
    let numeric = numeric_gradient(|x| super::dot(&f(x), weights), x, 1e-3);
    assert_close(what, gradient, &numeric, 1e-9, 1e-8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn central_differences_find_the_gradient_of_a_polynomial() {
        let gradient = numeric_gradient(|x| x[0].powi(3) * x[1] + x[1], &[2.0, 3.0], 1e-3);
        assert_close("gradient", &gradient, &[36.0, 9.0], 1e-9, 0.0);
    }

    #[test]
    #[should_panic(expected = "y[1]: got 2.5")]
    fn the_worst_element_is_named() {
        assert_close("y", &[1.0, 2.5, 3.1], &[1.0, 2.0, 3.0], 0.01, 0.01);
    }

    #[test]
    #[should_panic(expected = "NaN")]
    fn not_a_number_never_passes() {
        assert_close("y", &[1.0, f64::NAN], &[1.0, 2.0], 10.0, 10.0);
    }
}
