//! What sessions make of failures.

use super::tests::{Pair, TIED, batch, gpu, weights};
use super::{Double, Fault};
use crate::caps::{Capabilities, Limits, Target};
use crate::config::ModelConfig;
use crate::data::{Dataset, DatasetOptions};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Gpu, PlanId, create_checked};
use crate::kernels::{Form, LinearShape, linear_candidates};
use crate::plan::{Buffer, product_plan};
use crate::session::{GenerateOptions, Generation, Model, NO_PROGRESS, Trainer, TrainerOptions};
use futures_util::FutureExt;
use pollster::block_on;
use std::rc::Rc;

fn trainer(pair: &Pair) -> Rc<Trainer> {
    let options = TrainerOptions { tokens_per_step: 24, ..TrainerOptions::default() };
    block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap()
}

/// Loss and weights after steps on the batches of these seeds.
fn run(pair: &Pair, trainer: &Rc<Trainer>, seeds: &[u32]) -> (Vec<f64>, Vec<u8>) {
    let step = |seed: &u32| block_on(trainer.step(&batch(&pair.config, *seed, 24))).unwrap().loss;
    (seeds.iter().map(step).collect(), weights(&pair.model))
}

#[test]
fn a_refused_submit_rejects_the_step_and_leaves_the_trainer_as_before() {
    let undisturbed = Pair::new(&Double::floor(), TIED);
    let expected = run(&undisturbed, &trainer(&undisturbed), &[1, 2]);
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let trainer = trainer(&pair);
    let first = run(&pair, &trainer, &[1]);
    double.fail(Fault::RefusedSubmit, 0);
    let error = block_on(trainer.step(&batch(&pair.config, 9, 24))).unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal, "{error}");
    assert!(error.message.contains("refused"), "{error}");
    assert!(error.message.contains("cut into 4 submits"), "{error}");
    assert!(error.message.contains("weights may have changed"), "{error}");
    assert_eq!(trainer.steps(), 1);
    assert_eq!(weights(&pair.model), first.1);
    let second = run(&pair, &trainer, &[2]);
    assert_eq!([first.0, second.0].concat(), expected.0);
    assert_eq!(second.1, expected.1);
}

/// Others of its submits may have run, so that the gradients are not those of the micro-steps before.
#[test]
fn an_accumulation_with_a_refused_submit_begins_again() {
    let trained = |refused: bool| {
        let double = Double::floor();
        let pair = Pair::new(&double, TIED);
        let options = TrainerOptions {
            tokens_per_step: 24,
            gradient_accumulation: 2,
            ..TrainerOptions::default()
        };
        let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
        if refused {
            run(&pair, &trainer, &[8]);
            double.fail(Fault::RefusedSubmit, 0);
            let error = block_on(trainer.step(&batch(&pair.config, 9, 24))).unwrap_err();
            assert!(error.message.contains("weights may have changed"), "{error}");
            run(&pair, &trainer, &[8, 9]);
            double.fail(Fault::RefusedSubmit, 0);
            let error = block_on(trainer.step(&batch(&pair.config, 1, 24))).unwrap_err();
            assert!(error.message.contains("accumulation of gradients begins again"), "{error}");
        } else {
            run(&pair, &trainer, &[8, 9]);
        }
        run(&pair, &trainer, &[1, 2])
    };
    assert_eq!(trained(true), trained(false));
}

/// The other parts have added to the gradients. Batches that the accumulation had drawn are drawn again.
#[test]
fn an_accumulation_of_which_a_part_is_refused_begins_again() {
    let options = DatasetOptions { sequence_length: Some(11), ..DatasetOptions::default() };
    let tokens = (0..400).map(|i: u32| (i % 17 * 7 + i / 100) % 60).collect();
    let data = Dataset::from_tokens(tokens, options).unwrap();
    let trained = |refused: bool| {
        let double = Double::floor();
        let pair = Pair::new(&double, TIED);
        let options = TrainerOptions {
            tokens_per_step: 24,
            gradient_accumulation: 4,
            ..TrainerOptions::default()
        };
        let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
        let before = weights(&pair.model);
        if refused {
            for (steps, parts) in [(0, 0), (2, 0), (1, 1)] {
                run(&pair, &trainer, &[3, 4][..steps]);
                double.fail(Fault::RefusedPart, parts);
                let error = if parts > 0 {
                    block_on(trainer.step_dataset(&data, &|| false)).unwrap_err()
                } else {
                    block_on(trainer.step(&batch(&pair.config, 9, 24))).unwrap_err()
                };
                assert!(error.message.contains("a part of the submit"), "{error}");
                assert!(
                    error.message.contains("accumulation of gradients begins again"),
                    "{error}"
                );
                assert_eq!(weights(&pair.model), before);
            }
        }
        run(&pair, &trainer, &[5]);
        let step = || block_on(trainer.step_dataset(&data, &|| false)).unwrap();
        let losses = [step().loss, step().loss];
        (losses, weights(&pair.model))
    };
    assert_eq!(trained(true), trained(false));
}

