//! Which values of a training plan lie in f16: those that only products read, which would round them.

use crate::arch::{NormKind, WeightId};
use crate::caps::Capabilities;
use crate::graph::{Graph, Node, Op, ValueId};
use crate::kernels::{Form, LinearShape, reads_halves};
use crate::params::Params;

/// By value, where products are by matrices.
pub(super) fn halves(
    caps: &Capabilities,
    params: &Params,
    graph: &Graph,
    tokens: usize,
) -> Vec<bool> {
    let columns = |value: ValueId| graph.values[value].columns;
    let mut halves: Vec<bool> =
        (0..graph.values.len()).map(|v| columns(v).is_multiple_of(4)).collect();
    let mut written = vec![false; halves.len()];
    for node in &graph.nodes {
        let fits = |index: usize| read_by_matrices(caps, params, node, index, tokens);
        for (index, &value) in node.reads.iter().enumerate() {
            halves[value] &= fits(index);
        }
        for &value in &node.writes {
            halves[value] &= has_form(node);
            written[value] = true;
        }
    }
    // A kernel has all its results in f16 or none.
    loop {
        let apart = |node: &&Node| {
            let count = node.writes.iter().filter(|value| halves[**value]).count();
            count > 0 && count < node.writes.len()
        };
        let Some(node) = graph.nodes.iter().find(apart) else { break };
        node.writes.iter().for_each(|&value| halves[value] = false);
    }
    halves.iter().zip(written).map(|(half, written)| *half && written).collect()
}

/// Whether the kernel of a node that writes has a form with results in f16.
fn has_form(node: &Node) -> bool {
    match node.op {
        Op::Norm(norm) => norm.kind != NormKind::Layer && node.reads.len() == 1,
        Op::Gate(gate) | Op::GateBackward(gate) => gate.gated,
        _ => false,
    }
}

/// Whether a node reads a value as an operand of products that read halves.
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
        _ => false,
    }
}
