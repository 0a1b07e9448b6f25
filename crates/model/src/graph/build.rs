//! The forward pass of an architecture. The only place where a decoder layer is written down.

use super::{Captured, Dropout, Graph, InterventionSite, MlpActivation, Node, Op, Site, ValueId};
use crate::arch::{
    Architecture, Attention, AttentionBlock, BlockNorms, DropoutRates, FeedForward, Layer, Linear,
    LowRankGroup, Norm, WeightId,
};
use crate::format::WriteMode;

/// The forward pass: embedding, layers, final norm, head.
pub fn build(architecture: &Architecture) -> Graph {
    forward(architecture, None, false, &[])
}

/// The forward pass with [`Op::Intervene`] at each site.
pub fn build_intervened(architecture: &Architecture) -> Graph {
    forward(architecture, None, true, &[])
}

/// The forward pass with [`Op::Intervene`], and [`Op::Capture`] for each item of the list, which its index numbers.
pub fn build_captured(architecture: &Architecture, captured: &[(Captured, usize)]) -> Graph {
    forward(architecture, None, true, captured)
}

/// The forward pass of a training step: with the model's dropout at these rates, and a LoRA adapter's.
pub fn build_training(architecture: &Architecture, rates: DropoutRates) -> Graph {
    forward(architecture, Some(rates), false, &[])
}

fn forward(
    architecture: &Architecture,
    training: Option<DropoutRates>,
    intervened: bool,
    captured: &[(Captured, usize)],
) -> Graph {
    let (hidden, graph) = (architecture.hidden, Graph::default());
    let rates = training.unwrap_or_default();
    let training = training.is_some();
    let mut build =
        Build { architecture, graph, layer: None, hidden, training, rates, intervened, captured };
    let mut x = build.value("embedding", architecture.hidden);
    build.node(Op::Embed { weight: architecture.embedding }, "embedding", &[], &[x]);
    if let Some(factor) = architecture.embedding_scale {
        build.node(Op::Scale { factor }, "embedding", &[x], &[x]);
    }
    if let Some(weight) = architecture.position_embedding {
        build.node(Op::Positions { weight }, "positions", &[x], &[x]);
    }
    if rates.embedding > 0.0 {
        let kept = build.value("kept embedding", architecture.hidden);
        let dropout = Dropout::of_model(rates.embedding, None, 0);
        build.dropout(dropout, "embedding", &[x], kept);
        x = kept;
    }
    build.intervene(InterventionSite::Residual(0), x);
    build.capture((Captured::Residual, 0), x);
    for (index, layer) in architecture.layers.iter().enumerate() {
        build.layer = Some(index);
        x = build.decoder_layer((index, layer), x);
        build.intervene(InterventionSite::Residual(index + 1), x);
        if index + 1 < architecture.layers.len() {
            build.capture((Captured::Residual, index + 1), x);
        }
    }
    build.layer = None;
    build.graph.layers_end = build.graph.nodes.len();
    build.capture((Captured::Residual, architecture.layers.len()), x);
    let mut normed = x;
    if let Some(norm) = architecture.final_norm {
        normed = build.value("final norm", architecture.hidden);
        build.node(Op::Norm(norm), "final norm", &[x], &[normed]);
    }
    if let Some(factor) = architecture.head_scale {
        build.node(Op::Scale { factor }, "final norm", &[normed], &[normed]);
    }
    build.node(Op::Head { weight: architecture.head }, "logits", &[normed], &[]);
    build.graph.backward = build.graph.nodes.len();
    build.graph
}

/// The end of a block: a product, which may be normed, and of which training may leave a share out.
struct Block {
    /// The names of the product, of what an adapter adds to it, of the norm, of dropout and of the sum's norm.
    whats: [&'static str; 5],
    linear: Linear,
    norms: BlockNorms,
    /// Which of the layer's places of dropout it is.
    dropout: usize,
    site: InterventionSite,
}

struct Build<'a> {
    architecture: &'a Architecture,
    graph: Graph,
    layer: Option<usize>,
    hidden: usize,
    training: bool,
    /// The rates of the model's own dropout.
    rates: DropoutRates,
    intervened: bool,
    captured: &'a [(Captured, usize)],
}

