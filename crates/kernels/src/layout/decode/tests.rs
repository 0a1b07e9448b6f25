//! The nodes of decoded rows, read as text.

use super::*;
use crate::arch::Architecture;
use crate::caps::{Decoding, Features, Limits, Target};
use crate::config::ModelConfig;
use crate::graph::build;
use crate::kernels::WeightFormat;
use crate::params::Params;
use std::collections::BTreeSet;

fn architecture(rest: &str) -> Architecture {
    let config = format!(
        r#"{{"vocab_size":256,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":2,
            "num_attention_heads":12,"num_key_value_heads":4{rest}}}"#
    );
    Architecture::of(&ModelConfig::from_json(&config).unwrap())
}

fn floor() -> Capabilities {
    Capabilities::floor(Target::Native)
}

fn subgroups() -> Capabilities {
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    Capabilities { features, subgroup_size: [32, 32], ..floor() }
}

/// A class whose subgroups compute whole results, with workgroups of `invocations` invocations.
fn teams(invocations: u32) -> Capabilities {
    let limits = Limits {
        max_compute_invocations_per_workgroup: invocations,
        max_compute_workgroup_size_x: invocations,
        ..floor().limits
    };
    Capabilities { limits, decoding: Some(Decoding::TEAMS), ..subgroups() }
}

/// A text, and how a device decodes it.
#[derive(Clone)]
struct Decoded {
    architecture: Architecture,
    caps: Capabilities,
    format: KvCacheFormat,
    keys: usize,
    rows: DecodeRows,
}

impl Decoded {
    /// For up to 512 tokens in a cache of f32.
    fn on(caps: Capabilities) -> Self {
        let (format, rows) = (KvCacheFormat::F32, DecodeRows::One);
        Self { architecture: architecture(""), caps, format, keys: 512, rows }
    }

    fn layouts(&self) -> DecodeLayouts {
        let params = Params::new(self.architecture.clone(), 128 << 20).unwrap();
        let graph = build(&self.architecture);
        let one = self.rows == DecodeRows::One;
        let nodes = if one { 0..graph.layers_end } else { 0..graph.nodes.len() };
        let (format, keys) = (self.format, self.keys);
        let request = DecodeRequest {
            caps: &self.caps,
            graph: &graph,
            nodes,
            outside: one.then(|| graph.last_hidden()),
            matrices: Matrices {
                params: &params,
                weights: WeightFormat::F32,
                mixed: false,
                rounds: false,
            },
            rows: self.rows,
            cache: CacheLayout { format, sequences: 1, rows: keys, ring: None, keys },
        };
        let layouts = decode_layouts(&request).unwrap();
        check(&layouts, request.outside);
        layouts
    }

    fn lines(&self) -> Vec<String> {
        self.layouts().to_string().lines().map(str::to_owned).collect()
    }

    /// What comes before the feed-forward block of a layer.
    fn attention(&self, layer: usize) -> Vec<String> {
        let (start, lines) = (format!("layer {layer} "), self.lines());
        let of_layer = lines.iter().filter_map(|line| line.strip_prefix(&start));
        let mut of_layer: Vec<_> = of_layer.map(str::to_owned).collect();
        let output = of_layer.iter().position(|line| line.starts_with("output: ")).unwrap();
        of_layer.truncate(output + 1);
        of_layer
    }
}

/// Every value is written before it is read, and has one place.
fn check(layouts: &DecodeLayouts, outside: Option<ValueId>) {
    let mut written = BTreeSet::new();
    for node in &layouts.nodes {
        let label = node.site;
        assert!(node.reads.iter().all(|read| written.contains(read)), "{label}\n{layouts}");
        written.extend(node.writes.iter().copied());
    }
    let places: Vec<_> = written
        .iter()
        .map(|&value| layouts.home(value))
        .filter(|&it| outside != Some(it))
        .collect();
    assert!(places.iter().all(|place| layouts.tensors.contains(place)), "{layouts}");
    let tensors: BTreeSet<_> = layouts.tensors.iter().copied().collect();
    assert_eq!(tensors, places.into_iter().collect(), "{layouts}");
    assert_eq!(tensors.len(), layouts.tensors.len());
}

const OUTPUT: &str = "output: Linear(attention output, embedding) -> residual [in place]";

