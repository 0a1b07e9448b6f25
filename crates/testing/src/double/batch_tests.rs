//! Generation of several texts on the double: each is that of a generation of its own.

use super::tests::{
    ALTERNATING, BIASED, LEARNED, NORMED, PARALLEL, Pair, TIED, TWO_TABLES, UNSCALED, UNTIED,
    WINDOWED, batch as step, integers, load_as, named, software,
};
use super::{Double, Fault};
use crate::config::ModelConfig;
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::session::TrainerOptions;
use crate::session::{
    BatchGeneration, Drawn, GenerateOptions, Generation, Model, NO_PROGRESS, Progress, Trainer,
};
use crate::twins::check::assert_close;
use crate::twins::model::random_tensors;
use pollster::block_on;
use std::rc::Rc;

type Prompt = (Vec<u32>, GenerateOptions);

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, temperature: 0.0, ..GenerateOptions::default() }
}

/// What a generation of its own gives.
fn alone(model: &Rc<Model>, (prompt, options): &Prompt) -> Vec<Drawn> {
    let mut generation = block_on(Generation::start(model, prompt, options.clone())).unwrap();
    let mut all = vec![];
    loop {
        match block_on(generation.next()).unwrap() {
            some if some.is_empty() => return all,
            some => all.extend(some),
        }
    }
}

fn begun(model: &Rc<Model>, prompts: &[Prompt]) -> BatchGeneration {
    BatchGeneration::start(model, prompts.to_vec()).unwrap()
}

/// All that is left of a batch, by text.
fn rest(batch: &mut BatchGeneration, texts: usize) -> Vec<Vec<Drawn>> {
    let mut all = vec![vec![]; texts];
    loop {
        let some = block_on(batch.next(NO_PROGRESS)).unwrap();
        if some.is_empty() {
            return all;
        }
        some.into_iter().for_each(|(index, drawn)| all[index].push(drawn));
    }
}

fn tokens(drawn: &[Drawn]) -> Vec<u32> {
    drawn.iter().map(|drawn| drawn.token).collect()
}

/// Each text against one of its own: tokens, and their log-probabilities to rounding.
pub(super) fn same_as_alone(model: &Rc<Model>, prompts: &[Prompt]) -> Vec<Vec<u32>> {
    let together = rest(&mut begun(model, prompts), prompts.len());
    for (index, (prompt, got)) in prompts.iter().zip(&together).enumerate() {
        let expected = alone(model, prompt);
        assert_eq!(tokens(got), tokens(&expected), "text {index} of {}", prompts.len());
        let logprobs = |drawn: &[Drawn]| drawn.iter().map(|d| d.logprob).collect::<Vec<_>>();
        let wide: Vec<f64> = logprobs(&expected).into_iter().map(f64::from).collect();
        assert_close("log-probabilities", &logprobs(got), &wide, 1e-4, 1e-4);
    }
    together.iter().map(|drawn| tokens(drawn)).collect()
}

/// Prompts of different lengths. One has a single token. Some texts end early.
fn ragged(count: usize, options: &GenerateOptions) -> Vec<Prompt> {
    let length = |i: usize| if i == 1 { 1 } else { 3 + (i * 7) % 19 };
    let prompt = |i: usize| integers(i as u32, length(i), 61);
    let max_tokens = |i: usize| options.max_tokens.saturating_sub(i % 3 * 9).max(1);
    (0..count)
        .map(|i| (prompt(i), GenerateOptions { max_tokens: max_tokens(i), ..options.clone() }))
        .collect()
}

#[test]
fn texts_are_those_of_generations_of_their_own() {
    for config in [TIED, UNTIED] {
        let model = Pair::new(&Double::floor(), config).model;
        for count in [1, 3, 16, 17] {
            same_as_alone(&model, &ragged(count, &greedy(24)));
        }
    }
    for double in [software(), named("NVIDIA")] {
        let model = Pair::new(&double, UNTIED).model;
        same_as_alone(&model, &ragged(5, &greedy(24)));
    }
}

#[test]
fn the_first_tokens_come_behind_one_pass() {
    let model = Pair::new(&Double::floor(), TIED).model;
    // The second batch has the first one's plans.
    for _ in 0..2 {
        let mut batch = begun(&model, &ragged(3, &greedy(24)));
        let mut next = || block_on(batch.next(NO_PROGRESS)).unwrap();
        let first: Vec<_> = next().into_iter().map(|(index, _)| index).collect();
        assert_eq!(first, [0, 1, 2]);
        assert!(next().len() > 3);
    }
}

#[test]
fn every_family_decodes_several_texts() {
    for config in [WINDOWED, NORMED, ALTERNATING, TWO_TABLES, BIASED, LEARNED, UNSCALED, PARALLEL] {
        let model = Pair::new(&Double::floor(), config).model;
        same_as_alone(&model, &ragged(3, &greedy(30)));
    }
}

