//! Generation on the double with alternatives and biases: what is told, what is drawn, and in how many
//! submits.

use super::Double;
use super::peft_tests::{feed, file, text};
use super::tests::{Pair, TIED, UNTIED, WINDOWED, gpu, integers, software};
use crate::caps::{Capabilities, Decoding, Target};
use crate::config::ModelConfig;
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::gpu_adapters::table;
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::session::{Drawn, GenerateOptions, Generation, Model, ModelLoader, NO_PROGRESS};
use crate::twins::check::assert_close;
use crate::twins::top_logits_forward;
use pollster::block_on;
use std::rc::Rc;

/// Few operations per token.
const SMALL: &str = r#"{"vocab_size":13,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,
    "num_attention_heads":1,"num_key_value_heads":1,"head_dim":4,"initializer_range":0.5,
    "max_position_embeddings":512}"#;
const PROMPT: [u32; 3] = [1, 2, 3];

fn greedy() -> GenerateOptions {
    GenerateOptions { max_tokens: 20, temperature: 0.0, ..GenerateOptions::default() }
}

fn begun(model: &Rc<Model>, options: GenerateOptions) -> Generation {
    block_on(Generation::start(model, &PROMPT, options)).unwrap()
}

/// All that is left of a generation.
pub(super) fn rest(mut generation: Generation) -> Vec<Drawn> {
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

/// Logits after a text.
pub(super) fn logits(model: &Rc<Model>, text: &[u32]) -> Vec<f64> {
    let vocabulary = model.config().vocab_size;
    let all = block_on(model.logits(text, Default::default(), NO_PROGRESS)).unwrap();
    all[all.len() - vocabulary..].iter().copied().map(f64::from).collect()
}

/// The texts of a generation before each of its tokens.
pub(super) fn texts(drawn: &[Drawn]) -> impl Iterator<Item = Vec<u32>> + '_ {
    (0..drawn.len()).map(|n| [&PROMPT[..], &tokens(&drawn[..n])].concat())
}

#[test]
fn alternatives_are_the_likeliest_of_each_step() {
    for config in [TIED, UNTIED] {
        let model = Pair::new(&Double::floor(), config).model;
        for count in [1, 3, 32] {
            let options = GenerateOptions {
                alternatives: count,
                temperature: 1.0,
                repetition_penalty: 1.5,
                ..greedy()
            };
            let drawn = rest(begun(&model, options));
            assert_eq!(drawn.len(), 20);
            for (text, drawn) in texts(&drawn).zip(&drawn) {
                let expected = top_logits_forward(&logits(&model, &text), count);
                let of = |values: &[(u32, f32)]| values.iter().map(|(t, _)| *t).collect::<Vec<_>>();
                assert_eq!(
                    of(&drawn.alternatives),
                    expected.iter().map(|(t, _)| *t).collect::<Vec<_>>()
                );
                let told: Vec<f32> = drawn.alternatives.iter().map(|(_, p)| *p).collect();
                let wanted: Vec<f64> = expected.iter().map(|(_, p)| *p).collect();
                assert_close("log-probabilities", &told, &wanted, 2e-5, 0.0);
                let own = drawn.alternatives.iter().find(|(token, _)| *token == drawn.token);
                assert!(own.is_none_or(|(_, logprob)| *logprob == drawn.logprob), "one scale");
            }
        }
    }
}

#[test]
fn a_fixed_bias_shifts_what_is_drawn_and_not_what_is_told() {
    let model = Pair::new(&Double::floor(), TIED).model;
    let mut bias: Vec<f32> = (0..61).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    for token in (0..61).filter(|token| token % 3 != 0) {
        bias[token] = f32::NEG_INFINITY;
    }
    let options = GenerateOptions { bias: bias.clone(), alternatives: 2, ..greedy() };
    let drawn = rest(begun(&model, options));
    assert_eq!(drawn.len(), 20);
    for (text, drawn) in texts(&drawn).zip(&drawn) {
        let logits = logits(&model, &text);
        let shifted: Vec<f64> = logits.iter().zip(&bias).map(|(x, b)| x + f64::from(*b)).collect();
        assert_eq!(drawn.token, top_logits_forward(&shifted, 1)[0].0);
        assert_eq!(drawn.alternatives[0].0, top_logits_forward(&logits, 1)[0].0);
    }
    // At a high temperature nearly everything is drawn that may be.
    let hot = GenerateOptions { bias, max_tokens: 200, temperature: 100.0, ..greedy() };
    let mut seen = tokens(&rest(begun(&model, hot)));
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.iter().all(|token| token % 3 == 0), "{seen:?}");
    assert!(seen.len() > 15, "{} of 21 tokens", seen.len());
}

