//! What is right after a failure, and beside other calls.

use super::tests::{Pair, TIED, UNTIED, batch, gpu, integers, software, weights};
use super::{Double, Fault};
use crate::config::ModelConfig;
use crate::data::{Dataset, DatasetOptions};
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::kernels::WeightFormat;
use crate::lower::InferenceOptions;
use crate::session::{
    GenerateOptions, Generation, Metrics, Model, NO_PROGRESS, Trainer, TrainerOptions,
};
use crate::twins::check::assert_close;
use futures_util::FutureExt;
use futures_util::future::join3;
use pollster::block_on;
use std::rc::Rc;

fn logits(pair: &Pair, tokens: &[u32]) -> crate::error::Result<Vec<f32>> {
    block_on(pair.model.logits(tokens, Default::default(), NO_PROGRESS))
}

/// The submit that copies what a growing cache holds is refused.
#[test]
fn a_refused_growth_leaves_the_cache_as_before() {
    let text = integers(5, 300, 61);
    let expected = logits(&Pair::new(&Double::floor(), TIED), &text).unwrap();
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let short = logits(&pair, &text[..4]).unwrap();
    let held = double.counters().gpu_bytes;
    double.fail(Fault::RefusedSubmit, 0);
    let error = logits(&pair, &text).unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal, "{error}");
    assert!(error.message.contains("the copy"), "{error}");
    assert_eq!(double.counters().gpu_bytes, held);
    assert_eq!(logits(&pair, &text[..4]).unwrap(), short);
    assert_eq!(logits(&pair, &text).unwrap(), expected);
}

#[test]
fn a_cache_that_is_used_while_it_grows_holds_no_text_of_before() {
    let (double, text) = (Double::floor(), integers(5, 300, 61));
    let pair = Pair::new(&double, TIED);
    let of = |tokens| pair.model.logits(tokens, Default::default(), NO_PROGRESS);
    let other = integers(6, 200, 61);
    let alone = Pair::new(&Double::floor(), TIED);
    let expected = [logits(&alone, &text).unwrap(), logits(&alone, &other).unwrap()];
    block_on(of(&text[..4])).unwrap();
    double.hold();
    let (mut growing, mut short) = (Box::pin(of(&text)), Box::pin(of(&other)));
    assert!(growing.as_mut().now_or_never().is_none());
    assert!(short.as_mut().now_or_never().is_none());
    double.release();
    assert_eq!([block_on(growing).unwrap(), block_on(short).unwrap()], expected);
}

fn dataset() -> Dataset {
    let options = DatasetOptions { sequence_length: Some(15), ..DatasetOptions::default() };
    Dataset::from_tokens((0..400).map(|i: u32| (i % 17 * 7 + i / 100) % 60).collect(), options)
        .unwrap()
}

fn trainer(pair: &Pair, gradient_accumulation: u64, tokens_per_step: usize) -> Rc<Trainer> {
    let options = TrainerOptions {
        tokens_per_step,
        gradient_accumulation,
        warmup_steps: 0,
        ..TrainerOptions::default()
    };
    block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap()
}

/// A step's weights have changed though its loss was lost: it counts. Another is taken back whole.
#[test]
fn a_dataset_step_counts_if_it_has_changed_the_weights() {
    for (accumulation, lost, counts) in [(1, 0, 1), (2, 1, 1), (2, 0, 0)] {
        let data = dataset();
        let step = |trainer: &Rc<Trainer>| {
            block_on(trainer.step_dataset(&data, &|| false)).map(|m| m.loss)
        };
        let whole = Pair::new(&Double::floor(), TIED);
        let undisturbed = trainer(&whole, accumulation, 32);
        let expected: Vec<_> = (0..3).map(|_| step(&undisturbed).unwrap()).collect();
        let double = Double::floor();
        let pair = Pair::new(&double, TIED);
        let trainer = trainer(&pair, accumulation, 32);
        let before = weights(&pair.model);
        double.fail(Fault::FailedMap, lost);
        let told = if counts == 1 { ErrorCode::Unread } else { ErrorCode::Internal };
        assert_eq!(step(&trainer).unwrap_err().code, told, "accumulation {accumulation}");
        assert_eq!(trainer.steps(), counts, "accumulation {accumulation}, readback {lost}");
        assert_eq!(weights(&pair.model) != before, counts == 1);
        let later: Vec<_> = (counts..3).map(|_| step(&trainer).unwrap()).collect();
        assert_eq!(later, expected[counts as usize..], "accumulation {accumulation}");
        assert_eq!(weights(&pair.model), weights(&whole.model));
    }
}

#[test]
fn a_steps_loss_is_its_own_where_a_micro_steps_is_lost() {
    let losses = |lost: Option<usize>| {
        let double = Double::floor();
        let pair = Pair::new(&double, TIED);
        let trainer = trainer(&pair, 3, 24);
        let step = |seed| block_on(trainer.step(&batch(&pair.config, seed, 24 - seed as usize)));
        for seed in 1..4 {
            step(seed).unwrap();
        }
        lost.iter().for_each(|lost| double.fail(Fault::FailedMap, *lost));
        let of: Vec<_> = (4..10).map(step).collect();
        let loss = |of: &crate::error::Result<Metrics>| of.as_ref().map_or(-1.0, |m| m.loss);
        of.iter().map(loss).collect::<Vec<_>>()
    };
    let whole = losses(None);
    for lost in 0..2 {
        let mut expected = whole.clone();
        expected[lost] = -1.0;
        assert_close(&format!("readback {lost} lost"), &losses(Some(lost)), &expected, 0.0, 1e-6);
    }
}

