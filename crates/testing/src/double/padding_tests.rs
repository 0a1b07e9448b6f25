//! The row of `pad_token_id` in the embedding of a new model, and the gradient of a text that holds it, against
//! transformers' (`tests/reference/make_padding_fixtures.py`).

use super::Double;
use super::peft_tests::{feed, file, text};
use super::tests::{gpu, software};
use crate::config::ModelConfig;
use crate::data::Batch;
use crate::session::{Model, ModelLoader, NO_PROGRESS, Trainer, TrainerOptions};
use crate::twins::check::assert_close;
use pollster::block_on;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;

const FIXTURES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/fixtures/padding");

/// Each fixture with its name and the config of its model.
fn fixtures() -> Vec<(String, Value, ModelConfig)> {
    let read = |path: std::path::PathBuf| {
        let fixture: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let of = fixture["model"].as_str().unwrap();
        let mut fields: Value = serde_json::from_str(&text(of, "config.json")).unwrap();
        let fields = fields.as_object_mut().unwrap();
        fields.remove("pad_token_id");
        fields.extend(fixture.get("pad_token_id").map(|id| ("pad_token_id".into(), id.clone())));
        let config = ModelConfig::from_json(&Value::from(fields.clone()).to_string()).unwrap();
        (path.display().to_string(), fixture, config)
    };
    let all: Vec<_> =
        fs::read_dir(FIXTURES).unwrap().map(|file| read(file.unwrap().path())).collect();
    assert!(all.len() >= 13, "{} fixtures", all.len());
    all
}

/// The number of the embedding among a model's tensors.
fn table_of(model: &Model) -> usize {
    let tables = ["embed_tokens.weight", "wte.weight", "embed_in.weight"];
    let is_table = |tensor: &str| tables.iter().any(|table| tensor.ends_with(table));
    model.tensors().iter().position(|(tensor, _)| is_table(tensor)).unwrap()
}

#[test]
fn the_row_of_the_padding_begins_at_zero_where_transformers_has_a_padding_index() {
    for (name, fixture, config) in fixtures() {
        let zero = fixture["begins_at_zero"].as_bool().unwrap();
        let (row, width) = (fixture["row"].as_u64().unwrap() as usize, config.hidden_size);
        for double in [software(), Double::floor()] {
            let device = gpu(&double);
            let model = block_on(Model::create(&device, config.clone(), 3, NO_PROGRESS)).unwrap();
            let bytes = block_on(model.read_tensor(table_of(&model))).unwrap();
            let table: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            for (place, values) in table.chunks_exact(width).enumerate() {
                let zeros = values.iter().all(|&x| x == 0.0);
                assert_eq!(zeros, zero && place == row, "{name}, row {place}");
            }
        }
    }
}

#[test]
fn looking_up_the_padding_trains_no_row_where_transformers_has_a_padding_index() {
    for (name, fixture, config) in fixtures() {
        let number = |key: &str| fixture[key].as_f64().unwrap();
        let of = fixture["model"].as_str().unwrap();
        let mut loader = ModelLoader::new(&gpu(&Double::floor()), config).unwrap();
        feed(&mut loader, "model.safetensors", &file(of, "model.safetensors"));
        let model = block_on(loader.finish()).unwrap();
        let oracle = file(of, "oracle.safetensors");
        let oracle = SafeTensors::deserialize(&oracle).unwrap();
        let [targets, documents] = ["targets", "documents"].map(|name| {
            bytemuck::pod_collect_to_vec::<u8, u32>(oracle.tensor(name).unwrap().data())
        });
        let tokens: Vec<u32> = serde_json::from_value(fixture["tokens"].clone()).unwrap();
        // The double reads whole tiles of attention.
        let tokens_per_step = tokens.len().next_multiple_of(128);
        let options = TrainerOptions { tokens_per_step, ..TrainerOptions::default() };
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        let metrics =
            block_on(trainer.step(&Batch::new(tokens, targets, Some(documents)))).unwrap();
        assert_close(&name, &[metrics.loss], &[number("loss")], 1e-4, 0.0);
        assert_close(&name, &[metrics.grad_norm.unwrap()], &[number("grad_norm")], 0.0, 1e-3);
        let gradient = block_on(trainer.read_gradient(table_of(&model))).unwrap();
        let expected: Vec<f64> = serde_json::from_value(fixture["gradient"].clone()).unwrap();
        let (row, width) = (number("row") as usize, expected.len());
        let (before, rest) = gradient.split_at(row * width);
        let (own, behind) = rest.split_at(width);
        assert_close(&name, own, &expected, 2e-5, 1e-3);
        let square = |sum: f64, x: &f32| sum + f64::from(*x).powi(2);
        let others = before.iter().chain(behind).fold(0.0, square).sqrt();
        assert_close(&name, &[others], &[number("others")], 0.0, 1e-3);
    }
}
