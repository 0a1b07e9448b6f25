//! The forward pass of an architecture. The only place where a decoder layer is written down.

use super::{Gate, Graph, Node, Op, Site, ValueId};
use crate::arch::{Architecture, Layer, WeightId};

/// The forward pass: embedding, layers, final norm, head.
pub fn build(architecture: &Architecture) -> Graph {
    let mut build = Build { graph: Graph::default(), layer: None, hidden: architecture.hidden };
    let mut x = build.value("embedding", architecture.hidden);
    build.node(Op::Embed { weight: architecture.embedding }, "embedding", &[], &[x]);
    for (index, layer) in architecture.layers.iter().enumerate() {
        build.layer = Some(index);
        x = build.decoder_layer(layer, x);
    }
    build.layer = None;
    build.graph.layers_end = build.graph.nodes.len();
    let normed = build.value("final norm", architecture.hidden);
    build.node(Op::Norm(architecture.final_norm), "final norm", &[x], &[normed]);
    build.node(Op::Head { weight: architecture.head }, "logits", &[normed], &[]);
    build.graph.backward = build.graph.nodes.len();
    build.graph
}

struct Build {
    graph: Graph,
    layer: Option<usize>,
    hidden: usize,
}

impl Build {
    fn value(&mut self, name: &'static str, columns: usize) -> ValueId {
        self.graph.value(name, columns)
    }

    fn node(&mut self, op: Op, what: &'static str, reads: &[ValueId], writes: &[ValueId]) {
        let site = Site { layer: self.layer, what };
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.graph.nodes.push(Node { op, reads, writes, site });
    }

    fn decoder_layer(&mut self, layer: &Layer, x: ValueId) -> ValueId {
        let attention = layer.attention;
        let normed = self.value("attention norm", self.hidden);
        self.node(Op::Norm(layer.attention_norm), "attention norm", &[x], &[normed]);
        let mut qkv = self.value("qkv", attention.stride());
        let product = Op::Linear { weight: layer.qkv, bias: layer.qkv_bias };
        self.node(product, "q, k, v", &[normed], &[qkv]);
        if let Some(norms) = layer.head_norms {
            let raw = qkv;
            qkv = self.value("normed qkv", attention.stride());
            self.node(Op::HeadNorms { norms, attention }, "q, k norms", &[raw], &[qkv]);
        }
        self.node(Op::Rope { attention }, "rope", &[qkv], &[qkv]);
        let output = self.value("attention output", attention.width());
        let logsumexp = self.value("logsumexp", attention.heads);
        self.node(Op::Attention { attention }, "attention", &[qkv], &[output, logsumexp]);
        let middle = self.value("residual", self.hidden);
        self.node(linear(layer.output), "output", &[output, x], &[middle]);

        let normed = self.value("mlp norm", self.hidden);
        self.node(Op::Norm(layer.mlp_norm), "mlp norm", &[middle], &[normed]);
        let gate_up = self.value("gate and up", 2 * layer.feed);
        self.node(linear(layer.gate_up), "gate, up", &[normed], &[gate_up]);
        let activated = self.value("activation", layer.feed);
        let gate = Gate { width: layer.feed, activation: layer.activation };
        self.node(Op::Gate(gate), "activation", &[gate_up], &[activated]);
        let next = self.value("residual", self.hidden);
        self.node(linear(layer.down), "down", &[activated, middle], &[next]);
        next
    }
}

/// A product without a bias.
const fn linear(weight: WeightId) -> Op {
    Op::Linear { weight, bias: None }
}
