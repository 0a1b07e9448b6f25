//! Operations on rows: embeddings, norms, activations, losses, and what only moves numbers.

use super::operands::Operands;
use super::uniforms::{Elements, Initialize};
use crate::error::Result;
use crate::format::{WeightFormat, WriteMode};
use crate::kernels::{
    ActivationWidth, AttentionShape, CHECKSUM_LANES, LogitRow, NormForm, NormTerms, Objective,
    Parts, SummedWeights,
};
use crate::random::philox;
use crate::twins::activation::{
    activation_backward, activation_forward, gated_activation_backward, gated_activation_forward,
};
use crate::twins::checksum::checksum_forward;
use crate::twins::dropout::{Masks, dropout_forward};
use crate::twins::embedding::{
    embedding_backward, embedding_forward, position_backward, position_forward,
};
use crate::twins::linear::scale_forward;
use crate::twins::loss::{
    cross_entropy_backward, cross_entropy_forward, loss_sum_forward,
    objective_cross_entropy_backward, soft_cap_forward,
};
use crate::twins::norm::{
    head_norm_backward, head_norm_forward, layer_norm_backward as layer_gradient,
    layer_norm_forward, norm_factors, rms_norm_backward, rms_norm_forward,
};
use crate::twins::weights::unpack_weights_forward;
use crate::twins::{add_assign, cast};

pub(super) fn zero(on: &mut Operands, count: usize) -> Result<()> {
    if on.step()?.accumulate == 0 {
        on.write("data", 0, &vec![0.0; count])?;
    }
    Ok(())
}

pub(super) fn copy_row(on: &mut Operands, hidden: usize) -> Result<()> {
    let tokens = on.tokens()?;
    let row = on.first("input", tokens * hidden)?[(tokens - 1) * hidden..].to_vec();
    on.write("output", 0, &row)
}

pub(super) fn scale(on: &mut Operands, columns: usize, factor: f64) -> Result<()> {
    let count = on.tokens()? * columns;
    let mut rows = on.first("rows", count)?.to_vec();
    scale_forward(&mut rows, factor as f32);
    on.write("rows", 0, &rows)
}

pub(super) fn dropout(
    on: &mut Operands,
    columns: usize,
    rate: f64,
    mode: WriteMode,
    residual: bool,
) -> Result<()> {
    let (step, adds) = (on.step()?, on.adds(mode)?);
    let x = on.first("input", step.tokens as usize * columns)?;
    let masks = Masks { seed: step.reserved, micro_step: step.draws };
    let mut y = dropout_forward(x, columns, rate, on.range()?.col0 as usize, masks);
    if residual {
        add_assign(&mut y, on.first("residual", step.tokens as usize * columns)?);
    }
    on.write_by("output", 0, &y, adds)
}

pub(super) fn checksum(on: &mut Operands, count: usize) -> Result<()> {
    let sums = checksum_forward(&on.u32("words")?[..count], CHECKSUM_LANES);
    on.u32_mut("sums")?[..CHECKSUM_LANES].copy_from_slice(&sums);
    Ok(())
}

