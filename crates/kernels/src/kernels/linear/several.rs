//! The product of a few rows with a matrix: the linear layer of several decoded tokens, with the norm before it and
//! the activation or rotation after it.

use super::parts::{heads, norm_operand};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{UNIT, activation_module, packed_matrix};
use crate::kernels::shape::{MatvecInput, MatvecOutput, MatvecRowsShape};
use std::fmt::Write;

/// Most rows for which a number of the matrix is read once: as many sums as this times the matrix's rows stay
/// in registers.
const MOST_COLUMNS: usize = 16;
/// Invocations that share rows of a matrix.
const LANES: usize = 64;
/// The same of rows that each would else load more than four vectors of, one after the other.
const LANES_OF_LONG_ROWS: usize = 128;
/// Most invocations whose sums meet by shuffles, and fewest that share rows.
const BLOCK: usize = 32;
/// Rows of a matrix from which units of four rows are enough for a large GPU, two for each of 132 processors: each
/// vector of A is then loaded half as often.
const MANY: usize = 1024;
/// Rows from which units of one block are enough. On an H100 a pass of 16 texts takes 604 to 680 µs with these, and
/// with 64 lanes for every matrix 682.
const PLENTY: usize = 4096;
/// Most vectors of four elements of a matrix that an invocation has on their way together: as many as its sums leave
/// registers for.
const IN_FLIGHT: usize = 12;

/// How the work of a product is shared.
struct Form {
    /// Invocations of a workgroup.
    size: usize,
    /// Those that share rows of the matrix.
    lanes: usize,
    /// Rows of the matrix that they share.
    products: usize,
    /// Most vectors of each that an invocation has on their way together.
    turns: usize,
}

/// Of matrices whose vectors are units of many elements: few make a row. On an H100 a pass of 16 texts in int4 takes
/// 590 µs with these, and 680 with the lanes of f32.
const PACKED: Form = Form { size: 128, lanes: 128, products: 4, turns: 1 };

impl MatvecRowsShape {
    const fn packed(&self) -> bool {
        self.weights.packs(self.k)
    }

    /// Vectors of a row of the matrix: of four elements, or of a packed unit.
    const fn vectors(&self) -> usize {
        self.k.div_ceil(if self.packed() { UNIT } else { 4 })
    }

    const fn normed(&self) -> bool {
        matches!(self.input, MatvecInput::Norm { .. })
    }

    /// Sums of an invocation for so many rows of A.
    fn sums(&self, products: usize, columns: usize) -> usize {
        columns * (products + usize::from(self.normed()))
    }
}

/// Whether sums meet by shuffles.
fn shuffles(caps: &Capabilities) -> bool {
    caps.reduces_by_subgroup() && !caps.software
}

/// A form for this shape, whatever the number of rows: a row's bits depend on it.
fn pick(caps: &Capabilities, shape: &MatvecRowsShape) -> Form {
    let (each, vectors) = (shape.output.products(), shape.vectors());
    let rows = shape.n * each;
    if caps.software {
        return Form { size: 8, lanes: 1, products: each, turns: 1 };
    }
    let many = |measured| rows >= caps.class().workgroups(measured);
    if !shuffles(caps) {
        return Form { size: LANES, lanes: LANES, products: 2, turns: 2 };
    }
    if shape.packed() {
        return PACKED;
    }
    let products = if many(MANY) { 4 } else { 2 };
    let mut lanes = match vectors > 4 * LANES {
        _ if many(PLENTY) => BLOCK,
        true => LANES_OF_LONG_ROWS,
        false => LANES,
    };
    while lanes > BLOCK && !vectors.is_multiple_of(lanes) {
        lanes /= 2;
    }
    Form { size: lanes.max(LANES), lanes, products, turns: IN_FLIGHT / products }
}

