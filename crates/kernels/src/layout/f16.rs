//! Which values of a plan are in f16: those that only products read, which would round them.

use super::low_rank::low_rank_fours;
use super::shapes::{attention_shape, rope_shape};
use super::{PassKind, Request};
use crate::arch::{Attention, LowRankGroup, NormKind, WeightId};
use crate::graph::{Node, Op, ValueId};
use crate::kernels::{
    Form, LinearShape, WriteMode, attention_backward_f16, attention_forward_f16, reads_halves,
    rope_has_halves,
};

impl Request<'_> {
    /// By value, where products are by matrices.
    pub(super) fn f16_values(&self) -> Vec<bool> {
        let by_fours = |value: ValueId| self.graph.values[value].columns.is_multiple_of(4);
        let mut f16: Vec<bool> = (0..self.graph.values.len()).map(by_fours).collect();
        let mut written = vec![false; f16.len()];
        let mut absorbed = vec![false; self.graph.nodes.len()];
        self.adapted_products().into_iter().flatten().for_each(|low| absorbed[low] = true);
        for (node, absorbed) in self.graph.nodes.iter().zip(absorbed) {
            for (index, &value) in node.reads.iter().enumerate() {
                f16[value] &= self.read_by_matrices(node, index);
            }
            for (index, &value) in node.writes.iter().enumerate() {
                // Of a product with an adapter's terms that product alone writes.
                f16[value] &= absorbed || self.has_form(node, index);
                written[value] = true;
            }
        }
        // Norms and gates have all their results in f16 or none. Two nodes may write one value: clearing it for one can
        // split the other, so this repeats until nothing changes.
        let mut apart = true;
        while std::mem::take(&mut apart) {
            let whole = |node: &&Node| !matches!(node.op, Op::Attention { .. });
            for node in self.graph.nodes.iter().filter(whole) {
                let count = node.writes.iter().filter(|value| f16[**value]).count();
                if count > 0 && count < node.writes.len() {
                    node.writes.iter().for_each(|&value| f16[value] = false);
                    apart = true;
                }
            }
        }
        f16.iter().zip(written).map(|(half, written)| *half && written).collect()
    }

    /// Whether attention over a batch is by matrices, in the forward and in the backward pass. Both read values in f16.
    /// A pass that computes activations again writes them as the first one did.
    fn attends_in_f16(&self, attention: Attention) -> bool {
        let shape = attention_shape(attention);
        attention_forward_f16(self.caps, shape) && attention_backward_f16(self.caps, shape)
    }

    /// Whether the kernel of a node that writes a value has a form with that in f16.
    fn has_form(&self, node: &Node, index: usize) -> bool {
        let params = self.matrices.params;
        match node.op {
            Op::Norm(norm) => norm.kind != NormKind::Layer && node.reads.len() == 1,
            Op::Activation(mlp) | Op::ActivationBackward(mlp) => mlp.gated,
            Op::Rope { attention } | Op::RopeBackward { attention } => {
                rope_has_halves(rope_shape(&params.architecture, attention))
            }
            Op::AttentionBackward { attention, .. } => self.attends_in_f16(attention),
            Op::LinearInput { weight, write: WriteMode::Overwrite } => {
                let matrix = &params.matrices[weight];
                matrix.parts.len() == 1 && matrix.cols.is_multiple_of(4)
            }
            // Not the logsumexp.
            Op::Attention { attention, .. } if self.is_prompt() => {
                index == 0 && attention_forward_f16(self.caps, attention_shape(attention))
            }
            Op::Attention { attention, .. } => index == 0 && self.attends_in_f16(attention),
            _ => false,
        }
    }

    fn is_prompt(&self) -> bool {
        matches!(self.kind, PassKind::Prompt { .. })
    }

    /// Whether a node reads a value as an operand of products that read f16, those of attention among them.
    fn read_by_matrices(&self, node: &Node, index: usize) -> bool {
        match node.op {
            Op::Linear { weight, .. } => index == 0 && self.multiplies(Form::MatmulT, weight),
            Op::LinearInput { weight, .. } => index == 0 && self.multiplies(Form::Matmul, weight),
            Op::LinearWeight { weight, .. } => self.multiplies(Form::MatmulAt, weight),
            // An adapter's kernels read rows in f16 too.
            Op::ShortRows(group) | Op::LowRankInput(group) => self.by_fours(group),
            Op::LowRankWeights { group, .. } => matches!(index, 1 | 2) && self.by_fours(group),
            // Not the logsumexp.
            Op::AttentionBackward { attention, .. } => index != 2 && self.attends_in_f16(attention),
            // A prompt's keys and values go to the cache.
            Op::Attention { attention, .. } => !self.is_prompt() && self.attends_in_f16(attention),
            _ => false,
        }
    }

    fn by_fours(&self, group: LowRankGroup) -> bool {
        low_rank_fours(self.matrices.params, group)
    }

    /// Whether products with all parts of a weight read f16.
    fn multiplies(&self, form: Form, weight: WeightId) -> bool {
        let matrix = &self.matrices.params.matrices[weight];
        matrix.parts.iter().all(|part| {
            let (rows, cols) = (part.rows, matrix.cols);
            let (n, k) = if form == Form::MatmulT { (rows, cols) } else { (cols, rows) };
            let half = self.matrices.rounds_with(weight);
            let shape = LinearShape { half, ..LinearShape::new(form, n, k, self.tokens) };
            matrix.rows.is_multiple_of(4) && reads_halves(self.caps, &shape)
        })
    }
}
