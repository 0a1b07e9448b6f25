//! Family 05: softmax over the last axis.

use super::Softmax;
use crate::caps::Capabilities;
use crate::kernels::softmax::twin::softmax_forward;
use crate::kernels::{self as k, Element, RowPlace, Spec};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Job, Operand, POISON};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, of, same, text, wide};
use crate::testing::{Case, Outcome};
use crate::twins::NEGATIVE_HUGE;
use half::f16;
use std::rc::Rc;

/// Whole vectors and not, odd and even, smaller than a workgroup, past each workgroup size that a
/// row's length leads to.
const COLUMNS: [usize; 6] = [1, 6, 260, 514, 1028, 1031];
const ELEMENTS: [Element; 2] = [Element::F32, Element::F16];
/// Units of storage before the first row of input and of output.
const BEFORE: [u32; 2] = [3, 2];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("softmax_forward", forward),
        Case::new("softmax_forward of large and masked rows", extremes),
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for columns in [1, 61, 768, 4096, 150_001] {
        for element in ELEMENTS {
            let what = format!("softmax of {columns} in {}", element.name());
            entries.push((what, Softmax { columns, element }.kernel(caps)));
        }
    }
    entries
}

/// Relative error in L2 that storage leaves.
fn tolerance(element: Element) -> f64 {
    match element {
        Element::F32 => ROUNDING,
        Element::F16 => 5e-4,
    }
}

/// Words of a tensor, the last one filled up with a zero.
fn store(element: Element, values: &[f32]) -> Vec<u32> {
    let half = |x: f32| u32::from(f16::from_f32(x).to_bits());
    match element {
        Element::F32 => values.iter().map(|x| x.to_bits()).collect(),
        Element::F16 => values
            .chunks(2)
            .map(|pair| half(pair[0]) | pair.get(1).map_or(0, |&x| half(x)) << 16)
            .collect(),
    }
}

fn load(element: Element, words: &[u32], count: usize) -> Vec<f32> {
    let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
    let values: Vec<f32> = match element {
        Element::F32 => words.iter().map(|&word| f32::from_bits(word)).collect(),
        Element::F16 => words.iter().flat_map(|&w| [half(w & 0xffff), half(w >> 16)]).collect(),
    };
    values[..count].to_vec()
}

/// Runs every kernel on the rows, with NaN around the input, and holds the result against the twin.
async fn check(lane: &Lane, element: Element, columns: usize, x: &[f32]) -> Result<(), String> {
    let made = lane.variants_of(k::Softmax { columns, element }).map_err(text)?;
    let words = store(element, x);
    let expected = softmax_forward(&wide(&load(element, &words, x.len())), columns);
    let unit = k::softmax_unit(columns, element) * element.bytes() / 4;
    let [before, output_before] = BEFORE.map(|units| units as usize * unit);
    let mut input = vec![u32::MAX; before];
    input.extend(&words);
    input.resize(input.len() + 4, u32::MAX);
    let rows = x.len() / columns;
    let [input_at, output_at] = BEFORE;
    let place = RowPlace { rows: rows as u32, input: input_at, output: output_at, reserved: 0 };
    let operands = [
        Operand::words(&input),
        Operand::poison(output_before + words.len()),
        Operand::uniform(&place),
    ];
    let jobs: Vec<_> =
        made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let what = format!("{rows}x{columns} in {}", element.name());
        let (untouched, words) = got.words(0).split_at(output_before);
        same("before the output", untouched, &vec![POISON; output_before]).map_err(&named)?;
        let got = load(element, words, x.len());
        close(&what, &got, &expected, tolerance(element)).map_err(&named)?;
    }
    Ok(())
}

async fn forward(lane: Rc<Lane>) -> Outcome {
    for element in ELEMENTS {
        for columns in COLUMNS {
            for rows in [1, 5] {
                let x: Vec<f32> = lane.normal(rows * columns).iter().map(|x| 2.0 * x).collect();
                check(&lane, element, columns, &x).await?;
            }
        }
    }
    Ok(lane.summary())
}

/// Scores of ±10,000 beside small ones, some or all of a row masked, by −1e30 and by −∞.
async fn extremes(lane: Rc<Lane>) -> Outcome {
    let huge = NEGATIVE_HUGE as f32;
    for element in ELEMENTS {
        // −1e30 is no number of f16.
        let mask = if element == Element::F16 { -65504.0 } else { huge };
        for columns in [12, 7] {
            let fill = |value: f32| vec![value; columns];
            let mut x = [fill(mask), fill(f32::NEG_INFINITY), fill(1e4), fill(-1e4)].concat();
            for masked in [mask, f32::NEG_INFINITY] {
                let mut row = lane.normal(columns);
                row[1..].iter_mut().step_by(2).for_each(|x| *x = masked);
                x.extend(row);
            }
            let mut far = lane.normal(columns);
            (far[0], far[columns - 1]) = (1e4, -1e4);
            x.extend(far);
            check(&lane, element, columns, &x).await?;
        }
    }
    Ok(lane.summary())
}
