//! The activation of the feed-forward block.

use super::{Lowering, label};
use crate::arch::WeightId;
use crate::error::{Error, Result};
use crate::graph::{MlpActivation, Node, Op, Site};
use crate::kernels::{self as k, Form, LinearProduct, LinearShape, Output, PartialSums};
use crate::layout::{Fusion, SplitK, activation_width, gated_shape};
use crate::plan::{Launch, LowRankTerms, NamedSlice, Range, Slice};

impl Lowering<'_> {
    pub(super) fn activation(
        &mut self,
        node: &Node,
        mlp: MlpActivation,
        fusion: &Fusion,
    ) -> Result<()> {
        let (input, output) = (self.read(node, 0)?, self.written(node, 0)?);
        let f16 = self.layouts.is_f16(node.writes[0]);
        let summed = self.summed(fusion);
        self.activate(node.site, (mlp, f16), [input, output], summed)
    }

    /// `activate(gate) · up` of rows `gate | up`, or `activate(up)` without a gate. With `half` the result is in f16. If the
    /// rows are partial sums, the kernel also writes their sums.
    pub(super) fn activate(
        &mut self,
        site: Site,
        (mlp, half): (MlpActivation, bool),
        [rows, output]: [Slice; 2],
        summed: Option<SplitK>,
    ) -> Result<()> {
        let (input, sums) = summed.map_or((rows, PartialSums::WHOLE), |it| (it.slice, it.sums));
        let kernel =
            self.builder.kernel(k::ActivationForward(activation_width(mlp, half, sums)))?;
        let launch = Launch::new(site, kernel)
            .bind(if mlp.gated { "gate_up" } else { "input" }, input)
            .bind("output", output)
            .bind_some("whole", summed.map(|_| rows));
        self.builder.dispatch(launch.flops(8.0 * (self.builder.tokens * mlp.width) as f64))
    }

    /// The activation's result. One kernel does the product of `node` with the matrix of gate and up, and then
    /// `activation`.
    pub(super) fn gated_product(
        &mut self,
        node: &Node,
        activation: &Node,
        weight: WeightId,
    ) -> Result<()> {
        let Op::Activation(mlp) = activation.op else {
            return Err(Error::internal(format!("{} is no activation", activation.site)));
        };
        let product = self.matrices.product(Form::MatmulT, weight, 0, self.node_rows(node, weight));
        let (output, to) = (Output::Gated(mlp.activation), self.written(activation, 0)?);
        let label = node.site.to_string();
        let of = (weight, gated_shape(product));
        self.through_activation(&label, node, of, (output, to), (&[], None))
    }

    /// A product of `node`'s input with a weight of one part, whose kernel goes on to the activation or its gradient.
    fn through_activation(
        &mut self,
        label: &str,
        node: &Node,
        (weight, product): (WeightId, LinearShape),
        (output, to): (Output, Slice),
        (added, more): (&[NamedSlice], Option<LowRankTerms>),
    ) -> Result<()> {
        let (matrix, shape) = self.operand(weight, 0, product);
        let range =
            Range { cols: self.params.matrices[weight].rows as u32, ..self.builder.all_rows() };
        let operands = [self.read(node, 0)?, matrix, to];
        let product = LinearProduct::picked(self.builder.caps, shape, output);
        self.builder.product_by(label, product, operands, added, (None, range), more)
    }

    pub(super) fn activation_backward(
        &mut self,
        node: &Node,
        mlp: MlpActivation,
        fusion: &Fusion,
    ) -> Result<()> {
        let (input, (d_output, sums)) = (self.read(node, 0)?, self.read_parts(node, 1, fusion)?);
        let (d_input, output) = (self.written(node, 0)?, self.written(node, 1)?);
        let shape = activation_width(mlp, self.layouts.is_f16(node.writes[0]), sums);
        let kernel = self.builder.kernel(k::ActivationBackward(shape))?;
        let [of_input, of_d_input] =
            if mlp.gated { ["gate_up", "d_gate_up"] } else { ["input", "d_input"] };
        let launch = Launch::new(node.site, kernel)
            .bind(of_input, input)
            .bind("d_output", d_output)
            .bind(of_d_input, d_input)
            .bind("output", output);
        self.builder.dispatch(launch.flops(16.0 * (self.builder.tokens * mlp.width) as f64))
    }

    /// The gradients of gate and up. One kernel does the product of `node`, which gives the gradient of the
    /// activation's result, and then `activation`.
    pub(super) fn gate_gradient(
        &mut self,
        node: &Node,
        activation: &Node,
        weight: WeightId,
        more: Option<LowRankTerms>,
    ) -> Result<()> {
        let Op::ActivationBackward(mlp) = activation.op else {
            return Err(Error::internal(format!(
                "{} is no activation's gradient",
                activation.site
            )));
        };
        let product = self.matrices.product(Form::Matmul, weight, 0, self.node_rows(node, weight));
        let (output, to) = (Output::GateGradient(mlp.activation), self.written(activation, 0)?);
        let added =
            [("gate_up", self.read(activation, 0)?), ("activated", self.written(activation, 1)?)];
        let label = label(node.site, "input");
        self.through_activation(&label, node, (weight, product), (output, to), (&added, more))
    }
}
