//! How an adapter's matrices are read: those of a group at once, as far as they lie in one shard; and which of its
//! products are more terms of the base's.

use super::Request;
use super::shapes::TokenRows;
use crate::arch::{LowRank, LowRankGroup, WeightId};
use crate::graph::{Node, Op};
use crate::kernels::{
    Element, Form, LowRankModule, LowRankShape, LowRankSide, WriteMode, linear_adapts,
};
use crate::params::{Params, Part};
use crate::plan::{Buffer, Range, Slice};

/// Matrices of a group that one dispatch reads, or writes the gradients of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankPiece {
    pub shape: LowRankShape,
    /// What is bound: from the first of them to the end of the last.
    pub slice: Slice,
    /// One side alone; none: both.
    pub only: Option<LowRankSide>,
    /// Another piece has terms of the same sums as this one: its module's B was cut, and this is not its first part.
    pub continues: bool,
}

/// What the pieces of a group have in common.
struct Group<'a> {
    params: &'a Params,
    rank: usize,
    inputs: usize,
    outputs: usize,
    short: usize,
}

/// The pieces of a group, in a layout of weights or of gradients: one if all its matrices lie in one shard, else those of
/// A and then those of B, each part by itself.
pub fn low_rank_pieces(
    params: &Params,
    group: LowRankGroup,
    set: fn(usize) -> Buffer,
) -> Vec<LowRankPiece> {
    let architecture = &params.architecture;
    let modules = architecture.group(group);
    let of = Group {
        params,
        rank: params.matrices[group.a].rows,
        inputs: params.matrices[group.a].cols,
        outputs: params.matrices[modules[0].target].rows,
        short: architecture.short_columns(group),
    };
    if let Some(whole) = of.whole(group, modules, set) {
        return vec![whole];
    }
    let each = |side: LowRankSide| {
        let of = &of;
        let parts = move |(index, low): (usize, &LowRank)| of.parts(index, *low, side, set);
        modules.iter().enumerate().flat_map(parts).collect::<Vec<_>>()
    };
    [each(LowRankSide::A), each(LowRankSide::B)].concat()
}

/// Whether every row and column of a group is of fours, so that rows may lie in f16.
pub fn low_rank_fours(params: &Params, group: LowRankGroup) -> bool {
    low_rank_pieces(params, group, Buffer::Weights).iter().all(|piece| piece.shape.by_fours())
}

impl Group<'_> {
    fn shape(&self, rank: usize, of: &[LowRankModule]) -> LowRankShape {
        let mut modules = [LowRankModule::default(); LowRankGroup::MOST];
        modules[..of.len()].copy_from_slice(of);
        let Self { inputs, outputs, short, .. } = *self;
        LowRankShape { rank, inputs, outputs, short, count: of.len(), modules }
    }

    /// The only part of a matrix.
    fn part(&self, weight: WeightId) -> Option<&Part> {
        match &*self.params.matrices[weight].parts {
            [part] => Some(part),
            _ => None,
        }
    }

    fn whole(
        &self,
        group: LowRankGroup,
        modules: &[LowRank],
        set: fn(usize) -> Buffer,
    ) -> Option<LowRankPiece> {
        let first = self.part(group.a)?;
        let (mut found, mut end) = (vec![], first.offset);
        for (index, low) in modules.iter().enumerate() {
            let places = [low.a, low.b].map(|weight| {
                let part = self.part(weight).filter(|part| part.shard == first.shard)?;
                end = end.max(part.offset + part.rows * self.params.matrices[weight].cols);
                part.offset.checked_sub(first.offset)
            });
            let ([Some(a), Some(b)], short) = (places, index * self.rank) else { return None };
            found.push(LowRankModule { short, column: low.row0, columns: low.rows, a, b });
        }
        let [offset, bytes] = [first.offset, end - first.offset].map(|at| at as u64 * 4);
        Some(LowRankPiece {
            shape: self.shape(self.rank, &found),
            slice: Slice::new(set(first.shard), offset, bytes),
            only: None,
            continues: false,
        })
    }

    /// The parts of one of a module's matrices.
    fn parts(
        &self,
        index: usize,
        low: LowRank,
        side: LowRankSide,
        set: fn(usize) -> Buffer,
    ) -> Vec<LowRankPiece> {
        let matrix = &self.params.matrices[if side == LowRankSide::A { low.a } else { low.b }];
        let piece = |(number, part): (usize, &Part)| {
            let short = index * self.rank;
            let whole = LowRankModule { short, column: low.row0, columns: low.rows, a: 0, b: 0 };
            let (rank, module) = match side {
                LowRankSide::A => (part.rows, LowRankModule { short: short + part.row0, ..whole }),
                LowRankSide::B => {
                    let column = low.row0 + part.row0;
                    (self.rank, LowRankModule { column, columns: part.rows, ..whole })
                }
            };
            let [offset, bytes] = [part.offset, part.rows * matrix.cols].map(|at| at as u64 * 4);
            LowRankPiece {
                shape: self.shape(rank, &[module]),
                slice: Slice::new(set(part.shard), offset, bytes),
                only: Some(side),
                continues: side == LowRankSide::B && number > 0,
            }
        };
        matrix.parts.iter().enumerate().map(piece).collect()
    }
}

