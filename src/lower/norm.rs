//! Normalisation of rows.

use super::parts::InParts;
use super::{Lowering, label};
use crate::arch::{Attention, HeadNorms, Norm, NormKind, WeightId};
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels::{self as k, Constant, Kernel, NormForm, NormTerms, SummedWeights, WriteMode};
use crate::plan::{Builder, Launch, Operand, Slice};

/// Partial sums of the gradients of norms' weights, added up by one dispatch. Their gradients lie at equal distances:
/// all norms of a Llama, pairs where biases lie between.
#[derive(Debug)]
pub(super) struct WaitingSums {
    /// Where the first are from.
    site: Site,
    /// Columns, and rows of each partial sum.
    shape: [usize; 2],
    weights: SummedWeights,
    /// Of all weights.
    partials: Slice,
    /// From the last weight's to the first one's.
    gradients: Slice,
}

impl WaitingSums {
    /// Makes room for one more weight's partial sums. None where its gradient is not at the same distance as those
    /// before, where its shape differs, or where more than `most` bytes would wait.
    fn place(
        &mut self,
        builder: &mut Builder<'_>,
        gradient: Slice,
        shape: [usize; 2],
        most: u64,
    ) -> Option<Slice> {
        let SummedWeights { count, outputs, .. } = self.weights;
        let apart = self.gradients.offset.saturating_sub(gradient.offset);
        let known = if count == 1 { apart } else { 4 * outputs as u64 };
        if apart == 0
            || apart != known
            || gradient.buffer != self.gradients.buffer
            || shape != self.shape
        {
            return None;
        }
        let own = builder.extend(self.partials, bytes(builder.tokens, shape), most)?;
        let partials = own.offset as usize / 4 / count;
        self.weights = SummedWeights { count: count + 1, partials, outputs: apart as usize / 4 };
        self.partials.bytes = own.offset + own.bytes;
        self.gradients = Slice { bytes: self.gradients.bytes + apart, ..gradient };
        Some(own)
    }
}