impl Build<'_> {
    fn value(&mut self, name: &'static str, columns: usize) -> ValueId {
        self.graph.value(name, columns)
    }

    fn node(&mut self, op: Op, what: &'static str, reads: &[ValueId], writes: &[ValueId]) {
        let site = Site::new(self.layer, what);
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.graph.nodes.push(Node { op, reads, writes, site });
    }

    fn decoder_layer(&mut self, (index, layer): (usize, &Layer), x: ValueId) -> ValueId {
        let (attention, mlp) = (layer.attention.as_ref(), layer.mlp.as_ref());
        let norms = attention.and_then(|block| block.norms.before);
        let normed = self.norm(norms, "attention norm", x);
        // Parallel blocks read x before the sums that pass its gradient on as it is, so that the backward pass adds to
        // it after them.
        let beside = mlp.filter(|_| layer.parallel && attention.is_some());
        let beside = beside.map(|block| match block.norms.before {
            Some(norm) => (self.norm(Some(norm), "mlp norm", x), None),
            None => (x, Some(self.gate_up(block, x))),
        });
        let middle = attention.map_or(x, |block| self.attention((index, block), normed, x));
        let Some(block) = mlp else { return middle };
        let (normed, gate_up) =
            beside.unwrap_or_else(|| (self.norm(block.norms.before, "mlp norm", middle), None));
        let gate_up = gate_up.unwrap_or_else(|| self.gate_up(block, normed));
        let (width, activation, gated) = (block.feed, block.activation, block.gated);
        let activated = self.value("activation", width);
        let mlp = MlpActivation { width, activation, gated };
        self.node(Op::Activation(mlp), "activation", &[gate_up], &[activated]);
        let block = Block {
            whats: ["down", "down adapter", "mlp post norm", "mlp dropout", "mlp sum norm"],
            linear: block.down,
            norms: block.norms,
            dropout: 2,
            site: InterventionSite::Mlp(index),
        };
        self.add_block(block, activated, middle)
    }

    /// x plus what attention makes of its norm.
    fn attention(
        &mut self,
        (index, block): (usize, &AttentionBlock),
        normed: ValueId,
        x: ValueId,
    ) -> ValueId {
        let attention = block.attention;
        let mut qkv = self.value("qkv", attention.stride());
        self.linear(block.qkv, ["q, k, v", "q, k, v adapter"], &[normed], qkv);
        self.capture_heads(index, attention, qkv);
        if let Some(norms) = block.head_norms {
            let raw = qkv;
            qkv = self.value("normed qkv", attention.stride());
            let head_dim = self.architecture.weights[norms.weight].columns;
            let [heads, kv_heads] = [attention.heads, attention.kv_heads]
                .map(|heads| heads * attention.head_dim / head_dim);
            let attention = Attention { heads, kv_heads, head_dim, ..attention };
            self.node(Op::HeadNorms { norms, attention }, "q, k norms", &[raw], &[qkv]);
        }
        if attention.rope.is_some() {
            let rotated = self.value("rotated qkv", attention.stride());
            self.node(Op::Rope { attention }, "rope", &[qkv], &[rotated]);
            qkv = rotated;
        }
        let output = self.value("attention output", attention.width());
        let logsumexp = self.value("logsumexp", attention.heads);
        let rate = self.rates.attention;
        let dropout = (rate > 0.0).then(|| Dropout::of_model(rate, self.layer, 0));
        let op = Op::Attention { attention, dropout };
        self.node(op, "attention", &[qkv], &[output, logsumexp]);
        if let Some(number) = self.captures((Captured::Attention, index)) {
            let what = Captured::Attention;
            let op = Op::Capture { what, index: number, first: 0, columns: attention.heads };
            self.node(op, "capture", &[qkv, logsumexp], &[]);
        }
        self.intervene(InterventionSite::Heads(index), output);
        let [post, dropout, sum] =
            ["attention post norm", "attention dropout", "attention sum norm"];
        let block = Block {
            whats: ["output", "output adapter", post, dropout, sum],
            linear: block.output,
            norms: block.norms,
            dropout: 1,
            site: InterventionSite::Attention(index),
        };
        self.add_block(block, output, x)
    }

    /// What the activation of a feed-forward block reads.
    fn gate_up(&mut self, block: &FeedForward, normed: ValueId) -> ValueId {
        let (gated, width) = (block.gated, block.feed);
        let (name, columns) = if gated { ("gate and up", 2 * width) } else { ("up", width) };
        let gate_up = self.value(name, columns);
        let whats = if gated { ["gate, up", "gate, up adapter"] } else { ["up", "up adapter"] };
        self.linear(block.gate_up, whats, &[normed], gate_up);
        gate_up
    }

    /// Lets interventions change x in place, in a graph that has any.
    fn intervene(&mut self, site: InterventionSite, x: ValueId) {
        if self.intervened {
            self.node(Op::Intervene { site }, "interventions", &[x], &[x]);
        }
    }

    /// The number of what is captured of a layer, if it is.
    fn captures(&self, what: (Captured, usize)) -> Option<usize> {
        self.captured.iter().position(|known| *known == what)
    }

    /// Captures rows, if they are asked for.
    fn capture(&mut self, what: (Captured, usize), x: ValueId) {
        self.capture_columns(what, x, (0, self.hidden));
    }

    fn capture_columns(
        &mut self,
        what: (Captured, usize),
        x: ValueId,
        (first, columns): (usize, usize),
    ) {
        if let Some(index) = self.captures(what) {
            let op = Op::Capture { what: what.0, index, first, columns };
            self.node(op, "capture", &[x], &[]);
        }
    }

    fn capture_heads(&mut self, layer: usize, attention: Attention, qkv: ValueId) {
        let (width, kv_width) = (attention.width(), attention.kv_heads * attention.head_dim);
        self.capture_columns((Captured::Query, layer), qkv, (0, width));
        self.capture_columns((Captured::Key, layer), qkv, (width, kv_width));
        self.capture_columns((Captured::Value, layer), qkv, (width + kv_width, kv_width));
    }

    fn dropout(&mut self, dropout: Dropout, what: &'static str, reads: &[ValueId], y: ValueId) {
        self.node(Op::Dropout { dropout, write: WriteMode::Overwrite }, what, reads, &[y]);
    }

    /// What a block reads: x, or its norm.
    fn norm(&mut self, norm: Option<Norm>, what: &'static str, x: ValueId) -> ValueId {
        let Some(norm) = norm else { return x };
        let normed = self.value(what, self.hidden);
        self.node(Op::Norm(norm), what, &[x], &[normed]);
        normed
    }

    /// x plus the end of a block that computed `from`.
    fn add_block(&mut self, block: Block, from: ValueId, x: ValueId) -> ValueId {
        let Block { whats, linear, norms, dropout, site } = block;
        let [product, adapter, post_norm, kept, of_sum] = whats;
        let norm = norms.behind;
        let rate = self.rates.residual;
        let drops = rate > 0.0;
        // Another node adds x.
        let follows = drops || self.intervened;
        // What a node reads and writes: the last one adds x, the others leave a value of this name.
        let end = |build: &mut Self, last, name, from| {
            let value = build.value(if last { "residual" } else { name }, build.hidden);
            (if last { vec![from, x] } else { vec![from] }, value)
        };
        let (reads, mut y) = end(self, norm.is_none() && !follows, "product", from);
        self.linear(linear, [product, adapter], &reads, y);
        if let Some(norm) = norm {
            let (reads, normed) = end(self, !follows, "normed product", y);
            self.node(Op::Norm(norm), post_norm, &reads, &[normed]);
            y = normed;
        }
        if drops {
            let (reads, sum) = end(self, true, "", y);
            self.dropout(Dropout::of_model(rate, self.layer, dropout), kept, &reads, sum);
            y = sum;
        }
        if self.intervened {
            let (reads, sum) = end(self, true, "", y);
            self.node(Op::Intervene { site }, "interventions", &reads, &[sum]);
            match site {
                InterventionSite::Attention(layer) => {
                    self.capture((Captured::AttentionOutput, layer), y);
                }
                InterventionSite::Mlp(layer) => self.capture((Captured::Mlp, layer), y),
                _ => {}
            }
            y = sum;
        }
        self.norm(norms.of_sum, of_sum, y)
    }

    /// A product, and what an adapter adds to it; each by its name. The short rows come first: what they are multiplied
    /// by may then be more terms of the product's own sums, and in the backward pass likewise.
    fn linear(&mut self, linear: Linear, whats: [&'static str; 2], reads: &[ValueId], y: ValueId) {
        let Linear { weight, bias } = linear;
        let short = self.short_rows(weight, whats[1], reads[0]);
        self.node(Op::Linear { weight, bias }, whats[0], reads, &[y]);
        for (group, z) in short {
            self.node(Op::LowRank(group), whats[1], &[z, y], &[y]);
        }
    }

    /// The short rows of what an adapter adds to the product of `x` with a weight. They are scaled, so that the gradient
    /// of B is a product of what is there.
    fn short_rows(
        &mut self,
        weight: WeightId,
        what: &'static str,
        x: ValueId,
    ) -> Vec<(LowRankGroup, ValueId)> {
        let architecture = self.architecture;
        let rate = if self.training { architecture.adapter_dropout() } else { 0.0 };
        let groups = architecture.low_rank_groups(weight, rate > 0.0);
        let mut short = |group: LowRankGroup| {
            let mut x = x;
            if rate > 0.0 {
                let kept = self.value("kept inputs", self.graph.values[x].columns);
                self.dropout(Dropout { rate, place: group.first }, what, &[x], kept);
                x = kept;
            }
            let z = self.value("short rows", architecture.short_columns(group));
            self.node(Op::ShortRows(group), what, &[x], &[z]);
            (group, z)
        };
        groups.into_iter().map(&mut short).collect()
    }
}
