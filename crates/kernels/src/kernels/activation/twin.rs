//! Twins of families 06 and 09: the feed-forward activation, gated (SwiGLU, GeGLU: Shazeer,
//! arXiv:2002.05202) or not.

use super::{ActivationBackward, ActivationForward};
use crate::config::Activation;
use crate::error::Result;
use crate::kernels::shape::PartialSums;
use crate::twins::{Operands, Real, Twin};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

/// The normal distribution function.
fn normal_cdf<R: Real>(x: R) -> R {
    R::from_f64(0.5) * (R::ONE + (x * R::from_f64(FRAC_1_SQRT_2)).erf())
}

/// tanh's argument in the approximate GELU (Hendrycks and Gimpel, arXiv:1606.08415) and its slope.
fn gelu_inner<R: Real>(x: R) -> (R, R) {
    let root = R::from_f64((2.0 / PI).sqrt());
    let cubic = R::from_f64(0.044715);
    (root * (x + cubic * x * x * x), root * (R::ONE + R::from_f64(3.0) * cubic * x * x))
}

pub fn activate<R: Real>(activation: Activation, x: R) -> R {
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => R::from_f64(0.5) * x * (R::ONE + gelu_inner(x).0.tanh()),
    }
}

pub fn activate_derivative<R: Real>(activation: Activation, x: R) -> R {
    let half = R::from_f64(0.5);
    match activation {
        Activation::Silu => sigmoid(x) * (R::ONE + x * (R::ONE - sigmoid(x))),
        Activation::Gelu => {
            normal_cdf(x) + x * R::from_f64(1.0 / (2.0 * PI).sqrt()) * (-half * x * x).exp()
        }
        Activation::GeluTanh => {
            let (inner, slope) = gelu_inner(x);
            let t = inner.tanh();
            half * (R::ONE + t) + half * x * (R::ONE - t * t) * slope
        }
    }
}

/// output[t, i] = activate(gate[t, i]) · up[t, i] on rows `gate | up` of twice `width`.
pub fn gated_activation_forward<R: Real>(
    activation: Activation,
    gate_up: &[R],
    width: usize,
) -> Vec<R> {
    gate_up
        .chunks_exact(2 * width)
        .flat_map(|row| (0..width).map(move |i| activate(activation, row[i]) * row[width + i]))
        .collect()
}

/// output = activate(x)
pub fn activation_forward<R: Real>(activation: Activation, x: &[R]) -> Vec<R> {
    x.iter().map(|&x| activate(activation, x)).collect()
}

/// (d_x, output), as [`gated_activation_backward`].
pub fn activation_backward<R: Real>(
    activation: Activation,
    x: &[R],
    d_output: &[R],
) -> (Vec<R>, Vec<R>) {
    let slope = |(&x, &d): (&R, &R)| d * activate_derivative(activation, x);
    (x.iter().zip(d_output).map(slope).collect(), activation_forward(activation, x))
}

/// (d_gate_up, output): the gradient, and the forward's output that the kernel recomputes.
pub fn gated_activation_backward<R: Real>(
    activation: Activation,
    gate_up: &[R],
    d_output: &[R],
    width: usize,
) -> (Vec<R>, Vec<R>) {
    let mut d_gate_up = Vec::with_capacity(gate_up.len());
    for (row, d_row) in gate_up.chunks_exact(2 * width).zip(d_output.chunks_exact(width)) {
        let (gate, up) = row.split_at(width);
        d_gate_up.extend(
            (0..width).map(|i| d_row[i] * up[i] * activate_derivative(activation, gate[i])),
        );
        d_gate_up.extend((0..width).map(|i| d_row[i] * activate(activation, gate[i])));
    }
    (d_gate_up, gated_activation_forward(activation, gate_up, width))
}

impl Twin for ActivationForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self(of) = *self;
        let count = on.tokens()? * of.width;
        let y = if of.gated {
            let gate_up = on.sum_of("gate_up", 2 * count, of.sums)?;
            if of.sums != PartialSums::WHOLE {
                on.write("whole", 0, &gate_up)?;
            }
            gated_activation_forward(of.activation, &gate_up, of.width)
        } else {
            activation_forward(of.activation, on.first("input", count)?)
        };
        on.write_as("output", &y, of.half)
    }
}

impl Twin for ActivationBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self(of) = *self;
        let count = on.tokens()? * of.width;
        let d_y = &on.sum_of("d_output", count, of.sums)?;
        let y = if of.gated {
            let x = on.first("gate_up", 2 * count)?;
            let (d_x, y) = gated_activation_backward(of.activation, x, d_y, of.width);
            on.write_as("d_gate_up", &d_x, of.half)?;
            y
        } else {
            let (d_x, y) = activation_backward(of.activation, on.first("input", count)?, d_y);
            on.write("d_input", 0, &d_x)?;
            y
        };
        on.write_as("output", &y, of.half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, assert_gradient, noise};

    #[test]
    fn values_at_one() {
        let at_one = Activation::ALL.map(|a| activate(a, 1.0));
        assert_close(
            "f(1)",
            &at_one,
            &[0.731_058_578_630, 0.841_344_746_069, 0.841_191_990_608],
            1e-12,
            0.0,
        );
    }

    #[test]
    fn tails_stay_finite_in_f32() {
        for activation in Activation::ALL {
            for x in [-1e4f32, -100.0, 100.0, 1e4] {
                assert_eq!(activate(activation, x), x.max(0.0));
                assert_eq!(activate_derivative(activation, x), if x > 0.0 { 1.0 } else { 0.0 });
            }
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for activation in Activation::ALL {
            for (rows, width) in [(1, 1), (4, 5)] {
                let (gate_up, d_output) = (noise(1, rows * 2 * width), noise(2, rows * width));
                let (gradient, output) =
                    gated_activation_backward(activation, &gate_up, &d_output, width);
                assert_eq!(output, gated_activation_forward(activation, &gate_up, width));
                assert_gradient("d_gate_up", &gradient, &gate_up, &d_output, |x| {
                    gated_activation_forward(activation, x, width)
                });
                let (x, d_output) = (noise(3, rows * width), noise(4, rows * width));
                let (gradient, output) = activation_backward(activation, &x, &d_output);
                assert_eq!(output, activation_forward(activation, &x));
                assert_gradient("d_x", &gradient, &x, &d_output, |x| {
                    activation_forward(activation, x)
                });
            }
        }
    }
}