#[test]
fn norms_of_heads_keep_rotation_and_append_apart() {
    let config = r#"{"model_type":"qwen3","vocab_size":256,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":2,
        "num_attention_heads":12,"num_key_value_heads":4,"head_dim":64}"#;
    let architecture = Architecture::of(&ModelConfig::from_json(config).unwrap());
    let before = [
        "q, k, v: NormLinear(residual [in place]) -> qkv",
        "q, k norms: HeadNorms(qkv) -> normed qkv",
        "rope: Rope(normed qkv) -> rotated qkv [in place]",
        "cache append: CacheAppend(rotated qkv [in place])",
    ];
    let output = "output: Linear(attention output, residual [in place]) -> residual [in place]";
    let expect = |caps: Capabilities, attention: &[&str]| {
        let qwen3 = Decoded { architecture: architecture.clone(), ..Decoded::on(caps) };
        assert_eq!(qwen3.attention(1), [&before, attention].concat());
    };
    // Without subgroups a wide workgroup waits at barriers, so several read ranges of the keys, and a dispatch merges them.
    expect(
        floor(),
        &[
            "attention: Attention(rotated qkv [in place]) -> attention partials [8 ranges]",
            "attention merge: MergePartials(attention partials [8 ranges]) -> attention output",
            output,
        ],
    );
    expect(
        subgroups(),
        &["attention: Attention(rotated qkv [in place]) -> attention output", output],
    );
    // A large GPU has ranges again, which the output product merges.
    expect(
        teams(512),
        &[
            "attention: Attention(rotated qkv [in place]) -> attention partials [6 ranges]",
            "output: MergingLinear(attention partials [6 ranges], residual [in place]) -> residual [in place]",
        ],
    );
}

const APPEND: &str = "q, k, v: QkvAppend(embedding, angles) -> query [query heads]";

#[test]
fn default_limits_decode_a_short_text_without_subgroups() {
    assert_eq!(
        Decoded::on(floor()).lines(),
        [
            "embedding: EmbedAngles() -> embedding, angles",
            "layer 0 q, k, v: QkvAppend(embedding, angles) -> query [query heads]",
            "layer 0 attention: Attention(query [query heads]) -> attention partials [8 ranges]",
            "layer 0 attention merge: MergePartials(attention partials [8 ranges]) -> attention output",
            "layer 0 output: Linear(attention output, embedding) -> residual [in place]",
            "layer 0 gate, up: NormLinearGate(residual [in place]) -> activation",
            "layer 0 down: Linear(activation, residual [in place]) -> residual [in place]",
            "layer 1 q, k, v: QkvAppend(residual [in place], angles) -> query [query heads]",
            "layer 1 attention: Attention(query [query heads]) -> attention partials [8 ranges]",
            "layer 1 attention merge: MergePartials(attention partials [8 ranges]) -> attention output",
            "layer 1 output: Linear(attention output, residual [in place]) -> residual [in place]",
            "layer 1 gate, up: NormLinearGate(residual [in place]) -> activation",
            "layer 1 down: Linear(activation, residual [in place]) -> residual",
        ]
    );
    let shorter = Decoded { keys: 256, ..Decoded::on(floor()) };
    let attention = "attention: Attention(query [query heads]) -> attention output";
    assert_eq!(shorter.attention(0), [APPEND, attention, OUTPUT]);
}

#[test]
fn subgroups_read_a_short_text_in_one_range() {
    let short = Decoded::on(subgroups());
    let attention = "attention: Attention(query [query heads]) -> attention output";
    assert_eq!(short.attention(1)[1], attention);
    assert_eq!(short.attention(0), [APPEND, attention, OUTPUT]);
    let long = Decoded { keys: 4096, ..short }.attention(0);
    assert_eq!(long.len(), 4, "{long:?}");
    assert!(long[2].starts_with("attention merge: MergePartials("), "{long:?}");
}

const PARTIALS: &str = "attention partials [6 ranges]";

#[test]
fn the_output_product_of_a_short_context_merges_ranges() {
    let short = Decoded::on(teams(256));
    let attention = format!("attention: Attention(query [query heads]) -> {PARTIALS}");
    let output = format!("output: MergingLinear({PARTIALS}, embedding) -> residual [in place]");
    assert_eq!(short.attention(0), [APPEND, &attention, &output]);
    let long = Decoded { keys: 4096, ..short }.attention(0);
    assert_eq!(long.last().unwrap(), OUTPUT);
}

#[test]
fn wide_workgroups_join_the_newest_row_to_attention() {
    let short = Decoded::on(teams(512));
    let joined = format!(
        "q, k, v, attention: QkvAttentionDecode(embedding, angles) -> query [query heads], {PARTIALS}"
    );
    let output = format!(
        "output: MergingLinear({PARTIALS}, query [query heads], embedding) -> residual [in place]"
    );
    assert_eq!(short.attention(0), [joined, output]);
    let long = Decoded { keys: 4096, ..short }.attention(0);
    assert_eq!(long[0], APPEND);
}

