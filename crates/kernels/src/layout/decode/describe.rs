//! The nodes of decoded rows as text, a line each: `layer 0 down: Linear(activation, residual) -> residual [in place]`.

use super::{DecodeLayouts, DecodeOp};
use crate::graph::ValueId;
use crate::layout::Layout;
use std::fmt;

impl fmt::Display for DecodeLayouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let op = match node.op {
                DecodeOp::Plain(op) => format!("{op:?}"),
                op => format!("{op:?}"),
            };
            let name = op.split([' ', '(']).next().unwrap_or_default();
            let [reads, writes] = [&node.reads, &node.writes].map(|values| self.values(values));
            let to = if writes.is_empty() { String::new() } else { format!(" -> {writes}") };
            writeln!(f, "{}: {name}({reads}){to}", node.site)?;
        }
        Ok(())
    }
}

impl DecodeLayouts {
    fn values(&self, values: &[ValueId]) -> String {
        let text = |&value: &ValueId| {
            let name = self.values[value];
            match self.layouts[value] {
                Layout::InPlaceOf(_) => format!("{name} [in place]"),
                Layout::QueryHeads => format!("{name} [query heads]"),
                Layout::PartialSoftmax { count } => format!("{name} [{count} ranges]"),
                _ => name.to_string(),
            }
        };
        values.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}
