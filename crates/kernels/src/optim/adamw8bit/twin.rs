//! Its kernels on the CPU, and dispatches of them.

use super::RULE;
use crate::error::Result;
use crate::kernels::optimizer::cases::update::{BEHIND, Problem, UpdateTests, decided, step_of};
use crate::kernels::optimizer::twin::update::{Cpu, twin};
use crate::kernels::optimizer::twin::{Decision, StepOptions};
use crate::optim::adamw::twin::adamw_forward;
use crate::testing::{Lane, Operand};
use crate::twins::Real;

pub(in crate::optim) const CODED: UpdateTests =
    UpdateTests { twin: twin!(adamw8bit), sizes: &[[25_600, 0, 0]], problems: runs };

/// The values of the 8-bit codes in ascending order (Dettmers et al., arXiv:2110.02861). There are seven decades.
/// Each is cut into twice as many equal parts as the decade below it, and the middle of each part is a value. 0 and 1
/// are values too. With `signed` so are the negatives of the middles.
pub fn dynamic_map<R: Real>(signed: bool) -> Vec<R> {
    let mut values = vec![0.0, 1.0];
    for decade in 0..7 {
        let parts = 1 << if signed { decade } else { decade + 1 };
        let scale = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0][decade as usize];
        for part in 0..parts {
            let value = scale * (0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts));
            values.push(value);
            if signed {
                values.push(-value);
            }
        }
    }
    values.sort_by(f64::total_cmp);
    values.into_iter().map(R::from_f64).collect()
}

/// The code nearest to a value within the map's bounds, the upper one of two as near.
pub fn dynamic_code<R: Real>(map: &[R], x: R) -> u8 {
    let below = map.iter().rposition(|&value| value <= x).unwrap_or(0);
    let above = (below + 1).min(255);
    let half = (map[above] - map[below]) * R::from_f64(0.5);
    (if x - map[below] >= half { above } else { below }) as u8
}

/// Updates whole blocks of 256 elements by AdamW. The moments are codes of `dynamic_map`: the first signed, the
/// second unsigned, each with one scale per block. The step uses the moments before they become codes, as
/// torchao's AdamW8bit does. The first `decayed` elements are decayed.
pub fn adamw8bit_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    [codes1, codes2]: [&mut [u8]; 2],
    scales: &mut [R],
    options: &StepOptions<R>,
    decision: &Decision<R>,
    decayed: usize,
) {
    let maps = [dynamic_map::<R>(true), dynamic_map::<R>(false)];
    let least = R::from_f64(1e-12);
    for (block, first) in (0..weights.len()).step_by(256).enumerate() {
        let part = first..first + 256;
        let old = |codes: &[u8], map: &[R], scale: R| -> Vec<R> {
            codes[part.clone()].iter().map(|&code| map[usize::from(code)] * scale).collect()
        };
        let mut m = old(codes1, &maps[0], scales[2 * block]);
        let mut v = old(codes2, &maps[1], scales[2 * block + 1]);
        for (i, element) in part.clone().enumerate() {
            let (w, g) = (element..element + 1, &gradients[element..=element]);
            let moments = [&mut m[i..=i], &mut v[i..=i]];
            adamw_forward(&mut weights[w], g, moments, options, decision, element < decayed);
        }
        if !decision.update {
            continue;
        }
        let largest = |x: &[R]| x.iter().fold(least, |most, &x| most.max(x.max(-x)));
        let new = [largest(&m), largest(&v)];
        scales[2 * block..][..2].copy_from_slice(&new);
        for (i, element) in part.enumerate() {
            codes1[element] = dynamic_code(&maps[0], m[i] / new[0]);
            codes2[element] = dynamic_code(&maps[1], v[i] / new[1]);
        }
    }
}

fn adamw8bit<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let count = on.spec.sizes[0];
    let ([weight0, gradient0], words) = (on.places("range")?, on.places("place")?);
    let scale0 = 2 * on.range("place")?.rows as usize;
    let mut weights = on.read("weights", weight0, count)?;
    let gradients = on.read("gradients", gradient0, count)?;
    let codes = |name, word| -> Result<Vec<u8>> {
        Ok(bytemuck::cast_slice(on.words(name, word, count / 4)?).to_vec())
    };
    let mut codes = [codes("moment1", words[0])?, codes("moment2", words[1])?];
    let mut scales = on.read("scales", scale0, count / 128)?;
    let decayed = on.range("range")?.cols as usize;
    let both = codes.each_mut().map(|codes| &mut codes[..]);
    adamw8bit_forward(&mut weights, &gradients, both, &mut scales, &options, &decision, decayed);
    on.write("weights", weight0, &weights)?;
    for ((name, word), codes) in ["moment1", "moment2"].into_iter().zip(words).zip(codes) {
        on.write_state_words(name, word, &bytemuck::pod_collect_to_vec::<u8, u32>(&codes))?;
    }
    on.write_state("scales", scale0, &scales)
}

/// Words of four codes each.
fn random_codes(lane: &Lane, words: usize) -> Vec<u32> {
    let bytes: Vec<u8> = lane.integers(4 * words, 256).into_iter().map(|x| x as u8).collect();
    bytemuck::pod_collect_to_vec(&bytes)
}

fn runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, decay_end, update)| {
        let [weight0, gradient0, word0, word1, block0] = [37, 11, 64, 21, 3];
        let weights = lane.normal(weight0 + count + BEHIND);
        let gradients = lane.normal(gradient0 + count + BEHIND);
        let codes = [word0, word1].map(|first| random_codes(lane, first + count / 4 + BEHIND));
        let scales = lane.normal(2 * (block0 + count / 256 + 2));
        let scales: Vec<f32> = scales.into_iter().map(|x| x.abs() + 0.01).collect();
        let mut operands = vec![
            Operand::floats(&weights),
            Operand::floats(&gradients),
            Operand::words(&codes[0]),
            Operand::words(&codes[1]),
            Operand::floats(&scales),
        ];
        operands.extend(decided(update, &step_of(&RULE)));
        operands.push(Operand::range(weight0, 0, gradient0, decay_end));
        operands.push(Operand::range(word0, block0, word1, 0));
        Problem::new([count, 0, 0], operands)
    };
    [(256, 0, true), (7 * 256, 1000, true), (512, 512, false)].map(problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    /// As bitsandbytes' create_dynamic_map and torchao's give them.
    #[test]
    fn the_maps_are_the_papers() {
        let (signed, unsigned) = (dynamic_map::<f64>(true), dynamic_map::<f64>(false));
        assert_eq!((signed.len(), unsigned.len()), (256, 256));
        assert_eq!((signed[127], signed[255], unsigned[0], unsigned[255]), (0.0, 1.0, 0.0, 1.0));
        assert_close("ends", &[signed[0], signed[254]], &[-0.992_968_75, 0.992_968_75], 1e-12, 0.0);
        assert_close("small", &[signed[128], unsigned[1]], &[5.5e-7, 3.25e-7], 1e-18, 0.0);
        assert!(signed.is_sorted() && unsigned.is_sorted());
        for (code, &value) in signed.iter().enumerate() {
            assert_eq!(usize::from(dynamic_code(&signed, value)), code);
        }
        assert_eq!(dynamic_code(&signed, -1.0), 0);
        assert_eq!(dynamic_code(&unsigned, 2e-7), 1);
        assert_eq!(dynamic_code(&unsigned, 1e-7), 0);
    }
}
