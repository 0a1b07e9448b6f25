//! Sampling on the GPU.

use super::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use super::limits::{check_storage, reduction, row_workgroup, variant};
use super::loss::with_logits;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

const ONE_WORKGROUP: Grid = Grid::Fixed { x: 1, y: 1 };

/// `sample_forward` over a vocabulary, with a bias for each token or without. Grid: one workgroup.
pub fn sample(caps: &Capabilities, vocabulary: usize, biased: bool) -> Result<Kernel> {
    let spec = KernelSpec::Sample { vocabulary, biased };
    let (subgroups, why) = reduction(caps);
    let mut bindings = vec![
        read("logits"),
        read_write("seen"),
        read_write("token"),
        read_write("drawn"),
        read_write("step"),
        uniform("options"),
    ];
    let (score, form) = if biased {
        bindings.push(read("bias"));
        (shader!("lib/sample/score_biased"), ", biased")
    } else {
        (shader!("lib/sample/score"), "")
    };
    let size = row_workgroup(caps, vocabulary, spec.name())?;
    // The reduction's scratch, the running sums and the winner.
    check_storage(caps, 8 * size + 16, spec.name())?;
    with_logits(caps, Composer::new(spec, size), vocabulary)
        .module(shader!("lib/step"))
        .module(shader!("lib/philox"))
        .reduction(subgroups)
        .module(shader!("lib/logit/online"))
        .module(shader!("lib/sample/tensors"))
        .module(score)
        .module(shader!("lib/sample/thresholds"))
        .module(shader!("lib/sample/log_sum_exp"))
        .module(shader!("13_sample"))
        .finish(caps, &bindings, ONE_WORKGROUP, variant(subgroups) + form, why)
}

/// `top_logits_forward`: the `count` likeliest tokens of a vocabulary, which has as many at least. Grid:
/// one workgroup.
pub fn top_logits(caps: &Capabilities, vocabulary: usize, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::TopLogits { vocabulary, count };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, vocabulary, spec.name())?;
    with_logits(caps, Composer::new(spec, size), vocabulary)
        .size("COUNT", count)
        .module(shader!("lib/step"))
        .reduction(subgroups)
        .module(shader!("lib/logit/online"))
        .module(shader!("lib/sample/log_sum_exp"))
        .module(shader!("13_top_logits"))
        .finish(
            caps,
            &[read("logits"), read_write("top"), uniform("step"), uniform("options")],
            ONE_WORKGROUP,
            variant(subgroups),
            why,
        )
}
