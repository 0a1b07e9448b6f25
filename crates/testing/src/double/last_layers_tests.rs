//! Trainers of the last layers, on the double: held to the graph's twin in f64.

use super::Double;
use super::session_tests::{options, reloaded, steps};
use super::tests::{
    ALTERNATING, BIASED, LEARNED, NORMED, PARALLEL, Pair, TIED, UNTIED, batch, weights,
};
use crate::arch::Architecture;
use crate::config::LoraConfig;
use crate::error::{Error, ErrorCode};
use crate::gpu::Gpu;
use crate::session::{
    Adapter, EstimateOptions, Model, NO_PROGRESS, Resume, Trainer, TrainerOptions, estimate,
};
use crate::twins::check::assert_close;
use crate::twins::model::Network;
use pollster::block_on;
use std::collections::HashMap;
use std::rc::Rc;

fn last(layers: usize) -> TrainerOptions {
    TrainerOptions { last_layers: Some(layers), ..options() }
}

fn trainer(model: &Rc<Model>, options: TrainerOptions) -> Rc<Trainer> {
    block_on(Trainer::create(model, options, NO_PROGRESS)).unwrap()
}

/// Whether a tensor belongs to layer `first` or follows it.
fn behind(name: &str, first: usize) -> bool {
    let own = ["model.layers.", "transformer.h.", "gpt_neox.layers."];
    match own.into_iter().find_map(|prefix| name.strip_prefix(prefix)) {
        Some(rest) => rest.split('.').next().unwrap().parse::<usize>().unwrap() >= first,
        None => !["embed_tokens", "wte", "wpe", "embed_in"].iter().any(|own| name.contains(own)),
    }
}

fn trains(config: &str, layers: usize, recompute: bool) {
    let pair = Pair::new(&Double::floor(), config);
    let architecture = Architecture::of(&pair.config);
    let first = architecture.layers.len() - layers;
    let options = TrainerOptions { gradient_accumulation: 1, recompute, ..last(layers) };
    let trainer = trainer(&pair.model, options);
    let network = Network { architecture: &architecture, weights: &pair.weights };
    let batch = batch(&pair.config, 3, 32);
    let trained = |weight: usize| behind(&architecture.weights[weight].params[0].name, first);
    let (loss, expected) = network.loss_and_gradients(&batch, &trained);
    let tensors = pair.model.tensors();
    let read = |index| block_on(pair.model.read_tensor(index)).unwrap();
    let before: Vec<_> = (0..tensors.len()).map(read).collect();
    let metrics = block_on(trainer.step(&batch)).unwrap();
    assert_close("loss", &[metrics.loss], &[loss], 0.0, 2e-6);
    let norm = expected.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
    assert_close("norm", &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-5);
    let own = &trainer.layout().tensors;
    assert_eq!(own.len(), expected.len());
    for (index, tensor) in own.iter().enumerate() {
        let gradient = block_on(trainer.read_gradient(index)).unwrap();
        let gradient: Vec<_> = gradient.into_iter().map(f64::from).collect();
        assert_close(&tensor.name, &gradient, &expected[&tensor.name], 1e-6, 1e-4);
    }
    for (index, (name, _)) in tensors.iter().enumerate() {
        assert_eq!(read(index) != before[index], behind(name, first), "{name}");
    }
}

#[test]
fn a_step_changes_the_last_layers_by_the_twins_gradients_and_nothing_else() {
    for config in [TIED, UNTIED, NORMED, BIASED, LEARNED, ALTERNATING, PARALLEL] {
        trains(config, 1, false);
    }
    trains(UNTIED, 2, false);
    trains(NORMED, 1, true);
}

/// Neither gradients, state nor dispatches of the rest.
#[test]
fn what_is_below_takes_nothing_and_an_estimate_says_so() {
    let double = Double::floor();
    for config in [TIED, UNTIED] {
        let pair = Pair::new(&double, config);
        let model = &pair.model;
        let ask = |trainer| {
            let options = EstimateOptions { trainer: Some(trainer), ..Default::default() };
            estimate(&pair.config, &options, Some(Gpu::capabilities(&*double))).unwrap()
        };
        let (some, all) = (ask(last(1)), ask(options()));
        let trainer = trainer(model, last(1));
        assert_eq!(model.gpu_bytes(), some.bytes.total());
        assert_eq!(some.trainable, trainer.layout().parameter_count());
        assert_eq!(all.trainable, all.parameters);
        let bytes = trainer.layout().bytes();
        assert!(bytes < model.layout().bytes());
        assert!((bytes..bytes + 256).contains(&some.bytes.gradients));
        assert!((2 * bytes..2 * bytes + 256).contains(&some.bytes.state));
        assert!(some.bytes.activations < all.bytes.activations);
        assert!(some.operations.step < all.operations.step);
        let mut rows = HashMap::new();
        for row in trainer.plan().unwrap() {
            *rows.entry(row.label).or_insert(0) += 1;
        }
        let of = |layer: usize, what: &str| rows.get(&format!("layer {layer} {what}"));
        assert_eq!([of(0, "down"), of(1, "down")], [Some(&1), Some(&1)], "forward");
        for what in ["down weight", "down input", "q, k, v weight"] {
            assert_eq!([of(0, what), of(1, what)], [None, Some(&1)], "{what}");
        }
        assert_eq!(of(1, "q, k, v input"), Some(&1), "the layer's own norm is trained");
        drop(trainer);
        model.free();
    }
}

#[test]
fn a_resume_keeps_it_to_the_bit() {
    for config in [TIED, BIASED] {
        let whole = Pair::new(&Double::floor(), config);
        let expected = steps(&trainer(&whole.model, last(1)), 5);
        assert!(expected[4] < expected[0], "{expected:?}");
        let parted = Pair::new(&Double::floor(), config);
        let first = trainer(&parted.model, last(1));
        let before = steps(&first, 3);
        let (model, second) = reloaded(&parted.model, &first);
        assert_eq!(second.options().last_layers, Some(1));
        assert_eq!(second.optimizer_tensors(), first.optimizer_tensors());
        assert_eq!([before, steps(&second, 2)].concat(), expected);
        assert_eq!(weights(&model), weights(&whole.model));
    }
}

#[test]
fn layers_that_are_not_there_are_refused() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let held = Gpu::counters(&*double).gpu_bytes;
    let refused = |model, options| -> Error {
        block_on(Trainer::create(model, options, NO_PROGRESS)).map(drop).unwrap_err()
    };
    for layers in [0, 3] {
        let error = refused(&pair.model, last(layers));
        assert_eq!(error.code, ErrorCode::InvalidOptions);
        let words = format!("lastLayers is {layers}; it must be from 1 to num_hidden_layers, 2");
        assert_eq!(error.message, words);
    }
    assert_eq!(Gpu::counters(&*double).gpu_bytes, held);
    let state = block_on(trainer(&pair.model, last(1)).state()).unwrap();
    let edited = state.replace("\"lastLayers\": 1", "\"lastLayers\": 3");
    let error = Resume::new(&pair.config, &edited).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidCheckpoint);
    assert!(error.message.contains("trainer_state.json: lastLayers is 3"), "{error}");
    let adapter =
        block_on(Adapter::create(&pair.model, LoraConfig::default(), NO_PROGRESS)).unwrap();
    assert!(refused(adapter.model(), last(1)).message.contains("targets"));
}