#[test]
fn a_packed_cache_is_appended_to_by_a_kernel_of_its_own() {
    for format in [KvCacheFormat::F16, KvCacheFormat::Int8] {
        let decoded = Decoded { format, ..Decoded::on(teams(512)) };
        assert_eq!(decoded.lines()[0], "embedding: Embed() -> embedding");
        let attention = format!("attention: Attention(rotated qkv) -> {PARTIALS}");
        let output = format!("output: MergingLinear({PARTIALS}, embedding) -> residual [in place]");
        let expected = [
            "q, k, v: NormLinear(embedding) -> rotated qkv",
            "rope: Rope(rotated qkv) -> rotated qkv",
            "cache append: CacheAppend(rotated qkv)",
            &attention,
            &output,
        ];
        assert_eq!(decoded.attention(0), expected);
    }
}

#[test]
fn a_window_bounds_the_ranges() {
    let mut decoded = Decoded { keys: 4096, ..Decoded::on(teams(256)) };
    decoded.architecture.layers[0].attention.as_mut().unwrap().attention.window = Some(130);
    let [first, second] = [0, 1].map(|layer| decoded.attention(layer));
    assert!(first[1].ends_with("-> attention partials [3 ranges]"), "{first:?}");
    assert!(first[2].starts_with("output: MergingLinear("), "{first:?}");
    assert!(second[2].starts_with("attention merge: MergePartials("), "{second:?}");
    decoded.caps = floor();
    assert!(decoded.attention(0)[1].ends_with("-> attention output"), "one range is enough");
}

#[test]
fn a_part_of_a_head_is_rotated_by_a_kernel_of_its_own() {
    let mut decoded = Decoded::on(teams(512));
    decoded.architecture.ropes[0].head_dim /= 2;
    let attention = decoded.attention(0);
    assert_eq!(
        attention[1..3],
        ["rope: Rope(rotated qkv) -> rotated qkv", "cache append: CacheAppend(rotated qkv)"]
    );
}

#[test]
fn one_row_is_rotated_by_the_angles_of_its_embedding_alone() {
    let mut decoded = Decoded::on(floor());
    let rope = decoded.architecture.ropes[0].clone();
    decoded.architecture.ropes.push(rope);
    decoded.architecture.layers[1].attention.as_mut().unwrap().attention.rope = Some(1);
    assert_eq!(decoded.attention(0)[0], APPEND);
    assert_eq!(decoded.attention(1)[1], "rope: Rope(rotated qkv) -> rotated qkv");
    decoded.rows = DecodeRows::Batched(2);
    assert!(decoded.attention(1)[0].contains("QkvAppend("), "batched rows read the table");
}

#[test]
fn biases_are_added_by_the_product() {
    let decoded =
        Decoded { architecture: architecture(r#","model_type":"qwen2""#), ..Decoded::on(floor()) };
    assert_eq!(decoded.attention(0)[0], APPEND);
    let nodes = decoded.layouts().nodes;
    let biased = |op| matches!(op, DecodeOp::QkvAppend { bias: Some(_), .. });
    assert_eq!(nodes.iter().filter(|node| biased(node.op)).count(), 2);
    // A norm before a product with a bias that rotates nothing is a node of its own.
    let decoded = Decoded { format: KvCacheFormat::F16, ..decoded };
    let expected = [
        "q, k, v norm: Norm(embedding) -> norm",
        "q, k, v: Linear(norm) -> rotated qkv",
        "rope: Rope(rotated qkv) -> rotated qkv",
        "cache append: CacheAppend(rotated qkv)",
    ];
    assert_eq!(decoded.attention(0)[..4], expected);
}

#[test]
fn a_cpu_joins_nothing() {
    let lines = Decoded::on(Capabilities { software: true, ..floor() }).lines();
    let expected = [
        "embedding: Embed() -> embedding",
        "layer 0 q, k, v norm: Norm(embedding) -> norm",
        "layer 0 q, k, v: Linear(norm) -> rotated qkv",
        "layer 0 rope: Rope(rotated qkv) -> rotated qkv",
        "layer 0 cache append: CacheAppend(rotated qkv)",
    ];
    assert_eq!(lines[..5], expected);
    let gate: Vec<_> = lines.iter().filter(|line| line.starts_with("layer 0 gate, up")).collect();
    let expected = [
        "layer 0 gate, up norm: Norm(residual [in place]) -> norm",
        "layer 0 gate, up: Linear(norm) -> gate and up",
        "layer 0 gate, up activation: Activation(gate and up) -> activation",
    ];
    assert_eq!(gate, expected.iter().collect::<Vec<_>>());
}

#[test]
fn batched_rows_add_residuals_of_their_own() {
    let decoded = Decoded { rows: DecodeRows::Batched(3), ..Decoded::on(teams(512)) };
    let expected = [
        "embedding: Embed() -> embedding",
        "layer 0 q, k, v: QkvAppend(embedding) -> query [query heads]",
        "layer 0 attention: Attention(query [query heads]) -> attention output",
        "layer 0 output: Linear(attention output, embedding) -> residual",
    ];
    let lines = decoded.lines();
    assert_eq!(lines[..4], expected);
    assert_eq!(lines.last().unwrap(), "logits: NormLinear(residual)");
}
