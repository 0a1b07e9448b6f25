//! Products of matrices, of a matrix and a row, and packed matrices.

use super::attention::{cache_row, decode_before, merged, rotated};
use super::operands::Operands;
use crate::config::Activation;
use crate::error::Result;
use crate::kernels::{
    AttentionShape, Element, Form, GradientParts, GradientSums, LinearShape, MatvecInput,
    MatvecOutput, MatvecRowsShape, MatvecShape, NewestShape, Output, RopeShape, WeightFormat,
};
use crate::twins::activation::{gated_activation_backward, gated_activation_forward};
use crate::twins::add_assign;
use crate::twins::cast;
use crate::twins::linear::{Product, bias_forward, matmul, matmul_at, matmul_t, matvec_forward};
use crate::twins::norm::rms_norm_forward;
use crate::twins::weights::{pack_weights_forward, unpack_weights_forward};

/// Elements `columns` of each of `rows` rows that lie `stride` elements apart.
fn gathered(
    data: &[f32],
    stride: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
) -> Vec<f32> {
    rows.flat_map(|row| data[row * stride..][columns.clone()].iter().copied()).collect()
}

/// A part of K: the product of those terms alone.
fn part(
    on: &Operands,
    shape: &LinearShape,
    b: &[f32],
    terms: std::ops::Range<usize>,
) -> Result<Vec<f32>> {
    let range = on.range()?;
    let rows = range.rows_of(on.tokens()?);
    let (a, column) = (on.read_as("a", shape.a)?, range.col0 as usize);
    let LinearShape { n, k, a_stride, .. } = *shape;
    let count = terms.len();
    let of_a = |offset: usize| {
        let columns = offset + terms.start..offset + terms.end;
        gathered(&a, a_stride, 0..rows, columns)
    };
    Ok(match shape.form {
        Form::MatmulT => {
            let b = gathered(b, k, 0..n, terms.clone());
            matmul_t(Product { m: rows, n, k: count }, &of_a(0), &b, None)
        }
        Form::Matmul => {
            let b = &b[terms.start * n..terms.end * n];
            matmul(Product { m: rows, n, k: count }, &of_a(column), b, None)
        }
        Form::MatmulAt => {
            let a = gathered(&a, a_stride, terms.clone(), column..column + k);
            let b = &b[terms.start * n..terms.end * n];
            matmul_at(Product { m: k, n, k: count }, &a, b, None)
        }
    })
}

pub(super) fn linear(
    on: &mut Operands,
    shape: &LinearShape,
    output: Output,
    splits: usize,
) -> Result<()> {
    let b = match shape.b {
        WeightFormat::F32 => on.f32("b")?.to_vec(),
        WeightFormat::F16 if shape.form == Form::MatmulAt => on.read_as("b", Element::F16)?,
        format => cast(&unpack_weights_forward(format, on.u32("b")?, shape.n * shape.k)),
    };
    let rows = on.range()?.rows_of(on.tokens()?);
    let depth = if shape.form == Form::MatmulAt { rows } else { shape.k };
    if splits == 1 {
        let product = part(on, shape, &b, 0..depth)?;
        return store(on, shape, output, &product);
    }
    let each = depth.div_ceil(splits);
    let m = if shape.form == Form::MatmulAt { shape.k } else { shape.tokens };
    for split in 0..splits {
        let terms = (split * each).min(depth)..((split + 1) * each).min(depth);
        let product = part(on, shape, &b, terms)?;
        for (row, terms) in product.chunks(shape.n).enumerate() {
            on.write("c", (split * m + row) * shape.part_stride(), terms)?;
        }
    }
    Ok(())
}

/// Writes the gradients of gate and up, and the gate's result, where rows of N sums are the gradient of that.
fn store_gate_gradient(
    on: &mut Operands,
    shape: &LinearShape,
    activation: Activation,
    slope: &[f32],
) -> Result<()> {
    let gate_up = on.first("gate_up", 2 * slope.len())?;
    let (gradient, activated) = gated_activation_backward(activation, gate_up, slope, shape.n);
    on.write("c", 0, &gradient)?;
    on.write("activated", 0, &activated)
}