/// Of a weight's partial sums.
fn bytes(tokens: usize, [columns, rows]: [usize; 2]) -> u64 {
    (tokens.div_ceil(rows) * columns * 4) as u64
}

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
        if let Some(InParts { slice, parts, before }) = self.parts_of(node.reads[0]) {
            let before = before.expect("a norm adds up what is added to the residual stream");
            let form = NormForm { half, summed: parts, ..NormForm::PLAIN };
            let added = [("before", before), ("stream", input)];
            return self.rms_norm(node.site.to_string(), norm, form, [slice, output], &added);
        }
        self.norm_rows(node.site.to_string(), (norm, half), [input, output], residual)
    }

    /// RMSNorm of `[x, y]`, and what else its form binds.
    fn rms_norm(
        &mut self,
        label: String,
        norm: Norm,
        form: NormForm,
        io: [Slice; 2],
        added: &[Operand],
    ) -> Result<()> {
        let hidden = self.params.matrices[norm.weight].cols;
        let kernel = k::rms_norm_forward(self.builder.caps, hidden, terms(norm), form)?;
        let launch = self.norm_launch(label, kernel, norm.weight, io);
        let launch = launch.bind_all(added.iter().copied());
        self.builder.dispatch(launch.flops(4.0 * (self.builder.tokens * hidden) as f64))
    }

    fn norm_launch(
        &self,
        label: String,
        kernel: Kernel,
        weight: WeightId,
        [x, y]: [Slice; 2],
    ) -> Launch {
        Launch::new(label, kernel).bind("x", x).bind("weight", self.whole(weight)).bind("y", y)
    }

    /// In f16 or not.
    pub(super) fn norm_rows(
        &mut self,
        label: String,
        (norm, half): (Norm, bool),
        [input, output]: [Slice; 2],
        residual: Option<Slice>,
    ) -> Result<()> {
        if norm.kind != NormKind::Layer {
            let form = NormForm { half, residual: residual.is_some(), ..NormForm::PLAIN };
            let added = residual.map(|residual| ("residual", residual));
            return self.rms_norm(label, norm, form, [input, output], added.as_slice());
        }
        assert!(residual.is_none(), "no kernel adds a layer norm to a residual");
        let hidden = self.params.matrices[norm.weight].cols;
        let kernel = k::layer_norm_forward(self.builder.caps, hidden, norm.epsilon)?;
        let launch = self.norm_launch(label, kernel, norm.weight, [input, output]);
        self.builder.dispatch(launch.flops(4.0 * (self.builder.tokens * hidden) as f64))
    }

    pub(super) fn norm_backward(
        &mut self,
        node: &Node,
        norm: Norm,
        trained: bool,
        write: WriteMode,
    ) -> Result<()> {
        let (input, (d_output, parts)) = (self.read(node, 0), self.read_parts(node, 1));
        let d_input = self.written(node, 0)?;
        let matrix = &self.params.matrices[norm.weight];
        let (hidden, columns) = (matrix.cols, matrix.rows * matrix.cols);
        let (caps, tokens) = (self.builder.caps, self.builder.tokens);
        let rows = k::norm_rows(caps, tokens);
        let partial = self.partial_sums(node.site, norm.weight, trained, [columns, rows])?;
        let kernel = if norm.kind == NormKind::Layer {
            k::layer_norm_backward(caps, hidden, norm.epsilon, write, rows)
        } else {
            k::rms_norm_backward(caps, hidden, terms(norm), write, (rows, parts))
        }?;
        let launch = Launch::new(node.site.to_string(), kernel)
            .bind("x", input)
            .bind("weight", self.whole(norm.weight))
            .bind("d_y", d_output)
            .bind("d_x", d_input)
            .bind("partial_sums", partial);
        self.builder.dispatch(launch.flops(12.0 * (tokens * hidden) as f64))
    }

    /// Where a norm's backward pass leaves the partial sums of its weight's gradient. If the weight is trained, they wait
    /// for [`Lowering::sum_waiting`].
    fn partial_sums(
        &mut self,
        site: Site,
        weight: WeightId,
        trained: bool,
        shape: [usize; 2],
    ) -> Result<Slice> {
        let gradients = if trained { Some(self.gradient(weight, 0)) } else { None };
        if let (Some(gradient), Some(sums)) = (gradients, &mut self.waiting.norms)
            && let Some(place) = sums.place(&mut self.builder, gradient, shape, self.waiting.most)
        {
            return Ok(place);
        }
        self.sum_waiting()?;
        let elements = bytes(self.builder.tokens, shape) / 4;
        let partials = self.builder.tensor("norm weight gradient partials", elements)?;
        let weights = SummedWeights::ONE;
        self.waiting.norms =
            gradients.map(|gradients| WaitingSums { site, shape, weights, partials, gradients });
        Ok(partials)
    }

    /// Adds up the partial sums that wait.
    pub(super) fn sum_waiting(&mut self) -> Result<()> {
        let Some(sums) = self.waiting.norms.take() else { return Ok(()) };
        let WaitingSums { site, shape: [columns, rows], weights, partials, gradients } = sums;
        let kernel = k::column_sum(self.builder.caps, columns, rows, weights)?;
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
        let (input, output) = (self.read(node, 0), self.written(node, 0)?);
        let kernel = k::head_norm_forward(self.builder.caps, self.shape(attention), terms(norms))?;
        let io = [input, output];
        let launch = self.norm_launch(node.site.to_string(), kernel, norms.weight, io);
        let flops = 4.0 * (self.builder.tokens * attention.stride()) as f64;
        self.builder.dispatch(launch.flops(flops))
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
        let partial = self.partial_sums(node.site, norms.weight, trained, [columns, rows])?;
        let kernel = k::head_norm_backward(caps, self.shape(attention), terms(norms), rows)?;
        let launch = Launch::new(node.site.to_string(), kernel)
            .bind("x", input)
            .bind("weight", self.whole(norms.weight))
            .bind("d", gradient)
            .bind("partial_sums", partial);
        self.builder.dispatch(launch.flops(12.0 * (tokens * attention.stride()) as f64))
    }
}
