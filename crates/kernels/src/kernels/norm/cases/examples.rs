//! The norms' examples.

use crate::caps::Capabilities;
use crate::kernels::{
    AttentionShape, ColumnSum, Constant, HeadNormBackward, HeadNormForward, LayerNormBackward,
    LayerNormForward, NormForm, NormTerms, PartialSums, RmsNormBackward, RmsNormForward, Spec,
    SummedWeights, WriteMode,
};
use crate::testing::catalogue::Entry;

const TERMS: NormTerms = NormTerms::plain(1e-6);
const SHIFTED: NormTerms = NormTerms { shifted: true, ..TERMS };
const PARTS: PartialSums = PartialSums { count: 3, apart: 4096 };

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for width in [1, 61, 768, 4096, 150_001] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {width}"), kernel));
        for (what, terms) in [("", TERMS), ("shifted ", SHIFTED)] {
            let mut forward = |of: &str, form| {
                let kernel = RmsNormForward { hidden: width, terms, form }.kernel(caps);
                add(&format!("{what}norm{of}"), kernel);
            };
            forward("", NormForm::PLAIN);
            if width.is_multiple_of(4) {
                forward(" in f16", NormForm { half: true, ..NormForm::PLAIN });
            }
            if terms.shifted {
                forward(" and residual", NormForm { residual: true, ..NormForm::PLAIN });
            } else {
                forward(" of parts", NormForm { summed: PARTS, ..NormForm::PLAIN });
            }
            let (hidden, mode, rows) = (width, WriteMode::Add, 2);
            let mut backward = |of: &str, sums| {
                let kernel = RmsNormBackward { hidden, terms, mode, rows, sums }.kernel(caps);
                add(&format!("{what}norm backward{of}"), kernel);
            };
            backward("", PartialSums::WHOLE);
            if !terms.shifted {
                backward(" of parts", PARTS);
            }
        }
        let (hidden, epsilon, mode, rows) = (width, Constant(1e-5), WriteMode::Add, 2);
        for (what, residual) in [("layer norm", false), ("layer norm, residual", true)] {
            add(what, LayerNormForward { hidden, epsilon, residual }.kernel(caps));
        }
        let backward = LayerNormBackward { hidden, epsilon, mode, rows };
        add("layer norm backward", backward.kernel(caps));
        let several = SummedWeights { count: 3, partials: 8 * width, outputs: width + 1 };
        for (what, weights) in [("norm weight", SummedWeights::ONE), ("norm weights", several)] {
            add(what, ColumnSum { hidden, rows, weights }.kernel(caps));
        }
    }
    for (heads, kv_heads, head_dim) in [(1, 1, 4), (16, 8, 128), (3, 1, 80), (4, 1, 256)] {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        for terms in [TERMS, SHIFTED] {
            let shifted = if terms.shifted { "shifted " } else { "" };
            let what = format!("of {heads}/{kv_heads} x {head_dim}");
            let forward = HeadNormForward { shape, terms }.kernel(caps);
            entries.push((format!("{shifted}head norms {what}"), forward));
            let backward = HeadNormBackward { shape, terms, rows: 2 }.kernel(caps);
            entries.push((format!("{shifted}head norms backward {what}"), backward));
        }
    }
    entries
}