#[test]
fn every_format_decodes_several_texts() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    for kv_cache in KvCacheFormat::ALL {
        for weights in WeightFormat::ALL {
            same_as_alone(&model, &ragged(3, &GenerateOptions { kv_cache, weights, ..greedy(20) }));
        }
    }
}

#[test]
fn each_text_draws_by_options_of_its_own() {
    let model = Pair::new(&Double::floor(), TIED).model;
    let mut prompts = ragged(5, &GenerateOptions { temperature: 1.2, ..greedy(25) });
    for (index, (prompt, options)) in prompts.iter_mut().enumerate() {
        *prompt = vec![5, 6, 7];
        (options.seed, options.max_tokens) = (index as u64 / 2, 25 - index);
    }
    prompts[2].1.repetition_penalty = 1.6;
    prompts[3].1.top_k = 4;
    prompts[4].1.temperature = 0.0;
    let texts = same_as_alone(&model, &prompts);
    assert_ne!(texts[0][..10], texts[2][..10]);
    assert_ne!(texts[2][..10], texts[3][..10]);
    // A stop token ends one text, and the others go on.
    let stop = texts[0][6];
    prompts[0].1.stop_tokens = vec![stop];
    let stopped = same_as_alone(&model, &prompts);
    assert!(stopped[0].len() <= 6 && !stopped[0].contains(&stop), "{:?}", stopped[0]);
    assert_eq!(stopped[1..], texts[1..]);
}

#[test]
fn a_text_ends_with_the_models_positions_and_disturbs_no_other() {
    let config = TIED.replace("512", "40");
    let model = Pair::new(&Double::floor(), &config).model;
    let prompts: Vec<Prompt> =
        [3, 33, 40, 39].map(|n| (integers(9, n, 61), greedy(100))).into_iter().collect();
    let texts = same_as_alone(&model, &prompts);
    assert_eq!(texts.iter().map(Vec::len).collect::<Vec<_>>(), [37, 7, 0, 1]);
}

#[test]
fn prompts_are_read_together_but_for_long_ones_and_those_that_begin_alike() {
    let submits = |double: &Rc<Double>, prompts: Vec<Vec<u32>>| {
        let model = Pair::new(double, UNTIED).model;
        let prompts: Vec<Prompt> = prompts.into_iter().map(|tokens| (tokens, greedy(1))).collect();
        // The room is made, and the pace of chunks known.
        alone(&model, &(vec![1, 2], greedy(1)));
        let before = double.counters().submits;
        let mut batch = begun(&model, &prompts);
        let drawn = rest(&mut batch, prompts.len());
        let submits = double.counters().submits - before;
        for (prompt, drawn) in prompts.iter().zip(drawn) {
            assert_eq!(tokens(&drawn), tokens(&alone(&model, prompt)));
        }
        submits
    };
    let different = |count: u32| (0..count).map(|i| integers(i, 5 + i as usize, 61)).collect();
    let few = submits(&Double::floor(), different(2));
    assert_eq!(submits(&Double::floor(), different(12)), few);
    // One by one.
    let alike = vec![integers(7, 20, 61); 6];
    assert!(submits(&Double::floor(), alike) > few);
    // A CPU reads 256 rows at a time.
    let long = |length| vec![integers(1, length, 61), integers(2, 9, 61)];
    let one = submits(&software(), long(60));
    assert!(submits(&software(), long(300)) > one);
}

#[test]
fn a_text_has_the_same_bits_whatever_is_beside_it() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let prompts = ragged(5, &greedy(20));
    let bits =
        |drawn: &[Drawn]| drawn.iter().map(|d| (d.token, d.logprob.to_bits())).collect::<Vec<_>>();
    let together = rest(&mut begun(&model, &prompts), 5);
    for (index, prompt) in prompts.iter().enumerate() {
        let own = rest(&mut begun(&model, std::slice::from_ref(prompt)), 1);
        assert_eq!(bits(&own[0]), bits(&together[index]), "text {index}");
    }
}

#[test]
fn a_text_has_the_same_bits_at_any_pace() {
    let bits = |prompts: &[Prompt], units: f64| {
        let model = Pair::new(&Double::floor(), UNTIED).model;
        model.pretend_throughput(units);
        let drawn = rest(&mut begun(&model, prompts), prompts.len());
        let of = |drawn: &Drawn| (drawn.token, drawn.logprob.to_bits());
        drawn.iter().map(|own| own.iter().map(of).collect()).collect::<Vec<Vec<_>>>()
    };
    let alike = vec![(integers(7, 100, 61), greedy(4)); 6];
    for prompts in [alike, ragged(6, &greedy(4))] {
        let fast = bits(&prompts, 1e12);
        for units in [1.0, 1e3, 1e5] {
            assert_eq!(bits(&prompts, units), fast, "{units} units of work a millisecond");
        }
    }
}