#[test]
fn neither_takes_more_submits() {
    let submits = |options| {
        let double = Double::floor();
        let model = Pair::new(&double, UNTIED).model;
        let before = double.counters().submits;
        let drawn = rest(begun(&model, options));
        assert_eq!(drawn.len(), 20);
        double.counters().submits - before
    };
    let plain = submits(greedy());
    assert_eq!(submits(GenerateOptions { alternatives: 5, ..greedy() }), plain);
    assert_eq!(submits(GenerateOptions { bias: vec![0.25; 64], ..greedy() }), plain);
    assert_eq!(submits(GenerateOptions { stepwise: true, ..greedy() }), 20, "one per token");
    assert!(plain < 20, "{plain}");
}

#[test]
fn a_bias_that_changes_holds_for_the_next_token() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let mut generation = begun(&model, GenerateOptions { stepwise: true, ..greedy() });
    let mut drawn = vec![];
    // None at first and at last, else the wanted token alone.
    for turn in 0..12u32 {
        let wanted = (turn * 29 + 3) % 64;
        let mut bias = vec![f32::NEG_INFINITY; 64];
        bias[wanted as usize] = 0.0;
        let given = if turn % 4 == 0 { vec![] } else { bias };
        generation.set_bias(given.clone()).unwrap();
        let next = block_on(generation.next()).unwrap();
        assert_eq!(next.len(), 1);
        if !given.is_empty() {
            assert_eq!(next[0].token, wanted);
        }
        drawn.extend(next);
    }
    let free = [0, 4, 8];
    for (n, text) in texts(&drawn).enumerate().filter(|(n, _)| free.contains(n)) {
        assert_eq!(drawn[n].token, top_logits_forward(&logits(&model, &text), 1)[0].0);
    }
}

#[test]
fn a_sampler_follows_its_cache_and_leaves_nothing() {
    let double = Double::floor();
    let model = Pair::new(&double, SMALL).model;
    // The cache grows past its first 256 tokens while it decodes.
    let prompt: Vec<u32> = (0..222).map(|i| i * 5 % 13).collect();
    let begin = |model: &Rc<Model>, options: GenerateOptions| {
        block_on(Generation::start(model, &prompt, options)).unwrap()
    };
    let long = GenerateOptions { max_tokens: 40, temperature: 1.0, ..greedy() };
    let bias: Vec<f32> = (0..13).map(|i| (i * 5 % 13) as f32 / 3.0).collect();
    let options =
        [GenerateOptions { bias, ..long.clone() }, GenerateOptions { alternatives: 4, ..long }];
    let alone = options.clone().map(|options| tokens(&rest(begin(&model, options))));
    assert_ne!(alone[0], alone[1]);
    let (bytes, held) = (model.gpu_bytes(), double.counters().gpu_bytes);
    // By turns, in a cache of their own.
    let fresh = Pair::new(&Double::floor(), SMALL).model;
    let mut both = options.clone().map(|options| begin(&fresh, options));
    let mut mixed = [vec![], vec![]];
    while mixed.iter().any(|drawn: &Vec<Drawn>| drawn.len() < 40) {
        for (generation, drawn) in both.iter_mut().zip(&mut mixed) {
            drawn.extend(block_on(generation.next()).unwrap());
        }
    }
    assert_eq!(mixed.map(|drawn| tokens(&drawn)), alone);
    let [_, told] = options;
    let mut last = begun(&model, told);
    block_on(last.next()).unwrap();
    assert!(model.gpu_bytes() > bytes);
    drop(last);
    assert_eq!((model.gpu_bytes(), double.counters().gpu_bytes), (bytes, held));
}