/// Bindings: a, b, c, range, and the norm's weight, the residual, the bias, where there are any.
/// For [`MatvecOutput::Heads`] step instead of range, and behind the norm's weight table, cache, documents and the bias.
impl Spec for MatvecRowsShape {
    fn name(&self) -> &'static str {
        "matvec_rows_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let name = self.name();
        let MatvecRowsShape { n, rows, weights, output, .. } = *self;
        let form = pick(caps, self);
        let size = workgroup_size(caps, form.size as u32, 1, name)?;
        // Where lanes are the workgroup they are as few as that may have.
        let lanes = form.lanes.min(size as usize);
        let columns = rows.next_power_of_two().min(MOST_COLUMNS);
        let (sums, vectors) = (self.sums(form.products, columns), self.vectors());
        let turns = vectors.div_ceil(lanes);
        let unrolled = (1..=form.turns.min(turns)).rev().find(|by| turns.is_multiple_of(*by));
        let (each, units) = (output.products(), size as usize / lanes);
        let composer = Composer::new(*self, size)
            .size("N", n)
            .size("K", self.k)
            .size("STRIDE", self.stride)
            .size("LANES", lanes)
            .size("EACH", each)
            .size("VECTORS", vectors)
            .size("TURNS", turns)
            .flag("RAGGED", !vectors.is_multiple_of(lanes))
            .unrolled("UNROLLED", unrolled.unwrap_or(1))
            .unrolled("COLUMNS", columns)
            .unrolled("PRODUCTS", form.products)
            .unrolled("SUMS", sums);
        let composer = results(operands(composer, self), output, if self.normed() { 5 } else { 4 });
        let (composer, meeting) = meeting(caps, composer, [columns, sums], lanes)?;
        let width = match (self.packed(), self.k.is_multiple_of(4)) {
            (true, _) => weights.name(),
            (false, true) => "vec4",
            (false, false) => "scalar",
        };
        let normed = if self.normed() { ", norm fused" } else { "" };
        let products = form.products;
        composer.module("03_matvec_rows").finish(
            caps,
            &bindings(self),
            Grid::Flat {
                rows: columns,
                per_block: n.div_ceil(products / each * units),
                per_group: 1,
            },
            format!("{lanes} lanes for {products} rows by {columns}, {width}{normed}{meeting}"),
            "a few rows: each weight is read once for all of them",
        )
    }
}

/// How the lanes' sums meet, and what that is called.
fn meeting(
    caps: &Capabilities,
    composer: Composer,
    [columns, sums]: [usize; 2],
    lanes: usize,
) -> Result<(Composer, &'static str)> {
    let size = composer.workgroup_size();
    let check =
        |parts: usize| check_storage(caps, [(4 * parts * sums) as u32], "matvec_rows_forward");
    if caps.software {
        return Ok((composer.when("ALONE", true), ""));
    }
    if !shuffles(caps) {
        check(size + 1)?;
        return Ok((composer.when("ALONE", false), ""));
    }
    let block = lanes.min(BLOCK).min(caps.subgroup_size[0] as usize);
    check(size / block)?;
    let halving = halving(block, columns, sums);
    let composer = composer.size("BLOCK", block).written("halving", &halving);
    Ok((composer.with_subgroups(), ", subgroup"))
}

/// `halve` of `lib/matvec_rows/meet.wgsl`, over `block` lanes: of the sums of each row of the matrix, one for
/// each of so many columns, a power of two. Each exchange adds the same two lanes however many columns there are.
fn halving(block: usize, columns: usize, sums: usize) -> String {
    let mut text =
        String::from("fn halve(lane: u32, at: u32, sums: ptr<function, array<f32, SUMS>>) {\n");
    let mut left = columns;
    for distance in (0..block.ilog2()).rev().map(|bits| 1 << bits) {
        let _ = writeln!(text, "  let upper_{distance} = (lane & {distance}u) != 0u;");
        let half = left / 2;
        for from in (0..sums).step_by(columns) {
            for i in from..from + half {
                let (low, high) = (format!("(*sums)[{i}]"), format!("(*sums)[{}]", i + half));
                let _ = writeln!(
                    text,
                    "  {low} = select({low}, {high}, upper_{distance}) + \
                     subgroupShuffleXor(select({high}, {low}, upper_{distance}), {distance}u);"
                );
            }
            if half == 0 {
                let sum = format!("(*sums)[{from}]");
                let _ = writeln!(text, "  {sum} += subgroupShuffleXor({sum}, {distance}u);");
            }
        }
        left = half.max(1);
    }
    let share = (block / columns).max(1);
    for from in (0..sums).step_by(columns) {
        for i in from..from + left {
            let _ = writeln!(
                text,
                "  if lane % {share}u == 0u {{ parts[at + {i}u + lane / {share}u * {left}u] = (*sums)[{i}]; }}"
            );
        }
    }
    text + "}\n"
}

