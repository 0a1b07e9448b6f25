//! Sampling on the GPU.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::{check_storage, row_workgroup, workgroup_size};
use super::loss::vocabulary_of;
use crate::caps::Capabilities;
use crate::error::Result;

const ONE_WORKGROUP: Grid = Grid::Fixed { x: 1, y: 1 };

/// Draws a token; with `biased` from logits with a number added to each. Grid: one workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    pub vocabulary: usize,
    pub biased: bool,
}

impl Spec for Sample {
    fn name(&self) -> &'static str {
        "sample_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { vocabulary, biased } = *self;
        let mut bindings = vec![
            read("logits"),
            read_write("seen"),
            read_write("token"),
            read_write("drawn"),
            read_write("step"),
            uniform("options"),
        ];
        bindings.extend(biased.then_some(read("bias")));
        let composer = drawing(caps, *self, vocabulary)?;
        let composer = composer.when("BIASED", biased).when("BATCHED", false);
        let form = if biased { ", biased" } else { "" };
        draw(caps, composer, &bindings, (ONE_WORKGROUP, form))
    }
}

/// Draws a token for each of several rows. Grid: a workgroup each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleSeveral {
    pub vocabulary: usize,
    pub rows: usize,
}

impl Spec for SampleSeveral {
    fn name(&self) -> &'static str {
        "sample_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [
            read("logits"),
            read_write("seen"),
            read_write("token"),
            read_write("drawn"),
            read_write("documents"),
            read("choices"),
        ];
        let grid = Grid::Fixed { x: self.rows as u32, y: 1 };
        let composer = drawing(caps, *self, self.vocabulary)?;
        let composer = composer.when("BIASED", false).when("BATCHED", true);
        draw(caps, composer, &bindings, (grid, ", several rows"))
    }
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

fn drawing(caps: &Capabilities, spec: impl Spec, vocabulary: usize) -> Result<Composer> {
    let size = draw_workgroup(caps, vocabulary, spec.name())?;
    // The reduction's scratch, the scan's, the running sums and the winner.
    check_storage(caps, [4 * size, 4 * size, 4 * size, 4], spec.name())?;
    Ok(vocabulary_of(caps, Composer::new(spec, size), vocabulary))
}

fn draw(
    caps: &Capabilities,
    composer: Composer,
    bindings: &[Binding],
    (grid, form): (Grid, &str),
) -> Result<Kernel> {
    let mut kernel = composer.reduced(caps, "13_sample", bindings, grid)?;
    kernel.variant += form;
    Ok(kernel)
}

/// The `count` likeliest tokens with their log-probabilities. The vocabulary has at least `count` tokens. Grid: one
/// workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopLogits {
    pub vocabulary: usize,
    pub count: usize,
}

impl Spec for TopLogits {
    fn name(&self) -> &'static str {
        "top_logits_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        top_logits(caps, *self, (self.vocabulary, self.count), None)
    }
}

/// The `count` likeliest tokens of each row of a chunk, with their logits. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopRows {
    pub vocabulary: usize,
    pub count: usize,
}

impl Spec for TopRows {
    fn name(&self) -> &'static str {
        "top_logits_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let by_rows = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
        top_logits(caps, *self, (self.vocabulary, self.count), Some(by_rows))
    }
}

fn top_logits(
    caps: &Capabilities,
    spec: impl Spec,
    (vocabulary, count): (usize, usize),
    by_rows: Option<Grid>,
) -> Result<Kernel> {
    let last = if by_rows.is_some() { "range" } else { "options" };
    let bindings = [read("logits"), read_write("top"), uniform("step"), uniform(last)];
    let composer = Composer::new(spec, row_workgroup(caps, vocabulary, spec.name())?);
    let composer = vocabulary_of(caps, composer, vocabulary).size("COUNT", count);
    let composer = composer.when("ROWS", by_rows.is_some());
    composer.reduced(caps, "13_top_logits", &bindings, by_rows.unwrap_or(ONE_WORKGROUP))
}
