//! Rotary position embedding of queries and keys.

use super::Lowering;
use crate::arch::{Attention, RopeId};
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::kernels::{self as k, Kernel, RopeShape, Spec};
use crate::layout::{Fusion, SplitK, rope_shape};
use crate::plan::{Buffer, Launch, Slice};

impl Lowering<'_> {
    pub(super) fn rope(
        &mut self,
        node: &Node,
        attention: Attention,
        forward: bool,
        fusion: &Fusion,
    ) -> Result<()> {
        let rows = self.read(node, 0)?;
        if self.layouts.is_f16(node.writes[0]) {
            return self.rotate_to_f16(node, attention, rows, forward);
        }
        let Some(SplitK { slice, parts, .. }) = self.summed(fusion) else {
            return self.rotate(node.site.to_string(), attention, rows, forward);
        };
        let shape = rope_shape(&self.params.architecture, attention);
        let kernel =
            k::RopeRows { parts, ..k::RopeRows::new(shape, true) }.kernel(self.builder.caps)?;
        let sums = (parts.count * self.builder.tokens * shape.stride) as f64;
        let launch = self.rotation(node.site.to_string(), kernel, attention)?;
        let launch = launch.bind("parts", slice).bind("rows", rows);
        self.builder.dispatch(launch.flops(sums + self.rotation_flops(shape)))
    }

    fn rotate_to_f16(
        &mut self,
        node: &Node,
        attention: Attention,
        rows: Slice,
        forward: bool,
    ) -> Result<()> {
        let to = self.written(node, 0)?;
        let shape = rope_shape(&self.params.architecture, attention);
        let kernel = k::RopeRows { half: true, ..k::RopeRows::new(shape, forward) }
            .kernel(self.builder.caps)?;
        let launch = self.rotation(node.site.to_string(), kernel, attention)?;
        let launch = launch.bind("qkv", rows).bind("rotated", to);
        self.builder.dispatch(launch.flops(self.rotation_flops(shape)))
    }

    pub(super) fn rotation_flops(&self, shape: RopeShape) -> f64 {
        3.0 * (self.builder.tokens * shape.heads * shape.dims) as f64
    }

    /// The table of the angles by which a layer turns.
    pub(super) fn angles(&self, attention: Attention) -> Result<Slice> {
        let rope = attention.rope.ok_or_else(|| Error::internal("a rotation has no angles"))?;
        Ok(self.rope_table(rope))
    }

    pub(super) fn rope_table(&self, rope: RopeId) -> Slice {
        let dims = self.params.architecture.ropes[rope].head_dim;
        let bytes = self.inputs.positions as u64 * dims as u64 * 4;
        Slice::new(Buffer::RopeTable(rope), 0, bytes)
    }

    /// Rotates rows of queries, keys and values in place.
    pub(super) fn rotate(
        &mut self,
        label: String,
        attention: Attention,
        rows: Slice,
        forward: bool,
    ) -> Result<()> {
        let shape = rope_shape(&self.params.architecture, attention);
        let kernel = k::RopeRows::new(shape, forward).kernel(self.builder.caps)?;
        let launch = self.rotation(label, kernel, attention)?.bind("qkv", rows);
        self.builder.dispatch(launch.flops(self.rotation_flops(shape)))
    }

    /// A rotation by a layer's angles.
    fn rotation(&self, label: String, kernel: Kernel, attention: Attention) -> Result<Launch> {
        let launch = Launch::new(label, kernel).bind("table", self.angles(attention)?);
        Ok(launch.bind("documents", self.inputs.documents))
    }
}
