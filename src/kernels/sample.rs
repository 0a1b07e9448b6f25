//! Sampling on the GPU.

use super::compose::{Binding::*, Composer, Grid, Kernel, shader};
use super::norm::variant;
use super::{reduction, row_workgroup};
use crate::caps::Capabilities;
use crate::error::Result;

/// `sample_forward` over a vocabulary. Grid: one workgroup.
pub fn sample(caps: &Capabilities, vocabulary: usize) -> Result<Kernel> {
    let name = "sample_forward";
    let (subgroups, why) = reduction(caps);
    Composer::new(name, row_workgroup(caps, vocabulary, name)?)
        .size("VOCABULARY", vocabulary)
        .module(shader!("lib/step"))
        .module(shader!("lib/philox"))
        .reduction(subgroups)
        .module(shader!("13_sample"))
        .finish(
            caps,
            &[Read, ReadWrite, ReadWrite, ReadWrite, ReadWrite, Uniform],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}
