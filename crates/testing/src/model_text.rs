//! Text that whole models generate, against the reference network in f64, and the cache that it takes.

use super::measure::{close, same, text};
use super::model::{
    ALTERNATING, BIASED, LEARNED, LanePair, NORMED, PARALLEL, TIED, UNTIED, WINDOWED, device,
    hardware,
};
use super::pretend::Pretend;
use super::{Case, Outcome, SessionLane};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::lower::attention_shape;
use crate::session::{GenerateOptions, Generation, InferenceOptions, Model, NO_PROGRESS};
use crate::twins::log_sum_exp;
use std::rc::Rc;

/// How far a packed cache may take a log-probability from the reference, in nats. Over 24 seeds of the
/// cases below the most were 0.0038 with f16 and 0.085 with int8.
const F16_NATS: f64 = 0.015;
const INT8_NATS: f64 = 0.2;

const CACHES: [(KvCacheFormat, f64); 3] =
    [(KvCacheFormat::F32, 1e-4), (KvCacheFormat::F16, F16_NATS), (KvCacheFormat::Int8, INT8_NATS)];

/// Prompts of one chunk and of two, with the tokens that follow.
const SHORT: [(usize, usize); 2] = [(1, 20), (270, 20)];
/// Several times the rows of the windowed model's cache.
const AROUND_THE_RING: [(usize, usize); 1] = [(700, 100)];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (name, config) in
        [("tied", TIED), ("untied", UNTIED), ("windowed", WINDOWED), ("normed", NORMED)]
    {
        // Weights of deviation 0.2 make scores that feel each rounding of a key.
        for (cache, tolerance) in CACHES {
            let case = format!("model {name}: greedy generation, {} cache", cache.name());
            cases.push(Case::new(case, move |lane| async move {
                generation(&lane, &device(&lane), config, cache, tolerance, &SHORT).await
            }));
        }
    }
    for (cache, tolerance) in CACHES {
        let case = format!("model windowed: a small cache for a long text, {}", cache.name());
        cases.push(Case::new(case, move |lane| ring(lane, cache, tolerance)));
    }
    let case = "model windowed: a small cache for a long text with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, config) = (hardware(&lane)?, long_windowed());
        generation(&lane, &gpu, &config, KvCacheFormat::F32, 1e-4, &AROUND_THE_RING).await
    }));
    let case = "model alternating: greedy generation";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, cache) = (device(&lane), KvCacheFormat::F32);
        generation(&lane, &gpu, ALTERNATING, cache, 1e-4, &SHORT).await
    }));
    let case = "model alternating: greedy generation with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, cache) = (hardware(&lane)?, KvCacheFormat::Int8);
        generation(&lane, &gpu, ALTERNATING, cache, INT8_NATS, &SHORT).await
    }));
    let case = "model biased: greedy generation with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        generation(&lane, &hardware(&lane)?, BIASED, KvCacheFormat::F32, 1e-4, &SHORT).await
    }));
    // A cache of f32 takes what the product before it gives, a packed one rows of f32.
    for (name, config) in [("learned", LEARNED), ("parallel", PARALLEL)] {
        let case = format!("model {name}: greedy generation with kernels for hardware");
        cases.push(Case::new(case, move |lane| async move {
            generation(&lane, &hardware(&lane)?, config, KvCacheFormat::F32, 1e-4, &SHORT).await
        }));
    }
    for (cache, tolerance) in [(KvCacheFormat::F32, 1e-4), (KvCacheFormat::Int8, INT8_NATS)] {
        let name = cache.name();
        let case = format!("model untied: greedy generation with kernels for hardware, {name}");
        cases.push(Case::new(case, move |lane| async move {
            generation(&lane, &hardware(&lane)?, UNTIED, cache, tolerance, &SHORT).await
        }));
    }
    for (name, config) in [("untied", UNTIED), ("windowed", WINDOWED)] {
        let case = format!("model {name}: a beginning that the cache holds is not read again");
        cases.push(Case::new(case, move |lane| async move { reuse(&lane, config).await }));
    }
    for (cache, tolerance) in [(KvCacheFormat::F32, 1e-4), (KvCacheFormat::Int8, INT8_NATS)] {
        let case = format!("model untied: a cache that grows with its text, {}", cache.name());
        cases.push(Case::new(case, move |lane| growth(lane, cache, tolerance)));
    }
    let case = "model untied: loss in turns with generation from packed weights";
    cases.push(Case::new(case, alternating));
    cases.push(Case::new("model untied: packed weights with kernels for hardware", packed_weights));
    cases.push(Case::new("a refused call between tokens leaves the text as it was", refusal));
    cases
}