/// Writes rows of N results to C.
fn store(on: &mut Operands, shape: &LinearShape, output: Output, product: &[f32]) -> Result<()> {
    let by_columns = shape.form == Form::MatmulT;
    let column = if by_columns { on.range()?.col0 as usize } else { 0 };
    for (row, result) in product.chunks(shape.n).enumerate() {
        let at = row * shape.c_stride + column;
        match output {
            Output::Mode(mode) => {
                let adds = on.adds(mode)?;
                if adds {
                    on.write_by("c", at, result, adds)?;
                } else {
                    on.write_at("c", at, result, shape.c)?;
                }
            }
            // Of all rows at once.
            Output::GateGradient(activation) => {
                return store_gate_gradient(on, shape, activation, product);
            }
            Output::Residual => {
                let mut sum = on.f32("residual")?[at..at + shape.n].to_vec();
                add_assign(&mut sum, result);
                on.write("c", at, &sum)?;
            }
            Output::Bias | Output::BiasedResidual => {
                let mut sum = on.first("bias", shape.c_stride)?[column..column + shape.n].to_vec();
                if output == Output::BiasedResidual {
                    add_assign(&mut sum, &on.f32("residual")?[at..at + shape.n]);
                }
                add_assign(&mut sum, result);
                on.write("c", at, &sum)?;
            }
        }
    }
    Ok(())
}

pub(super) fn linear_sum(
    on: &mut Operands,
    shape: &LinearShape,
    output: Output,
    splits: usize,
) -> Result<()> {
    let fixed = shape.form == Form::MatmulAt;
    let rows = if fixed { shape.k } else { on.range()?.rows_of(on.tokens()?) };
    let (each, width) = (if fixed { shape.k } else { shape.tokens }, shape.part_stride());
    let mut total = vec![0.0; rows * shape.n];
    for split in 0..splits {
        let part = gathered(on.f32("parts")?, width, split * each..split * each + rows, 0..shape.n);
        add_assign(&mut total, &part);
    }
    store(on, shape, output, &total)
}

pub(super) fn gradient_sum(on: &mut Operands, sums: &GradientSums) -> Result<()> {
    let adds = on.adds(sums.mode)?;
    for GradientParts { elements, count, places: [from, to] } in &sums.each[..sums.count] {
        let parts = &on.first("parts", from + count * elements)?[*from..];
        let mut total = vec![0.0; *elements];
        parts.chunks(*elements).for_each(|part| add_assign(&mut total, part));
        on.write_by("gradient", *to, &total, adds)?;
    }
    Ok(())
}

/// A matrix that rows are multiplied by, packed or not.
fn matrix_of_rows(
    on: &Operands,
    weights: WeightFormat,
    (rows, k): (usize, usize),
) -> Result<Vec<f32>> {
    if weights.packs(k) {
        return Ok(cast(&unpack_weights_forward(weights, on.u32("packed")?, rows * k)));
    }
    Ok(on.first("b", rows * k)?.to_vec())
}

pub(super) fn matvec(on: &mut Operands, shape: &MatvecShape) -> Result<()> {
    let MatvecShape { n, k, first, input, output, weights } = *shape;
    let rows = n * output.products();
    let matrix = matrix_of_rows(on, weights, (rows, k))?;
    let a = match input {
        MatvecInput::Plain => on.first("a", k)?.to_vec(),
        MatvecInput::Norm { epsilon } => {
            rms_norm_forward(on.first("a", k)?, on.first("norm_weight", k)?, epsilon.0)
        }
        MatvecInput::Ranges(heads, splits, newest) => merged(on, &heads, splits.count, newest)?,
    };
    let y = matvec_forward(&a, &matrix, None);
    match output {
        MatvecOutput::Plain | MatvecOutput::Bias => on.write("c", first, &y),
        MatvecOutput::Added => on.write_by("c", first, &y, true),
        MatvecOutput::Residual | MatvecOutput::BiasedResidual => {
            let mut sum = on.f32("residual")?[first..first + n].to_vec();
            if output == MatvecOutput::BiasedResidual {
                add_assign(&mut sum, &on.f32("bias")?[first..first + n]);
            }
            add_assign(&mut sum, &y);
            on.write("c", first, &sum)
        }
        MatvecOutput::Gated(activation) => {
            on.write("c", first, &gated_activation_forward(activation, &y, n))
        }
        MatvecOutput::Heads(heads) => {
            let position = on.step()?.position as usize;
            to_heads(on, &heads, y, ["c", "angles"], (position, [0, 0]))
        }
        MatvecOutput::BiasedHeads(heads) => {
            let mut row = y;
            bias_forward(&mut row, on.first("bias", heads.stride())?);
            let position = on.step()?.position as usize;
            to_heads(on, &heads, row, ["c", "angles"], (position, [0, 0]))
        }
    }
}

