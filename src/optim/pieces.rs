//! State that does not lie as gradients do: each tensor has the words that it needs, one behind the other.

use super::{StateSet, Stored, Trained, optimizer_state};
use crate::error::Result;
use crate::kernels::{self as k, CODED_BLOCK};
use crate::params::{Params, Run, Tensor};
use crate::plan::{Buffer, Builder, Launch, Range, Slice};

/// What is kept of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Both moments as codes of 8 bits, with their scales.
    Codes,
    /// Both moments in f32.
    Moments,
    /// One moment in f32.
    Moment,
}

/// A run of elements with state of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub weights: Run,
    pub gradients: Run,
    pub kept: Kept,
    pub decay: bool,
    /// Its first words in [`Buffer::Moment1`], [`Buffer::Moment2`] and [`Buffer::Scales`].
    pub at: [usize; 3],
}

impl Piece {
    /// Words in each buffer.
    fn words(&self) -> [usize; 3] {
        let len = self.gradients.len;
        match self.kept {
            Kept::Codes => [len / 4, len / 4, 2 * (len / CODED_BLOCK)],
            Kept::Moments => [len, len, 0],
            Kept::Moment => [len, 0, 0],
        }
    }

    fn end(&self) -> [usize; 3] {
        let words = self.words();
        std::array::from_fn(|i| self.at[i] + words[i])
    }

    fn continues(&self, next: &Self) -> bool {
        let follows =
            |run: Run, next: Run| run.shard == next.shard && run.offset + run.len == next.offset;
        (self.kept, self.decay, self.end()) == (next.kept, next.decay, next.at)
            && follows(self.weights, next.weights)
            && follows(self.gradients, next.gradients)
    }

    /// Its first weight and gradient, and how many elements are decayed.
    pub fn range(&self) -> Range {
        let decayed = if self.decay { self.weights.len } else { 0 };
        let [row0, col0, cols] =
            [self.weights.offset, self.gradients.offset, decayed].map(|n| n as u32);
        Range { row0, rows: 0, col0, cols }
    }
}

/// The pieces of all tensors, and the words that they take in each shard's buffers.
pub(super) struct Pieces<'a> {
    params: &'a Params,
    state: &'a Params,
    pub by_tensor: Vec<Vec<Piece>>,
    used: Vec<[usize; 3]>,
}

impl<'a> Pieces<'a> {
    /// `state` is the layout of gradients; without weights beside it, it stands for both.
    pub fn new(params: &'a Params, state: &'a Params, kept: &dyn Fn(&Trained) -> Kept) -> Self {
        let mut used = vec![[0; 3]; state.shards.len()];
        let mut of = |tensor: &Tensor| -> Vec<Piece> {
            let (kept, decay) = (kept(&Trained::of(state, tensor)), state.decays(tensor));
            let runs = params.runs(tensor).into_iter().zip(state.runs(tensor));
            let piece = |(weights, gradients): (Run, Run)| {
                let used = &mut used[gradients.shard];
                let piece = Piece { weights, gradients, kept, decay, at: *used };
                *used = piece.end();
                piece
            };
            runs.map(piece).collect()
        };
        let by_tensor = state.tensors.iter().map(&mut of).collect();
        Self { params, state, by_tensor, used }
    }

    /// The tensors of a save, set by set, given the sets of each.
    pub fn stored(&self, sets: &dyn Fn(&Trained) -> &'static [StateSet]) -> Vec<Stored> {
        let mut stored = vec![];
        for i in 0..3 {
            for (tensor, pieces) in self.state.tensors.iter().zip(&self.by_tensor) {
                let Some(set) = sets(&Trained::of(self.state, tensor)).get(i) else { continue };
                let slice = |piece: &Piece| {
                    let (at, words) = (piece.at[i] as u64 * 4, piece.words()[i] as u64 * 4);
                    Slice::new((set.buffer)(piece.gradients.shard), at, words)
                };
                stored.push(set.stored(tensor, pieces.iter().map(slice).collect()));
            }
        }
        stored
    }

    /// The pieces that AdamW updates, with those that follow one another joined.
    pub fn joined(&self) -> Vec<Piece> {
        let mut joined: Vec<Piece> = vec![];
        for piece in self.by_tensor.iter().flatten().filter(|piece| piece.kept != Kept::Moment) {
            match joined.last_mut() {
                Some(last) if last.continues(piece) => {
                    last.weights.len += piece.weights.len;
                    last.gradients.len += piece.gradients.len;
                }
                _ => joined.push(*piece),
            }
        }
        joined
    }

    /// The whole shards that a piece's weights and gradients are in.
    pub fn shards(&self, piece: &Piece) -> [Slice; 2] {
        let (own, shard) = (piece.weights.shard, piece.gradients.shard);
        [
            whole(Buffer::Weights(own), self.params.shards[own].len),
            whole(Buffer::Gradients(shard), self.state.shards[shard].len),
        ]
    }

    /// All of a shard's words of state: first and second moments, scales.
    pub fn moments(&self, piece: &Piece) -> [Slice; 3] {
        let shard = piece.gradients.shard;
        let [first, second, scales] = self.used[shard];
        [
            whole(Buffer::Moment1(shard), first),
            whole(Buffer::Moment2(shard), second),
            whole(Buffer::Scales(shard), scales),
        ]
    }

    /// Appends AdamW's update of a piece with both moments.
    pub fn adamw(&self, builder: &mut Builder<'_>, piece: &Piece) -> Result<()> {
        let (len, coded) = (piece.weights.len, piece.kept == Kept::Codes);
        let [first, second, scales] = piece.at;
        let range = builder.range(piece.range());
        let (row0, col0) = (first as u32, second as u32);
        let place = builder.range(Range { row0, rows: (scales / 2) as u32, col0, cols: 0 });
        let [weights, gradients] = self.shards(piece);
        let [moment1, moment2, scales] = self.moments(piece);
        let (label, kernel) = if coded {
            ("adamw 8-bit", k::adamw8bit(builder.caps, len)?)
        } else {
            ("adamw", k::adamw_placed(builder.caps, len)?)
        };
        let launch = Launch::new(label, kernel)
            .bind("weights", weights)
            .bind("gradients", gradients)
            .bind("moment1", moment1)
            .bind("moment2", moment2)
            .bind_some("scales", coded.then_some(scales))
            .bind("optimizer", optimizer_state())
            .bind("range", range)
            .bind("place", place);
        builder.dispatch(launch.flops(14.0 * len as f64))
    }
}

fn whole(buffer: Buffer, words: usize) -> Slice {
    Slice::new(buffer, 0, words as u64 * 4)
}
