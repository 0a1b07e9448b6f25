//! Prompt lookup on the double, and logits after what a cache holds: users build such things from these.

use super::tests::{
    ALTERNATING, LEARNED, NORMED, Pair, TIED, TWO_TABLES, UNTIED, WINDOWED, batch, integers,
    software,
};
use super::{Double, Fault};
use crate::gpu::Gpu;
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::session::{
    Drawn, GenerateOptions, Generation, InferenceOptions, Inspection, Model, NO_PROGRESS, Trainer,
    TrainerOptions,
};
use crate::twins::check::assert_close;
use pollster::block_on;
use std::rc::Rc;

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, temperature: 0.0, ..GenerateOptions::default() }
}

fn begun(model: &Rc<Model>, prompt: &[u32], options: &GenerateOptions) -> Generation {
    block_on(Generation::start(model, prompt, options.clone())).unwrap()
}

fn rest(generation: &mut Generation) -> Vec<Drawn> {
    let mut all = vec![];
    loop {
        match block_on(generation.next()).unwrap() {
            some if some.is_empty() => return all,
            some => all.extend(some),
        }
    }
}

fn tokens(drawn: &[Drawn]) -> Vec<u32> {
    drawn.iter().map(|drawn| drawn.token).collect()
}

/// A prompt of a run of tokens again and again.
fn round(count: usize) -> Vec<u32> {
    (0..count).map(|i| [3, 14, 15, 9, 26, 5][i % 6]).collect()
}

/// The text with lookup and without, and the submits that each took.
fn both(double: &Rc<Double>, model: &Rc<Model>, options: &GenerateOptions) -> [u64; 2] {
    let of = |prompt_lookup: bool| {
        let options = GenerateOptions { prompt_lookup, ..options.clone() };
        let before = double.counters().submits;
        let drawn = rest(&mut begun(model, &round(40), &options));
        (drawn, double.counters().submits - before)
    };
    let ((plain, one_by_one), (checked, in_checks)) = (of(false), of(true));
    assert_eq!(tokens(&checked), tokens(&plain));
    let logprobs = |drawn: &[Drawn]| drawn.iter().map(|d| d.logprob).collect::<Vec<_>>();
    let wide: Vec<f64> = logprobs(&plain).into_iter().map(f64::from).collect();
    assert_close("log-probabilities", &logprobs(&checked), &wide, 1e-4, 1e-4);
    [one_by_one, in_checks]
}

#[test]
fn a_text_with_lookup_is_the_text_without() {
    for config in [TIED, UNTIED, WINDOWED, NORMED, ALTERNATING, TWO_TABLES, LEARNED] {
        let double = Double::floor();
        let model = Pair::new(&double, config).model;
        both(&double, &model, &greedy(150));
        both(&double, &model, &GenerateOptions { temperature: 0.3, seed: 4, ..greedy(150) });
    }
    let double = software();
    both(&double, &Pair::new(&double, UNTIED).model, &greedy(150));
    let double = Double::floor();
    let model = Pair::new(&double, UNTIED).model;
    for kv_cache in KvCacheFormat::ALL {
        for weights in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
            both(&double, &model, &GenerateOptions { kv_cache, weights, ..greedy(90) });
        }
    }
}