#[test]
fn a_pass_decodes_all_and_several_go_in_a_submit() {
    let submits = |count: usize| {
        let double = Double::floor();
        let model = Pair::new(&double, UNTIED).model;
        let mut batch = begun(&model, &ragged(count, &greedy(20)));
        block_on(batch.next(NO_PROGRESS)).unwrap();
        let before = double.counters().submits;
        rest(&mut batch, count);
        double.counters().submits - before
    };
    let few = submits(2);
    assert_eq!(submits(9), few);
    assert!(few < 20, "{few}");
}

#[test]
fn texts_go_on_when_the_weights_change_or_the_cache_grows() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let prompts = ragged(3, &greedy(60));
    let mut batch = begun(&pair.model, &prompts);
    let mut first = vec![vec![]; 3];
    let some = block_on(batch.next(NO_PROGRESS)).unwrap();
    some.into_iter().for_each(|(index, drawn)| first[index].push(drawn.token));
    // The model's cache grows.
    block_on(pair.model.logits(&integers(4, 400, 61), Default::default(), NO_PROGRESS)).unwrap();
    let some = block_on(batch.next(NO_PROGRESS)).unwrap();
    some.into_iter().for_each(|(index, drawn)| first[index].push(drawn.token));
    let whole: Vec<_> = prompts.iter().map(|prompt| tokens(&alone(&pair.model, prompt))).collect();
    for (first, whole) in first.iter().zip(&whole) {
        assert_eq!(first[..], whole[..first.len()]);
    }
    let options = TrainerOptions { learning_rate: 0.1, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    block_on(trainer.step(&step(&pair.config, 3, 32))).unwrap();
    let later = rest(&mut batch, 3);
    for (index, (prompt, options)) in prompts.iter().enumerate() {
        // What generate gives after the text so far, with the weights as they are now.
        let text = [&prompt[..], &first[index]].concat();
        let options = GenerateOptions { drawn: first[index].len(), ..options.clone() };
        assert_eq!(tokens(&later[index]), tokens(&alone(&pair.model, &(text, options))));
    }
}

#[test]
fn a_batch_leaves_nothing_and_says_what_it_takes() {
    let double = Double::floor();
    let model = Pair::new(&double, UNTIED).model;
    let prompts = ragged(4, &greedy(20));
    alone(&model, &prompts[0]);
    let (bytes, held) = (model.gpu_bytes(), double.counters().gpu_bytes);
    let mut batch = begun(&model, &prompts);
    block_on(batch.next(NO_PROGRESS)).unwrap();
    // Keys and values of 4 × 256 tokens in two layers, and more.
    assert!(model.gpu_bytes() - bytes >= 4 * 256 * 2 * 32 * 4 * 2);
    drop(batch);
    assert_eq!((model.gpu_bytes(), double.counters().gpu_bytes), (bytes, held));
}

#[test]
fn a_batch_that_was_given_up_while_it_read_goes_on() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let prompts = ragged(3, &greedy(20));
    let expected = rest(&mut begun(&model, &prompts), 3);
    let mut batch = begun(&model, &prompts);
    let second = |done, total, _: &'static str| done == 1 && total == 3;
    let error = block_on(batch.next(Progress(&second))).unwrap_err();
    assert_eq!(error.code, ErrorCode::Aborted, "{error}");
    let texts = |all: Vec<Vec<Drawn>>| all.iter().map(|text| tokens(text)).collect::<Vec<_>>();
    assert_eq!(texts(rest(&mut batch, 3)), texts(expected));
}

#[test]
fn an_ended_text_gives_no_more_and_the_others_do() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let prompts: Vec<Prompt> = ragged(3, &greedy(40))
        .into_iter()
        .map(|(prompt, options)| (prompt, GenerateOptions { max_tokens: 40, ..options }))
        .collect();
    let mut batch = begun(&model, &prompts);
    let first = block_on(batch.next(NO_PROGRESS)).unwrap();
    batch.end(1);
    let later = rest(&mut batch, 3);
    let before = |index| first.iter().filter(|(of, _)| *of == index).count();
    assert_eq!(later[1].len(), 0);
    assert_eq!([0, 2].map(|index| before(index) + later[index].len()), [40, 40]);
}

