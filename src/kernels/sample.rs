//! Sampling on the GPU.

use super::compose::{Binding, Composer, Grid, Kernel, read, read_write, uniform};
use super::limits::{check_storage, reduction, row_workgroup, variant, workgroup_size};
use super::loss::vocabulary_of;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

const ONE_WORKGROUP: Grid = Grid::Fixed { x: 1, y: 1 };

/// `sample_forward` over a vocabulary, with a bias for each token or without. Grid: one workgroup.
pub fn sample(caps: &Capabilities, vocabulary: usize, biased: bool) -> Result<Kernel> {
    let mut bindings = vec![
        read("logits"),
        read_write("seen"),
        read_write("token"),
        read_write("drawn"),
        read_write("step"),
        uniform("options"),
    ];
    bindings.extend(biased.then_some(read("bias")));
    let form = if biased { ", biased" } else { "" };
    let spec = KernelSpec::Sample { vocabulary, biased };
    draw(caps, (spec, vocabulary), &bindings, (ONE_WORKGROUP, form))
}

/// `sample_forward` for each of `rows` texts. Grid: a workgroup each.
pub fn sample_several(caps: &Capabilities, vocabulary: usize, rows: usize) -> Result<Kernel> {
    let bindings = [
        read("logits"),
        read_write("seen"),
        read_write("token"),
        read_write("drawn"),
        read_write("documents"),
        read("choices"),
    ];
    let spec = KernelSpec::SampleSeveral { vocabulary, rows };
    let grid = Grid::Fixed { x: rows as u32, y: 1 };
    draw(caps, (spec, vocabulary), &bindings, (grid, ", several rows"))
}

/// Logits of an invocation of a draw.
const LOGITS: usize = 32;

/// Invocations of a draw: of a large vocabulary more than a row's reduction has, each with 32 logits, where they meet by
/// subgroups. Elsewhere each doubling is two more barriers.
fn draw_workgroup(caps: &Capabilities, vocabulary: usize, what: &str) -> Result<u32> {
    let usual = row_workgroup(caps, vocabulary, what)?;
    if caps.software || !caps.reduces_by_subgroup() {
        return Ok(usual);
    }
    let wanted = (vocabulary / LOGITS).next_power_of_two().min(1024) as u32;
    workgroup_size(caps, wanted.max(usual), 1, what)
}

fn draw(
    caps: &Capabilities,
    (spec, vocabulary): (KernelSpec, usize),
    bindings: &[Binding],
    (grid, form): (Grid, &str),
) -> Result<Kernel> {
    let (subgroups, why) = reduction(caps);
    let size = draw_workgroup(caps, vocabulary, spec.name())?;
    // The reduction's scratch, the scan's, the running sums and the winner.
    check_storage(caps, [4 * size, 4 * size, 4 * size, 4], spec.name())?;
    let composer = vocabulary_of(caps, Composer::new(spec, size), vocabulary);
    let biased = matches!(spec, KernelSpec::Sample { biased: true, .. });
    composer
        .when("BIASED", biased)
        .when("BATCHED", matches!(spec, KernelSpec::SampleSeveral { .. }))
        .reduction(subgroups)
        .module("13_sample")
        .finish(caps, bindings, grid, variant(subgroups) + form, why)
}

/// `top_logits_forward`: the `count` likeliest tokens of a vocabulary, which has as many at least. Grid:
/// one workgroup.
pub fn top_logits(caps: &Capabilities, vocabulary: usize, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::TopLogits { vocabulary, count };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, vocabulary, spec.name())?;
    vocabulary_of(caps, Composer::new(spec, size), vocabulary)
        .size("COUNT", count)
        .reduction(subgroups)
        .module("13_top_logits")
        .finish(
            caps,
            &[read("logits"), read_write("top"), uniform("step"), uniform("options")],
            ONE_WORKGROUP,
            variant(subgroups),
            why,
        )
}
