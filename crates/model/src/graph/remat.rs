//! Computes activations again in the backward pass, for the memory of one layer instead of all
//! (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174).

use super::{Graph, Node, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Puts before each layer's backward nodes those of its forward nodes whose values they read. The
/// last layer is left alone: what its forward pass left is the memory that the others use again.
pub fn remat(graph: &Graph) -> Graph {
    let (forward, backward) = graph.nodes.split_at(graph.backward);
    let last = forward.iter().filter_map(|node| node.site.layer).max();
    let mut out = Graph { nodes: forward.to_vec(), ..graph.clone() };
    let mut rest = backward;
    while let Some(first) = rest.first() {
        let layer = first.site.layer;
        let count = rest.iter().take_while(|node| node.site.layer == layer).count();
        let (nodes, after) = rest.split_at(count);
        rest = after;
        if layer.is_none() || layer == last {
            out.nodes.extend_from_slice(nodes);
            continue;
        }
        let own: Vec<&Node> = forward.iter().filter(|node| node.site.layer == layer).collect();
        let again = needed(&own, nodes);
        let mut renamed = BTreeMap::new();
        for node in own.iter().copied().filter(|node| writes_any(node, &again)).chain(nodes) {
            let node = rename(node, &again, &mut renamed, &mut out);
            out.nodes.push(node);
        }
    }
    out
}

fn writes_any(node: &Node, values: &BTreeSet<ValueId>) -> bool {
    node.writes.iter().any(|&value| values.contains(&value))
}

/// Values that a layer's forward nodes write and its backward nodes read, and what those are
/// computed from.
fn needed(forward: &[&Node], backward: &[Node]) -> BTreeSet<ValueId> {
    let own: BTreeSet<ValueId> = forward.iter().flat_map(|node| &node.writes).copied().collect();
    let reads = backward.iter().flat_map(|node| &node.reads);
    let mut needed: BTreeSet<ValueId> =
        reads.copied().filter(|value| own.contains(value)).collect();
    for node in forward.iter().rev() {
        if writes_any(node, &needed) {
            needed.extend(node.reads.iter().copied().filter(|value| own.contains(value)));
        }
    }
    needed
}

/// The node with fresh values for those that are computed again.
fn rename(
    node: &Node,
    again: &BTreeSet<ValueId>,
    renamed: &mut BTreeMap<ValueId, ValueId>,
    out: &mut Graph,
) -> Node {
    let mut node = node.clone();
    for value in node.reads.iter_mut().chain(&mut node.writes) {
        if again.contains(value) {
            let copy = out.values[*value];
            *value = *renamed.entry(*value).or_insert_with(|| out.add(copy));
        }
    }
    node
}
