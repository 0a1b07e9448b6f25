//! Ten steps by each optimizer's reference, on models that transformers wrote
//! (`tests/reference/make_optimizer_fixtures.py`).

use super::Double;
use super::peft_tests::{feed, file, text};
use super::tests::gpu;
use crate::config::ModelConfig;
use crate::data::Batch;
use crate::session::{Model, ModelLoader, NO_PROGRESS, StepObjective, Trainer, TrainerOptions};
use crate::twins::check::assert_close;
use pollster::block_on;
use safetensors::SafeTensors;
use serde_json::{Map, Value};
use std::fs;
use std::rc::Rc;

/// `learning_rate` as `learningRate`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |all, word| all + &word[..1].to_uppercase() + &word[1..])
}

fn options(given: &Map<String, Value>, tokens: usize) -> TrainerOptions {
    let mut options: Map<_, _> =
        given.iter().map(|(name, value)| (camel(name), value.clone())).collect();
    options.insert("warmupSteps".into(), 0.into());
    options.insert("tokensPerStep".into(), tokens.into());
    TrainerOptions::from_json(&Value::from(options).to_string()).unwrap()
}

/// A fixture's model, and what it is trained on.
fn model_and_batch(of: &str) -> (Rc<Model>, Batch) {
    let config = ModelConfig::from_json(&text(of, "config.json")).unwrap();
    let mut loader = ModelLoader::new(&gpu(&Double::floor()), config).unwrap();
    feed(&mut loader, "model.safetensors", &file(of, "model.safetensors"));
    let model = block_on(loader.finish()).unwrap();
    let oracle = file(of, "oracle.safetensors");
    let oracle = SafeTensors::deserialize(&oracle).unwrap();
    let [tokens, targets, documents] = ["tokens", "targets", "documents"]
        .map(|name| bytemuck::pod_collect_to_vec::<u8, u32>(oracle.tensor(name).unwrap().data()));
    (model, Batch::new(tokens, targets, Some(documents)))
}

#[test]
fn ten_steps_of_each_optimizer_are_the_references() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/fixtures/optimizers");
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|ending| ending == "json"));
    names.sort();
    assert!(names.len() >= 9, "{names:?}");
    for path in names {
        let fixture: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let of = fixture["model"].as_str().unwrap();
        let (model, batch) = model_and_batch(of);
        // The double reads whole tiles of attention.
        let room = batch.len().next_multiple_of(128);
        let options = options(fixture["options"].as_object().unwrap(), room);
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        for step in fixture["steps"].as_array().unwrap() {
            let metrics = block_on(trainer.step(&batch)).unwrap();
            let [loss, norm] = ["loss", "grad_norm"].map(|key| step[key].as_f64().unwrap());
            let what = format!("{}, step {}", path.display(), step["step"]);
            assert_close(&what, &[metrics.loss], &[loss], 1e-4, 0.0);
            assert_close(&what, &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-3);
        }
    }
}

/// Loss and gradients of steps with objectives of their own (`tests/reference/make_objective_fixtures.py`).
#[test]
fn steps_own_objectives_are_pytorchs() {
    let cases: Map<String, Value> =
        serde_json::from_str(&text("objectives", "objectives.json")).unwrap();
    let tensors = file("objectives", "objectives.safetensors");
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    assert!(cases.len() >= 7);
    for (name, case) in &cases {
        let of = case["model"].as_str().unwrap();
        let (model, batch) = model_and_batch(of);
        let mut given = case["options"].as_object().unwrap().clone();
        given.insert("max_grad_norm".into(), 1.0.into());
        let options = options(&given, batch.len().next_multiple_of(128));
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        let mut step = case["step"].clone();
        if let Some(soft) = step.get_mut("soft").and_then(Value::as_object_mut) {
            soft.entry("reverse").or_insert(false.into());
            soft.entry("renormalized").or_insert(false.into());
        }
        let mut objective: StepObjective = serde_json::from_value(step).unwrap();
        let bytes = |what: &str| tensors.tensor(&format!("{of}.{what}")).unwrap().data().to_vec();
        objective.weights = Some(bytemuck::pod_collect_to_vec(&bytes("weights")));
        if let Some(soft) = &mut objective.soft {
            soft.ids = bytemuck::pod_collect_to_vec(&bytes("ids"));
            soft.probabilities = bytemuck::pod_collect_to_vec(&bytes("probabilities"));
        }
        let metrics = block_on(trainer.step_by(&batch, &objective)).unwrap();
        let loss = case["loss"].as_f64().unwrap();
        assert_close(name, &[metrics.loss], &[loss], 2e-5, 1e-4);
        for (index, tensor) in trainer.layout().tensors.iter().enumerate() {
            let expected = tensors.tensor(&format!("{name}.{}", tensor.name)).unwrap();
            let expected: Vec<f32> = bytemuck::pod_collect_to_vec(expected.data());
            let got = block_on(trainer.read_gradient(index)).unwrap();
            assert_eq!(got.len(), expected.len());
            let norm =
                |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>().sqrt();
            let apart = norm(&mut got.iter().zip(&expected).map(|(a, b)| a - b));
            let error = apart / norm(&mut expected.iter().copied());
            assert!(error < 1e-3, "{name}, {}: {error}", tensor.name);
        }
    }
}
