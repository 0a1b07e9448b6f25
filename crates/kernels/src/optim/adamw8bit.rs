//! AdamW with both moments as dynamic 8-bit codes (Dettmers et al., arXiv:2110.02861).

use super::adamw::{MOMENTS, NUMBERS, carried, update_placed};
use super::pieces::{Piece, Pieces};
use super::rule::{BASE, Rule, State};
use super::stored::CODED_BLOCK;
use super::{Content, StateSet, Trained, names};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{
    Grid, Kernel, Spec, UpdateKernel, UpdateSpec, UpdateText, check_storage, read, read_write,
    row_workgroup, uniform,
};
use crate::params::Params;
use crate::plan::{Buffer, Builder};

pub(super) static RULE: Rule = Rule {
    name: "adamw8bit",
    what: "`\"adamw8bit\"` keeps AdamW's moments as 8-bit codes, in 2.03 bytes per weight instead of 8.",
    numbers: NUMBERS,
    carried,
    state: State::PerTensor(|trained| if is_coded(trained) { CODES } else { MOMENTS }),
    updates: |_, builder, params, state| updates(builder, params, state),
    kernels: &[&CODED],
    ..BASE
};

/// Tensors of fewer elements stay in f32.
const LEAST_CODED: usize = 4096;

const CODES: &[StateSet] = &[
    StateSet::new("exp_avg", Buffer::Moment1, Content::Codes),
    StateSet::new("exp_avg_sq", Buffer::Moment2, Content::Codes),
    StateSet::new("scales", Buffer::Scales, Content::Scales),
];

/// As in torchao, large parameters of whole blocks have codes.
fn is_coded(trained: &Trained) -> bool {
    let count = trained.shape.iter().product::<usize>();
    count >= LEAST_CODED && count.is_multiple_of(CODED_BLOCK)
}

fn updates(builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
    let pieces = Pieces::new(params, state, &RULE.state);
    for (tensor, own) in state.tensors.iter().zip(&pieces.by_tensor) {
        let cut = |len: usize| !len.is_multiple_of(CODED_BLOCK);
        if own.iter().any(|piece| piece.holds(Content::Codes) && cut(piece.weights.len)) {
            return Err(Error::options(format!(
                "optimizer is \"adamw8bit\", and {CODED_BLOCK} elements of {} that share a scale lie in two \
                 buffers, since one holds no more on this device; use another optimizer",
                tensor.name
            )));
        }
    }
    pieces.joined(|_| true).iter().try_for_each(|piece| {
        if piece.holds(Content::Codes) {
            update(builder, &pieces, piece)
        } else {
            update_placed(builder, &pieces, piece)
        }
    })
}

fn update(builder: &mut Builder<'_>, pieces: &Pieces<'_>, piece: &Piece) -> Result<()> {
    let len = piece.weights.len;
    let kernel = CODED.of([len, 0, 0]).kernel(builder.caps)?;
    let at = [piece.range(), piece.place()];
    let launch = pieces.launch(builder, "adamw 8-bit", kernel, piece, at);
    builder.dispatch(launch.bind_all(pieces.states(piece)).flops(14.0 * len as f64))
}

/// Size: elements, whole blocks. Grid: one workgroup per block.
static CODED: UpdateKernel = UpdateKernel {
    name: "adamw8bit_forward",
    make: coded,
    #[cfg(feature = "testing")]
    tests: twin::CODED,
};

fn coded(spec: UpdateSpec, caps: &Capabilities) -> Result<Kernel> {
    let blocks = spec.sizes[0] / CODED_BLOCK;
    // A word of codes per invocation; on a CPU as rows are reduced.
    let size = row_workgroup(caps, CODED_BLOCK, spec.kernel.name)?;
    check_storage(caps, [4 * size, 1024, 1024], spec.kernel.name)?;
    UpdateText {
        sizes: &[("CODED_BLOCKS", blocks)],
        numbers: &names(NUMBERS),
        kernel: "12_adamw8bit",
        bindings: &[
            read_write("weights"),
            read("gradients"),
            read_write("moment1"),
            read_write("moment2"),
            read_write("scales"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
            uniform("place"),
        ],
        ..UpdateText::default()
    }
    .reduced(caps, spec, CODED_BLOCK, Grid::Flat { rows: 1, per_block: blocks, per_group: 1 })
}

#[cfg(feature = "testing")]
pub(crate) mod twin;
