//! Adapters that PEFT wrote, on models that transformers wrote: logits, gradients, ten steps of AdamW, and
//! merged weights, against what they give in PyTorch (`tests/reference/make_adapter_fixtures.py`).

use super::Double;
use super::tests::gpu;
use crate::config::{LoraConfig, ModelConfig};
use crate::data::Batch;
use crate::kernels::WeightFormat;
use crate::schedule::ScheduleKind;
use crate::session::{
    Adapter, InferenceOptions, Model, ModelLoader, NO_PROGRESS, Trainer, TrainerOptions,
};
use crate::twins::check::assert_close;
use pollster::block_on;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

pub(super) fn file(folder: &str, name: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/fixtures");
    let path = root.join(folder).join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(super) fn text(folder: &str, name: &str) -> String {
    String::from_utf8(file(folder, name)).unwrap()
}

/// Hands a file to a loader, a tensor at a time.
pub(super) fn feed(loader: &mut ModelLoader, name: &str, bytes: &[u8]) {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let wanted = loader.add_file(name, &bytes[8..8 + length], bytes.len() as u64).unwrap();
    if loader.model().is_err() {
        block_on(loader.allocate().unwrap()).unwrap();
    }
    for tensor in wanted {
        let data = &bytes[tensor.begin as usize..tensor.end as usize];
        loader.set_piece(&tensor.name, 0, data).unwrap();
    }
}

struct Fixture {
    adapter: Rc<Adapter>,
    oracle: Vec<u8>,
    merged: Vec<u8>,
    losses: Value,
}

fn tensors(file: &[u8]) -> SafeTensors<'_> {
    SafeTensors::deserialize(file).unwrap()
}

fn floats(tensor: &TensorView<'_>) -> Vec<f64> {
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(tensor.data());
    values.into_iter().map(f64::from).collect()
}

impl Fixture {
    fn new(name: &str) -> Self {
        let folder = format!("adapters/{name}");
        let losses: Value = serde_json::from_str(&text(&folder, "losses.json")).unwrap();
        let base = losses["base"].as_str().unwrap();
        let config = ModelConfig::from_json(&text(base, "config.json")).unwrap();
        let weights = losses["weights"].as_str().unwrap_or("f32");
        let weights = WeightFormat::ALL.into_iter().find(|one| one.name() == weights).unwrap();
        let mut loader = ModelLoader::packed(&gpu(&Double::floor()), config, weights).unwrap();
        feed(&mut loader, "model.safetensors", &file(base, "model.safetensors"));
        let model = block_on(loader.finish()).unwrap();
        let lora = LoraConfig::from_peft(&text(&folder, "adapter_config.json")).unwrap();
        let adapter = block_on(Adapter::create(&model, lora, NO_PROGRESS)).unwrap();
        let mut loader = ModelLoader::of_adapter(&adapter);
        let tensors = file(&folder, "adapter_model.safetensors");
        feed(&mut loader, "adapter_model.safetensors", &tensors);
        block_on(loader.finish()).unwrap();
        let [oracle, merged] =
            ["oracle.safetensors", "merged.safetensors"].map(|name| file(&folder, name));
        Self { adapter, oracle, merged, losses }
    }

    fn floats(&self, name: &str) -> Vec<f64> {
        floats(&tensors(&self.oracle).tensor(name).unwrap())
    }