#[test]
fn texts_go_on_beside_one_whose_logits_are_not_finite() {
    let double = Double::floor();
    let config = ModelConfig::from_json(UNTIED).unwrap();
    let mut weights = random_tensors::<f32>(&config, 7);
    // Nothing reaches the first channel but the embedding of token 60, after which the logits overflow.
    for (name, values) in &mut weights {
        let width = config.hidden_size;
        let channel = |values: &mut [f32], x| values.chunks_mut(width).for_each(|row| row[0] = x);
        match name.rsplit('.').nth(1) {
            Some("embed_tokens") => {
                channel(values, 0.0);
                values[60 * width] = 10.0;
            }
            Some("lm_head") => channel(values, 3e38),
            Some("o_proj" | "down_proj") => {
                let inputs = values.len() / width;
                values[..inputs].fill(0.0);
            }
            _ => {}
        }
    }
    let model = load_as(&double, &config, &weights, WeightFormat::F32);
    let text = |token| (vec![5, token], greedy(20));
    let prompts = [text(1), text(60), text(2), text(60), text(3)];
    let mut batch = begun(&model, &prompts);
    let mut all = vec![vec![]; prompts.len()];
    let mut ends = vec![];
    let error = loop {
        let some = block_on(batch.next(NO_PROGRESS));
        ends.extend(batch.take_ended());
        match some {
            Ok(some) => some.into_iter().for_each(|(i, drawn)| all[i].push(drawn)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::NonFinite);
    assert!(error.message.starts_with("prompts[1]: the model's logits"), "{error}");
    assert_eq!(block_on(batch.next(NO_PROGRESS)).unwrap_err(), error);
    for (index, prompt) in prompts.iter().enumerate() {
        let expected = if prompt.0[1] == 60 { vec![] } else { alone(&model, prompt) };
        assert_eq!(tokens(&all[index]), tokens(&expected), "text {index}");
    }
    assert_eq!(ends, [0, 2, 4], "texts that have come to their ends");
}

#[test]
fn what_cannot_be_is_refused() {
    let model = Pair::new(&Double::floor(), TIED).model;
    let refused = |prompts: Vec<Prompt>| BatchGeneration::start(&model, prompts).unwrap_err();
    assert!(refused(vec![]).message.contains("is 0; it must be from 1 to 256"));
    let error = refused(vec![(vec![1], greedy(4)), (vec![], greedy(4))]);
    assert!(error.message.starts_with("prompts[1]: tokens is empty"), "{error}");
    assert_eq!(error.code, ErrorCode::InvalidTokens);
    let error = refused(vec![(vec![1, 61], greedy(4))]);
    assert!(error.message.starts_with("prompts[0]: tokens[1] is 61"), "{error}");
    let error = refused(vec![(vec![1], greedy(4)), (vec![1; 513], greedy(4))]);
    assert!(error.message.starts_with("prompts[1]: 513 tokens"), "{error}");
    let hot = GenerateOptions { temperature: -1.0, ..greedy(4) };
    assert_eq!(refused(vec![(vec![1], hot)]).code, ErrorCode::InvalidOptions);
}

#[test]
fn a_failed_call_can_be_repeated_and_a_lost_or_freed_one_cannot() {
    let whole = {
        let model = Pair::new(&Double::floor(), TIED).model;
        rest(&mut begun(&model, &ragged(3, &greedy(110))), 3)
    };
    for nth in 0..6 {
        let double = Double::floor();
        let model = Pair::new(&double, TIED).model;
        let mut batch = begun(&model, &ragged(3, &greedy(110)));
        let mut texts: Vec<Vec<Drawn>> = vec![vec![]; 3];
        double.fail(Fault::RefusedSubmit, nth);
        let mut failed = 0;
        loop {
            match block_on(batch.next(NO_PROGRESS)) {
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::Internal, "{error}");
                    failed += 1;
                }
                Ok(some) if some.is_empty() => break,
                Ok(some) => some.into_iter().for_each(|(i, drawn)| texts[i].push(drawn)),
            }
        }
        assert_eq!(failed, 1);
        let of = |texts: &[Vec<Drawn>]| texts.iter().map(|x| tokens(x)).collect::<Vec<_>>();
        assert_eq!(of(&texts), of(&whole), "submit {nth}");
    }
    let double = Double::floor();
    let model = Pair::new(&double, TIED).model;
    let mut batches = [0, 1].map(|_| begun(&model, &ragged(2, &greedy(40))));
    block_on(batches[0].next(NO_PROGRESS)).unwrap();
    model.free();
    assert_eq!(block_on(batches[0].next(NO_PROGRESS)).unwrap_err().code, ErrorCode::Freed);
    double.lose("a test");
    assert_eq!(block_on(batches[1].next(NO_PROGRESS)).unwrap_err().code, ErrorCode::Freed);
    drop(batches);
    let model = Pair::new(&Double::floor(), TIED).model;
    let refused = BatchGeneration::start(&model, vec![(vec![1], greedy(4)); 257]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidOptions);
}
