//! State that is not laid out as gradients are: each tensor has the words that it needs, after those of the tensor
//! before.

use super::{Content, State, StateSet, Stored, Trained, optimizer_state};
use crate::kernels::Kernel;
use crate::params::{Params, Run, Tensor};
use crate::plan::{Buffer, Builder, Launch, NamedSlice, Range, Slice};

/// A run of elements with state of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub weights: Run,
    pub gradients: Run,
    pub sets: &'static [StateSet],
    pub decay: bool,
    /// Elements of a row of its tensor, and whether it is the tensor's first piece.
    pub columns: usize,
    pub first: bool,
    /// The first words of each set in its buffer.
    pub at: [usize; 3],
}

impl Piece {
    /// Whether one of its sets has this content.
    pub fn holds(&self, content: Content) -> bool {
        self.sets.iter().any(|set| set.content == content)
    }

    /// Words in each buffer.
    fn words(&self) -> [usize; 3] {
        let mut words = [0; 3];
        for (words, set) in words.iter_mut().zip(self.sets) {
            *words = set.content.words(self.gradients.len, self.columns, self.first);
        }
        words
    }

    fn end(&self) -> [usize; 3] {
        let words = self.words();
        std::array::from_fn(|i| self.at[i] + words[i])
    }

    fn continues(&self, next: &Self) -> bool {
        let follows =
            |run: Run, next: Run| run.shard == next.shard && run.offset + run.len == next.offset;
        let contents = |piece: &Self| piece.sets.iter().map(|set| set.content).collect::<Vec<_>>();
        contents(self) == contents(next)
            && (self.decay, self.end()) == (next.decay, next.at)
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

    /// Its first words of the first two sets, and its first block of scales.
    pub fn place(&self) -> Range {
        let [row0, col0, scales] = self.at.map(|at| at as u32);
        Range { row0, rows: scales / 2, col0, cols: 0 }
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
    pub fn new(params: &'a Params, state: &'a Params, kept: &State) -> Self {
        let mut used = vec![[0; 3]; state.shards.len()];
        let mut of = |tensor: &Tensor| -> Vec<Piece> {
            let sets = match kept {
                State::PerTensor(sets) => sets(&Trained::of(state, tensor)),
                State::AsGradients(_) => &[],
            };
            let decay = state.decays(tensor);
            let columns = tensor.shape.iter().product::<usize>() / tensor.rows;
            let runs = params.runs(tensor).into_iter().zip(state.runs(tensor)).enumerate();
            let piece = |(index, (weights, gradients)): (usize, (Run, Run))| {
                let used = &mut used[gradients.shard];
                let (first, at) = (index == 0, *used);
                let piece = Piece { weights, gradients, sets, decay, columns, first, at };
                *used = piece.end();
                piece
            };
            runs.map(piece).collect()
        };
        let by_tensor = state.tensors.iter().map(&mut of).collect();
        Self { params, state, by_tensor, used }
    }

    /// The tensors of a save, set by set.
    pub fn stored(&self) -> Vec<Stored> {
        let mut stored = vec![];
        for i in 0..3 {
            for (tensor, pieces) in self.state.tensors.iter().zip(&self.by_tensor) {
                let Some(set) = pieces.first().and_then(|piece| piece.sets.get(i)) else {
                    continue;
                };
                let slice = |piece: &Piece| {
                    let (at, words) = (piece.at[i] as u64 * 4, piece.words()[i] as u64 * 4);
                    Slice::new((set.buffer)(piece.gradients.shard), at, words)
                };
                let slices = pieces.iter().map(slice).filter(|slice| slice.bytes > 0);
                stored.push(set.stored(tensor, slices.collect()));
            }
        }
        stored
    }

    /// The pieces that are wanted, with those that follow one another joined.
    pub fn joined(&self, wanted: impl Fn(&Piece) -> bool) -> Vec<Piece> {
        let mut joined: Vec<Piece> = vec![];
        for piece in self.by_tensor.iter().flatten().filter(|piece| wanted(piece)) {
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

    /// A launch that binds what the kernel's table has of a piece: the whole shards that its weights and gradients are in,
    /// the decision whether to update, and the range and the place.
    pub fn launch(
        &self,
        builder: &mut Builder<'_>,
        label: impl Into<String>,
        kernel: Kernel,
        piece: &Piece,
        [range, place]: [Range; 2],
    ) -> Launch {
        let (own, shard) = (piece.weights.shard, piece.gradients.shard);
        let weights = whole(Buffer::Weights(own), self.params.shards[own].len);
        let gradients = whole(Buffer::Gradients(shard), self.state.shards[shard].len);
        let names: Vec<_> = kernel.bindings.iter().map(|binding| binding.name).collect();
        let mut launch = Launch::new(label, kernel);
        for name in names {
            launch = match name {
                "weights" => launch.bind(name, weights),
                "gradients" => launch.bind(name, gradients),
                "optimizer" => launch.bind(name, optimizer_state()),
                "range" => launch.bind(name, builder.range(range)),
                "place" => launch.bind(name, builder.range(place)),
                _ => launch,
            };
        }
        launch
    }

    /// All of a shard's words of each set of a piece, as operands.
    pub fn states(&self, piece: &Piece) -> Vec<NamedSlice> {
        let shard = piece.gradients.shard;
        let sets = piece.sets.iter().zip(self.used[shard]);
        let slices = sets.map(|(set, words)| whole((set.buffer)(shard), words));
        ["moment1", "moment2", "scales"].into_iter().zip(slices).collect()
    }
}

fn whole(buffer: Buffer, words: usize) -> Slice {
    Slice::new(buffer, 0, words as u64 * 4)
}
