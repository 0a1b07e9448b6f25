//! Which values of a training plan lie in f16: those that only products read, which would round them.

use super::shapes::{attention_shape, rope_shape};
use crate::arch::{Attention, NormKind, WeightId};
use crate::caps::Capabilities;
use crate::graph::{Graph, Node, Op, ValueId};
use crate::kernels::{
    AttentionShape, Form, LinearShape, WriteMode, attention_backward_halves,
    attention_forward_halves, reads_halves, rope_has_halves,
};
use crate::params::Params;

/// By value, where products are by matrices.
pub(super) fn f16_values(
    caps: &Capabilities,
    params: &Params,
    graph: &Graph,
    tokens: usize,
) -> Vec<bool> {
    let columns = |value: ValueId| graph.values[value].columns;
    let mut f16: Vec<bool> =
        (0..graph.values.len()).map(|v| columns(v).is_multiple_of(4)).collect();
    let mut written = vec![false; f16.len()];
    for node in &graph.nodes {
        let fits = |index: usize| read_by_matrices(caps, params, node, index, tokens);
        for (index, &value) in node.reads.iter().enumerate() {
            f16[value] &= fits(index);
        }
        for (index, &value) in node.writes.iter().enumerate() {
            f16[value] &= has_form(caps, params, node, index, tokens);
            written[value] = true;
        }
    }
    // Norms and gates have all their results in f16 or none. Two nodes may write one value: clearing it for one can split
    // the other, so this repeats until nothing changes.
    let mut apart = true;
    while std::mem::take(&mut apart) {
        for node in graph.nodes.iter().filter(|node| !matches!(node.op, Op::Attention { .. })) {
            let count = node.writes.iter().filter(|value| f16[**value]).count();
            if count > 0 && count < node.writes.len() {
                node.writes.iter().for_each(|&value| f16[value] = false);
                apart = true;
            }
        }
    }
    f16.iter().zip(written).map(|(half, written)| *half && written).collect()
}

/// Whether attention over a batch is by matrices, in the forward and in the backward pass: both read what lies in f16,
/// and a pass that computes activations again writes them as the first one did.
fn attends_in_f16(caps: &Capabilities, attention: Attention, tokens: usize) -> bool {
    let shape = AttentionShape { half: true, ..attention_shape(attention, tokens, None) };
    attention_forward_halves(caps, shape) && attention_backward_halves(caps, shape)
}

/// Whether the kernel of a node that writes a value has a form with that in f16.
fn has_form(
    caps: &Capabilities,
    params: &Params,
    node: &Node,
    index: usize,
    tokens: usize,
) -> bool {
    match node.op {
        Op::Norm(norm) => norm.kind != NormKind::Layer && node.reads.len() == 1,
        Op::Gate(gate) | Op::GateBackward(gate) => gate.gated,
        Op::Rope { attention } | Op::RopeBackward { attention } => {
            rope_has_halves(rope_shape(&params.architecture, attention))
        }
        Op::AttentionBackward { attention, .. } => attends_in_f16(caps, attention, tokens),
        Op::LinearInput { weight, write: WriteMode::Overwrite } => {
            let matrix = &params.matrices[weight];
            matrix.parts.len() == 1 && matrix.cols.is_multiple_of(4)
        }
        // Not the logsumexp.
        Op::Attention { attention, .. } => index == 0 && attends_in_f16(caps, attention, tokens),
        _ => false,
    }
}

/// Whether a node reads a value as an operand of products that read f16, those of attention among them.
fn read_by_matrices(
    caps: &Capabilities,
    params: &Params,
    node: &Node,
    index: usize,
    tokens: usize,
) -> bool {
    let all = |weight: WeightId, form: Form| {
        let matrix = &params.matrices[weight];
        matrix.parts.iter().all(|part| {
            let (rows, cols) = (part.rows, matrix.cols);
            let (n, k) = if form == Form::MatmulT { (rows, cols) } else { (cols, rows) };
            let shape = LinearShape { half: true, ..LinearShape::new(form, n, k, tokens) };
            matrix.rows.is_multiple_of(4) && reads_halves(caps, &shape)
        })
    };
    match node.op {
        Op::Linear { weight, .. } => index == 0 && all(weight, Form::MatmulT),
        Op::LinearInput { weight, .. } => index == 0 && all(weight, Form::Matmul),
        Op::LinearWeight { weight, .. } => all(weight, Form::MatmulAt),
        // Not the logsumexp.
        Op::AttentionBackward { attention, .. } => {
            index != 2 && attends_in_f16(caps, attention, tokens)
        }
        Op::Attention { attention, .. } => attends_in_f16(caps, attention, tokens),
        _ => false,
    }
}