/// A ring of 262 rows, for a window of 7 and chunks of 256 rows. What decoding has written into it counts at once.
#[test]
fn no_beginning_is_taken_from_rows_that_decoding_has_overwritten() {
    let made = || Pair::new(&software(), WINDOWED).model;
    let written = |model: &Rc<Model>, prompt: &[u32], max_tokens: usize| {
        let options = GenerateOptions { max_tokens, ..greedy() };
        rest(block_on(Generation::start(model, prompt, options)).unwrap())
    };
    let (prompt, others) = (integers(3, 300, 64), integers(4, 6, 64));
    let model = made();
    // The prompt's draw, and two submits of eight tokens.
    let overwritten = prompt.len() + 16 - 262;
    for seen_from in overwritten - 8..overwritten + 2 {
        assert_eq!(written(&model, &prompt, 17).len(), 17);
        let parted = [&prompt[..seen_from + 6], &others].concat();
        let (found, expected) = (written(&model, &parted, 3), written(&made(), &parted, 3));
        assert_eq!(tokens(&found), tokens(&expected), "from position {seen_from} on");
        let told = |drawn: &[Drawn]| drawn.iter().map(|drawn| drawn.logprob).collect::<Vec<_>>();
        let wanted: Vec<f64> = told(&expected).into_iter().map(f64::from).collect();
        assert_close("log-probabilities", &told(&found), &wanted, 2e-5, 0.0);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let model = Pair::new(&Double::floor(), TIED).model;
    let refused = |options: GenerateOptions| {
        let error = block_on(Generation::start(&model, &PROMPT, options)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidOptions, "{error}");
        error.message
    };
    let bias = |token: usize, value: f32| {
        let mut bias = vec![0.0; 61];
        bias[token] = value;
        GenerateOptions { bias, ..greedy() }
    };
    let short = GenerateOptions { bias: vec![0.0; 60], ..greedy() };
    assert!(refused(short).contains("vocab_size of them, 61"));
    for value in [f32::NAN, f32::INFINITY, 2e9, -2e9] {
        let message = refused(bias(7, value));
        assert!(message.contains("token 7") && message.contains("-Infinity"), "{message}");
    }
    let none = GenerateOptions { bias: vec![f32::NEG_INFINITY; 61], ..greedy() };
    assert!(refused(none).contains("every token"));
    let many = refused(GenerateOptions { alternatives: 33, ..greedy() });
    assert!(many.contains("at most 32"), "{many}");
    let small = Pair::new(&Double::floor(), &TIED.replace("61", "4")).model;
    let error = block_on(Generation::start(
        &small,
        &PROMPT,
        GenerateOptions { alternatives: 5, ..greedy() },
    ));
    assert!(error.unwrap_err().message.contains("at most 4"));
}

/// Rows of 256 numbers, and heads that a class with subgroups reads in ranges.
const WIDE: &str = r#"{"vocab_size":61,"hidden_size":256,"intermediate_size":64,"num_hidden_layers":1,
    "num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"initializer_range":0.1,
    "max_position_embeddings":POSITIONS}"#;

#[test]
fn forms_of_decoding_write_the_same_text() {
    let table = table(Target::Native);
    let nvidia = table.into_iter().find(|caps| caps.adapter.description == "NVIDIA").unwrap();
    let prompt: Vec<u32> = (0..70).map(|i| i * i % 61).collect();
    // Texts that are never long, and short ones of a model that reads long ones, with a plan of their own.
    for (positions, weights) in [("512", WeightFormat::F32), ("4096", WeightFormat::Int4)] {
        let config = WIDE.replace("POSITIONS", positions);
        let text = |decoding: Decoding| {
            let caps = Capabilities { decoding: Some(decoding), ..nvidia.clone() };
            let model = Pair::new(&Double::new(caps), &config).model;
            let options = GenerateOptions { max_tokens: 6, weights, ..greedy() };
            rest(block_on(Generation::start(&model, &prompt, options)).unwrap())
        };
        let plain = text(Decoding::PLAIN);
        assert_eq!(plain.len(), 6);
        for formed in [
            Decoding::TEAMS,
            Decoding { merged_ranges: 3, team_rows: 1, workgroup_rows: 4, qkv_invocations: 0 },
        ] {
            let formed = text(formed);
            assert_eq!(tokens(&formed), tokens(&plain), "{positions}, {weights:?}");
        }
    }
}

/// The model of a fixture, with its keys times `factor` and its queries divided by it: the logits stay.
fn with_keys_times(factor: f32) -> Rc<Model> {
    let config = ModelConfig::from_json(&text("llama", "config.json")).unwrap();
    let mut bytes = file("llama", "model.safetensors");
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    for (name, about) in header.as_object().unwrap() {
        let by = match name {
            name if name.ends_with("k_proj.weight") => factor,
            name if name.ends_with("q_proj.weight") => factor.recip(),
            _ => continue,
        };
        let [begin, end] = [0, 1].map(|i| about["data_offsets"][i].as_u64().unwrap() as usize);
        for number in bytes[8 + length + begin..8 + length + end].chunks_exact_mut(4) {
            let scaled = f32::from_le_bytes(number.try_into().unwrap()) * by;
            number.copy_from_slice(&scaled.to_le_bytes());
        }
    }
    let mut loader = ModelLoader::new(&gpu(&Double::floor()), config).unwrap();
    feed(&mut loader, "model.safetensors", &bytes);
    block_on(loader.finish()).unwrap()
}

#[test]
fn keys_beyond_the_range_of_f16_are_told_and_not_bounded() {
    let (plain, model) = (with_keys_times(1.0), with_keys_times(1_048_576.0));
    for kv_cache in KvCacheFormat::ALL {
        let options = GenerateOptions { kv_cache, ..greedy() };
        let mut generation = begun(&model, options.clone());
        if kv_cache == KvCacheFormat::F16 {
            let error = block_on(generation.next()).unwrap_err();
            assert_eq!(error.code, ErrorCode::NonFinite);
            assert!(error.message.contains("kvCache \"f16\""), "{}", error.message);
        } else {
            assert_eq!(tokens(&rest(generation)), tokens(&rest(begun(&plain, options))));
        }
    }
}
