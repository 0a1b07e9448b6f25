//! Dropout of models and of adapters, on the double: held to the graph's twin in f64 with the same masks.

use super::Double;
use super::lora_tests::{
    ALL, fill, fill_from, lora, masked, options, resumed, steps, steps_as_the_twin, trains,
};
use super::session_tests::reloaded;
use super::tests::{
    ALTERNATING, BIASED, LEARNED, NORMED, PARALLEL, Pair, TIED, UNTIED, batch, named, software,
    weights,
};
use crate::arch::Architecture;
use crate::config::{DropoutRates, LoraConfig};
use crate::data::{Dataset, DatasetOptions};
use crate::session::{Adapter, DropoutOptions, NO_PROGRESS, Trainer, TrainerOptions};
use crate::twins::model::Network;
use pollster::block_on;
use std::rc::Rc;

const RATES: DropoutRates = DropoutRates { embedding: 0.1, attention: 0.3, residual: 0.2 };

fn overridden(rates: DropoutRates) -> DropoutOptions {
    let [embedding, attention, residual] =
        [rates.embedding, rates.attention, rates.residual].map(Some);
    DropoutOptions { embedding, attention, residual }
}

fn model_trains(
    double: &Rc<Double>,
    config: &str,
    recompute: bool,
    given: DropoutOptions,
    rates: DropoutRates,
) {
    let pair = Pair::new(double, config);
    let options = TrainerOptions { recompute, dropout: given, ..masked() };
    let architecture = Architecture::of(&pair.config);
    let network = Network { architecture: &architecture, weights: &pair.weights };
    steps_as_the_twin(&pair.model, &network, &|_| true, options, rates);
}

#[test]
fn a_models_own_dropout_has_the_twins_loss_and_gradients() {
    let given = overridden(RATES);
    for config in [LEARNED, PARALLEL, TIED, ALTERNATING] {
        model_trains(&Double::floor(), config, false, given, RATES);
    }
    model_trains(&software(), LEARNED, true, given, RATES);
    model_trains(&software(), PARALLEL, true, given, RATES);
    model_trains(&named("NVIDIA"), UNTIED, false, given, RATES);
    model_trains(&named("NVIDIA"), LEARNED, false, given, RATES);
}

/// The config's rates hold where the options name none.
#[test]
fn rates_come_from_the_config_and_options_override_them() {
    let none = DropoutOptions::default();
    let named = LEARNED.replace(r#""attn_pdrop":0"#, r#""attn_pdrop":0.4"#);
    let of_config = DropoutRates { attention: 0.4, ..DropoutRates::default() };
    model_trains(&Double::floor(), &named, false, none, of_config);
    let given = DropoutOptions { residual: Some(0.2), ..none };
    let both = DropoutRates { residual: 0.2, ..of_config };
    model_trains(&Double::floor(), &named, false, given, both);
    let given = DropoutOptions { attention: Some(0.0), ..none };
    model_trains(&Double::floor(), &named, false, given, DropoutRates::default());
}

/// With a base that has rates of its own, as PEFT trains it.
#[test]
fn an_adapter_trains_under_its_bases_dropout_too() {
    let config = LEARNED.replace("_pdrop\":0", "_pdrop\":0.2");
    trains(&Double::floor(), &config, dropped(&["all-linear"], 3, 0.3), false);
}

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
        let trainer = block_on(Trainer::create(adapter.model(), options, NO_PROGRESS)).unwrap();
        (steps(&trainer, 4), weights(adapter.model()))
    };
    assert!(losses(false) == losses(true), "to the bit");
}

fn adapter(pair: &Pair) -> Rc<Adapter> {
    block_on(Adapter::create(&pair.model, dropped(&ALL, 4, 0.3), NO_PROGRESS)).unwrap()
}

fn trainer(adapter: &Adapter, options: TrainerOptions) -> Rc<Trainer> {
    block_on(Trainer::create(adapter.model(), options, NO_PROGRESS)).unwrap()
}

/// The model's own dropout, with what the saved state says of the rates.
#[test]
fn a_resumed_model_draws_the_masks_of_the_whole_run() {
    let options = || TrainerOptions { dropout: overridden(RATES), ..masked() };
    let run = |trainer: &Rc<Trainer>, pair: &Pair, seeds: std::ops::Range<u32>| -> Vec<f64> {
        let step = |seed| block_on(trainer.step(&batch(&pair.config, seed, 32))).unwrap().loss;
        seeds.map(step).collect()
    };
    let create = |pair: &Pair, options| {
        block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap()
    };
    let whole = Pair::new(&Double::floor(), LEARNED);
    let trainer = create(&whole, options());
    let expected = run(&trainer, &whole, 0..12);
    let pair = Pair::new(&Double::floor(), LEARNED);
    let first = create(&pair, options());
    let before = run(&first, &pair, 0..6);
    let (model, second) = reloaded(&pair.model, &first);
    let after = run(&second, &pair, 6..12);
    assert_eq!([before, after].concat(), expected);
    assert!(weights(&model) == weights(&whole.model));
    let none = TrainerOptions { dropout: DropoutOptions::default(), ..masked() };
    let plain = Pair::new(&Double::floor(), LEARNED);
    assert_ne!(run(&create(&plain, none), &plain, 0..12), expected);
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
    fill_from(&second, &parted);
    let resumed = block_on(resumed(&first, &second)).unwrap();
    assert_eq!([before, steps(&resumed, 3)].concat(), expected);
    assert!(weights(second.model()) == weights(whole.model()));
}

/// One LoRA adapter with and without dropout: a step's loss differs, an evaluation's does not.
#[test]
fn only_steps_leave_inputs_out() {
    let pair = Pair::new(&Double::floor(), TIED);
    let sample = DatasetOptions { sequence_length: Some(15), seed: 3, ..DatasetOptions::default() };
    let dataset = Dataset::from_tokens((0..400).map(|i: u32| i * i % 60).collect(), sample);
    let dataset = dataset.unwrap();
    let losses = |dropout: f64| {
        let config = LoraConfig { dropout, ..lora(&ALL, 4) };
        let adapter = block_on(Adapter::create(&pair.model, config, NO_PROGRESS)).unwrap();
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
