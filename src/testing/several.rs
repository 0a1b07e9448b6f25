//! Kernels over a few decoded rows: their products, and the cache, attention and draws of rows that are of texts of
//! their own.

use super::attention::SOFTMAX;
use super::attention_decode::{Heads, expanded, forms, packed as packed_rows, ranges, shapes};
use super::harness::{Job, Operand, Outputs, POISON, Step};
use super::lane::Lane;
use super::matvec::{EPSILON, of_both};
use super::measure::{ROUNDING, close, close_to_terms, of, same, text, wide};
use super::weights::packed;
use super::{Case, Outcome};
use crate::arch::Rope;
use crate::config::Activation;
use crate::kernels::{
    self as k, Kernel, KvCache, MatvecInput, MatvecOutput, MatvecRowsShape, PARTIAL_STATE,
    WeightFormat,
};
use crate::random::{philox, split, uniform};
use crate::session::step::{Choice, Sampling};
use crate::twins::activation::gated_activation_forward;
use crate::twins::attention::attention_decode;
use crate::twins::linear::matvec_forward;
use crate::twins::norm::rms_norm_forward;
use crate::twins::rope::{cache_append_forward, rope_forward, rope_table};
use crate::twins::sampling::{SamplingOptions, sample_forward};
use crate::twins::weights::unpack_weights_forward;
use std::rc::Rc;

/// What becomes of the products of rows of a matrix in their order.
const OUTPUTS: [MatvecOutput; 5] = [
    MatvecOutput::Plain,
    MatvecOutput::Residual,
    MatvecOutput::Bias,
    MatvecOutput::BiasedResidual,
    MatvecOutput::Gated(Activation::Silu),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for format in WeightFormat::ALL {
        let name = format!("matvec_rows with {} weights", format.name());
        cases.push(Case::new(name, move |lane| products(lane, format)));
    }
    cases.push(Case::new("matvec_rows to the heads of several texts", heads_of_texts));
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
/// elements, by each number of lanes that selection picks; fewer and more rows of the matrix than a workgroup takes.
async fn products(lane: Rc<Lane>, weights: WeightFormat) -> Outcome {
    let sizes: &[_] = if weights == WeightFormat::F32 {
        &[
            (1, 4),
            (131, 19),
            (70, 260),
            (3, 1),
            (2051, 36),
            (5, 768),
            (4099, 20),
            (6, 1028),
            (6, 2048),
        ]
    } else {
        &[(1, 32), (70, 256), (13, 2304), (4099, 64), (6, 4128)]
    };
    for (index, &(n, k)) in sizes.iter().enumerate() {
        for (turn, rows) in [1, 3, 16, 17].into_iter().enumerate() {
            let output = OUTPUTS[(index + turn) % 5];
            product(&lane, shape_of((n, k, rows), (index + turn) % 3 == 0, output, weights))
                .await?;
        }
    }
    Ok(lane.summary())
}

/// A part of a matrix: columns lie on both sides of the result's.
fn shape_of(
    (n, k, rows): (usize, usize, usize),
    normed: bool,
    output: MatvecOutput,
    weights: WeightFormat,
) -> MatvecRowsShape {
    let input = if normed {
        MatvecInput::Norm { epsilon: k::Constant(EPSILON) }
    } else {
        MatvecInput::Plain
    };
    MatvecRowsShape { n, k, rows, stride: n + 9, input, output, weights }
}

async fn product(lane: &Lane, shape: MatvecRowsShape) -> Result<(), String> {
    let problem = Problem::new(lane, shape).await?;
    let made = lane.variants(|caps| k::matvec_rows(caps, shape)).map_err(text)?;
    problem.check(lane, &made).await
}

/// Operands of a product, and what it should give.
struct Problem {
    shape: MatvecRowsShape,
    operands: Vec<Operand>,
    expected: Vec<f64>,
    /// What rounding is relative to.
    terms: Vec<f64>,
}

/// A matrix that is held as `weights` says: the operand, and the numbers that it stands for.
async fn matrix(
    lane: &Lane,
    weights: WeightFormat,
    (rows, k): (usize, usize),
) -> Result<(Operand, Vec<f64>), String> {
    let mut values = lane.normal(rows * k);
    values.iter_mut().for_each(|x| *x /= (k as f32).sqrt());
    if weights == WeightFormat::F32 {
        return Ok((Operand::floats(&values), wide(&values)));
    }
    let words = packed(lane, weights, (rows, k), &values).await?.swap_remove(0);
    let matrix = unpack_weights_forward(weights, &words, values.len());
    Ok((Operand::words(&words), matrix))
}

impl Problem {
    async fn new(lane: &Lane, shape: MatvecRowsShape) -> Result<Self, String> {
        let MatvecRowsShape { n, k, rows, stride, input, output, weights, .. } = shape;
        let column = 7;
        let (b, matrix) = matrix(lane, weights, (n * output.products(), k)).await?;
        let (a, weight) = (lane.normal(rows * k), lane.normal(k));
        let c = lane.normal(rows * stride);
        let (residual, bias) = (lane.normal(rows * stride), lane.normal(stride));
        let mut operands =
            vec![Operand::floats(&a), b, Operand::floats(&c), Operand::range(0, rows, column, n)];
        let mut expected = wide(&c);
        let mut terms = expected.clone();
        for (row, result) in expected.chunks_exact_mut(stride).enumerate() {
            let mut x = wide(&a[row * k..][..k]);
            if let MatvecInput::Norm { epsilon } = input {
                x = rms_norm_forward(&x, &wide(&weight), epsilon.0);
            }
            let mut product = matvec_forward(&x, &matrix, None);
            if let MatvecOutput::Gated(activation) = output {
                let both = of_both(activation, &product, n);
                terms[row * stride + column..][..n].copy_from_slice(&both);
                product = gated_activation_forward(activation, &product, n);
            }
            for (i, x) in product.into_iter().enumerate() {
                let place = column + i;
                result[place] = x;
                if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
                    result[place] += f64::from(residual[row * stride + place]);
                }
                if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
                    result[place] += f64::from(bias[place]);
                }
            }
        }
        if let MatvecInput::Norm { .. } = input {
            operands.push(Operand::floats(&weight));
        }
        if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
            operands.push(Operand::floats(&residual));
        }
        if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
            operands.push(Operand::floats(&bias));
        }
        Ok(Self { shape, operands, expected, terms })
    }

    async fn check(&self, lane: &Lane, made: &[Kernel]) -> Result<(), String> {
        let MatvecRowsShape { n, k, rows, output, .. } = self.shape;
        let job = |kernel| Job::new(kernel, rows, self.operands.clone());
        let jobs: Vec<_> = made.iter().map(job).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("{rows} rows by {n} × {k}, {output:?}");
            close_to_terms(&what, &got.floats(0), &self.expected, &self.terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
        Ok(())
    }
}

