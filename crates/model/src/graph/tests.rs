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

/// Both blocks read one value, and both norms add to its gradient after the sums that begin it.
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

/// Each site has one node, and nothing that the pass without them computes is missing.
#[test]
fn interventions_have_a_node_at_each_site() {
    for architecture in [architecture(3, false), parallel(3)] {
        let (plain, graph) = (build(&architecture), build_intervened(&architecture));
        let site = |node: &Node| match node.op {
            Op::Intervene { site } => Some(site.number()),
            _ => None,
        };
        let mut sites: Vec<_> = graph.nodes.iter().filter_map(site).collect();
        sites.sort_unstable();
        assert_eq!(sites, (0..InterventionSite::count(3)).collect::<Vec<_>>());
        let others: Vec<_> = graph.nodes.iter().filter(|node| site(node).is_none()).collect();
        let whats = |node: &&Node| node.site;
        assert_eq!(
            others.iter().map(whats).collect::<Vec<_>>(),
            plain.nodes.iter().map(|node| node.site).collect::<Vec<_>>()
        );
        let layer = |at: usize| graph.hidden_state(at).map(|node| site(&graph.nodes[node]));
        assert_eq!(layer(0), Some(Some(InterventionSite::Residual(0).number())));
        assert_eq!(layer(2), Some(Some(InterventionSite::Residual(2).number())));
    }
}

/// The backward pass ends with the embedding's state, and has the gradients of weights nowhere.
#[test]
fn gradients_of_states_are_captured_when_they_are_whole() {
    let graph = differentiate_states(&build(&architecture(3, false)), &[0, 1, 3]).unwrap();
    let backward = &graph.nodes[graph.backward..];
    let captures = backward.iter().enumerate().filter_map(|(at, node)| match node.op {
        Op::Capture { index, .. } => Some((index, at)),
        _ => None,
    });
    let captures = captures.collect::<Vec<_>>();
    assert_eq!(captures.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(captures[2].1 + 1, backward.len(), "nothing runs behind the first state");
    assert_eq!(backward[captures[1].1 - 1].site.to_string(), "layer 1 attention norm");
    let weights = |node: &&Node| matches!(node.op, Op::LinearWeight { .. });
    assert_eq!(backward.iter().filter(weights).count(), 0);
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
    // All but the activation and the product after it, which no backward node reads.
    assert_eq!(extra, 7, "{:?}", labels(&again.nodes[again.backward..]));
    let first_layer = again.nodes[again.backward..].iter().filter(|n| n.site.layer == Some(0));
    let forward = first_layer.filter(|n| matches!(n.op, Op::Attention { .. })).count();
    assert_eq!(forward, 1);
}

#[test]
fn nothing_runs_below_the_lowest_trained_weight() {
    let architecture = architecture(3, false);
    let top = architecture.layers[2].mlp.as_ref().unwrap().down.weight;
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
