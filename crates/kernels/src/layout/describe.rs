//! Layouts as text: a line for each node, then one for each value that is not stored in f32.

use super::{Fusion, LaidNode, Layout, Layouts, RotatedBy};
use crate::graph::{Op, ValueId};
use std::fmt;

impl fmt::Display for Layouts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            match node {
                LaidNode::Node(index, fusion) => self.node(f, *index, fusion)?,
                LaidNode::ColumnSum(index) => {
                    let sums = &self.column_sums[*index];
                    let count = sums.weights.count;
                    writeln!(f, "     column sum of {count} from {}", sums.site)?;
                }
                LaidNode::ProductSum(index) => {
                    let sums = &self.product_sums[*index];
                    writeln!(f, "     sum of {} products: {}", sums.sums.count, sums.label)?;
                }
            }
        }
        (0..self.values.len()).try_for_each(|value| self.value(f, value))
    }
}

impl Layouts<'_> {
    fn node(&self, f: &mut fmt::Formatter<'_>, index: usize, fusion: &Fusion) -> fmt::Result {
        let node = &self.graph.nodes[index];
        let name = match node.op {
            Op::LinearWeight { .. } => " weight",
            Op::LinearInput { .. } => " input",
            _ if index >= self.graph.backward => " backward",
            _ => "",
        };
        let mut does: Vec<String> =
            fusion.sum_of().map(|v| format!("adds up v{v}")).into_iter().collect();
        let (low, fusion) = fusion.of_product();
        does.extend(low.map(|low| format!("with the terms of {}", self.graph.nodes[low].site)));
        match fusion {
            Fusion::None
            | Fusion::ReducesSplitK(_)
            | Fusion::NormBackward { .. }
            | Fusion::Adapted(..) => {}
            Fusion::Absorbed => does.push("joined".into()),
            Fusion::Appends { norms, .. } => {
                does.extend(norms.map(|norms| format!("does {}", self.graph.nodes[norms].site)));
                does.push("appends to the cache".into());
            }
            Fusion::LeavesSplitK => does.push("leaves partial sums".into()),
            Fusion::GateGradient(gate) => {
                does.push(format!("then {} backward", self.graph.nodes[*gate].site));
            }
            Fusion::Gated(gate) => does.push(format!("then {}", self.graph.nodes[*gate].site)),
            Fusion::AttentionBackward { rotation, tiles, .. } => {
                does.extend(rotation.map(|(_, by)| match by {
                    RotatedBy::Gradients => "rotates gradients back".into(),
                    RotatedBy::GroupSum => "the sum of groups rotates gradients back".into(),
                }));
                does.extend(tiles.map(|room| format!("by products of {} tiles", room.tiles)));
            }
            Fusion::WeightGradient(products) => {
                let split = products.iter().filter(|product| product.partials.is_some()).count();
                does.extend((split > 0).then(|| format!("{split} of {} split", products.len())));
            }
        }
        let colon = if does.is_empty() { "" } else { ": " };
        writeln!(f, "{index:4} {}{name}{colon}{}", node.site, does.join(", "))
    }

    fn value(&self, f: &mut fmt::Formatter<'_>, value: ValueId) -> fmt::Result {
        let name = self.graph.values[value];
        match self.values[value] {
            Layout::F32 | Layout::Angles | Layout::QueryHeads => Ok(()),
            Layout::PartialSoftmax { count } => writeln!(f, "v{value} {name}: {count} ranges"),
            Layout::F16 => writeln!(f, "v{value} {name}: f16"),
            Layout::SplitK(split) => {
                write!(f, "v{value} {name}: {} partial sums", split.sums.count)?;
                if let Some(stream) = split.stream {
                    write!(f, ", added to v{stream}")?;
                }
                writeln!(f)
            }
            Layout::InPlaceOf(other) => writeln!(f, "v{value} {name}: in place of v{other}"),
        }
    }
}
