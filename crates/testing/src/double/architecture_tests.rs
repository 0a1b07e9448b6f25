//! Models whose layers say what they are, on the double: held to the graph's twin, which is held to differences.

use super::Double;
use super::layer_tests::decodes_as_it_trains;
use super::lora_tests::{ALL, Adapted, continued, lora, trains_on};
use super::packed_tests::{PACKED, estimates, packed};
use super::plan_tests::trains;
use super::tests::{Pair, named, software};
use crate::arch::Architecture;
use crate::session::{GenerateOptions, InferenceOptions, Inspection, NO_PROGRESS};
use crate::twins::check::assert_close;
use crate::twins::model::Network;
use pollster::block_on;
use tinyloom_kernels::testing::architectures;

const SIZES: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":4,
    "num_attention_heads":2,"initializer_range":0.1,"max_position_embeddings":512}"#;

#[test]
fn they_train_as_the_twin() {
    for (name, config) in architectures(SIZES) {
        println!("{name}");
        trains(&Double::floor(), &config, false, [40, 23]);
        trains(&software(), &config, true, [40, 23]);
        trains(&named("NVIDIA"), &config, false, [40, 23]);
    }
}

/// With weights so large that no two logits are nearly the same, where norms bound them.
fn wide(config: &str) -> String {
    let range = if config.contains(r#""none""#) { "0.1" } else { "0.2" };
    let field = |range| format!(r#""initializer_range":{range}"#);
    config.replace(&field("0.1"), &field(range))
}

#[test]
fn they_decode_as_they_train() {
    for (name, config) in architectures(SIZES) {
        println!("{name}");
        decodes_as_it_trains(&wide(&config));
    }
}

/// The architectures that together have each block, norm and activation. `tests/files/architectures.test.mjs` has
/// others.
const PACKED_ONES: [&str; 6] = [
    "all kinds",
    "alternating windows",
    "attention only",
    "feed-forward only",
    "gated and plain",
    "layer norms and biases",
];

#[test]
fn they_take_adapters_and_packed_matrices() {
    let mut all = architectures(SIZES);
    all.retain(|(name, _)| PACKED_ONES.contains(&name.as_str()));
    assert_eq!(all.len(), PACKED_ONES.len());
    for (format, (name, config)) in PACKED.into_iter().cycle().zip(all) {
        println!("{name}");
        trains_on(&packed(&Double::floor(), &config, format), lora(&ALL, 3), false);
        trains_on(&packed(&named("NVIDIA"), &config, format), lora(&ALL, 4), true);
        let pair = packed(&software(), &config, format);
        let adapted = Adapted::new(&pair, lora(&ALL, 3), 5);
        let base = Architecture::of(&pair.config);
        let base = Network { architecture: &base, weights: &pair.weights };
        let options = || GenerateOptions { weights: format, ..GenerateOptions::default() };
        for (model, network) in
            [(&pair.model, &base), (adapted.adapter.model(), &adapted.network())]
        {
            let off = continued(model, network, options());
            assert!(off <= 1e-4, "{off} nats in {}", format.name());
        }
        estimates(&config, format);
    }
}

/// Hidden states and attention of every layer, where it has any.
#[test]
fn what_each_layer_computes_is_told() {
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    for (name, config) in architectures(SIZES) {
        let pair = Pair::new(&Double::floor(), &config);
        let expected = pair.reference().look(&tokens);
        let inspect = |what| {
            let (options, progress) = (InferenceOptions::default(), NO_PROGRESS);
            block_on(pair.model.inspect(&tokens, what, options, progress))
        };
        for (layer, state) in expected.states.iter().enumerate() {
            let got = inspect(Inspection::HiddenStates { layer }).unwrap();
            assert_close(&format!("{name}: state {layer}"), &got, state, 2e-5, 2e-5);
        }
        for (layer, heads) in expected.attention.iter().enumerate() {
            for (head, probabilities) in heads.iter().enumerate() {
                let got = inspect(Inspection::Attention { layer, head }).unwrap();
                assert_close(&format!("{name}: layer {layer}"), &got, probabilities, 2e-5, 0.0);
            }
            let head = heads.len();
            let error = inspect(Inspection::Attention { layer, head }).unwrap_err();
            let told = if head == 0 { "has no attention" } else { "head is" };
            assert!(error.message.contains(told), "{name}: {error}");
        }
    }
}

#[test]
fn the_last_layers_alone_are_trained() {
    for (name, config) in architectures(SIZES) {
        let of = Architecture::of(&crate::config::ModelConfig::from_json(&config).unwrap());
        let first = of.first_trained(Some(1)).unwrap();
        let told = of.weights[first].params[0].name.clone();
        assert!(told.starts_with("model.layers.3."), "{name}: {told}");
        let before = of.weights[first - 1].params.iter().all(|it| !it.name.contains("layers.3."));
        assert!(before, "{name}");
    }
}
