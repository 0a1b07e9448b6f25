//! Runs that an earlier build saved, each by one rule: they load as they were saved, and go on as they went on then.
//!
//! `TINYLOOM_STORED=write cargo test --features testing --lib stored` saves runs that have no folder yet.

use super::Double;
use super::session_tests::{options, steps};
use super::tests::{Pair, batch, gpu, weights};
use crate::config::ModelConfig;
use crate::session::{Model, ModelLoader, NO_PROGRESS, Resume, Trainer, TrainerOptions};
use pollster::block_on;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{env, fs};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stored");
/// The embedding and the head are large enough for 8-bit codes, what lies between them is not.
const WIDE: &str = r#"{"vocab_size":256,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,
    "num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.2,"max_position_embeddings":512}"#;
const NARROW: &str = r#"{"vocab_size":61,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,
    "num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.2,"max_position_embeddings":512}"#;

/// Folders, models and options.
const RUNS: [(&str, &str, &str); 6] = [
    ("adamw", NARROW, r#"{"optimizer":"adamw","beta1":0.8,"ema":0.75}"#),
    ("adamw8bit", WIDE, r#"{"optimizer":"adamw8bit"}"#),
    ("lion", NARROW, r#"{"optimizer":"lion"}"#),
    ("muon", NARROW, r#"{"optimizer":"muon","momentum":0.9}"#),
    ("sgd", NARROW, r#"{"optimizer":"sgd","learningRate":0.1}"#),
    ("sgd-plain", NARROW, r#"{"optimizer":"sgd","learningRate":0.1,"momentum":0}"#),
];

/// The files of a run: the weights, the optimizer's tensors and the trainer's state.
const FILES: [&str; 3] = ["model.safetensors", "optimizer.safetensors", "trainer_state.json"];

fn saved(model: &Model, trainer: &Trainer) -> [Vec<u8>; 3] {
    let state = block_on(trainer.state()).unwrap();
    let tensor = |index| block_on(trainer.read_optimizer_tensor(index, None)).unwrap();
    let tensors = (0..trainer.optimizer_tensors().len()).flat_map(tensor);
    let optimizer = trainer.save_header().into_iter().chain(tensors).collect();
    [[model.save_header(), weights(model)].concat(), optimizer, state.into_bytes()]
}

fn header_of(file: &[u8]) -> &[u8] {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap());
    &file[8..8 + length as usize]
}

fn resumed(config: &str, [model, optimizer, state]: &[Vec<u8>; 3]) -> (Rc<Model>, Rc<Trainer>) {
    let config = ModelConfig::from_json(config).unwrap();
    let mut loader = ModelLoader::new(&gpu(&Double::floor()), config.clone()).unwrap();
    let mut resume = Resume::new(&config, std::str::from_utf8(state).unwrap()).unwrap();
    let wanted = loader.add_file(FILES[0], header_of(model), model.len() as u64).unwrap();
    let of_state = resume.add_file(FILES[1], header_of(optimizer), optimizer.len() as u64).unwrap();
    block_on(loader.allocate().unwrap()).unwrap();
    let allocated = resume.allocate(loader.model().unwrap(), Box::new(|_, _, _| false));
    block_on(allocated.unwrap()).unwrap();
    for tensor in wanted {
        let bytes = &model[tensor.begin as usize..tensor.end as usize];
        loader.set_piece(&tensor.name, 0, bytes).unwrap();
    }
    for tensor in of_state {
        let bytes = &optimizer[tensor.begin as usize..tensor.end as usize];
        resume.set_piece(&tensor.name, 0, bytes).unwrap();
    }
    (block_on(loader.finish()).unwrap(), block_on(resume.finish()).unwrap())
}

/// What a run does after its save, in the middle of an accumulation.
fn go_on(model: &Model, trainer: &Rc<Trainer>) -> Vec<f64> {
    block_on(trainer.step(&batch(model.config(), 7, 31))).unwrap();
    steps(trainer, 3)
}

fn write(folder: &Path, config: &str, given: &str) {
    let pair = Pair::new(&Double::floor(), config);
    let own = TrainerOptions { learning_rate: 3e-3, ..options() };
    let mut options = serde_json::to_value(own).unwrap();
    let given: serde_json::Value = serde_json::from_str(given).unwrap();
    for (name, value) in given.as_object().unwrap() {
        options[name] = value.clone();
    }
    let options = TrainerOptions::from_json(&options.to_string()).unwrap();
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    steps(&trainer, 2);
    block_on(trainer.step(&batch(&pair.config, 3, 20))).unwrap();
    fs::create_dir_all(folder).unwrap();
    for (name, bytes) in FILES.iter().zip(saved(&pair.model, &trainer)) {
        fs::write(folder.join(name), bytes).unwrap();
    }
    let losses = serde_json::to_string(&go_on(&pair.model, &trainer)).unwrap();
    fs::write(folder.join("losses.json"), losses).unwrap();
}

#[test]
fn stored_runs_load_as_they_were_saved_and_go_on() {
    for (name, config, given) in RUNS {
        let folder = PathBuf::from(FOLDER).join(name);
        if env::var_os("TINYLOOM_STORED").is_some_and(|value| value == "write") && !folder.exists()
        {
            write(&folder, config, given);
        }
        let stored = FILES.map(|file| fs::read(folder.join(file)).unwrap());
        let (model, trainer) = resumed(config, &stored);
        assert!(saved(&model, &trainer) == stored, "{name} is saved with the same bytes again");
        let text = fs::read_to_string(folder.join("losses.json")).unwrap();
        let wanted: Vec<f64> = serde_json::from_str(&text).unwrap();
        let got = go_on(&model, &trainer);
        for (got, wanted) in got.iter().zip(&wanted) {
            assert!((got - wanted).abs() < 1e-6, "{name}: losses {got} for {wanted}");
        }
    }
}
