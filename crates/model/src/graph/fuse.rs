//! Joins nodes for one decoded row, where a product reads a whole matrix for a single row and what
//! stands before and behind it is cheap beside that.

use super::{Graph, Node, Op};

/// A forward pass with each norm joined to the product behind it, and that to the activation or
/// rotation behind it. A norm stays where an adapter reads it too.
pub fn fuse(forward: &Graph) -> Graph {
    let mut nodes: Vec<Node> = vec![];
    let mut layers_end = 0;
    for (index, node) in forward.nodes.iter().enumerate() {
        if index == forward.layers_end {
            layers_end = nodes.len();
        }
        let behind = &forward.nodes[index + 1..];
        match nodes.last().and_then(|before| joined(before, node, behind)) {
            Some(joined) => {
                nodes.pop();
                nodes.push(joined);
            }
            None => nodes.push(node.clone()),
        }
    }
    let backward = nodes.len();
    Graph { values: forward.values.clone(), nodes, layers_end, backward }
}

fn joined(before: &Node, node: &Node, behind: &[Node]) -> Option<Node> {
    if node.reads.len() != 1 || before.writes != node.reads {
        return None;
    }
    let reads = |other: &Node| other.site.layer == node.site.layer && other.reads == node.reads;
    // A product's kernel does not add the residual that a norm adds.
    if matches!(before.op, Op::Norm(_)) && (before.reads.len() > 1 || behind.iter().any(reads)) {
        return None;
    }
    let op = match (before.op, node.op) {
        (Op::Norm(norm), Op::Linear { weight, bias }) => Op::NormLinear { norm, weight, bias },
        (Op::Norm(norm), Op::Head { weight }) => Op::NormLinear { norm, weight, bias: None },
        (Op::NormLinear { norm, weight, bias: None }, Op::Gate(gate)) if gate.gated => {
            Op::NormLinearGate { norm, weight, gate }
        }
        (Op::NormLinear { norm, weight, bias }, Op::Rope { attention }) => {
            Op::NormLinearRope { norm, weight, bias, attention, rope: node.site }
        }
        _ => return None,
    };
    // A product gives the site its name; what is joined to it later is part of it.
    let site = if matches!(before.op, Op::Norm(_)) { node.site } else { before.site };
    Some(Node { op, reads: before.reads.clone(), writes: node.writes.clone(), site })
}
