//! What the pass decides, read from its text.

use super::pass::LayoutPass;
use super::*;
use crate::arch::{Architecture, DropoutRates};
use crate::caps::Target;
use crate::config::ModelConfig;
use crate::graph::{build, build_training, differentiate};
use crate::kernels::WeightFormat;

fn params(kv_heads: usize, shard_bytes: u64) -> Params {
    let config = format!(
        r#"{{"model_type":"llama","vocab_size":512,"hidden_size":256,"intermediate_size":512,
            "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":{kv_heads},"head_dim":64,
            "max_position_embeddings":1024,"tie_word_embeddings":true}}"#
    );
    let config = ModelConfig::from_json(&config).unwrap();
    Params::new(Architecture::of(&config), shard_bytes).unwrap()
}

fn floor() -> Capabilities {
    Capabilities::floor(Target::Browser)
}

fn large() -> Capabilities {
    let mut caps = floor();
    caps.adapter.vendor = "nvidia".into();
    caps.adapter.architecture = "hopper".into();
    caps
}

fn request<'a>(
    caps: &'a Capabilities,
    params: &'a Params,
    graph: &'a Graph,
    (tokens, kind, mixed): (usize, PassKind, bool),
) -> Request<'a> {
    let matrices = Matrices { params, weights: WeightFormat::F32, mixed, rounds: false };
    let nodes = 0..graph.nodes.len();
    let state = params;
    Request { caps, graph, nodes, outside: None, matrices, state, tokens, kind }
}

fn text(
    caps: &Capabilities,
    params: &Params,
    graph: &Graph,
    of: (usize, PassKind, bool),
) -> String {
    layouts(request(caps, params, graph, of)).to_string()
}

fn step(
    caps: &Capabilities,
    params: &Params,
    tokens: usize,
    (recompute, mixed): (bool, bool),
) -> String {
    let rates = DropoutRates::default();
    let graph = differentiate(&build_training(&params.architecture, rates), &|_| true).unwrap();
    let kind =
        PassKind::Batch { recompute, by_products: Some(DocumentLength::Short), logits: tokens };
    text(caps, params, &graph, (tokens, kind, mixed))
}

/// Lines that say more than a node's name.
fn joined(text: &str) -> Vec<&str> {
    let says = |line: &&str| line.contains(':') || line.contains(" of ");
    text.lines().filter(says).map(str::trim).collect()
}

#[test]
fn a_step_on_a_large_gpu() {
    let text = step(&large(), &params(2, 128 << 20), 512, (false, false));
    let expected = [
        "2 layer 0 q, k, v: leaves partial sums",
        "3 layer 0 rope: adds up v2",
        "5 layer 0 output: leaves partial sums",
        "6 layer 0 mlp norm: adds up v6",
        "9 layer 0 down: leaves partial sums",
        "10 final norm: adds up v10",
        "11 logits backward: 1 of 1 split",
        "13 layer 0 down input: leaves partial sums",
        "14 layer 0 activation backward: adds up v14",
        "sum of 1 products: head weight sum",
        "15 layer 0 down weight: 1 of 1 split",
        "16 layer 0 gate, up input: leaves partial sums",
        "17 layer 0 gate, up weight: 1 of 1 split",
        "18 layer 0 mlp norm backward: adds up v17",
        "19 layer 0 output input: leaves partial sums",
        "20 layer 0 output weight: 1 of 1 split",
        "21 layer 0 attention backward: adds up v18, the sum of groups rotates gradients back, by \
         products of 10 tiles",
        "22 layer 0 rope backward: joined",
        "23 layer 0 q, k, v input: leaves partial sums",
        "24 layer 0 q, k, v weight: 1 of 1 split",
        "25 layer 0 attention norm backward: adds up v21",
        "sum of 4 products: layer 0 down weight sum",
        "column sum of 3 from final norm",
        "v2 qkv: 4 partial sums",
        "v3 rotated qkv: in place of v2",
        "v6 residual: 4 partial sums, added to v0",
        "v10 residual: 8 partial sums, added to v6",
        "v14 activation gradient: 4 partial sums",
        "v17 mlp norm gradient: 8 partial sums",
        "v18 attention output gradient: 4 partial sums",
        "v21 attention norm gradient: 8 partial sums",
    ];
    assert_eq!(joined(&text), expected);
}

/// A small step: the gate's gradient goes on from its product, and no gradient of a matrix is split.
#[test]
fn a_step_at_the_default_limits() {
    let text = step(&floor(), &params(4, 128 << 20), 64, (false, false));
    let joined = joined(&text);
    for line in [
        "13 layer 0 down input: then layer 0 activation backward",
        "14 layer 0 activation backward: joined",
        "16 layer 0 gate, up input: leaves partial sums",
        "column sum of 3 from final norm",
        "v10 residual: 5 partial sums, added to v6",
        "v20 qkv gradient: in place of v19",
    ] {
        assert!(joined.contains(&line), "{line} in {joined:#?}");
    }
    let split = |line: &&&str| line.contains("weight:") || line.contains("products:");
    assert_eq!(joined.iter().find(split), None);
}

