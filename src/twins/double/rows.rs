//! Operations on rows: embeddings, norms, activations, losses, and what only moves numbers.

use super::operands::Operands;
use super::uniforms::{Elements, Initialize};
use crate::error::Result;
use crate::format::WriteMode;
use crate::kernels::{ActivationWidth, AttentionShape, CHECKSUM_LANES, Objective};
use crate::random::philox;
use crate::twins::activation::{gated_activation_backward, gated_activation_forward};
use crate::twins::checksum::checksum_forward;
use crate::twins::dropout::{Masks, dropout_forward};
use crate::twins::embedding::{embedding_backward, embedding_forward};
use crate::twins::linear::scale_forward;
use crate::twins::loss::{
    cross_entropy_backward, cross_entropy_forward, loss_sum_forward,
    smoothed_cross_entropy_backward,
};
use crate::twins::norm::{
    head_norm_backward, head_norm_forward, rms_norm_backward, rms_norm_forward,
};

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

pub(super) fn dropout(on: &mut Operands, columns: usize, rate: f64, mode: WriteMode) -> Result<()> {
    let (step, adds) = (on.step()?, on.adds(mode)?);
    let x = on.first("input", step.tokens as usize * columns)?;
    let masks = Masks { seed: step.reserved, micro_step: step.draws };
    let y = dropout_forward(x, columns, rate, on.range()?.col0 as usize, masks);
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

pub(super) fn embed(on: &mut Operands, hidden: usize) -> Result<()> {
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

pub(super) fn norm(on: &mut Operands, hidden: usize, epsilon: f64) -> Result<()> {
    let x = on.first("x", on.tokens()? * hidden)?;
    let y = rms_norm_forward(x, on.first("weight", hidden)?, epsilon);
    on.write("y", 0, &y)
}

/// `rows` rows leave one partial sum.
pub(super) fn norm_backward(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    epsilon: f64,
    mode: WriteMode,
) -> Result<()> {
    let (all, adds) = (on.tokens()? * hidden, on.adds(mode)?);
    let (x, d_y) = (on.first("x", all)?.to_vec(), on.first("d_y", all)?.to_vec());
    let weight = on.first("weight", hidden)?.to_vec();
    let block = rows * hidden;
    for (index, (x, d_y)) in x.chunks(block).zip(d_y.chunks(block)).enumerate() {
        let (d_x, d_weight) = rms_norm_backward(x, &weight, d_y, epsilon);
        on.write_by("d_x", index * block, &d_x, adds)?;
        on.write("partial_sums", index * hidden, &d_weight)?;
    }
    Ok(())
}

pub(super) fn head_norm(on: &mut Operands, shape: &AttentionShape, epsilon: f64) -> Result<()> {
    let tokens = on.tokens()?;
    let x = on.first("x", tokens * shape.stride())?;
    let weight = on.first("weight", 2 * shape.head_dim)?;
    let y = head_norm_forward(super::attention::twin(shape, tokens)?, x, weight, epsilon);
    on.write("y", 0, &y)
}

pub(super) fn head_norm_gradient(
    on: &mut Operands,
    shape: &AttentionShape,
    epsilon: f64,
    rows: usize,
) -> Result<()> {
    let (tokens, both) = (on.tokens()?, 2 * shape.head_dim);
    let all = tokens * shape.stride();
    let (x, d) = (on.first("x", all)?.to_vec(), on.first("d", all)?.to_vec());
    let weight = on.first("weight", both)?.to_vec();
    let block = rows * shape.stride();
    for (index, (x, d)) in x.chunks(block).zip(d.chunks(block)).enumerate() {
        let of = super::attention::twin(shape, x.len() / shape.stride())?;
        let (d_x, d_weight) = head_norm_backward(of, x, &weight, d, epsilon);
        on.write("d", index * block, &d_x)?;
        on.write("partial_sums", index * both, &d_weight)?;
    }
    Ok(())
}

pub(super) fn column_sum(on: &mut Operands, hidden: usize, rows: usize) -> Result<()> {
    let blocks = on.tokens()?.div_ceil(rows);
    let partial = on.first("partial_sums", blocks * hidden)?;
    let mut total = vec![0.0; hidden];
    partial.chunks(hidden).for_each(|part| crate::twins::add_assign(&mut total, part));
    let adds = on.adds(WriteMode::AddAfterFirst)?;
    on.write_by("output", 0, &total, adds)
}

pub(super) fn gate(on: &mut Operands, of: ActivationWidth) -> Result<()> {
    let x = on.first("gate_up", on.tokens()? * 2 * of.width)?;
    let y = gated_activation_forward(of.activation, x, of.width);
    on.write("output", 0, &y)
}

pub(super) fn gate_backward(on: &mut Operands, of: ActivationWidth) -> Result<()> {
    let tokens = on.tokens()?;
    let x = on.first("gate_up", tokens * 2 * of.width)?;
    let d_y = on.first("d_output", tokens * of.width)?;
    let (d_x, y) = gated_activation_backward(of.activation, x, d_y, of.width);
    on.write("d_gate_up", 0, &d_x)?;
    on.write("output", 0, &y)
}

pub(super) fn cross_entropy(on: &mut Operands, vocabulary: usize, gradient: bool) -> Result<()> {
    let (step, range) = (on.step()?, on.range()?);
    let rows = range.rows_of(step.tokens as usize);
    let first = range.row0 as usize;
    let targets = on.u32("targets")?[first..first + rows].to_vec();
    let mut logits = on.first("logits", rows * vocabulary)?.to_vec();
    let losses = if gradient {
        let losses = cross_entropy_backward(&mut logits, &targets, vocabulary, step.loss_scale);
        on.write("logits", 0, &logits)?;
        losses
    } else {
        cross_entropy_forward(&logits, &targets, vocabulary)
    };
    on.write("losses", first, &losses)
}

pub(super) fn smoothed_cross_entropy(
    on: &mut Operands,
    vocabulary: usize,
    objective: Objective,
) -> Result<()> {
    let (step, range) = (on.step()?, on.range()?);
    let rows = range.rows_of(step.tokens as usize);
    let first = range.row0 as usize;
    let targets = on.u32("targets")?[first..first + rows].to_vec();
    let mut logits = on.first("logits", rows * vocabulary)?.to_vec();
    let more = [objective.label_smoothing, objective.z_loss].map(|constant| constant.0 as f32);
    let (scale, own) = (step.loss_scale, &mut logits);
    let losses = smoothed_cross_entropy_backward(own, &targets, vocabulary, scale, more);
    on.write("logits", 0, &logits)?;
    on.write("losses", first, &losses)
}

pub(super) fn loss_sum(on: &mut Operands) -> Result<()> {
    let tokens = on.tokens()?;
    let losses = on.first("losses", tokens)?;
    let (sum, counted) = loss_sum_forward(losses, &on.u32("targets")?[..tokens]);
    let adds = on.adds(WriteMode::AddAfterFirst)?;
    on.write("metrics", 0, &[sum, counted])?;
    on.write_by("metrics", 2, &[sum, counted], adds)
}
