//! Twins of family 01: rows of a table by token or by position, and their gradients.

use super::{EmbeddingBackward, EmbeddingForward, PositionBackward, PositionForward};
use crate::data::sorted_by_token;
use crate::error::Result;
use crate::format::WeightFormat;
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::twins::{Operands, Real, Twin, add_assign, cast};

/// output[t, :] = weight[tokens[t], :]
pub fn embedding_forward<R: Real>(tokens: &[u32], weight: &[R], hidden: usize) -> Vec<R> {
    tokens.iter().flat_map(|&token| &weight[token as usize * hidden..][..hidden]).copied().collect()
}

/// d_weight[v, :] = Σ over positions t with tokens[t] = v of d_output[t, :], positions ascending; 0 of `padding`.
pub fn embedding_backward<R: Real>(
    tokens: &[u32],
    d_output: &[R],
    [hidden, vocab_size]: [usize; 2],
    padding: Option<usize>,
) -> Vec<R> {
    let mut d_weight = vec![R::ZERO; vocab_size * hidden];
    for t in sorted_by_token(tokens) {
        if Some(tokens[t as usize] as usize) == padding {
            continue;
        }
        let row = tokens[t as usize] as usize * hidden;
        add_assign(&mut d_weight[row..row + hidden], &d_output[t as usize * hidden..][..hidden]);
    }
    d_weight
}

/// x[t, :] += weight[position + t − start of t's document, :], for the rows after `position` others.
pub fn position_forward<R: Real>(
    x: &mut [R],
    weight: &[R],
    documents: &[u32],
    position: usize,
    hidden: usize,
) {
    for ((t, row), &start) in x.chunks_exact_mut(hidden).enumerate().zip(documents) {
        add_assign(row, &weight[(position + t - start as usize) * hidden..][..hidden]);
    }
}

/// d_weight[p, :] = Σ over positions t that are the p-th of their document of d_output[t, :].
pub fn position_backward<R: Real>(
    documents: &[u32],
    d_output: &[R],
    hidden: usize,
    positions: usize,
) -> Vec<R> {
    let mut d_weight = vec![R::ZERO; positions * hidden];
    for ((t, row), &start) in d_output.chunks_exact(hidden).enumerate().zip(documents) {
        add_assign(&mut d_weight[(t - start as usize) * hidden..][..hidden], row);
    }
    d_weight
}

/// What a table turns by at the position of a decoded row.
fn leave_angles(on: &mut Operands, rotated: usize) -> Result<()> {
    if rotated == 0 {
        return Ok(());
    }
    let position = on.step()?.position as usize;
    let angles = on.f32("table")?[position * rotated..][..rotated].to_vec();
    on.write("angles", 0, &angles)
}

/// The rows of a table that the range holds. Others are left to other dispatches.
fn look_up(on: &mut Operands<'_>, weight: &[f32], hidden: usize) -> Result<()> {
    let (tokens, range) = (on.tokens()?, on.range()?);
    let ids = on.u32("tokens")?[..tokens].to_vec();
    for (t, id) in ids.into_iter().enumerate() {
        let row = id.wrapping_sub(range.col0);
        if row < range.cols {
            on.write("output", t * hidden, &embedding_forward(&[row], weight, hidden))?;
        }
    }
    Ok(())
}

impl Twin for EmbeddingForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, rows, format, rotated } = *self;
        leave_angles(on, rotated)?;
        let weight: Vec<f32> = match format {
            WeightFormat::F32 => on.f32("weight")?.to_vec(),
            _ => cast(&unpack_weights_forward(format, on.u32("packed")?, rows * hidden)),
        };
        look_up(on, &weight, hidden)
    }
}

impl Twin for EmbeddingBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, padding } = *self;
        let (tokens, range) = (on.tokens()?, on.range()?);
        let (ids, d_output) = (on.u32("tokens")?, on.first("d_output", tokens * hidden)?);
        let (mut rows, mut d_rows) = (vec![], vec![]);
        for &t in &on.u32("order")?[..tokens] {
            let row = ids[t as usize].wrapping_sub(range.col0);
            if row < range.cols && Some(ids[t as usize] as usize) != padding {
                rows.push(row);
                d_rows.extend_from_slice(&d_output[t as usize * hidden..][..hidden]);
            }
        }
        let d_weight = embedding_backward(&rows, &d_rows, [hidden, range.cols as usize], None);
        on.write_by("d_weight", 0, &d_weight, true)
    }
}

impl Twin for PositionForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden } = *self;
        let (step, range) = (on.step()?, on.range()?);
        let weight = on.f32("weight")?.to_vec();
        let documents = on.u32("documents")?[..step.tokens as usize].to_vec();
        for (t, start) in documents.into_iter().enumerate() {
            // Rows of the table that other dispatches hold are left to them.
            let row = (step.position + t as u32).wrapping_sub(start).wrapping_sub(range.col0);
            if row < range.cols {
                let x = &mut on.f32_mut("x")?[t * hidden..][..hidden];
                position_forward(x, &weight, &[0], row as usize, hidden);
            }
        }
        Ok(())
    }
}

impl Twin for PositionBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, ends } = *self;
        let (tokens, range) = (on.tokens()?, on.range()?);
        let documents = on.u32("documents")?;
        let (starts, after) = (documents[..tokens].to_vec(), &documents[ends..ends + tokens]);
        assert!(starts.iter().zip(after).all(|(start, end)| start < end), "ends lie behind starts");
        let d_output = on.first("d_output", tokens * hidden)?;
        let all = position_backward(&starts, d_output, hidden, tokens);
        let own = (range.col0 as usize * hidden).min(all.len());
        let last = (own + range.cols as usize * hidden).min(all.len());
        on.write_by("d_weight", 0, &all[own..last], true)
    }
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
    fn positions_begin_again_with_each_document() {
        let mut x = vec![10.0, 20.0, 30.0, 40.0];
        position_forward(&mut x, &[1.0, 2.0, 3.0], &[0, 0, 2, 2], 0, 1);
        assert_eq!(x, [11.0, 22.0, 31.0, 42.0]);
        position_forward(&mut x[..1], &[1.0, 2.0, 3.0], &[0], 2, 1);
        assert_eq!(x[0], 14.0);
        let (weight, d_output) = (noise(1, 6 * 3), noise(2, 5 * 3));
        let documents = [0, 1, 1, 1, 4];
        let gradient = position_backward(&documents, &d_output, 3, 6);
        assert_gradient("d_weight", &gradient, &weight, &d_output, |w| {
            let mut x = vec![0.0; 5 * 3];
            position_forward(&mut x, w, &documents, 0, 3);
            x
        });
        assert_eq!(gradient[9..], [0.0; 9]);
    }

    #[test]
    fn gradient_matches_finite_differences() {
        let tokens = [3, 1, 3, 0, 3];
        let (weight, d_output) = (noise(1, 5 * 3), noise(2, 5 * 3));
        let gradient = embedding_backward(&tokens, &d_output, [3, 5], None);
        assert_gradient("d_weight", &gradient, &weight, &d_output, |w| {
            embedding_forward(&tokens, w, 3)
        });
        assert_eq!(gradient[6..9], [0.0; 3]);
    }
}