fn bindings(shape: &MatvecRowsShape) -> Vec<Binding> {
    let output = shape.output;
    let heads = matches!(output, MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_));
    let matrix = if shape.packed() { "packed" } else { "b" };
    let place = if heads { "step" } else { "range" };
    let mut bindings = vec![read("a"), read(matrix), read_write("c"), uniform(place)];
    if shape.normed() {
        bindings.push(read("norm_weight"));
    }
    if heads {
        bindings.extend([read("table"), read_write("cache"), read("documents")]);
    }
    if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
        bindings.push(read("residual"));
    }
    if matches!(
        output,
        MatvecOutput::Bias | MatvecOutput::BiasedResidual | MatvecOutput::BiasedHeads(_)
    ) {
        bindings.push(read("bias"));
    }
    bindings
}

/// How rows and matrix are read, and the norm between them.
fn operands(composer: Composer, shape: &MatvecRowsShape) -> Composer {
    let composer = norm_operand(composer, shape.input, shape.k.is_multiple_of(4))
        .when("PACKED", shape.packed());
    if !shape.packed() {
        return composer;
    }
    packed_matrix(composer, shape.weights, shape.output.products() * shape.n * shape.k)
}

/// Which rows of the matrix belong to a result, and what becomes of it, where what is added is bound behind `first`.
fn results(composer: Composer, output: MatvecOutput, first: usize) -> Composer {
    let residual = matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual);
    let heads_form = matches!(output, MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_));
    let composer = composer
        .when("HEADS_OF_ROW", heads_form)
        .when("GATED", matches!(output, MatvecOutput::Gated(_)));
    match output {
        MatvecOutput::Gated(activation) => activation_module(composer, activation),
        MatvecOutput::Heads(shape) => heads(composer, &shape, false),
        MatvecOutput::BiasedHeads(shape) => heads(composer, &shape, true),
        _ => composer
            .when("RESIDUAL", residual)
            .when("BIASED", matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual))
            .size("RESIDUAL_BINDING", first)
            .size("BIAS_BINDING", first + usize::from(residual)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(line: &str) -> Vec<usize> {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    }

    /// Runs the text of `halve` for all lanes; a part that is not written is none.
    fn run(text: &str, mut sums: Vec<Vec<u64>>) -> Vec<Option<u64>> {
        let mut parts = vec![None; sums[0].len()];
        for line in text.lines().map(str::trim) {
            let (of, before) = (numbers(line), sums.clone());
            for lane in 0..sums.len() {
                if line.starts_with("(*sums)") && line.contains("] = select") {
                    let (low, high, distance) = (of[0], of[2], of[3]);
                    let keeps = |lane: usize| if lane & distance == 0 { low } else { high };
                    let other = lane ^ distance;
                    sums[lane][low] = before[lane][keeps(lane)] + before[other][keeps(lane)];
                } else if line.contains("] += ") {
                    sums[lane][of[0]] += before[lane ^ of[2]][of[0]];
                } else if let Some(written) = line.strip_prefix("if lane % ") {
                    let of = numbers(written);
                    let (share, at) = (of[0], of[2] + lane / of[3] * of[4]);
                    if lane % share == 0 {
                        assert!(parts[at].replace(before[lane][of[5]]).is_none(), "{line}");
                    }
                }
            }
        }
        parts
    }

    #[test]
    fn halves_add_up_all_lanes_once() {
        for block in [1, 4, 8, 32] {
            for (columns, count) in [(16, 80), (16, 128), (2, 6), (1, 3)] {
                // Each lane's number stands in bits of its own.
                let of = |lane: usize, s: usize| 1_u64 << lane | (s as u64) << 48;
                let sums = (0..block).map(|lane| (0..count).map(|s| of(lane, s)).collect());
                let total = |s: usize| (0..block).map(|lane| of(lane, s)).sum::<u64>();
                let expected: Vec<_> = (0..count).map(|s| Some(total(s))).collect();
                let text = halving(block, columns, count);
                assert_eq!(run(&text, sums.collect()), expected, "{block} lanes\n{text}");
            }
        }
    }
}
