//! Lowering has no memory: a node's dispatches are the same whatever is lowered before it.

use super::*;
use crate::arch::{Architecture, DropoutRates};
use crate::caps::{Capabilities, Target};
use crate::config::ModelConfig;
use crate::graph::{build, build_training, differentiate, remat};
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::layout::{DocumentLength, PassKind};
use crate::plan::{BatchLayout, PromptLayout};
use std::hash::{DefaultHasher, Hash, Hasher};

const TOKENS: usize = 512;

const LLAMA: &str = r#"{"model_type":"llama","vocab_size":512,"hidden_size":256,"intermediate_size":512,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,
    "max_position_embeddings":1024,"tie_word_embeddings":true}"#;
const QWEN3: &str = r#"{"model_type":"qwen3","vocab_size":512,"hidden_size":256,"intermediate_size":512,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":64,
    "max_position_embeddings":1024,"tie_word_embeddings":false}"#;

fn large() -> Capabilities {
    let mut caps = Capabilities::floor(Target::Browser);
    caps.adapter.vendor = "nvidia".into();
    caps.adapter.architecture = "hopper".into();
    caps
}

fn training(params: &Params, recompute: bool) -> Graph {
    let rates = DropoutRates::default();
    let graph = differentiate(&build_training(&params.architecture, rates), &|_| true).unwrap();
    if recompute { remat(&graph) } else { graph }
}

fn batch<'a>(
    caps: &'a Capabilities,
    params: &'a Params,
    graph: &'a Graph,
    recompute: bool,
) -> Lowering<'a> {
    let logits = 256;
    let kind = PassKind::Batch { recompute, by_products: Some(DocumentLength::Short), logits };
    let batch = BatchLayout::new(TOKENS);
    let rows = PassRows::Batch { batch, logits, objective: Objective::default() };
    let (tokens, documents) = (batch.tokens(), batch.documents());
    let inputs = PassInputs { tokens, documents, positions: TOKENS };
    lowering(caps, params, graph, (kind, rows, inputs))
}

fn prompt<'a>(caps: &'a Capabilities, params: &'a Params, graph: &'a Graph) -> Lowering<'a> {
    let format = KvCacheFormat::Int8;
    let rows = TOKENS;
    let cache = CacheLayout { format, sequences: 1, rows, ring: None, keys: rows };
    let layout = PromptLayout::new(TOKENS);
    let (tokens, documents) = (layout.tokens(), layout.documents());
    let inputs = PassInputs { tokens, documents, positions: TOKENS };
    lowering(
        caps,
        params,
        graph,
        (PassKind::Prompt { appends: true }, PassRows::Chunk(cache), inputs),
    )
}

fn lowering<'a>(
    caps: &'a Capabilities,
    params: &'a Params,
    graph: &'a Graph,
    (kind, rows, inputs): (PassKind, PassRows, PassInputs),
) -> Lowering<'a> {
    let matrices = Matrices { params, weights: WeightFormat::F32, mixed: false, rounds: false };
    let nodes = 0..graph.nodes.len();
    let (state, tokens) = (params, TOKENS);
    let request = Request { caps, graph, nodes, outside: None, matrices, state, tokens, kind };
    let builder = Builder::new(caps, Phase::Forward, TOKENS, Buffer::Step);
    Lowering::new(request, builder, rows, inputs)
}

/// Each node's dispatches as text, if nodes are lowered in this order. A node's own tensors are numbered from its first
/// dispatch on.
fn dispatches(mut lowering: Lowering<'_>, order: &[usize]) -> Vec<Vec<String>> {
    let layouts = Rc::clone(&lowering.layouts);
    let named = layouts.bytes(TOKENS).len();
    let mut texts = vec![vec![]; layouts.nodes.len()];
    for &index in order {
        let first = lowering.builder.dispatched();
        lowering.laid(&layouts, &layouts.nodes[index]).unwrap();
        let mut own = vec![];
        for (kernel, dispatch) in lowering.builder.dispatches_from(first) {
            let (phase, label, grid) = (dispatch.phase, &dispatch.label, kernel.grid);
            let mut text = format!("{phase:?} {label} {grid:?} {:?}", dispatch.cost);
            let mut hash = DefaultHasher::new();
            kernel.wgsl.text().hash(&mut hash);
            text += &format!(" {} {:x}", kernel.name, hash.finish());
            for slice in &dispatch.slices {
                let (offset, bytes) = (slice.offset, slice.bytes);
                text += &match slice.buffer {
                    Buffer::Ranges => format!(" {:?}", lowering.builder.range_at(offset)),
                    Buffer::Virtual(id) if id >= named => {
                        let known = own.iter().position(|&other| other == id);
                        let number = known.unwrap_or(own.len());
                        if known.is_none() {
                            own.push(id);
                        }
                        format!(" own {number} {offset}+{bytes}")
                    }
                    buffer => format!(" {buffer:?} {offset}+{bytes}"),
                };
            }
            texts[index].push(text);
        }
    }
    texts
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| index * 7919 % 101);
    order
}

fn same_in_any_order<'a>(make: &dyn Fn() -> Lowering<'a>) {
    let count = make().layouts.nodes.len();
    let in_order: Vec<usize> = (0..count).collect();
    let expected = dispatches(make(), &in_order);
    assert!(expected.iter().flatten().count() > count / 2);
    let backwards: Vec<usize> = in_order.iter().rev().copied().collect();
    for order in [shuffled(count), backwards] {
        let found = dispatches(make(), &order);
        for (node, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "node {node}");
        }
    }
}

#[test]
fn nodes_of_a_batch_are_lowered_in_any_order() {
    for caps in [Capabilities::floor(Target::Native), large()] {
        for (config, recompute) in [(LLAMA, false), (QWEN3, false), (LLAMA, true)] {
            let config = ModelConfig::from_json(config).unwrap();
            let params = Params::new(Architecture::of(&config), 128 << 20).unwrap();
            let graph = training(&params, recompute);
            same_in_any_order(&|| batch(&caps, &params, &graph, recompute));
        }
    }
}

#[test]
fn nodes_of_a_prompt_are_lowered_in_any_order() {
    for caps in [Capabilities::floor(Target::Native), large()] {
        let config = ModelConfig::from_json(QWEN3).unwrap();
        let params = Params::new(Architecture::of(&config), 128 << 20).unwrap();
        let graph = build(&params.architecture);
        same_in_any_order(&|| prompt(&caps, &params, &graph));
    }
}
