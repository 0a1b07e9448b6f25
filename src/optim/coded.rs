//! AdamW with both moments as dynamic 8-bit codes (Dettmers et al., arXiv:2110.02861).

use super::{Content, Optimizer, StateSet, Stored, optimizer_state};
use crate::error::Result;
use crate::kernels::{self as k, CODED_BLOCK};
use crate::params::{Params, Run, Tensor};
use crate::plan::{Buffer, Builder, Range, Slice};

/// Tensors of fewer elements stay in f32.
const LEAST_CODED: usize = 4096;

const NUMBERS: &[StateSet] = &[
    StateSet::numbers("exp_avg", Buffer::Moment1),
    StateSet::numbers("exp_avg_sq", Buffer::Moment2),
];
const CODES: &[StateSet] = &[
    StateSet { suffix: "exp_avg", buffer: Buffer::Moment1, content: Content::Codes },
    StateSet { suffix: "exp_avg_sq", buffer: Buffer::Moment2, content: Content::Codes },
    StateSet { suffix: "scales", buffer: Buffer::Scales, content: Content::Scales },
];

pub(super) struct AdamW8Bit;

/// Whether the moments of a parameter are codes: as in torchao, if it is large and of whole blocks. A
/// matrix that is cut is cut after every 64 rows: these too have to be whole blocks.
fn is_coded(shape: &[usize]) -> bool {
    let (count, columns) = (shape.iter().product::<usize>(), shape.last().copied().unwrap_or(1));
    count >= LEAST_CODED && count.is_multiple_of(CODED_BLOCK) && columns.is_multiple_of(4)
}

/// A run of elements with state of one kind.
#[derive(Clone, Copy)]
struct Piece {
    weights: Run,
    gradients: Run,
    coded: bool,
    decay: bool,
    /// The first word of either moment, and the first block.
    word: usize,
    block: usize,
}

impl Piece {
    /// The same state, numbered by tensor: the pieces of each.
    fn all(params: &Params, state: &Params) -> Vec<Vec<Self>> {
        let mut used = vec![[0, 0]; state.shards.len()];
        let mut of = |tensor: &Tensor| {
            let (coded, decay) = (is_coded(&tensor.shape), state.decays(tensor));
            let runs = params.runs(tensor).into_iter().zip(state.runs(tensor));
            runs.map(|(weights, gradients)| {
                let [word, block] = &mut used[gradients.shard];
                let piece = Self { weights, gradients, coded, decay, word: *word, block: *block };
                *word += piece.words();
                *block += piece.blocks();
                piece
            })
            .collect()
        };
        state.tensors.iter().map(&mut of).collect()
    }

    fn words(&self) -> usize {
        if self.coded { self.gradients.len / 4 } else { self.gradients.len }
    }

    fn blocks(&self) -> usize {
        if self.coded { self.gradients.len / CODED_BLOCK } else { 0 }
    }

    fn continues(&self, next: &Self) -> bool {
        let follows =
            |run: Run, next: Run| run.shard == next.shard && run.offset + run.len == next.offset;
        self.coded == next.coded
            && self.decay == next.decay
            && follows(self.weights, next.weights)
            && follows(self.gradients, next.gradients)
            && self.word + self.words() == next.word
            && self.block + self.blocks() == next.block
    }

    fn slice(&self, set: &StateSet) -> Slice {
        let (first, words) = match set.content {
            Content::Scales => (2 * self.block, 2 * self.blocks()),
            _ => (self.word, self.words()),
        };
        let buffer = (set.buffer)(self.gradients.shard);
        Slice::new(buffer, first as u64 * 4, words as u64 * 4)
    }
}

impl Optimizer for AdamW8Bit {
    fn state(&self, shape: &[usize]) -> &'static [StateSet] {
        if is_coded(shape) { CODES } else { NUMBERS }
    }

    fn stored(&self, layout: &Params) -> Vec<Stored> {
        let pieces = Piece::all(layout, layout);
        let mut stored = vec![];
        for i in 0..CODES.len() {
            for (tensor, pieces) in layout.tensors.iter().zip(&pieces) {
                let Some(set) = self.state(&tensor.shape).get(i) else { continue };
                stored.push(Stored {
                    name: format!("{}.{}", tensor.name, set.suffix),
                    shape: set.shape(&tensor.shape),
                    content: set.content,
                    slices: pieces.iter().map(|piece| piece.slice(set)).collect(),
                });
            }
        }
        stored
    }

    fn updates(&self, builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
        let pieces: Vec<Piece> = Piece::all(params, state).concat();
        let mut used = vec![[0, 0]; state.shards.len()];
        for piece in &pieces {
            used[piece.gradients.shard][0] += piece.words();
            used[piece.gradients.shard][1] += piece.blocks();
        }
        let mut joined: Vec<Piece> = vec![];
        for piece in pieces {
            match joined.last_mut() {
                Some(last) if last.continues(&piece) => {
                    last.weights.len += piece.weights.len;
                    last.gradients.len += piece.gradients.len;
                }
                _ => joined.push(piece),
            }
        }
        for piece in joined {
            update(builder, params, state, &piece, used[piece.gradients.shard])?;
        }
        Ok(())
    }
}

fn update(
    builder: &mut Builder<'_>,
    params: &Params,
    state: &Params,
    piece: &Piece,
    [words, blocks]: [usize; 2],
) -> Result<()> {
    let (len, shard) = (piece.weights.len, piece.gradients.shard);
    let whole = |buffer, count: usize| Slice::new(buffer, 0, count as u64 * 4);
    let decayed = if piece.decay { len as u32 } else { 0 };
    let range = Range {
        row0: piece.weights.offset as u32,
        rows: 0,
        col0: piece.gradients.offset as u32,
        cols: decayed,
    };
    let place = Range { row0: piece.word as u32, rows: 0, col0: piece.block as u32, cols: 0 };
    let mut slices = vec![
        whole(Buffer::Weights(piece.weights.shard), params.shards[piece.weights.shard].len),
        whole(Buffer::Gradients(shard), state.shards[shard].len),
        whole(Buffer::Moment1(shard), words),
        whole(Buffer::Moment2(shard), words),
    ];
    if piece.coded {
        slices.push(whole(Buffer::Scales(shard), 2 * blocks));
    }
    slices.extend([optimizer_state(), builder.step(), builder.range(range), builder.range(place)]);
    let (label, kernel) = if piece.coded {
        ("adamw 8-bit", k::adamw8bit(builder.caps, len)?)
    } else {
        ("adamw", k::adamw_placed(builder.caps, len)?)
    };
    builder.dispatch(label, kernel, slices, 14.0 * len as f64)
}
