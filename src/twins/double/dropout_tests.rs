//! Dropout of adapters, on the double: held to the graph's twin in f64 with the same masks.

use super::Double;
use super::adapter_tests::{ALL, fill, lora, options, resumed, steps, trains};
use super::tests::{BIASED, NORMED, Pair, TIED, UNTIED, batch, named, software, weights};
use crate::config::LoraConfig;
use crate::data::{Dataset, DatasetOptions};
use crate::session::{Adapter, Trainer, TrainerOptions, UNWATCHED};
use pollster::block_on;
use std::rc::Rc;

fn dropped(targets: &[&str], rank: usize, dropout: f64) -> LoraConfig {
    LoraConfig { dropout, ..lora(targets, rank) }
}

#[test]
fn a_step_has_the_twins_loss_and_gradients() {
    trains(&Double::floor(), TIED, dropped(&ALL, 3, 0.2), false);
    trains(&Double::floor(), BIASED, dropped(&["v_proj", "up_proj", "down_proj"], 4, 0.5), false);
    trains(&named("NVIDIA"), UNTIED, dropped(&ALL, 4, 0.1), false);
}

#[test]
fn recomputed_activations_have_the_same_masks() {
    trains(&software(), NORMED, dropped(&ALL, 4, 0.3), true);
    trains(&software(), TIED, dropped(&["k_proj", "0.mlp.down_proj"], 3, 0.3), true);
    let losses = |recompute| {
        let pair = Pair::new(&Double::floor(), NORMED);
        let adapter = adapter(&pair);
        let options = TrainerOptions { recompute, ..options() };
        let trainer = block_on(Trainer::create(adapter.model(), options, UNWATCHED)).unwrap();
        (steps(&trainer, 4), weights(adapter.model()))
    };
    assert!(losses(false) == losses(true), "to the bit");
}

fn adapter(pair: &Pair) -> Rc<Adapter> {
    block_on(Adapter::create(&pair.model, dropped(&ALL, 4, 0.3), UNWATCHED)).unwrap()
}

fn trainer(adapter: &Adapter, options: TrainerOptions) -> Rc<Trainer> {
    block_on(Trainer::create(adapter.model(), options, UNWATCHED)).unwrap()
}

#[test]
fn a_resumed_run_draws_the_masks_of_the_whole_one() {
    let pair = Pair::new(&Double::floor(), TIED);
    let (whole, parted) = (adapter(&pair), adapter(&pair));
    let expected = steps(&trainer(&whole, options()), 6);
    assert_ne!(
        steps(&trainer(&adapter(&pair), TrainerOptions { seed: 1, ..options() }), 6),
        expected
    );
    let first = trainer(&parted, options());
    let before = steps(&first, 3);
    let second = adapter(&pair);
    let tensors = parted.model().tensors();
    fill(&second, |name| {
        let index = tensors.iter().position(|(own, _)| own == name).unwrap();
        block_on(parted.model().read_tensor(index)).unwrap()
    });
    let resumed = block_on(resumed(&first, &second)).unwrap();
    assert_eq!([before, steps(&resumed, 3)].concat(), expected);
    assert!(weights(second.model()) == weights(whole.model()));
}

/// The same adapter with and without: a step's loss differs, an evaluation's does not.
#[test]
fn only_steps_leave_inputs_out() {
    let pair = Pair::new(&Double::floor(), TIED);
    let sample = DatasetOptions { sequence_length: Some(15), seed: 3, ..DatasetOptions::default() };
    let dataset = Dataset::from_tokens((0..400).map(|i: u32| i * i % 60).collect(), sample);
    let dataset = dataset.unwrap();
    let losses = |dropout: f64| {
        let config = LoraConfig { dropout, ..lora(&ALL, 4) };
        let adapter = block_on(Adapter::create(&pair.model, config, UNWATCHED)).unwrap();
        // B is not zero: else A's inputs have no influence.
        fill(&adapter, |name| {
            let shapes = adapter.model().tensors();
            let (_, shape) = shapes.iter().find(|(own, _)| own == name).unwrap();
            let count: usize = shape.iter().product();
            (0..count).flat_map(|i| (0.1 * (i as f32 % 7.0 - 3.0)).to_le_bytes()).collect()
        });
        let trainer = trainer(&adapter, options());
        let evaluated = block_on(trainer.evaluate_batch(&dataset, 0)).unwrap();
        let stepped = block_on(trainer.step(&batch(&pair.config, 3, 32))).unwrap().loss;
        (evaluated.map(f64::to_bits), stepped)
    };
    let (plain, with) = (losses(0.0), losses(0.4));
    assert_eq!(plain.0, with.0, "evaluations");
    assert!((plain.1 - with.1).abs() > 1e-4, "{} and {}", plain.1, with.1);
}