#[test]
fn bytes_that_do_not_arrive_reject_their_call_alone() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let before = weights(&pair.model);
    double.fail(Fault::FailedMap, 0);
    let error = block_on(pair.model.read_tensor(0)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal, "{error}");
    assert!(error.message.contains("call again"), "{error}");
    assert_eq!(weights(&pair.model), before);
    let trainer = trainer(&pair);
    double.fail(Fault::FailedMap, 0);
    let error = block_on(trainer.step(&batch(&pair.config, 1, 24))).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unread, "{error}");
    block_on(trainer.step(&batch(&pair.config, 1, 24))).unwrap();
}

#[test]
fn a_refused_prompt_leaves_the_model_as_before() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let prompt = [1, 2, 3, 4];
    let logits = || block_on(pair.model.logits(&prompt, Default::default(), NO_PROGRESS));
    let expected = logits().unwrap();
    double.fail(Fault::RefusedSubmit, 0);
    assert_eq!(logits().unwrap_err().code, ErrorCode::Internal);
    assert_eq!(logits().unwrap(), expected);
}

/// The prompt's own submit fails, or the tokens that are queued after it. The next call reads the text again.
#[test]
fn a_failure_behind_a_prompt_changes_no_token() {
    let generated = |fault: Option<(Fault, usize)>| {
        let double = Double::floor();
        let pair = Pair::new(&double, TIED);
        let options = GenerateOptions { max_tokens: 9, ..GenerateOptions::default() };
        let mut generation =
            block_on(Generation::start(&pair.model, &[1, 2, 3, 4], options)).unwrap();
        fault.into_iter().for_each(|(fault, nth)| double.fail(fault, nth));
        let (mut tokens, mut failed) = (vec![], vec![]);
        loop {
            match block_on(generation.next()) {
                Ok(drawn) if drawn.is_empty() => return (tokens, failed),
                Ok(drawn) => tokens.extend(drawn.iter().map(|drawn| drawn.token)),
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::Internal, "{error}");
                    failed.push(tokens.len());
                }
            }
        }
    };
    let (expected, _) = generated(None);
    assert_eq!(expected.len(), 9);
    for fault in [Fault::RefusedSubmit, Fault::FailedMap] {
        // After the draw of the prompt, or before it, one call fails.
        for nth in [0, 1] {
            assert_eq!(generated(Some((fault, nth))), (expected.clone(), vec![nth]), "{nth}");
        }
    }
}

/// Lets each buffer of a creation get no memory in turn, until the creation needs no more of them.
fn without_memory<T>(double: &Rc<Double>, create: impl Fn() -> Result<T, Error>) -> usize {
    let held = double.counters().gpu_bytes;
    for nth in 0.. {
        double.fail(Fault::OutOfMemory, nth);
        let Err(error) = create() else { return nth };
        assert_eq!(error.code, ErrorCode::OutOfMemory, "{nth}: {error}");
        assert!(error.message.contains(" bytes; this runtime holds"), "{nth}: {error}");
        assert_eq!(double.counters().gpu_bytes, held, "buffer {nth} leaves something");
    }
    unreachable!()
}

#[test]
fn a_creation_without_memory_names_bytes_and_leaves_nothing() {
    let double = Double::floor();
    let config = ModelConfig::from_json(TIED).unwrap();
    let model = || block_on(Model::create(&gpu(&double), config.clone(), 1, NO_PROGRESS)).map(drop);
    assert!(without_memory(&double, model) >= 2);
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let options = TrainerOptions { tokens_per_step: 24, ..TrainerOptions::default() };
    let trainer = || block_on(Trainer::create(&pair.model, options.clone(), NO_PROGRESS)).map(drop);
    assert!(without_memory(&double, trainer) >= 10);
}

#[test]
fn a_generation_without_memory_leaves_the_model_as_before() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let start = || {
        let options = GenerateOptions { max_tokens: 4, ..GenerateOptions::default() };
        block_on(Generation::start(&pair.model, &[1, 2], options)).map(drop)
    };
    double.fail(Fault::OutOfMemory, 0);
    let error = start().unwrap_err();
    assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
    start().unwrap();
}

