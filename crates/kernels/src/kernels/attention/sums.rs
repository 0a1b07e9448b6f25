//! What attention's backward pass adds up before and after its other kernels.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::quads;
use crate::kernels::rope::rotated_heads;
use crate::kernels::shape::{AttentionShape, PartialSums};

/// The row sums that the other backward kernels need. Bindings: output, d_output, delta, step. Where `d_output` is in
/// partial `sums`, which are in f32, the kernel writes their sum to a last binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDelta {
    pub shape: AttentionShape,
    pub output_f16: bool,
    pub d_output_f16: bool,
    pub sums: PartialSums,
}

impl Spec for AttentionDelta {
    fn name(&self) -> &'static str {
        "attention_delta_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, output_f16: output, d_output_f16: d_output, sums } = *self;
        debug_assert!(!d_output || sums == PartialSums::WHOLE, "{self:?}");
        let mut bindings =
            vec![read("output"), read("d_output"), read_write("delta"), uniform("step")];
        let place = |composer: Composer| {
            (composer.when("TENSORS", false).when("F16", output || d_output))
                .when("OUTPUT_F16", output)
                .when("D_OUTPUT_F16", d_output)
                .summed_parts(sums, 4)
        };
        if sums != PartialSums::WHOLE {
            bindings.push(read_write("whole"));
        }
        Ok(delta_kernel(caps, *self, shape, shape.heads, &bindings, place)?.of_parts(sums))
    }
}

/// Invocations per row and head of [`AttentionDelta`]: with heads of 64 each reads two vectors of four.
const DELTA_TEAM: u32 = 8;

/// `attention_delta_backward` for `owners` heads (of all batch items).
pub(super) fn delta_kernel(
    caps: &Capabilities,
    spec: impl Spec,
    shape: AttentionShape,
    owners: usize,
    bindings: &[Binding],
    place: impl Fn(Composer) -> Composer,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    check_storage(caps, [4 * size], spec.name())?;
    // Barriers cost a CPU more than neighbours that read side by side save it.
    let alone = caps.software || !size.is_multiple_of(DELTA_TEAM);
    let team = if alone { 1 } else { DELTA_TEAM as usize };
    let composer = Composer::new(spec, size)
        .size("HEADS", shape.heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("TEAM", team);
    place(composer).module("10_attention_delta").finish(
        caps,
        bindings,
        Grid::Flat { rows: 1, per_block: owners * team, per_group: size as usize },
        "flat",
        if alone {
            "one invocation per row and head"
        } else {
            "neighbours read a head side by side"
        },
    )
}

/// Adds up the parts of [`KeyValueOwner::Head`](crate::kernels::KeyValueOwner::Head). Bindings: parts, d_qkv, step. Where
/// `rotated` says so it rotates queries and keys back too, in f32: only of a shape that
/// [rotates sums](crate::kernels::RopeShape::rotates_sums). Bindings: parts, table, documents, rows, step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGroupSum {
    pub shape: AttentionShape,
    pub d_qkv_f16: bool,
    pub rotated: bool,
}

impl Spec for AttentionGroupSum {
    fn name(&self) -> &'static str {
        "attention_group_sum"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, d_qkv_f16, rotated } = *self;
        let composer = Composer::flat(caps, *self)?
            .size("HEADS", shape.heads)
            .size("MEMBERS", shape.members())
            .when("ROTATED", rotated);
        if rotated {
            let mut kernel = rotated_heads(
                composer,
                caps,
                "10_attention_group_sum",
                shape.rotation(),
                [&[read("parts")], &[]],
            )?;
            kernel.variant += ", rotated back";
            return Ok(kernel);
        }
        let per_group = composer.workgroup_size();
        quads(composer, Element::halved(d_qkv_f16))
            .size("VECTORS", shape.head_dim / 4)
            .size("KV_VECTORS", shape.cache_stride() / 4)
            .size("STRIDE", shape.stride())
            .size("KEY_OFFSET", shape.key_offset())
            .module("10_attention_group_sum")
            .finish(
                caps,
                &[read("parts"), read_write("d_qkv"), uniform("step")],
                Grid::Flat { rows: 1, per_block: shape.cache_stride() / 4, per_group },
                "flat",
                "one invocation per vector of four",
            )
    }
}