/// Queries turned at the beginning of each row, keys and values in the cache of the row's text, of texts of their own,
/// of one text, and of texts whose caches have begun anew; with a bias and without.
async fn heads_of_texts(lane: Rc<Lane>) -> Outcome {
    for (heads, columns, weights, biased) in [
        ((1, 1, 4), 19, WeightFormat::F32, false),
        ((6, 2, 20), 260, WeightFormat::F32, true),
        ((3, 3, 32), 96, WeightFormat::Int8, false),
    ] {
        for (positions, stride, ring) in
            [([0, 8, 3, 5], ROWS, None), ([2, 3, 4, 5], 0, None), ([25, 0, 9, 8], ROWS, Some(ROWS))]
        {
            let place = (positions, stride, ring);
            newest_rows(&lane, heads, (columns, weights, biased), place).await?;
        }
    }
    Ok(lane.summary())
}

async fn newest_rows(
    lane: &Lane,
    heads: Heads,
    (columns, weights, biased): (usize, WeightFormat, bool),
    (positions, apart, ring): ([usize; 4], usize, Option<usize>),
) -> Result<(), String> {
    let rows = positions.len();
    let (shape, kernel_shape) = shapes(heads, rows);
    let width = shape.qkv_width();
    let kernel_shape = k::AttentionShape { ring, ..kernel_shape };
    let output = if biased { MatvecOutput::BiasedHeads } else { MatvecOutput::Heads }(kernel_shape);
    let product = MatvecRowsShape {
        stride: width,
        ..shape_of((width / 2, columns, rows), true, output, weights)
    };
    let (b, matrix) = matrix(lane, weights, (width, columns)).await?;
    let (x, weight) = (lane.normal(rows * columns), lane.normal(columns));
    let bias = lane.normal(width);
    let rope = Rope::plain(shape.head_dim, 100.0);
    let table = rope_table(26, &rope).concat();
    let table: Vec<f32> = table.iter().map(|&x| x as f32).collect();
    let (cached, poison) = (shape.cache_width(), f64::from(f32::from_bits(POISON)));
    let (mut queries, mut cache) = (vec![poison; rows * width], vec![poison; rows * ROWS * cached]);
    for (t, position) in positions.into_iter().enumerate() {
        let normed = rms_norm_forward(&wide(&x[t * columns..][..columns]), &wide(&weight), EPSILON);
        let added = biased.then(|| wide(&bias));
        let mut row = matvec_forward(&normed, &matrix, added.as_deref());
        rope_forward(shape, &mut row, &[0], position, &rope);
        let (query, key_value) = row.split_at(shape.key_offset());
        queries[t * width..][..query.len()].copy_from_slice(query);
        cache[(t * apart + position % ROWS) * cached..][..cached].copy_from_slice(key_value);
    }
    let mut operands = vec![
        Operand::floats(&x),
        b,
        Operand::poison(queries.len()),
        Operand::uniform(&several(rows, apart)),
        Operand::floats(&weight),
        Operand::floats(&table),
        Operand::poison(cache.len()),
        Operand::words(&documents(&positions)),
    ];
    operands.extend(biased.then(|| Operand::floats(&bias)));
    let made = lane.variants(|caps| k::matvec_rows(caps, product)).map_err(text)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        for (what, index, expected) in [("query", 0, &queries), ("keys and values", 1, &cache)] {
            let named = of(&job.kernel);
            let written: Vec<_> = (0..expected.len()).filter(|&i| !expected[i].is_nan()).collect();
            let (words, floats) = (got.words(index), got.floats(index));
            let at = |&i: &usize| (floats[i], expected[i]);
            let (floats, expected): (Vec<f32>, Vec<f64>) = written.iter().map(at).unzip();
            close(what, &floats, &expected, ROUNDING).map_err(&named)?;
            let others = words.iter().filter(|&&word| word == POISON).count();
            if others != words.len() - written.len() {
                return Err(named(format!("{what}: written where nothing should be")));
            }
        }
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
