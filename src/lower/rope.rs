//! Rotary position embedding of queries and keys.

use super::Lowering;
use crate::arch::{Architecture, Attention, Rope};
use crate::error::Result;
use crate::graph::Node;
use crate::kernels::{self as k, RopeShape};
use crate::plan::{Buffer, Slice};

impl Lowering<'_> {
    pub(super) fn rope(&mut self, node: &Node, attention: Attention, forward: bool) -> Result<()> {
        let rows = self.read(node, 0);
        self.rotate(node.site.to_string(), attention, rows, forward)
    }

    /// The table of the angles by which a layer turns.
    pub(super) fn angles(&self, attention: Attention) -> Slice {
        let of_window = self.params.architecture.turns_by_window(attention);
        let buffer = if of_window { Buffer::WindowRopeTable } else { Buffer::RopeTable };
        let dims = self.turning(attention).head_dim;
        Slice::new(buffer, 0, self.inputs.positions as u64 * dims as u64 * 4)
    }

    /// What a layer turns by.
    pub(super) fn turning(&self, attention: Attention) -> Rope {
        let Architecture { rope, window_rope, .. } = &self.params.architecture;
        let of_window = window_rope.filter(|_| attention.window.is_some());
        of_window.or(*rope).expect("what is rotated has angles")
    }

    /// Rotates rows of queries, keys and values in place.
    pub(super) fn rotate(
        &mut self,
        label: String,
        attention: Attention,
        rows: Slice,
        forward: bool,
    ) -> Result<()> {
        let shape = RopeShape {
            heads: attention.heads + attention.kv_heads,
            head_dim: attention.head_dim,
            dims: self.turning(attention).head_dim,
            stride: attention.stride(),
        };
        let kernel = k::rope(self.builder.caps, shape, forward)?;
        let flops = 3.0 * (self.builder.tokens * shape.heads * shape.dims) as f64;
        let table = self.angles(attention);
        let slices = vec![rows, table, self.inputs.documents, self.builder.step()];
        self.builder.dispatch(label, kernel, slices, flops)
    }
}