#[test]
fn a_lost_device_settles_all_that_is_pending() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let trainer = trainer(&pair);
    let batch = batch(&pair.config, 1, 24);
    double.hold();
    let mut step = Box::pin(trainer.step(&batch));
    let mut read = Box::pin(pair.model.read_tensor(0));
    let mut logits = Box::pin(pair.model.logits(&[1, 2], Default::default(), NO_PROGRESS));
    assert!(step.as_mut().now_or_never().is_none());
    assert!(read.as_mut().now_or_never().is_none());
    assert!(logits.as_mut().now_or_never().is_none());
    double.lose("Unknown: a test");
    let codes = [
        block_on(step).unwrap_err().code,
        block_on(read).unwrap_err().code,
        block_on(logits).unwrap_err().code,
    ];
    assert_eq!(codes, [ErrorCode::DeviceLost; 3]);
    let later = block_on(trainer.step(&batch)).unwrap_err();
    assert_eq!(later.code, ErrorCode::DeviceLost, "{later}");
    let config = ModelConfig::from_json(TIED).unwrap();
    let created = block_on(Model::create(&gpu(&double), config, 1, NO_PROGRESS)).map(drop);
    assert_eq!(created.unwrap_err().code, ErrorCode::DeviceLost);
}

#[test]
fn a_spec_without_a_twin_is_an_error() {
    use crate::gpu::Replay;
    use crate::kernels::{Element, RowPlace, Softmax, Spec};
    use crate::plan::{Buffer, Builder, Launch, Phase, Slice};

    let double = Double::floor();
    let caps = double.capabilities().clone();
    let mut builder = Builder::new(&caps, Phase::Forward, 1, Buffer::Step);
    let kernel = Softmax { columns: 8, element: Element::F32 }.kernel(&caps).unwrap();
    let given = |index| Slice::new(Buffer::Given(index), 0, 32);
    let place = Slice::new(Buffer::Given(2), 0, size_of::<RowPlace>() as u64);
    let launch = Launch::new("rows", kernel).bind("input", given(0)).bind("output", given(1));
    builder.dispatch(launch.bind("place", place)).unwrap();
    let plan = builder.finish(&[]);
    double.push_error_scope();
    let buffers = [0; 3].map(|_| double.create_buffer("rows", 64).unwrap());
    let resolve = |buffer| match buffer {
        Buffer::Given(index) => Ok(buffers[index as usize]),
        other => Err(Error::internal(format!("{other:?}"))),
    };
    let plan = double.install(&plan, &resolve).unwrap();
    let error = double.submit(&[Replay::new(plan, 1)], 1, None).err().unwrap();
    assert!(error.message.contains("no twin of Softmax"), "{error}");
    block_on(double.pop_error_scope()).unwrap();
}

/// Installs a product's plan on a device with other limits than those it was made for, then binds it again
/// under the number that `again` makes of the plan's.
fn installed(caps: Capabilities, again: impl Fn(PlanId) -> PlanId) -> Result<()> {
    let (double, floor) = (Double::new(caps), Capabilities::floor(Target::Native));
    let shape = LinearShape::new(Form::Matmul, 32, 20, 12);
    let pick = linear_candidates(&floor, &shape).remove(0);
    let plan = product_plan(&floor, &shape, pick, &[])?;
    block_on(async {
        let buffers = create_checked(&*double, || {
            let bytes = plan.slots.iter().chain([&256]);
            bytes.map(|bytes| double.create_buffer("operand", *bytes)).collect::<Result<Vec<_>>>()
        });
        let buffers = buffers.await?;
        let resolve = |buffer| match buffer {
            Buffer::Slot(i) => Ok(buffers[i]),
            _ => Ok(buffers[plan.slots.len()]),
        };
        let id = create_checked(&*double, || double.install(&plan, &resolve)).await?;
        create_checked(&*double, || double.rebind(again(id), &plan, &resolve)).await
    })
}

#[test]
fn bindings_beyond_the_limits_of_the_device_are_refused() {
    let refused = |change: fn(&mut Limits)| {
        let mut caps = Capabilities::floor(Target::Native);
        change(&mut caps.limits);
        installed(caps, |id| id).unwrap_err().message
    };
    installed(Capabilities::floor(Target::Native), |id| id).unwrap();
    let message = refused(|limits| limits.max_storage_buffer_binding_size = 256);
    assert!(message.contains("a binds 960 bytes; the device allows 256"), "{message}");
    let message = refused(|limits| limits.max_uniform_buffer_binding_size = 16);
    assert!(message.contains("step binds"), "{message}");
    let message = refused(|limits| limits.max_storage_buffers_per_shader_stage = 2);
    assert!(message.contains("3 storage buffers are bound; the device allows 2"), "{message}");
}

#[test]
fn a_plan_that_is_not_installed_is_not_bound_again() {
    let error = installed(Capabilities::floor(Target::Native), |id| PlanId(id.0 + 7)).unwrap_err();
    assert!(error.message.ends_with("is not installed"), "{}", error.message);
}
