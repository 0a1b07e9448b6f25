//! Muon: matrices of the layers step along their momentum made orthogonal (Jordan et al., "Muon: An optimizer
//! for hidden layers in neural networks", 2024); all else by AdamW.

use super::pieces::{Kept, Piece, Pieces};
use super::rules::MOMENTS;
use super::{Optimizer, StateSet, Stored, Trained, optimizer_state};
use crate::error::Result;
use crate::kernels::{self as k, Constant, Form, LinearShape, Output, WriteMode};
use crate::params::{Params, Tensor};
use crate::plan::{Buffer, Builder, Launch, Range, Slice};

/// Newton-Schulz steps.
const STEPS: usize = 5;

const MOMENTUM: &[StateSet] = &[StateSet::numbers("momentum_buffer", Buffer::Moment1)];

/// As `torch.optim.Muon` with Nesterov's look ahead and `adjust_lr_fn="match_rms_adamw"`: one learning rate and
/// one decay serve matrices and the rest.
pub(super) struct Muon {
    pub momentum: f64,
}

fn kept(trained: &Trained) -> Kept {
    if trained.of_layer { Kept::Moment } else { Kept::Moments }
}

impl Optimizer for Muon {
    fn state(&self, trained: &Trained) -> &'static [StateSet] {
        if trained.of_layer { MOMENTUM } else { MOMENTS }
    }

    fn stored(&self, layout: &Params) -> Vec<Stored> {
        Pieces::new(layout, layout, &kept).stored(&|trained| self.state(trained))
    }

    fn rows(&self, state: &Params) -> Option<usize> {
        let of_layer = state.tensors.iter().filter(|tensor| Trained::of(state, tensor).of_layer);
        of_layer.map(|tensor| tensor.rows).max()
    }

    fn updates(&self, builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
        let pieces = Pieces::new(params, state, &kept);
        for (tensor, own) in state.tensors.iter().zip(&pieces.by_tensor) {
            if own.iter().any(|piece| piece.kept == Kept::Moment) {
                self.matrix(builder, &pieces, own, tensor)?;
            }
        }
        pieces.joined().iter().try_for_each(|piece| pieces.adamw(builder, piece))
    }
}

impl Muon {
    /// The update of a matrix, which lies in these pieces.
    fn matrix(
        &self,
        builder: &mut Builder<'_>,
        pieces: &Pieces<'_>,
        own: &[Piece],
        tensor: &Tensor,
    ) -> Result<()> {
        let count: usize = tensor.shape.iter().product();
        let size = [tensor.rows, count / tensor.rows];
        let label = format!("muon {}", tensor.name);
        let direction = builder.tensor(&label, count as u64)?;
        let parts = own.iter().map(|piece| k::muon_parts(piece.weights.len)).sum::<usize>();
        let squares = builder.tensor("squares of a matrix", parts as u64)?;
        self.momentum(builder, &label, pieces, own, [direction, squares])?;
        let kernel = k::muon_scale(builder.caps, count, parts)?;
        let launch = Launch::new(format!("{label} scaled"), kernel);
        let launch = launch.bind("squares", squares).bind("direction", direction);
        builder.dispatch(launch.flops(count as f64))?;
        let direction = orthogonal(builder, &label, direction, size)?;
        // As Liu et al., arXiv:2502.16982: the root mean square of an update is that of AdamW's usual ones.
        let rate = Constant(0.2 * (size[0].max(size[1]) as f64).sqrt());
        let mut first = 0;
        for piece in own {
            let len = piece.weights.len;
            let range = builder.range(Range { col0: first as u32, ..piece.range() });
            let [weights, _] = pieces.shards(piece);
            let kernel = k::muon_update(builder.caps, len, rate)?;
            let launch = Launch::new(format!("{label} update"), kernel)
                .bind("weights", weights)
                .bind("direction", direction)
                .bind("optimizer", optimizer_state())
                .bind("range", range);
            builder.dispatch(launch.flops(4.0 * len as f64))?;
            first += len;
        }
        Ok(())
    }

    /// The momentum of a matrix, into its direction, and the squares of that in parts.
    fn momentum(
        &self,
        builder: &mut Builder<'_>,
        label: &str,
        pieces: &Pieces<'_>,
        own: &[Piece],
        [direction, squares]: [Slice; 2],
    ) -> Result<()> {
        let at = |row0: usize, col0: usize| {
            let [row0, col0] = [row0, col0].map(|at| at as u32);
            Range { row0, rows: 0, col0, cols: 0 }
        };
        let (mut first, mut part) = (0, 0);
        for piece in own {
            let len = piece.weights.len;
            let range = builder.range(at(piece.gradients.offset, piece.at[0]));
            let place = builder.range(at(first, part));
            let [_, gradients] = pieces.shards(piece);
            let [moment, ..] = pieces.moments(piece);
            let kernel = k::muon(builder.caps, len, Constant(self.momentum))?;
            let launch = Launch::new(label, kernel)
                .bind("gradients", gradients)
                .bind("moment1", moment)
                .bind("direction", direction)
                .bind("squares", squares)
                .bind("optimizer", optimizer_state())
                .bind("range", range)
                .bind("place", place);
            builder.dispatch(launch.flops(6.0 * len as f64))?;
            (first, part) = (first + len, part + k::muon_parts(len));
        }
        Ok(())
    }
}

/// Newton-Schulz steps towards the nearest matrix with orthogonal rows or, where it is tall, columns: with
/// G = X·Xᵀ they multiply X by a + b·G + c·G² from the left, or with G = Xᵀ·X from the right.
fn orthogonal(
    builder: &mut Builder<'_>,
    label: &str,
    mut x: Slice,
    [rows, columns]: [usize; 2],
) -> Result<Slice> {
    let (side, tall) = (rows.min(columns), rows > columns);
    let mut other = builder.tensor(label, (rows * columns) as u64)?;
    let [gram, square] = [
        builder.tensor(label, (side * side) as u64)?,
        builder.tensor(label, (side * side) as u64)?,
    ];
    let label = format!("{label} newton-schulz");
    let shape = |form, n, k, tokens| LinearShape::new(form, n, k, tokens);
    for _ in 0..STEPS {
        if tall {
            product(builder, &label, shape(Form::MatmulAt, side, side, rows), [x, x, gram])?;
        } else {
            product(builder, &label, shape(Form::MatmulT, side, columns, rows), [x, x, gram])?;
        }
        product(builder, &label, shape(Form::MatmulT, side, side, side), [gram, gram, square])?;
        let kernel = k::muon_polynomial(builder.caps, side)?;
        let launch = Launch::new(label.as_str(), kernel).bind("gram", gram).bind("square", square);
        builder.dispatch(launch.flops(4.0 * (side * side) as f64))?;
        if tall {
            product(builder, &label, shape(Form::MatmulT, side, side, rows), [x, square, other])?;
        } else {
            product(builder, &label, shape(Form::Matmul, columns, rows, rows), [square, x, other])?;
        }
        (x, other) = (other, x);
    }
    Ok(x)
}

fn product(
    builder: &mut Builder<'_>,
    label: &str,
    shape: LinearShape,
    operands: [Slice; 3],
) -> Result<()> {
    let columns = if shape.form == Form::MatmulT { shape.n } else { shape.k };
    let range = Range { row0: 0, rows: shape.tokens as u32, col0: 0, cols: columns as u32 };
    let step = builder.fixed_step(shape.tokens);
    let output = Output::Mode(WriteMode::Overwrite);
    builder.product(label, &shape, output, operands, &[], (step, range))
}