pub(super) fn initialize(on: &mut Operands, count: usize) -> Result<()> {
    let options: Initialize = on.uniform("options")?;
    let elements: Elements = on.uniform("elements")?;
    let weight = |id: u32| {
        let counter = [elements.index + id, 0, elements.stream, options.tag];
        let words = philox(counter, options.seed);
        let sum: u32 = words.iter().map(|word| (word & 0xffff) + (word >> 16)).sum();
        (sum as i32 - 4 * 0xffff) as f32 * options.factor
    };
    let weights: Vec<f32> = (0..elements.count.min(count as u32)).map(weight).collect();
    on.write("weights", elements.first as usize, &weights)
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

pub(super) fn embed(on: &mut Operands, [hidden, rotated]: [usize; 2]) -> Result<()> {
    leave_angles(on, rotated)?;
    let (tokens, range) = (on.tokens()?, on.range()?);
    let ids = on.u32("tokens")?[..tokens].to_vec();
    let weight = on.f32("weight")?.to_vec();
    for (t, id) in ids.into_iter().enumerate() {
        // Rows of the table that other dispatches hold are left to them.
        let row = id.wrapping_sub(range.col0);
        if row < range.cols {
            on.write("output", t * hidden, &embedding_forward(&[row], &weight, hidden))?;
        }
    }
    Ok(())
}

/// From a packed part of so many rows.
pub(super) fn embed_packed(
    on: &mut Operands,
    [hidden, rows, rotated]: [usize; 3],
    format: WeightFormat,
) -> Result<()> {
    leave_angles(on, rotated)?;
    let (tokens, range) = (on.tokens()?, on.range()?);
    let ids = on.u32("tokens")?[..tokens].to_vec();
    let weight: Vec<f32> = cast(&unpack_weights_forward(format, on.u32("packed")?, rows * hidden));
    for (t, id) in ids.into_iter().enumerate() {
        let row = id.wrapping_sub(range.col0);
        if row < range.cols {
            on.write("output", t * hidden, &embedding_forward(&[row], &weight, hidden))?;
        }
    }
    Ok(())
}

pub(super) fn embed_backward(on: &mut Operands, hidden: usize) -> Result<()> {
    let (tokens, range) = (on.tokens()?, on.range()?);
    let (ids, d_output) = (on.u32("tokens")?, on.first("d_output", tokens * hidden)?);
    let (mut rows, mut d_rows) = (vec![], vec![]);
    for &t in &on.u32("order")?[..tokens] {
        let row = ids[t as usize].wrapping_sub(range.col0);
        if row < range.cols {
            rows.push(row);
            d_rows.extend_from_slice(&d_output[t as usize * hidden..][..hidden]);
        }
    }
    let d_weight = embedding_backward(&rows, &d_rows, hidden, range.cols as usize);
    on.write_by("d_weight", 0, &d_weight, true)
}

pub(super) fn positions(on: &mut Operands, hidden: usize) -> Result<()> {
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

pub(super) fn positions_backward(on: &mut Operands, hidden: usize, ends: usize) -> Result<()> {
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

pub(super) fn norm(
    on: &mut Operands,
    hidden: usize,
    terms: NormTerms,
    form: NormForm,
) -> Result<()> {
    let all = on.tokens()? * hidden;
    let weight = norm_factors(on.first("weight", hidden)?, terms.shifted);
    let mut x = sum_of(on, "x", all, form.summed)?;
    if form.summed != Parts::WHOLE {
        add_assign(&mut x, on.first("before", all)?);
        on.write("stream", 0, &x)?;
    }
    let mut y = rms_norm_forward(&x, &weight, terms.epsilon.0);
    if form.residual {
        add_assign(&mut y, on.first("residual", all)?);
    }
    on.write_as("y", &y, form.half)
}

/// The first elements of a value, which may lie in parts.
pub(super) fn sum_of(on: &Operands, name: &str, elements: usize, parts: Parts) -> Result<Vec<f32>> {
    let mut sum = on.first(name, elements)?.to_vec();
    for part in 1..parts.count {
        let at = part * parts.apart;
        add_assign(&mut sum, &on.first(name, at + elements)?[at..]);
    }
    Ok(sum)
}

/// `rows` rows leave one partial sum.
pub(super) fn norm_backward(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    terms: NormTerms,
    mode: WriteMode,
    parts: Parts,
) -> Result<()> {
    let weight = norm_factors(on.first("weight", hidden)?, terms.shifted);
    let gradient = |x: &[f32], d_y: &[f32]| rms_norm_backward(x, &weight, d_y, terms.epsilon.0);
    normed_backward(on, [hidden, rows], (mode, parts), &gradient)
}

pub(super) fn layer_norm(on: &mut Operands, hidden: usize, epsilon: f64) -> Result<()> {
    let x = on.first("x", on.tokens()? * hidden)?;
    let y = layer_norm_forward(x, on.first("weight", 2 * hidden)?, epsilon);
    on.write("y", 0, &y)
}

pub(super) fn layer_norm_backward(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    epsilon: f64,
    mode: WriteMode,
) -> Result<()> {
    let weight = on.first("weight", 2 * hidden)?.to_vec();
    let gradient = |x: &[f32], d_y: &[f32]| layer_gradient(x, &weight, d_y, epsilon);
    normed_backward(on, [hidden, rows], (mode, Parts::WHOLE), &gradient)
}

/// d_x and a weight's gradient, of x and d_y.
type Gradient<'a> = dyn Fn(&[f32], &[f32]) -> (Vec<f32>, Vec<f32>) + 'a;

/// Blocks of `rows` rows by `gradient`, which gives d_x and a partial sum of the weight's gradient.
fn normed_backward(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    (mode, parts): (WriteMode, Parts),
    gradient: &Gradient<'_>,
) -> Result<()> {
    let (all, adds, block) = (on.tokens()? * hidden, on.adds(mode)?, rows * hidden);
    let x = on.first("x", all)?.to_vec();
    let d_y = sum_of(on, "d_y", all, parts)?;
    for (index, (x, d_y)) in x.chunks(block).zip(d_y.chunks(block)).enumerate() {
        let (d_x, d_weight) = gradient(x, d_y);
        on.write_by("d_x", index * block, &d_x, adds)?;
        on.write("partial_sums", index * d_weight.len(), &d_weight)?;
    }
    Ok(())
}

pub(super) fn head_norm(on: &mut Operands, shape: &AttentionShape, terms: NormTerms) -> Result<()> {
    let tokens = on.tokens()?;
    let x = on.first("x", tokens * shape.stride())?;
    let weight = norm_factors(on.first("weight", 2 * shape.head_dim)?, terms.shifted);
    let of = super::attention::twin(shape, tokens)?;
    let y = head_norm_forward(of, x, &weight, terms.epsilon.0);
    on.write("y", 0, &y)
}

pub(super) fn head_norm_gradient(
    on: &mut Operands,
    shape: &AttentionShape,
    terms: NormTerms,
    rows: usize,
) -> Result<()> {
    let (tokens, both) = (on.tokens()?, 2 * shape.head_dim);
    let all = tokens * shape.stride();
    let (x, d) = (on.first("x", all)?.to_vec(), on.first("d", all)?.to_vec());
    let weight = norm_factors(on.first("weight", both)?, terms.shifted);
    let block = rows * shape.stride();
    for (index, (x, d)) in x.chunks(block).zip(d.chunks(block)).enumerate() {
        let of = super::attention::twin(shape, x.len() / shape.stride())?;
        let (d_x, d_weight) = head_norm_backward(of, x, &weight, d, terms.epsilon.0);
        on.write("d", index * block, &d_x)?;
        on.write("partial_sums", index * both, &d_weight)?;
    }
    Ok(())
}

pub(super) fn column_sum(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    weights: SummedWeights,
) -> Result<()> {
    let (last, elements) = (weights.count - 1, on.tokens()?.div_ceil(rows) * hidden);
    let adds = on.adds(WriteMode::AddAfterFirst)?;
    for weight in 0..weights.count {
        let partial = on.first("partial_sums", weight * weights.partials + elements)?;
        let mut total = vec![0.0; hidden];
        let own = partial[weight * weights.partials..].chunks(hidden);
        own.for_each(|part| add_assign(&mut total, part));
        on.write_by("output", (last - weight) * weights.outputs, &total, adds)?;
    }
    Ok(())
}

pub(super) fn gate(on: &mut Operands, of: ActivationWidth) -> Result<()> {
    let count = on.tokens()? * of.width;
    let y = if of.gated {
        let gate_up = sum_of(on, "gate_up", 2 * count, of.parts)?;
        if of.parts != Parts::WHOLE {
            on.write("whole", 0, &gate_up)?;
        }
        gated_activation_forward(of.activation, &gate_up, of.width)
    } else {
        activation_forward(of.activation, on.first("input", count)?)
    };
    on.write_as("output", &y, of.half)
}

pub(super) fn gate_backward(on: &mut Operands, of: ActivationWidth) -> Result<()> {
    let count = on.tokens()? * of.width;
    let d_y = &sum_of(on, "d_output", count, of.parts)?;
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

/// Rows of logits without their padding.
fn logits(on: &Operands, row: LogitRow, rows: usize) -> Result<Vec<f32>> {
    let padded = on.first("logits", rows * row.stride)?.chunks_exact(row.stride);
    Ok(padded.flat_map(|row_of| &row_of[..row.vocabulary]).copied().collect())
}

/// Gradients in the place of logits, 0 in the padding.
fn write_gradients(on: &mut Operands, row: LogitRow, gradients: &[f32]) -> Result<()> {
    let mut padded = vec![0.0; gradients.len() / row.vocabulary * row.stride];
    for (to, from) in padded.chunks_mut(row.stride).zip(gradients.chunks(row.vocabulary)) {
        to[..row.vocabulary].copy_from_slice(from);
    }
    on.write("logits", 0, &padded)
}

pub(super) fn cross_entropy(on: &mut Operands, row: LogitRow, gradient: bool) -> Result<()> {
    let (step, range) = (on.step()?, on.range()?);
    let (rows, vocabulary) = (range.rows_of(step.tokens as usize), row.vocabulary);
    let first = range.row0 as usize;
    let targets = on.u32("targets")?[first..first + rows].to_vec();
    let mut logits = logits(on, row, rows)?;
    let losses = if gradient {
        let losses = cross_entropy_backward(&mut logits, &targets, vocabulary, step.loss_scale);
        write_gradients(on, row, &logits)?;
        losses
    } else {
        cross_entropy_forward(&logits, &targets, vocabulary)
    };
    on.write("losses", first, &losses)
}

/// The kernels of other losses than the plain one.
pub(super) fn objective_cross_entropy(
    on: &mut Operands,
    row: LogitRow,
    gradient: bool,
    objective: Objective,
    cap: Option<f64>,
) -> Result<()> {
    let (step, range) = (on.step()?, on.range()?);
    let (rows, vocabulary) = (range.rows_of(step.tokens as usize), row.vocabulary);
    let first = range.row0 as usize;
    let targets = on.u32("targets")?[first..first + rows].to_vec();
    let mut logits = logits(on, row, rows)?;
    let more = [objective.label_smoothing, objective.z_loss].map(|constant| constant.0 as f32);
    let (scale, own) = (step.loss_scale, &mut logits);
    let losses = objective_cross_entropy_backward(own, &targets, vocabulary, scale, more, cap);
    if gradient {
        write_gradients(on, row, &logits)?;
    }
    on.write("losses", first, &losses)
}

pub(super) fn soft_cap(on: &mut Operands, columns: usize, cap: f64) -> Result<()> {
    let mut logits = on.first("logits", on.tokens()? * columns)?.to_vec();
    soft_cap_forward(&mut logits, Some(cap));
    on.write("logits", 0, &logits)
}

pub(super) fn loss_sum(on: &mut Operands) -> Result<()> {
    let tokens = on.tokens()?;
    let losses = on.first("losses", tokens)?;
    let (sum, counted) = loss_sum_forward(losses, &on.u32("targets")?[..tokens]);
    let adds = on.adds(WriteMode::AddAfterFirst)?;
    on.write("metrics", 0, &[sum, counted])?;
    on.write_by("metrics", 2, &[sum, counted], adds)
}