/// Every token is the reference's likeliest, to the rounding of the cache, with its log-probability.
/// `texts` are the lengths of prompts and of what follows them.
async fn generation(
    lane: &SessionLane,
    gpu: &Rc<dyn Gpu>,
    config: &str,
    cache: KvCacheFormat,
    tolerance: f64,
    texts: &[(usize, usize)],
) -> Outcome {
    let pair = LanePair::new(lane, gpu, config).await?;
    let (mut said, mut worst) = (vec![], 0.0f64);
    for &(length, max_tokens) in texts {
        let prompt = lane.integers(length, pair.config.vocab_size);
        let (tokens, error) = continued(&pair, &prompt, cache, tolerance, max_tokens).await?;
        worst = worst.max(error);
        said.push(tokens.last().copied().unwrap_or_default());
    }
    Ok(format!("last tokens {said:?}, {worst:.1e} nats at most from the reference"))
}

/// The prompt and the likeliest tokens after it, each held against the reference; also the largest
/// difference from that in nats.
async fn continued(
    pair: &LanePair,
    prompt: &[u32],
    cache: KvCacheFormat,
    tolerance: f64,
    max_tokens: usize,
) -> Result<(Vec<u32>, f64), String> {
    let options = GenerateOptions {
        max_tokens,
        temperature: 0.0,
        kv_cache: cache,
        ..GenerateOptions::default()
    };
    let mut generation = Generation::start(&pair.model, prompt, options).await.map_err(text)?;
    let mut drawn = vec![];
    loop {
        match generation.next().await.map_err(text)? {
            some if some.is_empty() => break,
            some => drawn.extend(some),
        }
    }
    if drawn.len() != max_tokens {
        return Err(format!("{} tokens instead of {max_tokens}", drawn.len()));
    }
    let mut tokens = prompt.to_vec();
    tokens.extend(drawn.iter().map(|d| d.token));
    // Causal: the logits of the whole text hold those of each of its beginnings.
    let all = pair.reference().logits(&tokens, &vec![0; tokens.len()]);
    let vocabulary = pair.config.vocab_size;
    let mut worst = 0.0f64;
    for (i, d) in drawn.iter().enumerate() {
        let row = &all[(prompt.len() + i - 1) * vocabulary..][..vocabulary];
        let best = row.iter().copied().fold(f64::MIN, f64::max);
        let own = row[d.token as usize];
        let error = (f64::from(d.logprob) - (own - log_sum_exp(row))).abs();
        worst = worst.max(error).max(best - own);
        if best - own > tolerance {
            return Err(format!("token {i} is {}, {:.1e} below the best", d.token, best - own));
        }
        if error.is_nan() || error > tolerance {
            return Err(format!("log-probability {}, {error:.1e} off", d.logprob));
        }
    }
    Ok((tokens, worst))
}