impl Request<'_> {
    /// By node that is a product: the node of low rank that adds to its result, where that can be more terms of its sums.
    pub(super) fn adapted_products(&self) -> Vec<Option<usize>> {
        let nodes = &self.graph.nodes;
        let of = |(index, node): (usize, &Node)| match node.op {
            Op::Linear { weight, .. } => self.adds_to(index, node, (Form::MatmulT, weight)),
            Op::LinearInput { weight, .. } => self.adds_to(index, node, (Form::Matmul, weight)),
            _ => None,
        };
        nodes.iter().enumerate().map(of).collect()
    }

    /// The only node of low rank that adds to what a product writes, right behind it but for gradients of weights.
    fn adds_to(
        &self,
        index: usize,
        product: &Node,
        (form, weight): (Form, WeightId),
    ) -> Option<usize> {
        let group = |node: &Node| match node.op {
            Op::LowRank(group) if form == Form::MatmulT => Some(group),
            Op::ShortRowsInput { group, write: WriteMode::Add } if form == Form::Matmul => {
                Some(group)
            }
            _ => None,
        };
        let nodes = &self.graph.nodes[index + 1..self.nodes.end.max(index + 1)];
        let passed =
            |node: &&Node| matches!(node.op, Op::BiasBackward { .. } | Op::LinearWeight { .. });
        let at = nodes.iter().take_while(passed).count();
        let adds = |node: &&Node| group(node).is_some() && node.writes == product.writes;
        let found = nodes.get(at).filter(adds).and_then(group)?;
        // With dropout each module has a group of its own.
        let of_weight = |node: &Node| group(node).is_some_and(|group| self.target(group) == weight);
        let more = nodes[at + 1..].iter().any(|node| adds(&node) && of_weight(node));
        (!more && self.adapts(form, weight, found)).then_some(index + 1 + at)
    }

    fn adapts(&self, form: Form, weight: WeightId, group: LowRankGroup) -> bool {
        let params = self.matrices.params;
        let pieces = low_rank_pieces(params, group, Buffer::Weights);
        let [LowRankPiece { shape: low, only: None, .. }] = &*pieces else { return false };
        let (rows, element) = (self.tokens as u32, Element::F32);
        let rows = TokenRows {
            rows: Range { rows, ..Range::default() },
            stride: params.matrices[weight].rows,
            operands: [element; 2],
            result: element,
        };
        let shape = || self.matrices.product(form, weight, 0, rows);
        self.target(group) == weight
            && self.matrices.is_plain(weight)
            && linear_adapts(self.caps, &shape(), low)
    }

    fn target(&self, group: LowRankGroup) -> WeightId {
        self.matrices.params.architecture.low_rank[group.first].target
    }
}
