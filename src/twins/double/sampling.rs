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
    let logits = on.first("logits", vocabulary)?;
    let seen = on.u32("seen")?;
    let in_text = |token: &u32| seen[*token as usize / 32] >> (token % 32) & 1 == 1;
    let history: Vec<u32> = (0..vocabulary as u32).filter(in_text).collect();
    let chosen = SamplingOptions {
        temperature: f64::from(options.temperature),
        top_k: options.top_k as usize,
        top_p: f64::from(options.top_p),
        min_p: f64::from(options.min_p),
        repetition_penalty: f64::from(options.repetition_penalty),
    };
    let share = uniform(philox([step.draws, 0, 0, DRAWS], options.seed)[0]);
    let bias = if biased { on.first("bias", vocabulary)? } else { &[] };
    let (token, probability) = sample_forward(logits, &history, bias, &chosen, share);
    let turn = 2 * (step.draws - options.turn0) as usize;
    on.u32_mut("drawn")?[turn..turn + 2].copy_from_slice(&[token, probability.to_bits()]);
    on.u32_mut("token")?[0] = token;
    on.u32_mut("seen")?[token as usize / 32] |= 1 << (token % 32);
    step.position += 1;
    step.draws += 1;
    let words = bytemuck::cast_slice(bytemuck::bytes_of(&step));
    on.u32_mut("step")?[..words.len()].copy_from_slice(words);
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
