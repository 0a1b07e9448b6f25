//! Kernels over a few decoded rows: their products, and the cache, attention and draws of rows that are of texts of
//! their own.

use super::attention::SOFTMAX;
use super::attention_decode::{Heads, expanded, forms, packed as packed_rows, ranges, shapes};
use super::harness::{Job, Operand, Outputs, POISON, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, of, same, text, wide};
use super::weights::packed;
use super::{Case, Outcome};
use crate::kernels::{
    self as k, KvCache, MatvecRowsShape, Output, PARTIAL_STATE, WeightFormat, WriteMode,
};
use crate::random::{philox, split, uniform};
use crate::session::step::{Choice, Sampling};
use crate::twins::attention::attention_decode;
use crate::twins::linear::matvec_forward;
use crate::twins::rope::cache_append_forward;
use crate::twins::sampling::{SamplingOptions, sample_forward};
use crate::twins::weights::unpack_weights_forward;
use std::rc::Rc;

const OUTPUTS: [Output; 4] =
    [Output::Mode(WriteMode::Overwrite), Output::Residual, Output::Bias, Output::BiasedResidual];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for format in WeightFormat::ALL {
        let name = format!("matvec_rows with {} weights", format.name());
        cases.push(Case::new(name, move |lane| products(lane, format)));
    }
    for cache in KvCache::ALL {
        let name = cache.name();
        let append = move |lane| append(lane, cache);
        cases.push(Case::new(format!("cache_append of several texts, {name}"), append));
        let decode = move |lane| decode(lane, cache);
        cases.push(Case::new(format!("attention decode of several texts, {name} cache"), decode));
    }
    cases.push(Case::new("sample for several texts", draws));
    cases
}

/// One row, fewer than a power of two, whole blocks of rows and one past them; rows of vectors and of single
/// elements; fewer and more rows of the matrix than a workgroup takes.
async fn products(lane: Rc<Lane>, weights: WeightFormat) -> Outcome {
    let sizes: &[_] = if weights == WeightFormat::F32 {
        &[(1, 4), (131, 19), (70, 260), (3, 1), (2051, 36)]
    } else {
        &[(1, 32), (70, 256), (13, 2304)]
    };
    for (index, &(n, k)) in sizes.iter().enumerate() {
        for rows in [1, 3, 16, 17] {
            let output = OUTPUTS[(index + rows) % 4];
            // A part of a matrix: columns lie on both sides of the result's.
            let stride = n + 9;
            product(&lane, MatvecRowsShape { n, k, rows, stride, output, weights }).await?;
        }
    }
    Ok(lane.summary())
}