/// What a generation gives, call by call.
fn given(model: &Rc<Model>, options: GenerateOptions) -> Vec<Result<Vec<u32>, ErrorCode>> {
    block_on(async {
        let mut generation = Generation::start(model, &[1, 2, 3], options).await.unwrap();
        let mut all = vec![];
        while all.last().is_none_or(|last: &Result<Vec<u32>, _>| last != &Ok(vec![])) {
            let next = generation.next().await;
            let next = next.map(|drawn| drawn.iter().map(|d| d.token).collect());
            all.push(next.map_err(|error| error.code));
        }
        all
    })
}

#[test]
fn tokens_before_a_stop_do_not_depend_on_the_submit_ahead() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let options =
        GenerateOptions { max_tokens: 60, temperature: 0.0, ..GenerateOptions::default() };
    let plain = given(&pair.model, options.clone());
    let (first, second) = (plain[0].clone().unwrap(), plain[1].clone().unwrap());
    let fresh = |(i, token): &(usize, u32)| {
        *i >= 2 && !second[..*i].contains(token) && !first.contains(token)
    };
    let (_, stop) = second.iter().copied().enumerate().find(fresh).expect("a token to stop at");
    let stopping = GenerateOptions { stop_tokens: vec![stop], ..options };
    let expected = given(&pair.model, stopping.clone());
    assert!(expected[1].as_ref().unwrap().len() >= 2, "{expected:?}");
    double.fail(Fault::FailedMap, 2);
    assert_eq!(given(&pair.model, stopping), expected);
}

#[test]
fn a_model_too_large_is_refused_in_one_sentence() {
    let config = r#"{"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,
        "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32}"#;
    let config = ModelConfig::from_json(config).unwrap();
    let created = block_on(Model::create(&gpu(&software()), config, 1, NO_PROGRESS));
    let error = created.map(drop).unwrap_err();
    assert_eq!(error.code, ErrorCode::OutOfMemory);
    assert_eq!(
        error.message,
        "the model takes 27.0 GB (weights 27.0 GB), this runtime holds 0.00 MB, and an adapter on the CPU \
         may take 4.3 GB: use a smaller hidden_size, num_hidden_layers or vocab_size (fields \
         left out have transformers' defaults), or free other models, trainers and tensors"
    );
}

#[test]
fn two_texts_at_once_on_one_model_do_not_mix() {
    let (double, texts) = (Double::floor(), [integers(5, 300, 61), integers(6, 300, 61)]);
    let pair = Pair::new(&double, TIED);
    let of = |i: usize| pair.model.logits(&texts[i], Default::default(), NO_PROGRESS);
    let loss = || pair.model.loss(&texts[0], None, Default::default(), NO_PROGRESS);
    let alone = [block_on(of(0)).unwrap(), block_on(of(1)).unwrap()];
    let loss_alone = block_on(loss()).unwrap();
    double.hold();
    let (mut a, mut b, mut c) = (Box::pin(of(0)), Box::pin(of(1)), Box::pin(loss()));
    assert!(a.as_mut().now_or_never().is_none());
    assert!(b.as_mut().now_or_never().is_none());
    assert!(c.as_mut().now_or_never().is_none());
    double.release();
    let (a, b, c) = block_on(async { join3(a, b, c).await });
    assert_eq!([a.unwrap(), b.unwrap()], alone);
    assert_eq!(c.unwrap().to_bits(), loss_alone.to_bits());
}

/// One of them waits for the other, which is dropped in the middle.
#[test]
fn a_text_that_is_given_up_lets_the_next_one_begin() {
    let (double, text) = (Double::floor(), integers(5, 300, 61));
    let pair = Pair::new(&double, TIED);
    let of = || pair.model.logits(&text, Default::default(), NO_PROGRESS);
    let expected = block_on(of()).unwrap();
    double.hold();
    let (mut first, mut second, mut third) = (Box::pin(of()), Box::pin(of()), Box::pin(of()));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    double.release();
    drop(first);
    drop(second);
    assert_eq!(block_on(third).unwrap(), expected);
}

/// A step is queued after what a text asks of the GPU first: its first chunk, or its packing. A chunk is shortest on a
/// CPU.
#[test]
fn a_text_is_read_with_one_version_of_the_weights() {
    for weights in [WeightFormat::F32, WeightFormat::Int8] {
        let (double, text) = (software(), integers(5, 300, 61));
        let pair = Pair::new(&double, UNTIED);
        let trainer = trainer(&pair, 1, 24);
        let options = InferenceOptions { weights, ..InferenceOptions::default() };
        let of = || pair.model.logits(&text, options, NO_PROGRESS);
        block_on(of()).unwrap();
        pair.model.changed();
        double.hold();
        let mut reading = Box::pin(of());
        assert!(reading.as_mut().now_or_never().is_none());
        let batch = batch(&pair.config, 1, 24);
        let mut step = Box::pin(trainer.step(&batch));
        assert!(step.as_mut().now_or_never().is_none());
        double.release();
        let read = block_on(reading).unwrap();
        block_on(step).unwrap();
        pair.model.changed();
        assert_eq!(read, block_on(of()).unwrap(), "{weights:?}");
    }
}
