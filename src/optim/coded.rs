//! AdamW with both moments as dynamic 8-bit codes (Dettmers et al., arXiv:2110.02861).

use super::pieces::{Kept, Pieces};
use super::rules::MOMENTS;
use super::{Content, Optimizer, StateSet, Stored, Trained};
use crate::error::{Error, Result};
use crate::kernels::CODED_BLOCK;
use crate::params::Params;
use crate::plan::{Buffer, Builder};

/// Tensors of fewer elements stay in f32.
const LEAST_CODED: usize = 4096;

const CODES: &[StateSet] = &[
    StateSet { suffix: "exp_avg", buffer: Buffer::Moment1, content: Content::Codes },
    StateSet { suffix: "exp_avg_sq", buffer: Buffer::Moment2, content: Content::Codes },
    StateSet { suffix: "scales", buffer: Buffer::Scales, content: Content::Scales },
];

pub(super) struct AdamW8Bit;

/// As in torchao, large parameters of whole blocks have codes.
fn kept(trained: &Trained) -> Kept {
    let count = trained.shape.iter().product::<usize>();
    let coded = count >= LEAST_CODED && count.is_multiple_of(CODED_BLOCK);
    if coded { Kept::Codes } else { Kept::Moments }
}

impl Optimizer for AdamW8Bit {
    fn state(&self, trained: &Trained) -> &'static [StateSet] {
        if kept(trained) == Kept::Codes { CODES } else { MOMENTS }
    }

    fn stored(&self, layout: &Params) -> Vec<Stored> {
        Pieces::new(layout, layout, &kept).stored(&|trained| self.state(trained))
    }

    fn updates(&self, builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
        let pieces = Pieces::new(params, state, &kept);
        for (tensor, own) in state.tensors.iter().zip(&pieces.by_tensor) {
            let cut = |len: usize| !len.is_multiple_of(CODED_BLOCK);
            if own.iter().any(|piece| piece.kept == Kept::Codes && cut(piece.weights.len)) {
                return Err(Error::options(format!(
                    "optimizer is \"adamw8bit\", and {CODED_BLOCK} elements of {} that share a scale lie in two \
                     buffers, since one holds no more on this device; use another optimizer",
                    tensor.name
                )));
            }
        }
        pieces.joined().iter().try_for_each(|piece| pieces.adamw(builder, piece))
    }
}