async fn product(lane: &Lane, shape: MatvecRowsShape) -> Result<(), String> {
    let MatvecRowsShape { n, k, rows, stride, output, weights } = shape;
    let column = 7;
    let mut values = lane.normal(n * k);
    values.iter_mut().for_each(|x| *x /= (k as f32).sqrt());
    let (b, matrix) = if weights == WeightFormat::F32 {
        (Operand::floats(&values), wide(&values))
    } else {
        let words = packed(lane, weights, (n, k), &values).await?.swap_remove(0);
        let matrix = unpack_weights_forward(weights, &words, values.len());
        (Operand::words(&words), matrix)
    };
    let a = lane.normal(rows * k);
    let c = lane.normal(rows * stride);
    let (residual, bias) = (lane.normal(rows * stride), lane.normal(stride));
    let mut operands =
        vec![Operand::floats(&a), b, Operand::floats(&c), Operand::range(0, rows, column, n)];
    let mut expected = wide(&c);
    for (row, result) in expected.chunks_exact_mut(stride).enumerate() {
        let product = matvec_forward(&wide(&a[row * k..][..k]), &matrix, None);
        for (i, x) in product.into_iter().enumerate() {
            let place = column + i;
            result[place] = x;
            if matches!(output, Output::Residual | Output::BiasedResidual) {
                result[place] += f64::from(residual[row * stride + place]);
            }
            if matches!(output, Output::Bias | Output::BiasedResidual) {
                result[place] += f64::from(bias[place]);
            }
        }
    }
    match output {
        Output::Mode(_) => {}
        Output::Residual => operands.push(Operand::floats(&residual)),
        Output::Bias => operands.push(Operand::floats(&bias)),
        Output::BiasedResidual => {
            operands.extend([Operand::floats(&residual), Operand::floats(&bias)]);
        }
    }
    let made = lane.variants(|caps| k::matvec_rows(caps, shape)).map_err(text)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let what = format!("{rows} rows by {n} × {k}, {output:?}");
        close(&what, &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}

/// Cache rows of a text, and the ring in one of two runs.
const ROWS: usize = 9;

/// What says where rows are: the row less the position, which wraps.
fn documents(positions: &[usize]) -> Vec<u32> {
    let of = |(t, &position): (usize, &usize)| (t as u32).wrapping_sub(position as u32);
    positions.iter().enumerate().map(of).collect()
}

fn several(rows: usize, stride: usize) -> Step {
    Step { reserved: [stride as u32, 0], ..Step::of(rows) }
}

async fn append(lane: Rc<Lane>, cache: KvCache) -> Outcome {
    for heads in [(1, 1, 4), (6, 2, 20)] {
        // Texts of their own; four rows of one text; texts whose caches have begun anew.
        for (positions, stride, ring) in
            [([0, 8, 3, 5], ROWS, None), ([2, 3, 4, 5], 0, None), ([25, 0, 9, 8], ROWS, Some(ROWS))]
        {
            let rows = positions.len();
            let (shape, kernel_shape) = shapes(heads, 1);
            let kernel_shape = k::AttentionShape { ring, ..kernel_shape };
            let made = lane
                .variants(|caps| k::cache_append_several(caps, kernel_shape, cache))
                .map_err(text)?;
            let qkv = lane.normal(rows * shape.qkv_width());
            let words = cache.row_words(&kernel_shape);
            let mut expected = vec![POISON; rows * ROWS * words];
            for (t, (row, position)) in qkv.chunks(shape.qkv_width()).zip(positions).enumerate() {
                let mut kept = vec![0.0f32; shape.cache_width()];
                cache_append_forward(shape, row, &mut kept, 0);
                let at = (t * stride + position % ROWS) * words;
                expected[at..at + words].copy_from_slice(&packed_rows(cache, shape, &kept));
            }
            let operands = [
                Operand::floats(&qkv),
                Operand::poison(expected.len()),
                Operand::uniform(&several(rows, stride)),
                Operand::words(&documents(&positions)),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                rows_close(cache, got.words(0), &expected, words).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// Rows that are written where they should be and nowhere else: f32 exactly, others to a step of rounding.
fn rows_close(cache: KvCache, got: &[u32], expected: &[u32], words: usize) -> Result<(), String> {
    if cache == KvCache::F32 {
        return same("cache", got, expected);
    }
    for (row, (got, expected)) in got.chunks(words).zip(expected.chunks(words)).enumerate() {
        if (expected[0] == POISON) != (got[0] == POISON) {
            return Err(format!("row {row} is written wrongly"));
        }
        for (got, expected) in got.iter().zip(expected) {
            // The parts of a word of bytes or halves, or a scale: each at most one off in the last place.
            let parts = if cache == KvCache::F16 { 2 } else { 4 };
            let bits = 32 / parts;
            let part = |word: u32, i: u32| i64::from(word >> (i * bits)) & ((1 << bits) - 1);
            let near = (0..parts).all(|i| {
                let off = (part(*got, i) - part(*expected, i)).rem_euclid(1 << bits);
                off <= 1 || off == (1 << bits) - 1
            });
            if !near && got.abs_diff(*expected) > 2 {
                return Err(format!("row {row} has {got:#x} where {expected:#x} should be"));
            }
        }
    }
    Ok(())
}

/// Texts of one key and of many, with NaN behind each; the rows of one text.
async fn decode(lane: Rc<Lane>, cache: KvCache) -> Outcome {
    let heads: &[Heads] =
        if cache == KvCache::F32 { &[(3, 1, 4), (4, 2, 64)] } else { &[(4, 2, 64)] };
    for &heads in heads {
        for (keys, stride, count) in [
            ([1, 64, 130, 7], 150, 1),
            ([65, 1, 130, 64], 150, 3),
            ([40, 41, 42, 43], 0, 1),
            ([127, 128, 129, 130], 0, 2),
        ] {
            attend(&lane, heads, cache, keys, (stride, count)).await?;
        }
    }
    Ok(lane.summary())
}

async fn attend(
    lane: &Lane,
    heads: Heads,
    cache: KvCache,
    keys: [usize; 4],
    (stride, count): (usize, usize),
) -> Result<(), String> {
    let (shape, kernel_shape) = shapes(heads, 1);
    let (rows, words) = (keys.len(), cache.row_words(&kernel_shape));
    let query = lane.normal(rows * shape.qkv_width());
    let longest = *keys.iter().max().unwrap_or(&1);
    let mut all = vec![u32::MAX; (rows * stride).max(longest + 5) * words];
    let mut expected = vec![];
    let whole = packed_rows(cache, shape, &lane.normal(longest * shape.cache_width()));
    for (row, &seen) in keys.iter().enumerate() {
        let own = if stride == 0 {
            whole.clone()
        } else {
            packed_rows(cache, shape, &lane.normal(seen * shape.cache_width()))
        };
        all[row * stride * words..][..own.len()].copy_from_slice(&own);
        let kept = expanded(cache, shape, &own[..seen * words]);
        let q = wide(&query[row * shape.qkv_width()..][..shape.qkv_width()]);
        expected.extend(attention_decode(shape, &q, &kept, seen));
    }
    let places = documents(&keys.map(|seen| seen - 1));
    let step = several(rows, stride);
    let splits = ranges(count);
    let made = lane
        .variants(|caps| k::attention_decode_several(caps, kernel_shape, cache, &splits, rows))
        .map_err(text)?;
    let width = if count == 1 { shape.head_dim } else { count * (shape.head_dim + PARTIAL_STATE) };
    let operands = [
        Operand::floats(&query),
        Operand::words(&all),
        Operand::words(&places),
        Operand::poison(rows * shape.n_heads * width),
        Operand::uniform(&step),
    ];
    let jobs: Vec<_> =
        forms(made).iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        if count == 1 {
            close("texts", &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
            continue;
        }
        let merges = lane
            .variants(|caps| k::attention_decode_merge_several(caps, kernel_shape, &splits, rows))
            .map_err(text)?;
        let operands = [
            Operand::words(got.words(0)),
            Operand::words(&places),
            Operand::poison(expected.len()),
            Operand::uniform(&step),
        ];
        let merging: Vec<_> =
            forms(merges).iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in merging.iter().zip(lane.run(&merging).await.map_err(text)?) {
            close("texts", &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

const TURNS: usize = 6;
const TEXTS: usize = 5;
/// The row that may advance twice.
const ENDING: usize = 3;

/// Draws that a row has made before.
const fn earlier(row: usize) -> u32 {
    3 * row as u32
}

fn choice(lane: &Lane, row: usize, options: &SamplingOptions, position: usize) -> Choice {
    Choice {
        sampling: Sampling {
            temperature: options.temperature as f32,
            top_p: options.top_p as f32,
            min_p: 0.0,
            repetition_penalty: options.repetition_penalty as f32,
            top_k: options.top_k as u32,
            seed: split(lane.seed + row as u64),
            turn0: earlier(row),
        },
        offset: earlier(row).wrapping_sub(position as u32),
        last: if row == ENDING { position as u32 + 2 } else { 1000 },
        ..Choice::default()
    }
}

/// Greedy rows beside others with temperatures, filters and penalties, over several turns; a row that has reached
/// its last position draws on and is not told.
async fn draws(lane: Rc<Lane>) -> Outcome {
    for vocabulary in [61, 1031] {
        let base = SamplingOptions::default();
        let options = [
            SamplingOptions { temperature: 0.0, ..base },
            SamplingOptions { temperature: 0.7, repetition_penalty: 1.4, ..base },
            base,
            SamplingOptions { top_k: 5, ..base },
            SamplingOptions { top_p: 0.8, ..base },
        ];
        let logits: Vec<f32> =
            lane.normal(TEXTS * vocabulary).into_iter().map(|x| 2.0 * x).collect();
        let positions: Vec<usize> = (0..TEXTS).map(|row| 11 * row).collect();
        let choices: Vec<Choice> =
            (0..TEXTS).map(|row| choice(&lane, row, &options[row], positions[row])).collect();
        let words = vocabulary.div_ceil(32);
        let operands = [
            Operand::floats(&logits),
            Operand::words(&vec![0; TEXTS * words]),
            Operand::poison(TEXTS),
            Operand::poison(2 * TURNS * TEXTS),
            Operand::words(&documents(&positions)),
            Operand::words(bytemuck::cast_slice(&choices)),
        ];
        let made =
            lane.variants(|caps| k::sample_several(caps, vocabulary, TEXTS)).map_err(text)?;
        let jobs: Vec<_> = made
            .iter()
            .map(|kernel| Job { repeat: TURNS, ..Job::new(kernel, TEXTS, operands.to_vec()) })
            .collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            for row in 0..TEXTS {
                let exact = wide(&logits[row * vocabulary..][..vocabulary]);
                let row = (row, positions[row]);
                text_drawn(&lane, &got, row, &exact, &options[row.0]).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// What a row has drawn, and where it has come to.
fn text_drawn(
    lane: &Lane,
    got: &Outputs,
    (row, position): (usize, usize),
    exact: &[f64],
    options: &SamplingOptions,
) -> Result<(), String> {
    const STREAM: u32 = 0x7361_6d70;
    let (mut history, words) = (vec![], exact.len().div_ceil(32));
    for turn in 0..TURNS {
        let token = got.words(2)[2 * (turn * TEXTS + row)];
        if row == ENDING && turn > 2 {
            if token != POISON {
                return Err(format!("turn {turn} of a row that had ended"));
            }
            continue;
        }
        let counter = [earlier(row) + turn as u32, 0, 0, STREAM];
        let share = f64::from(uniform(philox(counter, split(lane.seed + row as u64))[0]));
        let near = [share - 2e-6, share, share + 2e-6].map(|x| x.clamp(0.0, 1.0 - 1e-9));
        let at = |u| sample_forward(exact, &history, &[], options, u).0;
        if !near.into_iter().any(|u| at(u) == token) {
            return Err(format!("row {row}, turn {turn}: {token}, not {}", at(share)));
        }
        history.push(token);
    }
    let moved = if row == ENDING { 2 } else { TURNS };
    if got.words(3)[row] != (row as u32).wrapping_sub((position + moved) as u32) {
        return Err(format!("row {row} has not advanced by {moved}"));
    }
    let own = &got.words(0)[row * words..][..words];
    if history.iter().any(|&t| own[t as usize / 32] >> (t % 32) & 1 == 0) {
        return Err(format!("row {row} has not seen its tokens"));
    }
    if got.words(1)[row] != history[history.len() - 1] {
        return Err(format!("the next input of row {row} is not its last token"));
    }
    Ok(())
}
