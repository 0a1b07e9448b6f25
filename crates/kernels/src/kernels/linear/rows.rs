//! The product of a few rows with a matrix: the linear layer of several decoded tokens, with the norm before it and
//! the activation or rotation after it.

use super::{Matvec, MatvecRows};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec};
use crate::kernels::limits::{check_storage, workgroup_size};

/// Most rows for which a number of the matrix is read once. The sums, this many for each of the matrix's rows, stay in
/// registers.
const MOST_COLUMNS: usize = 16;
/// Invocations that share rows of a matrix.
const LANES: usize = 64;
/// Invocations where each would else load more than four vectors of a row, one after the other.
const LANES_OF_LONG_ROWS: usize = 128;
/// Most invocations whose sums meet by shuffles, and fewest that share rows.
const BLOCK: usize = 32;
/// Rows of a matrix from which units of four rows are enough for a large GPU, two for each of 132 processors: each
/// vector of A is then loaded half as often.
const MANY: usize = 1024;
/// Rows from which units of one block are enough. On an H100 a pass of 16 texts takes 604 to 680 µs with these, and
/// with 64 lanes for every matrix 682.
const PLENTY: usize = 4096;
/// Most vectors of four elements of a matrix that an invocation loads together. Its sums leave no registers for more.
const IN_FLIGHT: usize = 12;

/// How the work of a product is shared.
struct WorkSplit {
    /// Invocations of a workgroup.
    size: usize,
    /// Invocations that share rows of the matrix.
    lanes: usize,
    /// Rows of the matrix that they share.
    products: usize,
    /// Most vectors of each that an invocation loads at a time.
    in_flight: usize,
}

/// For matrices whose vectors are units of many elements, so that a row has few. On an H100 a pass of 16 texts in int4
/// takes 590 µs with these, and 680 with the lanes of f32.
const PACKED: WorkSplit = WorkSplit { size: 128, lanes: 128, products: 4, in_flight: 1 };

/// Whether sums meet by shuffles.
fn shuffles(caps: &Capabilities) -> bool {
    caps.reduces_by_subgroup() && !caps.software
}

