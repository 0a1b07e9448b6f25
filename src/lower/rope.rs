//! Rotary position embedding of queries and keys.

use super::Lowering;
use crate::arch::Attention;
use crate::error::Result;
use crate::graph::Node;
use crate::kernels as k;
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
        Slice::new(buffer, 0, self.inputs.positions as u64 * attention.head_dim as u64 * 4)
    }

    /// Rotates rows of queries, keys and values in place.
    pub(super) fn rotate(
        &mut self,
        label: String,
        attention: Attention,
        rows: Slice,
        forward: bool,
    ) -> Result<()> {
        let (heads, head_dim) = (attention.heads + attention.kv_heads, attention.head_dim);
        let kernel = k::rope(self.builder.caps, heads, head_dim, attention.stride(), forward)?;
        let flops = 3.0 * (self.builder.tokens * heads * head_dim) as f64;
        let table = self.angles(attention);
        let slices = vec![rows, table, self.inputs.documents, self.builder.step()];
        self.builder.dispatch(label, kernel, slices, flops)
    }
}