/// A text that begins like the one in the cache is read from where it differs.
async fn reuse(lane: &SessionLane, config: &str) -> Outcome {
    let config =
        config.replace(r#""max_position_embeddings":512"#, r#""max_position_embeddings":1024"#);
    // Dispatches are counted, so that a slow GPU must not get smaller chunks.
    let pair = LanePair::new(lane, &Pretend::timeless(&lane.gpu), &config).await?;
    let prompt = lane.integers(600, pair.config.vocab_size);
    let others = lane.integers(12, pair.config.vocab_size);
    let read = async |prompt: &[u32]| {
        let before = lane.gpu.counters().dispatches;
        let (tokens, _) = continued(&pair, prompt, KvCacheFormat::F32, 1e-4, 6).await?;
        Ok::<_, String>((tokens, lane.gpu.counters().dispatches - before))
    };
    let (_, one_chunk) = read(&others).await?;
    let (whole, three_chunks) = read(&prompt).await?;
    let two_chunks = (one_chunk + three_chunks) / 2;
    let longer = [&whole[..], &others].concat();
    let parted = [&prompt[..300], &others].concat();
    // A ring has given the rows of the 300th position to later ones.
    let after_ring = if pair.config.sliding_window.is_some() { two_chunks } else { one_chunk };
    for (what, text, dispatches) in [
        ("the same text", &prompt, one_chunk),
        ("one that goes on", &longer, one_chunk),
        ("the longer one again", &longer, one_chunk),
        ("one that parts from it", &parted, after_ring),
        ("another one", &others, one_chunk),
        ("the first one", &prompt, three_chunks),
    ] {
        let (_, got) = read(text).await.map_err(|e| format!("{what}: {e}"))?;
        if got != dispatches {
            return Err(format!("{what} took {got} dispatches, not {dispatches}"));
        }
    }
    // The logits of a text are in the cache too; other weights make all of it void.
    pair.model.logits(&longer, InferenceOptions::default(), NO_PROGRESS).await.map_err(text)?;
    let (_, got) = read(&longer).await?;
    pair.model.changed();
    let (_, void) = read(&longer).await?;
    if (got, void) != (one_chunk, three_chunks) {
        return Err(format!("{got} dispatches after logits, {void} after other weights"));
    }
    Ok(format!("{three_chunks} dispatches, {one_chunk} where the beginning is in the cache"))
}

/// A text that outgrows its cache: what that holds is copied, not read again, and nothing compiles.
async fn growth(lane: Rc<SessionLane>, cache: KvCacheFormat, tolerance: f64) -> Outcome {
    let pair = LanePair::new(&lane, &Pretend::timeless(&lane.gpu), UNTIED).await?;
    let mut dispatches = vec![];
    for (length, tokens) in [(9, 10), (11, 20), (200, 300)] {
        let prompt = lane.integers(length, pair.config.vocab_size);
        let before = lane.gpu.counters();
        continued(&pair, &prompt, cache, tolerance, tokens).await?;
        let after = lane.gpu.counters();
        if length > 9 && after.pipelines != before.pipelines {
            return Err(format!("{} pipelines compiled", after.pipelines - before.pipelines));
        }
        dispatches.push(after.dispatches - before.dispatches);
    }
    let of_token = (dispatches[1] - dispatches[0]) / 10;
    let expected = dispatches[0] + 290 * of_token;
    if dispatches[2] != expected {
        return Err(format!("{} dispatches, not {expected}", dispatches[2]));
    }
    Ok(format!("{of_token} dispatches per token"))
}

/// Other options between two calls of the same ones: nothing is made, packed or read again.
async fn alternating(lane: Rc<SessionLane>) -> Outcome {
    let pair = LanePair::new(&lane, &Pretend::timeless(&lane.gpu), UNTIED).await?;
    let options = GenerateOptions {
        max_tokens: 8,
        temperature: 0.0,
        weights: WeightFormat::Int8,
        ..GenerateOptions::default()
    };
    let (prompt, others) = (lane.integers(40, 64), lane.integers(30, 64));
    let mut rounds = vec![];
    for _ in 0..3 {
        let before = lane.gpu.counters();
        pair.model
            .loss(&others, None, InferenceOptions::default(), NO_PROGRESS)
            .await
            .map_err(text)?;
        let generation = Generation::start(&pair.model, &prompt, options.clone()).await;
        let mut generation = generation.map_err(text)?;
        let mut tokens = vec![];
        loop {
            match generation.next().await.map_err(text)? {
                some if some.is_empty() => break,
                some => tokens.extend(some.iter().map(|drawn| drawn.token)),
            }
        }
        let after = lane.gpu.counters();
        let made = after.bind_groups - before.bind_groups + after.pipelines - before.pipelines;
        rounds.push((made, after.gpu_bytes, after.dispatches - before.dispatches, tokens));
    }
    let [(made, _, first, _), (none, bytes, second, tokens), last] = &rounds[..] else {
        return Err("three rounds".into());
    };
    if *made == 0 || second >= first || *last != (0, *bytes, *second, tokens.clone()) || *none != 0
    {
        return Err(format!("objects, bytes, dispatches and tokens by round: {rounds:?}"));
    }
    Ok(format!("{first} dispatches, then {second}"))
}

/// Texts of packed weights are as likely as a prompt's logits in that format say.
async fn packed_weights(lane: Rc<SessionLane>) -> Outcome {
    let pair = LanePair::new(&lane, &hardware(&lane)?, UNTIED).await?;
    let vocabulary = pair.config.vocab_size;
    let mut worst = 0.0f64;
    for weights in WeightFormat::ALL {
        let prompt = lane.integers(40, vocabulary);
        let options = GenerateOptions {
            max_tokens: 20,
            temperature: 0.0,
            weights,
            ..GenerateOptions::default()
        };
        let mut generation =
            Generation::start(&pair.model, &prompt, options).await.map_err(text)?;
        let mut drawn = vec![];
        loop {
            match generation.next().await.map_err(text)? {
                some if some.is_empty() => break,
                some => drawn.extend(some),
            }
        }
        let mut tokens = prompt.clone();
        tokens.extend(drawn.iter().map(|d| d.token));
        let options = InferenceOptions { weights, ..InferenceOptions::default() };
        let all = pair.model.logits(&tokens, options, NO_PROGRESS).await.map_err(text)?;
        for (row, d) in all.chunks_exact(vocabulary).skip(prompt.len() - 1).zip(&drawn) {
            let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
            let own = row[d.token as usize] - log_sum_exp(&row);
            let error = (f64::from(d.logprob) - own).abs();
            if error.is_nan() || error > 1e-4 {
                return Err(format!("{weights:?}: log-probability {}, {error:.1e} off", d.logprob));
            }
            worst = worst.max(error);
        }
    }
    Ok(format!("{worst:.1e} nats at most from a prompt's"))
}

/// Bytes on the GPU besides the weights, for a text of 1,700 tokens.
async fn inference_bytes(
    gpu: &Rc<dyn Gpu>,
    config: &ModelConfig,
    cache: KvCacheFormat,
) -> Result<u64, String> {
    let model = Model::create(gpu, config.clone(), 1, NO_PROGRESS).await.map_err(text)?;
    let before = model.gpu_bytes();
    let options = GenerateOptions { kv_cache: cache, ..GenerateOptions::default() };
    Generation::start(&model, &[1; 1700], options).await.map_err(text)?;
    Ok(model.gpu_bytes() - before)
}

/// The logits of all positions of a text of three chunks, the middle one whole: also those whose
/// keys the newest rows of their chunk all but overwrite.
async fn every_row(lane: &SessionLane, gpu: &Rc<dyn Gpu>, config: &str) -> Result<(), String> {
    let pair = LanePair::new(lane, gpu, config).await?;
    let prompt = lane.integers(700, pair.config.vocab_size);
    let expected = pair.reference().logits(&prompt, &[0; 700]);
    let got =
        pair.model.logits(&prompt, InferenceOptions::default(), NO_PROGRESS).await.map_err(text)?;
    let vocabulary = pair.config.vocab_size;
    for (i, (got, row)) in got.chunks(vocabulary).zip(expected.chunks(vocabulary)).enumerate() {
        close(&format!("logits of position {i}"), got, row, 1e-5)?;
    }
    Ok(())
}

/// The windowed model with room for a text longer than its cache.
pub(crate) fn long_windowed() -> String {
    WINDOWED.replace(r#""max_position_embeddings":512"#, r#""max_position_embeddings":2048"#)
}

/// A text that goes around the cache of a window of 7 and a chunk of 256, 262 rows, twice while the
/// prompt is read and once more while tokens follow; and what that cache saves.
async fn ring(lane: Rc<SessionLane>, cache: KvCacheFormat, tolerance: f64) -> Outcome {
    let gpu = device(&lane);
    let config = long_windowed();
    let said = generation(&lane, &gpu, &config, cache, tolerance, &AROUND_THE_RING).await?;
    if cache == KvCacheFormat::F32 {
        every_row(&lane, &gpu, &config).await?;
    }
    let config = ModelConfig::from_json(&config).map_err(text)?;
    let whole = ModelConfig { sliding_window: None, ..config.clone() };
    let rows = (config.num_hidden_layers * (2048 - 262)) as u64;
    let shape = attention_shape(Architecture::of(&config).layers[0].heads().unwrap());
    let saved = rows * shape.row_words(cache) as u64 * 4;
    let small = inference_bytes(&gpu, &config, cache).await?;
    let large = inference_bytes(&gpu, &whole, cache).await?;
    if small + saved > large {
        return Err(format!("{small} bytes, {large} without a window: less than {saved} saved"));
    }
    Ok(format!("{said}; {small} bytes instead of {large}"))
}

/// Generates greedily, with `between` after the first tokens.
async fn generate_around(
    model: &Rc<Model>,
    prompt: &[u32],
    between: impl AsyncFnOnce() -> Result<(), String>,
) -> Result<Vec<u32>, String> {
    let options =
        GenerateOptions { max_tokens: 24, temperature: 0.0, ..GenerateOptions::default() };
    let mut generation = Generation::start(model, prompt, options).await.map_err(text)?;
    let mut tokens = generation.next().await.map_err(text)?;
    between().await?;
    loop {
        match generation.next().await.map_err(text)? {
            some if some.is_empty() => break,
            some => tokens.extend(some),
        }
    }
    Ok(tokens.iter().map(|drawn| drawn.token).collect())
}

/// A call that asks for more than a binding holds fails, and the cache under a running generation,
/// which is about to grow past a power of two, goes on as if nothing had been asked.
async fn refusal(lane: Rc<SessionLane>) -> Outcome {
    let config = TIED.replace("512", "4096");
    let mut caps = lane.caps().clone();
    // Room for the cache of 1,024 tokens, 192 bytes each.
    caps.limits.max_storage_buffer_binding_size = 192 << 10;
    let pair = LanePair::new(&lane, &Pretend::gpu(&lane.gpu, caps), &config).await?;
    let prompt = lane.integers(250, pair.config.vocab_size);
    let expected = generate_around(&pair.model, &prompt, async || Ok(())).await?;
    let long = lane.integers(1025, pair.config.vocab_size);
    let refused =
        async || match pair.model.logits(&long, InferenceOptions::default(), NO_PROGRESS).await {
            Err(error) if error.code == ErrorCode::LimitExceeded => Ok(()),
            Err(error) => Err(text(error)),
            Ok(_) => Err("1,025 tokens were not refused".into()),
        };
    let got = generate_around(&pair.model, &prompt, refused).await?;
    same("tokens", &got, &expected)?;
    Ok(String::new())
}
