//! Results of products split along K, which the node that reads them next adds up.

use super::gradients::WaitingProducts;
use super::linear::{OVERWRITE, TokenRows};
use super::norm::WaitingSums;
use super::{Lowering, gate};
use crate::arch::{NormKind, WeightId};
use crate::error::Result;
use crate::graph::{Node, Op, ValueId};
use crate::kernels::{Element, LinearShape, Output, Parts, WeightFormat, WriteMode};
use crate::layout::rope_shape;
use crate::plan::{Range, Slice};

/// Most bytes of parts of gradients that wait for one dispatch.
const MOST_BYTES: u64 = 16 << 20;

/// A value that a product has left in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct InParts {
    pub slice: Slice,
    pub parts: Parts,
    /// The residual stream that the sum of the parts is added to.
    pub before: Option<Slice>,
}

/// What is to be added up by a later dispatch.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    values: Vec<(ValueId, InParts)>,
    pub norms: Option<WaitingSums>,
    pub products: Option<WaitingProducts>,
    /// Bytes up to which the parts of gradients of weights wait for those of others.
    pub most: u64,
}

impl Waiting {
    /// What is computed again is to save memory.
    pub fn new(recompute: bool) -> Self {
        Self { most: if recompute { 0 } else { MOST_BYTES }, ..Self::default() }
    }
}

impl<'a> Lowering<'a> {
    /// Whether the node that reads a product's result first can add up its parts, and write the sum where others read it.
    /// What has its place before it is written is for another plan, and that node may not be of this one.
    pub(super) fn sums_behind(&self, node: &Node, kind: Output) -> bool {
        let value = node.writes[0];
        let next = self.touching(value).nth(1).filter(|_| self.values[value].is_none());
        let Some(next) = next else { return false };
        match next.op {
            Op::Norm(norm) => {
                kind == Output::Residual && norm.kind != NormKind::Layer && next.reads.len() == 1
            }
            Op::Rope { attention } => {
                let shape = rope_shape(&self.params.architecture, attention);
                kind == OVERWRITE && !self.in_halves(next.writes[0]) && shape.turns_sums()
            }
            Op::Gate(gate) => kind == OVERWRITE && gate::sums(gate),
            _ => false,
        }
    }

    /// Whether the node that alone reads the gradient of a product's input can add up its parts.
    pub(super) fn sums_before(&self, node: &Node) -> bool {
        let Some(next) = self.only_reader(node) else { return false };
        match next.op {
            Op::NormBackward { norm, .. } => norm.kind != NormKind::Layer,
            Op::GateBackward(gate) => gate::sums(gate),
            Op::AttentionBackward { .. } => true,
            _ => false,
        }
    }

    /// A product of `input` with a weight that is split along K, without the second stage. False, and no dispatch, where K
    /// is whole, or the result is padded or no f32.
    pub(super) fn left_in_parts(
        &mut self,
        label: &str,
        (weight, shape, token_rows): (WeightId, LinearShape, TokenRows),
        (input, before): (Slice, Option<Slice>),
        value: ValueId,
    ) -> Result<bool> {
        let matrix = &self.params.matrices[weight];
        let (format, rows) = (matrix.format, matrix.parts[0].rows);
        // One that is packed is unpacked before the product, once.
        let plain = format == WeightFormat::F32 && self.packed(weight, 0).is_none();
        let whole = plain && matrix.parts.len() == 1;
        if !whole || shape.padded || token_rows.result != Element::F32 {
            return Ok(false);
        }
        let (matrix, shape) = self.operand(label, weight, 0, shape)?;
        let range = Range { cols: rows as u32, ..token_rows.rows };
        let split = self.builder.split(&shape, WriteMode::Overwrite)?;
        let Some((kernel, parts)) = split else { return Ok(false) };
        let elements = (parts.count * parts.apart) as u64;
        let slice = self.builder.tensor("parts of a product", elements)?;
        let (operands, step) = ([input, matrix, slice], self.builder.step());
        self.builder.product_in_parts(label, (&shape, kernel), operands, (step, range))?;
        self.waiting.values.push((value, InParts { slice, parts, before }));
        Ok(true)
    }

    /// The parts that are to be added up for a value, once.
    pub(super) fn parts_of(&mut self, value: ValueId) -> Option<InParts> {
        let at = self.waiting.values.iter().position(|(id, _)| *id == value)?;
        Some(self.waiting.values.swap_remove(at).1)
    }

    /// Where a value is that a node reads, and in which parts.
    pub(super) fn read_parts(&mut self, node: &Node, index: usize) -> (Slice, Parts) {
        match self.parts_of(node.reads[index]) {
            Some(InParts { slice, parts, .. }) => (slice, parts),
            None => (self.read(node, index), Parts::WHOLE),
        }
    }

    /// The node that alone reads what `node` alone writes.
    pub(super) fn only_reader(&self, node: &Node) -> Option<&'a Node> {
        let mut touching = self.touching(node.writes[0]);
        let (first, second, more) = (touching.next()?, touching.next()?, touching.next());
        (more.is_none() && std::ptr::eq(first, node)).then_some(second)
    }

    /// The nodes that write or read a value, in their order.
    fn touching(&self, value: ValueId) -> impl Iterator<Item = &'a Node> + use<'a> {
        let touches =
            move |node: &&Node| node.reads.contains(&value) || node.writes.contains(&value);
        let nodes: &'a [Node] = &self.graph.nodes;
        nodes.iter().filter(touches)
    }
}