    fn words(&self, name: &str) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(tensors(&self.oracle).tensor(name).unwrap().data())
    }

    fn batch(&self) -> Batch {
        let [tokens, targets] = ["tokens", "targets"].map(|name| self.words(name));
        Batch::new(tokens, targets, Some(self.words("documents")))
    }

    fn trainer(&self) -> Rc<Trainer> {
        let number = |name: &str| self.losses["options"][name].as_f64().unwrap();
        let options = TrainerOptions {
            learning_rate: number("learning_rate"),
            schedule: ScheduleKind::Constant,
            warmup_steps: 0,
            weight_decay: number("weight_decay"),
            numbers: ["beta1", "beta2", "epsilon"]
                .map(|name| (name, number(name)))
                .into_iter()
                .collect(),
            max_grad_norm: Some(number("max_grad_norm")),
            tokens_per_step: self.words("tokens").len(),
            ..TrainerOptions::default()
        };
        block_on(Trainer::create(self.adapter.model(), options, NO_PROGRESS)).unwrap()
    }

    /// Logits of each document, read as a text of its own.
    fn logits(&self, model: &Model) -> Vec<f32> {
        let batch = self.batch();
        let texts = batch.tokens.iter().zip(&batch.documents).collect::<Vec<_>>();
        let texts = texts.chunk_by(|a, b| a.1 == b.1);
        let of = |text: &[(&u32, &u32)]| {
            let tokens: Vec<u32> = text.iter().map(|(token, _)| **token).collect();
            let options = InferenceOptions { weights: model.weights(), ..Default::default() };
            block_on(model.logits(&tokens, options, NO_PROGRESS)).unwrap()
        };
        texts.flat_map(of).collect()
    }
}

const NAMES: [&str; 7] =
    ["llama", "qwen2-rslora", "qwen3", "gpt2", "gpt-neo", "gpt-neox", "gemma2"];
/// On a base that holds its matrices packed.
const PACKED: [&str; 3] = ["packed-int8", "packed-int4", "packed-gemma3-int4"];

/// The distance of two vectors, relative to the second one's length.
fn distance(got: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let square = |x: f64| x * x;
    let off: f64 = got.iter().zip(expected).map(|(g, e)| square(f64::from(*g) - e)).sum();
    (off / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

#[test]
fn logits_are_pefts() {
    for name in NAMES.into_iter().chain(PACKED) {
        let fixture = Fixture::new(name);
        let got = fixture.logits(fixture.adapter.model());
        assert_close(name, &got, &fixture.floats("logits"), 1e-4, 0.0);
    }
}

#[test]
fn gradients_and_ten_steps_are_pefts() {
    for name in NAMES.into_iter().chain(PACKED) {
        let fixture = Fixture::new(name);
        let (trainer, batch) = (fixture.trainer(), fixture.batch());
        for (index, step) in fixture.losses["steps"].as_array().unwrap().iter().enumerate() {
            let metrics = block_on(trainer.step(&batch)).unwrap();
            let [loss, norm] = ["loss", "grad_norm"].map(|key| step[key].as_f64().unwrap());
            assert_close("loss", &[metrics.loss], &[loss], 1e-4, 0.0);
            assert_close("norm", &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-3);
            if index > 0 {
                continue;
            }
            for (index, (tensor, _)) in fixture.adapter.model().tensors().iter().enumerate() {
                let got = block_on(trainer.read_gradient(index)).unwrap();
                let off = distance(&got, &fixture.floats(&format!("grad.{tensor}")));
                assert!(off <= 1e-3, "{name}: the gradient of {tensor} is off by {off}");
            }
        }
    }
}

#[test]
fn merged_weights_are_pefts() {
    for name in NAMES {
        let fixture = Fixture::new(name);
        let base = Rc::clone(fixture.adapter.base());
        let read = |index| {
            let bytes = block_on(base.read_tensor(index)).unwrap();
            bytemuck::pod_collect_to_vec::<u8, f32>(&bytes)
        };
        let before: Vec<_> = (0..base.tensors().len()).map(read).collect();
        block_on(fixture.adapter.merge(NO_PROGRESS)).unwrap();
        let (mut changed, merged) = (0, tensors(&fixture.merged));
        for (index, (tensor, _)) in base.tensors().iter().enumerate() {
            let got = read(index);
            if let Ok(expected) = merged.tensor(tensor) {
                assert_close(tensor, &got, &floats(&expected), 1e-6, 1e-6);
                changed += 1;
            } else {
                assert!(got == before[index], "{tensor} has no adapter");
            }
        }
        assert_eq!(changed, merged.len());
        assert_eq!(2 * changed, fixture.adapter.model().tensors().len());
        assert_close(name, &fixture.logits(&base), &fixture.floats("logits"), 1e-4, 0.0);
    }
}
