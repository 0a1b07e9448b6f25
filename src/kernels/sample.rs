//! Sampling on the GPU.

use super::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use super::limits::{reduction, row_workgroup, variant};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// `sample_forward` over a vocabulary. Grid: one workgroup.
pub fn sample(caps: &Capabilities, vocabulary: usize) -> Result<Kernel> {
    let spec = KernelSpec::Sample { vocabulary };
    let (subgroups, why) = reduction(caps);
    Composer::new(spec, row_workgroup(caps, vocabulary, spec.name())?)
        .size("VOCABULARY", vocabulary)
        .module(shader!("lib/step"))
        .module(shader!("lib/philox"))
        .reduction(subgroups)
        .module(shader!("13_sample"))
        .finish(
            caps,
            &[
                read("logits"),
                read_write("seen"),
                read_write("token"),
                read_write("drawn"),
                read_write("step"),
                uniform("options"),
            ],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}
