//! Ten steps by each optimizer's reference, on models that transformers wrote
//! (`tests/reference/make_optimizer_fixtures.py`).

use super::Double;
use super::peft_tests::{feed, file, text};
use super::tests::gpu;
use crate::config::ModelConfig;
use crate::data::Batch;
use crate::session::{ModelLoader, NO_PROGRESS, Trainer, TrainerOptions};
use crate::twins::check::assert_close;
use pollster::block_on;
use safetensors::SafeTensors;
use serde_json::{Map, Value};
use std::fs;

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
        let config = ModelConfig::from_json(&text(of, "config.json")).unwrap();
        let mut loader = ModelLoader::new(&gpu(&Double::floor()), config).unwrap();
        feed(&mut loader, "model.safetensors", &file(of, "model.safetensors"));
        let model = block_on(loader.finish()).unwrap();
        let oracle = file(of, "oracle.safetensors");
        let oracle = SafeTensors::deserialize(&oracle).unwrap();
        let [tokens, targets, documents] = ["tokens", "targets", "documents"].map(|name| {
            bytemuck::pod_collect_to_vec::<u8, u32>(oracle.tensor(name).unwrap().data())
        });
        // The double reads whole tiles of attention.
        let room = tokens.len().next_multiple_of(128);
        let options = options(fixture["options"].as_object().unwrap(), room);
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        let batch = Batch::new(tokens, targets, Some(documents));
        for step in fixture["steps"].as_array().unwrap() {
            let metrics = block_on(trainer.step(&batch)).unwrap();
            let [loss, norm] = ["loss", "grad_norm"].map(|key| step[key].as_f64().unwrap());
            let what = format!("{}, step {}", path.display(), step["step"]);
            assert_close(&what, &[metrics.loss], &[loss], 1e-4, 0.0);
            assert_close(&what, &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-3);
        }
    }
}
