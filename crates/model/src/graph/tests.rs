//! The derived passes, read node by node.

use super::*;
use crate::arch::Architecture;
use crate::config::ModelConfig;
use std::collections::HashSet;

fn architecture(layers: usize, tied: bool) -> Architecture {
    let config = format!(
        r#"{{"vocab_size":96,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":{layers},
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"tie_word_embeddings":{tied}}}"#
    );
    Architecture::of(&ModelConfig::from_json(&config).unwrap())
}

fn labels(nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|node| node.site.to_string()).collect()
}

#[test]
fn a_layer_is_written_once() {
    let graph = build(&architecture(2, true));
    let layer: Vec<_> = graph.nodes.iter().filter(|node| node.site.layer == Some(1)).collect();
    let whats: Vec<_> = layer.iter().map(|node| node.site.what).collect();
    let expected = [
        "attention norm",
        "q, k, v",
        "rope",
        "attention",
        "output",
        "mlp norm",
        "gate, up",
        "activation",
        "down",
    ];
    assert_eq!(whats, expected);
    assert_eq!(graph.nodes[graph.layers_end].site.what, "final norm");
}

fn parallel(layers: usize) -> Architecture {
    let mut architecture = architecture(layers, false);
    architecture.layers.iter_mut().for_each(|layer| layer.parallel = true);
    architecture
}

/// Both blocks read one value, and both norms add to its gradient behind the sums that begin it.
#[test]
fn parallel_blocks_read_one_value() {
    let graph = build(&parallel(1));
    let of = |what: &str| graph.nodes.iter().find(|node| node.site.what == what).unwrap();
    let x = of("embedding").writes[0];
    assert_eq!((of("attention norm").reads[0], of("mlp norm").reads[0]), (x, x));
    assert_eq!((of("output").reads[1], of("down").reads[1]), (x, of("output").writes[0]));
    let training = differentiate(&graph, &|_| true).unwrap();
    let norms: Vec<_> = training.nodes[training.backward..]
        .iter()
        .filter_map(|node| match node.op {
            Op::NormBackward { write, .. } => Some((node.site.what, write, node.writes[0])),
            _ => None,
        })
        .collect();
    let whats: Vec<_> = norms.iter().map(|(what, write, _)| (*what, *write)).collect();
    let (first, add) = (WriteMode::Overwrite, WriteMode::Add);
    assert_eq!(whats, [("final norm", first), ("mlp norm", add), ("attention norm", add)]);
    assert!(norms.iter().all(|(.., gradient)| *gradient == norms[0].2));
}

#[test]
fn every_value_is_written_before_it_is_read() {
    for architecture in [architecture(3, false), parallel(3)] {
        let forward = build(&architecture);
        let training = differentiate(&forward, &|_| true).unwrap();
        for graph in [&forward, &training, &remat(&training)] {
            let mut written: HashSet<ValueId> = HashSet::new();
            for node in &graph.nodes {
                for read in &node.reads {
                    let (site, value) = (node.site, graph.values[*read]);
                    assert!(written.contains(read), "{site} reads {value}");
                }
                written.extend(&node.writes);
            }
        }
    }
}

#[test]
fn the_last_layer_is_not_computed_again() {
    let training = differentiate(&build(&architecture(2, true)), &|_| true).unwrap();
    let again = remat(&training);
    let extra = again.nodes.len() - training.nodes.len();
    // All but the activation and the product behind it, which no backward node reads.
    assert_eq!(extra, 7, "{:?}", labels(&again.nodes[again.backward..]));
    let first_layer = again.nodes[again.backward..].iter().filter(|n| n.site.layer == Some(0));
    let forward = first_layer.filter(|n| matches!(n.op, Op::Attention { .. })).count();
    assert_eq!(forward, 1);
}

#[test]
fn nothing_runs_below_the_lowest_trained_weight() {
    let architecture = architecture(3, false);
    let top = architecture.layers[2].down.weight;
    let training = differentiate(&build(&architecture), &|weight| weight == top).unwrap();
    let backward = labels(&training.nodes[training.backward..]);
    assert_eq!(backward, ["logits", "final norm", "layer 2 down"]);
    let nothing = differentiate(&build(&architecture), &|_| false).unwrap();
    assert_eq!(labels(&nothing.nodes[nothing.backward..]), ["logits"]);
    let head = differentiate(&build(&architecture), &|weight| weight == architecture.head).unwrap();
    assert!(head.nodes.last().unwrap().writes.is_empty(), "the head's input needs no gradient");
}

#[test]
fn what_is_no_forward_pass_is_an_error() {
    let forward = build(&architecture(1, true));
    let twice = differentiate(&forward, &|_| true).unwrap();
    let error = differentiate(&twice, &|_| true).unwrap_err();
    assert!(error.message.contains("a graph ends with its head"), "{error}");
}
