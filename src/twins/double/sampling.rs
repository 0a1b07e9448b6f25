//! The drawing of tokens, and the likeliest of them.

use super::operands::Operands;
use super::uniforms::Sampling;
use crate::error::Result;
use crate::random::{philox, uniform};
use crate::twins::sampling::{SamplingOptions, sample_forward, top_logits_forward};

/// Keeps the draws apart from other streams of a seed (`13_sample.wgsl`).
const DRAWS: u32 = 0x7361_6d70;

pub(super) fn sample(on: &mut Operands, vocabulary: usize, biased: bool) -> Result<()> {
    let options: Sampling = on.uniform("options")?;
    let mut step = on.step()?;
    let bias = if biased { on.first("bias", vocabulary)?.to_vec() } else { vec![] };
    let (token, probability) = draw(on, (vocabulary, 0), &options, &bias, step.draws)?;
    // Behind a refused submit the draws lag, and lie outside.
    let turn = 2 * step.draws.wrapping_sub(options.turn0) as usize;
    if let Some(slot) = on.u32_mut("drawn")?.get_mut(turn..turn + 2) {
        slot.copy_from_slice(&[token, probability.to_bits()]);
    }
    on.u32_mut("token")?[0] = token;
    on.u32_mut("seen")?[token as usize / 32] |= 1 << (token % 32);
    step.position += 1;
    step.draws += 1;
    let words = bytemuck::cast_slice(bytemuck::bytes_of(&step));
    on.u32_mut("step")?[..words.len()].copy_from_slice(words);
    Ok(())
}

/// A token for a row of logits, and its log-probability.
fn draw(
    on: &Operands,
    (vocabulary, row): (usize, usize),
    options: &Sampling,
    bias: &[f32],
    draws: u32,
) -> Result<(u32, f32)> {
    let logits = &on.first("logits", (row + 1) * vocabulary)?[row * vocabulary..];
    let words = vocabulary.div_ceil(32);
    let seen = &on.u32("seen")?[row * words..][..words];
    let in_text = |token: &u32| seen[*token as usize / 32] >> (token % 32) & 1 == 1;
    let history: Vec<u32> = (0..vocabulary as u32).filter(in_text).collect();
    let chosen = SamplingOptions {
        temperature: f64::from(options.temperature),
        top_k: options.top_k as usize,
        top_p: f64::from(options.top_p),
        min_p: f64::from(options.min_p),
        repetition_penalty: f64::from(options.repetition_penalty),
    };
    let share = uniform(philox([draws, 0, 0, DRAWS], options.seed)[0]);
    Ok(sample_forward(logits, &history, bias, &chosen, share))
}

pub(super) fn sample_several(on: &mut Operands, vocabulary: usize, rows: usize) -> Result<()> {
    let (each, seen_words) = (on.u32("choices")?.len() / rows, vocabulary.div_ceil(32));
    for row in 0..rows {
        let choice = on.u32("choices")?[row * each..][..each].to_vec();
        let options: Sampling = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&choice[..8]));
        let position = (row as u32).wrapping_sub(on.u32("documents")?[row]);
        let draws = position.wrapping_add(choice[8]);
        let (token, probability) = draw(on, (vocabulary, row), &options, &[], draws)?;
        let slot = draws.wrapping_sub(options.turn0) as usize;
        let drawn = on.u32_mut("drawn")?;
        if slot < drawn.len() / 2 / rows {
            let at = 2 * (slot * rows + row);
            drawn[at..at + 2].copy_from_slice(&[token, probability.to_bits()]);
        }
        on.u32_mut("token")?[row] = token;
        on.u32_mut("seen")?[row * seen_words + token as usize / 32] |= 1 << (token % 32);
        if position < choice[9] {
            let document = &mut on.u32_mut("documents")?[row];
            *document = document.wrapping_sub(1);
        }
    }
    Ok(())
}

pub(super) fn top_logits(on: &mut Operands, vocabulary: usize, count: usize) -> Result<()> {
    let options: Sampling = on.uniform("options")?;
    let turn = (on.step()?.draws - options.turn0) as usize;
    let likeliest = top_logits_forward(on.first("logits", vocabulary)?, count);
    let words: Vec<u32> =
        likeliest.into_iter().flat_map(|(token, logprob)| [token, logprob.to_bits()]).collect();
    on.u32_mut("top")?[turn * words.len()..][..words.len()].copy_from_slice(&words);
    Ok(())
}