/// A form for this shape, whatever the number of rows: a row's bits depend on it.
fn pick(caps: &Capabilities, of: &Matvec, vectors: usize) -> WorkSplit {
    let each = of.output.products();
    if caps.software {
        return WorkSplit { size: 8, lanes: 1, products: each, in_flight: 1 };
    }
    let many = |measured| of.n * each >= caps.class().workgroups(measured);
    if !shuffles(caps) {
        return WorkSplit { size: LANES, lanes: LANES, products: 2, in_flight: 2 };
    }
    if of.packed() {
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
    WorkSplit { size: lanes.max(LANES), lanes, products, in_flight: IN_FLIGHT / products }
}

/// Bindings: a, b, c, and as [`MatvecInput`](super::MatvecInput) and [`MatvecOutput`](super::MatvecOutput) say.
impl Spec for MatvecRows {
    fn name(&self) -> &'static str {
        "matvec_rows_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { n, k, rows, stride, input, output, weights } = *self;
        let of = Matvec { n, k, first: 0, input, output, weights };
        let vectors = k.div_ceil(of.unit());
        let form = pick(caps, &of, vectors);
        let size = workgroup_size(caps, form.size as u32, 1, self.name())?;
        // Where all invocations of a workgroup share rows, a smaller workgroup has fewer lanes.
        let lanes = form.lanes.min(size as usize);
        let columns = rows.next_power_of_two().min(MOST_COLUMNS);
        let sum_rows = form.products + usize::from(input.is_normed());
        let iterations = vectors.div_ceil(lanes);
        let unrolled =
            (1..=form.in_flight.min(iterations)).rev().find(|by| iterations.is_multiple_of(*by));
        let (each, units) = (output.products(), size as usize / lanes);
        let composer = Composer::new(*self, size)
            .size("LANES", lanes)
            .size("EACH", each)
            .size("VECTORS", vectors)
            .size("TURNS", iterations)
            .flag("RAGGED", !vectors.is_multiple_of(lanes))
            .unrolled("UNROLLED", unrolled.unwrap_or(1))
            .unrolled("COLUMNS", columns)
            .unrolled("PRODUCTS", form.products)
            .unrolled("SUM_ROWS", sum_rows)
            .unrolled("SUMS", columns * sum_rows);
        let (composer, meeting) = meeting(caps, composer, [columns, columns * sum_rows], lanes)?;
        let normed = if input.is_normed() { ", norm fused" } else { "" };
        let (products, width) = (form.products, of.width());
        of.text(composer, stride, of.packed()).module("03_matvec_rows").finish(
            caps,
            &of.operands(true)?,
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

/// Sums that a lane keeps of each row's, by the exchange: `lib/matvec_rows/meet.wgsl`.
const KEPT: [&str; 5] = ["KEPT_0", "KEPT_1", "KEPT_2", "KEPT_3", "KEPT_4"];

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
    let exchanges = block.ilog2() as usize;
    let kept = |exchange: usize| (columns >> exchange).max(1);
    let composer = composer
        .size("BLOCK", block)
        .unrolled("EXCHANGES", exchanges)
        .unrolled("KEPT", kept(exchanges))
        .size("SHARE", (block / columns).max(1))
        .with_subgroups();
    let names = KEPT.into_iter().take(exchanges).enumerate();
    let composer = names.fold(composer, |all, (done, name)| all.unrolled(name, kept(done + 1)));
    Ok((composer, ", subgroup"))
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::kernels::{MatvecInput, MatvecOutput, WeightFormat};
    use crate::testing::gpu_adapters;

    /// Numbers of a line: `low_1[2u * 3u]` has 1, 2 and 3.
    fn numbers(line: &str) -> Vec<usize> {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    }

    fn constant(text: &str, name: &str) -> usize {
        let declaration = format!("const {name}: u32 = ");
        numbers(text.split_once(&declaration).unwrap().1)[0]
    }

    /// Runs the text of `halve` for all lanes of a block. A part that is not written is none.
    fn run(text: &str, mut sums: Vec<Vec<u64>>) -> Vec<Option<u64>> {
        let columns = constant(text, "COLUMNS");
        let (share, kept) = (constant(text, "SHARE"), constant(text, "KEPT"));
        let mut parts = vec![None; sums[0].len()];
        let (_, halve) = text.split_once("fn halve").unwrap();
        let (halve, _) = halve.split_once("fn meet").unwrap();
        let (mut distance, mut apart) = (0, 0);
        for line in halve.split([';', '{', '}']).map(str::trim) {
            let of = numbers(line);
            if line.starts_with("const distance_") {
                distance = sums.len() >> (of[1] + 1);
            } else if line.starts_with("const apart_") {
                apart = columns >> (of[1] + 1);
            } else if line.starts_with("(*sums)") {
                let (low, before) = (of[0] * columns + of[1], sums.clone());
                for lane in 0..sums.len() {
                    let own = if lane & distance == 0 { low } else { low + apart };
                    sums[lane][low] = before[lane][own] + before[lane ^ distance][own];
                }
            } else if line.starts_with("parts[") {
                for lane in (0..sums.len()).filter(|lane| lane % share == 0) {
                    let from = of[0] * columns + of[1];
                    let part = &mut parts[from + lane / share * kept];
                    assert!(part.replace(sums[lane][from]).is_none(), "{line}");
                }
            }
        }
        parts
    }

    #[test]
    fn lanes_add_up_all_sums_once() {
        for width in [4, 8, 32] {
            let caps = gpu_adapters::table(crate::caps::Target::Browser);
            let mut caps = caps.into_iter().find(shuffles).unwrap();
            caps.subgroup_size = [width, width];
            for (rows, n) in [(16, 40), (2, 6), (1, 3)] {
                let (k, stride, output) = (256, n, MatvecOutput::Plain);
                let (input, weights) = (MatvecInput::Plain, WeightFormat::F32);
                let shape = MatvecRows { n, k, rows, stride, input, output, weights };
                let text = shape.kernel(&caps).unwrap().wgsl.text();
                let (block, count) = (constant(&text, "BLOCK"), constant(&text, "SUMS"));
                // Each lane's number stands in bits of its own.
                let of = |lane: usize, s: usize| 1_u64 << lane | (s as u64) << 48;
                let sums = (0..block).map(|lane| (0..count).map(|s| of(lane, s)).collect());
                let total = |s: usize| (0..block).map(|lane| of(lane, s)).sum::<u64>();
                let expected: Vec<_> = (0..count).map(|s| Some(total(s))).collect();
                assert_eq!(run(&text, sums.collect()), expected, "{block} lanes\n{text}");
            }
        }
    }
}