/// Partial sums take memory, which computing again is to save.
#[test]
fn what_is_computed_again_waits_for_nothing() {
    let text = step(&large(), &params(2, 128 << 20), 512, (true, false));
    let sums = text.lines().map(str::trim).filter(|line| line.contains("sum of "));
    let sums: Vec<_> = sums.filter(|line| !line.contains("groups")).collect();
    let of_one = ["final norm", "layer 0 mlp norm", "layer 0 attention norm"];
    assert_eq!(sums, of_one.map(|norm| format!("column sum of 1 from {norm}")));
}

/// A model with norms of heads.
fn with_head_norms(head_dim: usize) -> Params {
    let config = format!(
        r#"{{"model_type":"qwen3","vocab_size":512,"hidden_size":256,"intermediate_size":512,
        "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":{head_dim}}}"#
    );
    let config = ModelConfig::from_json(&config).unwrap();
    Params::new(Architecture::of(&config), 128 << 20).unwrap()
}

/// A rotation that appends does the norms of heads before it, also those of partial sums, where the invocations of a head
/// share a workgroup: ten do not divide it.
#[test]
fn a_prompt_norms_heads_as_they_turn() {
    let lines = |head_dim, tokens, appends| {
        let params = with_head_norms(head_dim);
        let graph = build(&params.architecture);
        let kind = PassKind::Prompt { appends };
        let text = text(&large(), &params, &graph, (tokens, kind, false));
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| ["q, k", "rope", "rotated"].iter().any(|what| line.contains(what)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let [product, norms] = ["2 layer 0 q, k, v", "3 layer 0 q, k norms"];
    let joined = "3 layer 0 q, k norms: joined";
    assert_eq!(
        lines(64, 512, true),
        [
            product,
            joined,
            "4 layer 0 rope: does layer 0 q, k norms, appends to the cache",
            "v4 rotated qkv: in place of v2",
        ]
    );
    assert_eq!(
        lines(64, 64, true),
        [
            "2 layer 0 q, k, v: leaves partial sums",
            joined,
            "4 layer 0 rope: adds up v2, does layer 0 q, k norms, appends to the cache",
            "v4 rotated qkv: in place of v2",
        ]
    );
    let apart = "v4 rotated qkv: in place of v3";
    assert_eq!(
        lines(80, 512, true),
        [product, norms, "4 layer 0 rope: appends to the cache", apart]
    );
    assert_eq!(lines(64, 512, false), [product, norms, "4 layer 0 rope", apart]);
}

/// Norms of heads have fewer columns than those of the residual stream.
#[test]
fn norms_of_other_widths_are_summed_apart() {
    let text = step(&floor(), &with_head_norms(64), 64, (false, false));
    let sums = text.lines().map(str::trim).filter(|line| line.contains("column sum"));
    let expected = [
        "column sum of 2 from final norm",
        "column sum of 1 from layer 0 q, k norms",
        "column sum of 1 from layer 0 attention norm",
    ];
    assert_eq!(sums.collect::<Vec<_>>(), expected);
}

/// What only products by matrices read is in f16, and is then no partial sums.
#[cfg(feature = "testing")]
#[test]
fn a_mixed_step_by_matrices() {
    let table = crate::testing::gpu_adapters::table(Target::Browser);
    let caps = table.iter().find(|caps| caps.half_matrix().is_some()).unwrap();
    let text = step(caps, &params(2, 128 << 20), 512, (false, true));
    for line in ["v1 attention norm: f16", "v9 activation: f16"] {
        assert!(joined(&text).contains(&line), "{text}");
    }
    assert!(!text.contains("residual: f16"), "{text}");
}

#[test]
fn a_tensor_grows_up_to_a_limit() {
    let mut caps = floor();
    caps.limits.max_storage_buffer_binding_size = 1024;
    let params = params(4, 128 << 20);
    let graph = build(&params.architecture);
    let mut pass = LayoutPass::new(request(
        &caps,
        &params,
        &graph,
        (1, PassKind::Prompt { appends: false }, false),
    ));
    let first = pass.tensor("grown", 12);
    pass.tensor("another", 12);
    let second = pass.extend(first, 12, 268).unwrap();
    assert_eq!(second, Slice::new(first.buffer, 256, 12), "bindings begin at 256 bytes");
    assert_eq!(pass.extend(first, 12, 523), None, "one byte too many");
    assert_eq!(pass.extend(first, 520, 4096), None, "more than a binding");
    let third = pass.extend(first, 512, 4096).unwrap();
    assert_eq!(third, Slice::new(first.buffer, 512, 512), "refusals take nothing");
    assert_eq!(pass.layouts.tensors.iter().map(|it| it.bytes).collect::<Vec<_>>(), [1024, 12]);
}