/// The newest row's heads, and its queries over the keys before it.
pub(super) fn newest(on: &mut Operands, shape: &NewestShape, splits: usize) -> Result<()> {
    let NewestShape { heads, k, epsilon, biased, weights } = *shape;
    let rows = heads.stride();
    let matrix = matrix_of_rows(on, weights, (rows, k))?;
    let a = rms_norm_forward(on.first("a", k)?, on.first("norm_weight", k)?, epsilon.0);
    let mut row = matvec_forward(&a, &matrix, None);
    if biased {
        bias_forward(&mut row, on.first("bias", rows)?);
    }
    let position = on.step()?.position as usize;
    to_heads(on, &heads, row, ["query", "angles"], (position, [0, 0]))?;
    decode_before(on, &heads, splits)
}

pub(super) fn matvec_rows(on: &mut Operands, shape: &MatvecRowsShape) -> Result<()> {
    let MatvecRowsShape { n, k, stride, input, output, weights, .. } = *shape;
    let products = n * output.products();
    let matrix = matrix_of_rows(on, weights, (products, k))?;
    let heads = match output {
        MatvecOutput::Heads(heads) | MatvecOutput::BiasedHeads(heads) => Some(heads),
        _ => None,
    };
    let (rows, column) = match heads {
        Some(_) => (on.tokens()?, 0),
        None => (on.range()?.rows as usize, on.range()?.col0 as usize),
    };
    for row in 0..rows {
        let at = row * stride + column;
        let mut a = on.f32("a")?[row * k..][..k].to_vec();
        if let MatvecInput::Norm { epsilon } = input {
            a = rms_norm_forward(&a, on.first("norm_weight", k)?, epsilon.0);
        }
        let mut y = matvec_forward(&a, &matrix, None);
        if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
            add_assign(&mut y, &on.f32("residual")?[at..at + n]);
        }
        if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
            add_assign(&mut y, &on.f32("bias")?[column..column + n]);
        }
        if let MatvecOutput::Gated(activation) = output {
            y = gated_activation_forward(activation, &y, n);
        }
        if let MatvecOutput::BiasedHeads(shape) = output {
            bias_forward(&mut y, on.first("bias", shape.stride())?);
        }
        match heads {
            None => on.write("c", at, &y)?,
            Some(shape) => {
                let position = (row as u32).wrapping_sub(on.u32("documents")?[row]) as usize;
                let apart = on.step()?.reserved[0] as usize;
                to_heads(on, &shape, y, ["c", "table"], (position, [at, row * apart]))?;
            }
        }
    }
    Ok(())
}

/// The fused row of a token at `position` of its text: query heads to `c` from `query` on, keys and values into the part
/// of the cache that begins at row `first`. The operand `turned_by` has the angles of all positions, or those of this one
/// alone.
fn to_heads(
    on: &mut Operands,
    shape: &AttentionShape,
    mut fused: Vec<f32>,
    [query_to, turned_by]: [&str; 2],
    (position, [query, first]): (usize, [usize; 2]),
) -> Result<()> {
    let heads = shape.heads + shape.kv_heads;
    let head_dim = shape.head_dim;
    let turned = RopeShape { heads, head_dim, dims: head_dim, stride: shape.stride() };
    let row = if turned_by == "angles" { 0 } else { position };
    rotated(&mut fused, turned, on.f32(turned_by)?, |_| row, true);
    let (queries, key_value) = fused.split_at(shape.width());
    on.write(query_to, query, queries)?;
    let at = (first + cache_row(shape, position)) * shape.cache_stride();
    on.write("cache", at, key_value)
}

pub(super) fn pack(on: &mut Operands, format: WeightFormat, elements: usize) -> Result<()> {
    let words = pack_weights_forward(format, on.first("matrix", elements)?);
    on.u32_mut("packed")?[..words.len()].copy_from_slice(&words);
    Ok(())
}

pub(super) fn unpack(on: &mut Operands, format: WeightFormat, elements: usize) -> Result<()> {
    let matrix: Vec<f32> = cast(&unpack_weights_forward(format, on.u32("packed")?, elements));
    on.write("matrix", 0, &matrix)
}
