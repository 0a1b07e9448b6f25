//! Normalisation of rows.

use super::{Lowering, label};
use crate::arch::{Attention, HeadNorms, Norm, NormKind, WeightId};
use crate::error::{Error, Result};
use crate::graph::{Node, Site};
use crate::kernels::{self as k, Constant, Kernel, NormForm, NormTerms, WriteMode};
use crate::layout::{ColumnSums, Fusion, SplitK, attention_shape};
use crate::plan::{Launch, NamedSlice, Slice};
use std::rc::Rc;

/// The constants of a norm's kernels.
pub(super) const fn terms(norm: Norm) -> NormTerms {
    let shifted = matches!(norm.kind, NormKind::RmsPlusOne);
    NormTerms { epsilon: Constant(norm.epsilon), shifted }
}

impl Lowering<'_> {
    pub(super) fn norm(&mut self, node: &Node, norm: Norm, fusion: &Fusion) -> Result<()> {
        let (input, output) = (self.read(node, 0)?, self.written(node, 0)?);
        let form = NormForm { half: self.layouts.is_f16(node.writes[0]), ..NormForm::PLAIN };
        let Some(SplitK { slice, sums, stream }) = self.summed(fusion) else {
            let residual = self.second(node)?.map(|residual| ("residual", residual));
            let form = NormForm { residual: residual.is_some(), ..form };
            return self.norm_rows(node.site, norm, form, [input, output], residual.as_slice());
        };
        let none = || Error::internal(format!("{} adds up what has no residual", node.site));
        let added = [("before", self.place(stream.ok_or_else(none)?)?), ("stream", input)];
        let form = NormForm { summed: sums, ..form };
        self.norm_rows(node.site, norm, form, [slice, output], &added)
    }

    /// Norms of the rows `x` to `y`, and what else the form binds.
    pub(super) fn norm_rows(
        &mut self,
        site: Site,
        norm: Norm,
        form: NormForm,
        [x, y]: [Slice; 2],
        added: &[NamedSlice],
    ) -> Result<()> {
        let hidden = self.params.matrices[norm.weight].cols;
        let kernel = if norm.kind != NormKind::Layer {
            self.builder.kernel(k::RmsNormForward { hidden, terms: terms(norm), form })
        } else if (NormForm { residual: false, ..form }) == NormForm::PLAIN {
            let (epsilon, residual) = (Constant(norm.epsilon), form.residual);
            self.builder.kernel(k::LayerNormForward { hidden, epsilon, residual })
        } else {
            Err(Error::internal(format!("{site}: no layer norm has the form {form:?}")))
        }?;
        let launch = self.norm_launch(site, kernel, norm.weight, [x, y]);
        let launch = launch.bind_all(added.iter().copied());
        self.builder.dispatch(launch.flops(4.0 * (self.builder.tokens * hidden) as f64))
    }

    fn norm_launch(
        &self,
        site: Site,
        kernel: Rc<Kernel>,
        weight: WeightId,
        [x, y]: [Slice; 2],
    ) -> Launch {
        Launch::new(site, kernel).bind("x", x).bind("weight", self.whole(weight)).bind("y", y)
    }

    pub(super) fn norm_backward(
        &mut self,
        node: &Node,
        norm: Norm,
        write: WriteMode,
        fusion: &Fusion,
    ) -> Result<()> {
        let (input, (d_output, sums)) = (self.read(node, 0)?, self.read_parts(node, 1, fusion)?);
        let d_input = self.written(node, 0)?;
        let hidden = self.params.matrices[norm.weight].cols;
        let (caps, tokens) = (self.builder.caps, self.builder.tokens);
        let rows = k::norm_rows(caps, tokens);
        let partial = self.partial_sums(node, fusion)?;
        let kernel = if norm.kind == NormKind::Layer {
            let epsilon = Constant(norm.epsilon);
            self.builder.kernel(k::LayerNormBackward { hidden, epsilon, mode: write, rows })
        } else {
            let terms = terms(norm);
            self.builder.kernel(k::RmsNormBackward { hidden, terms, mode: write, rows, sums })
        }?;
        let launch = Launch::new(node.site, kernel)
            .bind("x", input)
            .bind("weight", self.whole(norm.weight))
            .bind("d_y", d_output)
            .bind("d_x", d_input)
            .bind("partial_sums", partial);
        self.builder.dispatch(launch.flops(12.0 * (tokens * hidden) as f64))
    }

    /// Where a norm's backward pass leaves the partial sums of its weight's gradient.
    fn partial_sums(&self, node: &Node, fusion: &Fusion) -> Result<Slice> {
        match fusion {
            Fusion::NormBackward { partials, .. } => self.shared(*partials),
            _ => Err(Error::internal(format!("{} has no place for partial sums", node.site))),
        }
    }

    /// Adds up the partial sums of several weights' gradients.
    pub(super) fn column_sum(&mut self, sums: &ColumnSums) -> Result<()> {
        let ColumnSums { site, shape: [columns, rows], weights, partials, gradients } = *sums;
        let kernel = self.builder.kernel(k::ColumnSum { hidden: columns, rows, weights })?;
        let launch = Launch::new(label(site, "weight"), kernel)
            .bind("partial_sums", partials)
            .bind("output", gradients);
        self.builder.dispatch(launch.flops(partials.bytes as f64 / 4.0))
    }

    pub(super) fn head_norms(
        &mut self,
        node: &Node,
        norms: HeadNorms,
        attention: Attention,
    ) -> Result<()> {
        let (input, output) = (self.read(node, 0)?, self.written(node, 0)?);
        let kernel = self.builder.kernel(k::HeadNormForward {
            shape: attention_shape(attention),
            terms: terms(norms),
        })?;
        let io = [input, output];
        let launch = self.norm_launch(node.site, kernel, norms.weight, io);
        let flops = 4.0 * (self.builder.tokens * attention.stride()) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    /// In place on the gradient that attention has left.
    pub(super) fn head_norms_backward(
        &mut self,
        node: &Node,
        norms: HeadNorms,
        attention: Attention,
        fusion: &Fusion,
    ) -> Result<()> {
        let (input, gradient) = (self.read(node, 0)?, self.written(node, 0)?);
        let (caps, tokens) = (self.builder.caps, self.builder.tokens);
        let rows = k::head_norm_rows(caps, tokens);
        let partial = self.partial_sums(node, fusion)?;
        let (shape, terms) = (attention_shape(attention), terms(norms));
        let kernel = self.builder.kernel(k::HeadNormBackward { shape, terms, rows })?;
        let launch = Launch::new(node.site, kernel)
            .bind("x", input)
            .bind("weight", self.whole(norms.weight))
            .bind("d", gradient)
            .bind("partial_sums", partial);
        self.builder.dispatch(launch.flops(12.0 * (tokens * attention.stride()) as f64))
    }
}
