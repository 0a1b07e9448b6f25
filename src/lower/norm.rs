//! Normalisation of rows.

use super::{Lowering, label};
use crate::arch::{Attention, HeadNorms, Norm, NormKind};
use crate::error::Result;
use crate::graph::Node;
use crate::kernels::{self as k, Constant, NormTerms, WriteMode};
use crate::plan::Slice;

/// The constants of a norm's kernels.
pub(super) const fn terms(norm: Norm) -> NormTerms {
    let shifted = matches!(norm.kind, NormKind::RmsPlusOne);
    NormTerms { epsilon: Constant(norm.epsilon), shifted }
}

impl Lowering<'_> {
    pub(super) fn norm(&mut self, node: &Node, norm: Norm) -> Result<()> {
        let residual = (node.reads.len() > 1).then(|| self.read(node, 1));
        let (input, output) = (self.read(node, 0), self.written(node, 0)?);
        let half = self.in_halves(node.writes[0]);
        self.norm_rows(node.site.to_string(), (norm, half), [input, output], residual)
    }

    /// In f16 or not.
    pub(super) fn norm_rows(
        &mut self,
        label: String,
        (norm, half): (Norm, bool),
        [input, output]: [Slice; 2],
        residual: Option<Slice>,
    ) -> Result<()> {
        let hidden = self.params.matrices[norm.weight].cols;
        let caps = self.builder.caps;
        let kernel = if norm.kind == NormKind::Layer {
            assert!(residual.is_none(), "no kernel adds a layer norm to a residual");
            k::layer_norm_forward(caps, hidden, norm.epsilon)
        } else if half {
            k::rms_norm_halves(caps, hidden, terms(norm))
        } else {
            k::rms_norm_forward(caps, hidden, terms(norm), residual.is_some())
        }?;
        let mut slices = vec![input, self.whole(norm.weight), output, self.builder.step()];
        slices.extend(residual);
        let flops = 4.0 * (self.builder.tokens * hidden) as f64;
        self.builder.dispatch(label, kernel, slices, flops)
    }

    pub(super) fn norm_backward(
        &mut self,
        node: &Node,
        norm: Norm,
        trained: bool,
        write: WriteMode,
    ) -> Result<()> {
        let (input, d_output) = (self.read(node, 0), self.read(node, 1));
        let d_input = self.written(node, 0)?;
        let matrix = &self.params.matrices[norm.weight];
        let (hidden, columns) = (matrix.cols, matrix.rows * matrix.cols);
        let (caps, tokens) = (self.builder.caps, self.builder.tokens);
        let rows = k::norm_rows(caps, tokens);
        let blocks = tokens.div_ceil(rows);
        let elements = blocks as u64 * columns as u64;
        let partial = self.builder.tensor("norm weight gradient partials", elements)?;
        let kernel = if norm.kind == NormKind::Layer {
            k::layer_norm_backward(caps, hidden, norm.epsilon, write, rows)
        } else {
            k::rms_norm_backward(caps, hidden, terms(norm), write, rows)
        }?;
        let weight = self.whole(norm.weight);
        let slices = vec![input, weight, d_output, d_input, partial, self.builder.step()];
        let flops = 12.0 * (tokens * hidden) as f64;
        self.builder.dispatch(node.site.to_string(), kernel, slices, flops)?;
        if !trained {
            return Ok(());
        }
        let kernel = k::column_sum(caps, columns, rows)?;
        let slices = vec![partial, self.gradient(norm.weight, 0), self.builder.step()];
        let flops = (blocks * columns) as f64;
        self.builder.dispatch(label(node.site, "weight"), kernel, slices, flops)
    }

    pub(super) fn head_norms(
        &mut self,
        node: &Node,
        norms: HeadNorms,
        attention: Attention,
    ) -> Result<()> {
        let (input, output) = (self.read(node, 0), self.written(node, 0)?);
        let kernel = k::head_norm_forward(self.builder.caps, self.shape(attention), terms(norms))?;
        let slices = vec![input, self.whole(norms.weight), output, self.builder.step()];
        let flops = 4.0 * (self.builder.tokens * attention.stride()) as f64;
        self.builder.dispatch(node.site.to_string(), kernel, slices, flops)
    }

    /// In place on the gradient that attention has left.
    pub(super) fn head_norms_backward(
        &mut self,
        node: &Node,
        norms: HeadNorms,
        attention: Attention,
        trained: bool,
    ) -> Result<()> {
        let (input, gradient) = (self.read(node, 0), self.written(node, 0)?);
        let (caps, tokens) = (self.builder.caps, self.builder.tokens);
        let (rows, columns) = (k::norm_rows(caps, tokens), 2 * attention.head_dim);
        let blocks = tokens.div_ceil(rows);
        let elements = (blocks * columns) as u64;
        let partial = self.builder.tensor("norm weight gradient partials", elements)?;
        let kernel = k::head_norm_backward(caps, self.shape(attention), terms(norms), rows)?;
        let slices = vec![input, self.whole(norms.weight), gradient, partial, self.builder.step()];
        let flops = 12.0 * (tokens * attention.stride()) as f64;
        self.builder.dispatch(node.site.to_string(), kernel, slices, flops)?;
        if !trained {
            return Ok(());
        }
        let kernel = k::column_sum(caps, columns, rows)?;
        let slices = vec![partial, self.gradient(norms.weight, 0), self.builder.step()];
        self.builder.dispatch(label(node.site, "weight"), kernel, slices, elements as f64)
    }
}
