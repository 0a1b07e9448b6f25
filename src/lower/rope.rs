//! Rotary position embedding of queries and keys.

use super::Lowering;
use crate::arch::Attention;
use crate::error::Result;
use crate::graph::Node;
use crate::kernels as k;
use crate::plan::Slice;

impl Lowering<'_> {
    pub(super) fn rope(&mut self, node: &Node, attention: Attention, forward: bool) -> Result<()> {
        let rows = self.read(node, 0);
        self.rotate(node.site.to_string(), attention, rows, forward)
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
        let slices = vec![rows, self.inputs.table, self.inputs.documents, self.builder.step()];
        self.builder.dispatch(label, kernel, slices, flops)
    }
}
