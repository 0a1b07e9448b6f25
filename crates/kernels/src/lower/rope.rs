//! Rotary position embedding of queries and keys.

use super::norm::terms;
use super::{Lowering, PassRows};
use crate::arch::{Attention, RopeId};
use crate::error::{Error, Result};
use crate::graph::{Node, Op, Site};
use crate::kernels::{PartialSums, RopeAppend, RopeRows, RopeShape};
use crate::layout::{Fusion, SplitK, rope_shape};
use crate::plan::{Buffer, Launch, NamedSlice, Slice};

impl Lowering<'_> {
    pub(super) fn rope(
        &mut self,
        node: &Node,
        attention: Attention,
        forward: bool,
        fusion: &Fusion,
    ) -> Result<()> {
        let (rows, of) = (self.read(node, 0)?, self.rotation(attention, forward));
        if self.layouts.is_f16(node.writes[0]) {
            let operands = [("qkv", rows), ("rotated", self.written(node, 0)?)];
            return self.rotate(node.site, attention, RopeRows { half: true, ..of }, &operands);
        }
        if let Fusion::Appends { norms, .. } = *fusion {
            return self.rotate_and_append(node, attention, (norms, self.summed(fusion)));
        }
        match self.summed(fusion) {
            Some(SplitK { slice, sums, .. }) => {
                let operands = [("parts", slice), ("rows", rows)];
                self.rotate(node.site, attention, RopeRows { sums, ..of }, &operands)
            }
            None => self.rotate(node.site, attention, of, &[("qkv", rows)]),
        }
    }

    /// Rows in place, or the sums of their parts, with keys and values to the cache. `norms`: the node whose norms of
    /// heads come first.
    fn rotate_and_append(
        &mut self,
        node: &Node,
        attention: Attention,
        (norms, summed): (Option<usize>, Option<SplitK>),
    ) -> Result<()> {
        let PassRows::Chunk(cache) = self.rows else {
            return Err(Error::internal("only chunks of a prompt are appended as they turn"));
        };
        let shape = rope_shape(&self.params.architecture, attention);
        let sums = summed.map_or(PartialSums::WHOLE, |split| split.sums);
        let norms = norms.and_then(|index| match self.graph.nodes[index].op {
            Op::HeadNorms { norms, .. } => Some(norms),
            _ => None,
        });
        let cached = self.cached(attention).cache();
        let of = RopeAppend { shape, sums, cache: cached, norms: norms.map(terms) };
        let slice = self.cache(node.site, attention, cache)?;
        let rows = (self.builder.tokens * shape.stride) as f64;
        let launch = Launch::new(node.site, self.builder.kernel(of)?)
            .bind("table", self.angles(attention)?)
            .bind("documents", self.inputs.documents)
            .bind("rows", self.written(node, 0)?)
            .bind("cache", slice)
            .bind_some("weight", norms.map(|norms| self.whole(norms.weight)))
            .bind_some("parts", summed.map(|split| split.slice));
        let sums = if summed.is_some() { sums.count as f64 * rows } else { 0.0 };
        let normed = if norms.is_some() { 4.0 * rows } else { 0.0 };
        self.builder.dispatch(launch.flops(sums + normed + self.rotation_flops(shape)))
    }

    pub(super) fn rotation_flops(&self, shape: RopeShape) -> f64 {
        3.0 * (self.builder.tokens * shape.heads * shape.dims) as f64
    }

    /// The table of a layer's rotary angles.
    pub(super) fn angles(&self, attention: Attention) -> Result<Slice> {
        let rope = attention.rope.ok_or_else(|| Error::internal("a rotation has no angles"))?;
        Ok(self.rope_table(rope))
    }

    pub(super) fn rope_table(&self, rope: RopeId) -> Slice {
        let dims = self.params.architecture.ropes[rope].head_dim;
        let bytes = self.inputs.positions as u64 * dims as u64 * 4;
        Slice::new(Buffer::RopeTable(rope), 0, bytes)
    }

    /// A rotation in place, by a layer's angles.
    pub(super) fn rotation(&self, attention: Attention, forward: bool) -> RopeRows {
        RopeRows::new(rope_shape(&self.params.architecture, attention), forward)
    }

    /// Rotates rows of queries, keys and values.
    pub(super) fn rotate(
        &mut self,
        site: Site,
        attention: Attention,
        of: RopeRows,
        rows: &[NamedSlice],
    ) -> Result<()> {
        let sums = match of.sums.count {
            1 => 0,
            sums => sums * self.builder.tokens * of.shape.stride,
        };
        let launch = Launch::new(site, self.builder.kernel(of)?)
            .bind("table", self.angles(attention)?)
            .bind("documents", self.inputs.documents)
            .bind_all(rows.iter().copied());
        self.builder.dispatch(launch.flops(sums as f64 + self.rotation_flops(of.shape)))
    }
}