/// A model whose next token follows from the last one alone: each greedy text comes to go round.
fn going_round(double: &Rc<Double>) -> Rc<Model> {
    Pair::new(double, &WINDOWED.replace(r#""sliding_window":7"#, r#""sliding_window":1"#)).model
}

#[test]
fn checks_begin_where_the_text_repeats() {
    let double = Double::floor();
    let model = going_round(&double);
    let mut options = GenerateOptions { prompt_lookup: true, ..greedy(400) };
    let plain = tokens(&rest(&mut begun(&model, &round(20), &greedy(400))));
    // What a greedy text of this model comes to in the end is a run again and again.
    let repeats = |text: &[u32]| {
        (1..60).any(|n| text[text.len() - 120..].windows(n + 1).all(|w| w[0] == w[n]))
    };
    assert!(repeats(&plain), "{plain:?}");
    let mut generation = begun(&model, &round(20), &options);
    let (mut most, mut all) = (0, vec![]);
    loop {
        let some = block_on(generation.next()).unwrap();
        if some.is_empty() {
            break;
        }
        most = most.max(some.len());
        all.extend(tokens(&some));
    }
    assert_eq!(all, plain);
    // The end of a text, and a stop token, come in the midst of a check.
    options.max_tokens = 391;
    assert_eq!(tokens(&rest(&mut begun(&model, &round(20), &options))), plain[..391]);
    let stop = plain[380];
    let first = plain.iter().position(|token| *token == stop).unwrap();
    options.stop_tokens = vec![stop];
    assert_eq!(tokens(&rest(&mut begun(&model, &round(20), &options))), plain[..first]);
    assert!(most >= 16, "{most}");
    // In a chain of one token after the other each check gives all.
    let [one_by_one, in_checks] = both(&double, &model, &greedy(400));
    assert!(in_checks < one_by_one + 10, "{in_checks} submits for {one_by_one}");
}

#[test]
fn a_check_that_fails_or_a_cache_used_otherwise_changes_no_token() {
    let plain = {
        let model = going_round(&Double::floor());
        tokens(&rest(&mut begun(&model, &round(20), &greedy(200))))
    };
    let options = GenerateOptions { prompt_lookup: true, ..greedy(200) };
    for nth in [0, 3, 9, 14, 20] {
        let double = Double::floor();
        let model = going_round(&double);
        let mut generation = begun(&model, &round(20), &options);
        let mut all = vec![];
        double.fail(Fault::RefusedSubmit, nth);
        loop {
            match block_on(generation.next()) {
                Ok(some) if some.is_empty() => break,
                Ok(some) => all.extend(tokens(&some)),
                Err(_) => {}
            }
        }
        assert_eq!(all, plain, "submit {nth}");
    }
    // By turns with another text in the same cache.
    let model = going_round(&Double::floor());
    let mut both = [begun(&model, &round(20), &options), begun(&model, &[1, 2], &options)];
    let mut texts = [vec![], vec![]];
    loop {
        let mut more = false;
        for (generation, text) in both.iter_mut().zip(&mut texts) {
            let some = tokens(&block_on(generation.next()).unwrap());
            more |= !some.is_empty();
            text.extend(some);
        }
        if !more {
            break;
        }
    }
    assert_eq!(texts[0], plain);
    let alone = tokens(&rest(&mut begun(&model, &[1, 2], &greedy(200))));
    assert_eq!(texts[1], alone);
}

#[test]
fn what_does_not_go_with_lookup_is_refused() {
    let model = Pair::new(&Double::floor(), TIED).model;
    let lookup = GenerateOptions { prompt_lookup: true, ..greedy(4) };
    for options in [
        GenerateOptions { alternatives: 2, ..lookup.clone() },
        GenerateOptions { repetition_penalty: 1.2, ..lookup.clone() },
        GenerateOptions { bias: vec![0.0; 61], ..lookup },
    ] {
        let error = block_on(Generation::start(&model, &[1], options)).unwrap_err();
        assert!(error.message.starts_with("promptLookup does not go with"), "{error}");
    }
}

/// Where the chunk begins before the first row that is asked for, and where a vocabulary is so large that logits are
/// cut and layers are not.
#[test]
fn logits_are_those_of_their_rows() {
    let text = integers(3, 50, 61);
    let look = |model: &Model, from| {
        let logits = Inspection::Logits { from };
        block_on(model.inspect(&text, logits, Default::default(), NO_PROGRESS)).unwrap()
    };
    let fresh = |config: &str| Pair::new(&Double::floor(), config).model;
    assert_eq!(look(&fresh(UNTIED), 5), look(&fresh(UNTIED), 0)[5 * 64..]);
    let model = fresh(&UNTIED.replace(r#""vocab_size":64"#, r#""vocab_size":4004"#));
    let whole = look(&model, 0);
    for units in [1e5, 3e4] {
        model.pretend_throughput(units);
        assert_eq!(look(&model, 0), whole, "{units} operations per millisecond");
    }
}

#[test]
fn logits_from_a_position_are_those_of_the_whole() {
    for config in [TIED, WINDOWED, LEARNED] {
        let double = Double::floor();
        let pair = Pair::new(&double, config);
        let (model, text) = (&pair.model, integers(3, 50, 61));
        let width = pair.config.vocab_size;
        for kv_cache in KvCacheFormat::ALL {
            let options = InferenceOptions { kv_cache, ..InferenceOptions::default() };
            let look = |text: &[u32], from: usize| {
                block_on(model.inspect(text, Inspection::Logits { from }, options, NO_PROGRESS))
                    .unwrap()
            };
            let whole = |text: &[u32]| look(text, 0);
            let same = |got: &[f32], whole: &[f32]| {
                let wide: Vec<f64> = whole.iter().copied().map(f64::from).collect();
                assert_close("logits", got, &wide, 2e-4, 2e-4);
            };
            let expected = whole(&text);
            for from in [0, 1, 30, 49] {
                same(&look(&text, from), &expected[from * width..]);
            }
            // On from there, back, and another way.
            let longer = [&text[..], &integers(4, 7, 61)].concat();
            same(&look(&longer, 50), &whole(&longer)[50 * width..]);
            look(&longer, 50);
            let other = [&text[..20], &integers(5, 9, 61)].concat();
            same(&look(&other, 20), &whole(&other)[20 * width..]);
        }
        let error = block_on(model.inspect(
            &text,
            Inspection::Logits { from: 50 },
            Default::default(),
            NO_PROGRESS,
        ));
        assert!(error.unwrap_err().message.contains("from is 50; of 50 tokens"));
    }
}

#[test]
fn what_the_cache_holds_is_not_read_again_unless_the_weights_have_changed() {
    let double = software();
    let pair = Pair::new(&double, TIED);
    let text = integers(3, 400, 61);
    let submits = |text: &[u32], from: usize| {
        let before = double.counters().submits;
        let look = Inspection::Logits { from };
        block_on(pair.model.inspect(text, look, Default::default(), NO_PROGRESS)).unwrap();
        double.counters().submits - before
    };
    let all = submits(&text[..399], 0);
    assert!(submits(&text, 399) < all, "a chunk, not {all}");
    let trainer =
        block_on(Trainer::create(&pair.model, TrainerOptions::default(), NO_PROGRESS)).unwrap();
    block_on(trainer.step(&batch(&pair.config, 3, 32))).unwrap();
    let after = block_on(pair.model.logits(&text, Default::default(), NO_PROGRESS)).unwrap();
    let look = Inspection::Logits { from: 398 };
    let last = block_on(pair.model.inspect(&text, look, Default::default(), NO_PROGRESS)).unwrap();
    let wide: Vec<f64> = after[398 * 61..].iter().copied().map(f64::from).collect();
    assert_close("logits", &last, &wide, 2e-4, 2e-4);
}
