//! Twins of family 01: rows of a table, and their gradient.

use super::{Real, add_assign};
use crate::data::sorted_by_token;

/// output[t, :] = weight[tokens[t], :]
pub fn embedding_forward<R: Real>(tokens: &[u32], weight: &[R], hidden: usize) -> Vec<R> {
    tokens.iter().flat_map(|&token| &weight[token as usize * hidden..][..hidden]).copied().collect()
}

/// d_weight[v, :] = Σ over positions t with tokens[t] = v of d_output[t, :], positions ascending.
pub fn embedding_backward<R: Real>(
    tokens: &[u32],
    d_output: &[R],
    hidden: usize,
    vocab_size: usize,
) -> Vec<R> {
    let mut d_weight = vec![R::ZERO; vocab_size * hidden];
    for t in sorted_by_token(tokens) {
        let row = tokens[t as usize] as usize * hidden;
        add_assign(&mut d_weight[row..row + hidden], &d_output[t as usize * hidden..][..hidden]);
    }
    d_weight
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_gradient, noise};

    #[test]
    fn rows_are_gathered() {
        assert_eq!(
            embedding_forward(&[2, 0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2),
            [5.0, 6.0, 1.0, 2.0]
        );
    }

    #[test]
    fn gradient_matches_finite_differences() {
        let tokens = [3, 1, 3, 0, 3];
        let (weight, d_output) = (noise(1, 5 * 3), noise(2, 5 * 3));
        let gradient = embedding_backward(&tokens, &d_output, 3, 5);
        assert_gradient("d_weight", &gradient, &weight, &d_output, |w| {
            embedding_forward(&tokens, w, 3)
        });
        assert_eq!(gradient[6..9], [0.0; 3]);
    }
}
