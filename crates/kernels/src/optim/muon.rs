//! Muon: matrices of the layers step along their momentum made orthogonal (Jordan et al., "Muon: An optimizer
//! for hidden layers in neural networks", 2024); all else by AdamW.

use super::adamw::{self, MOMENTS, carried, update_placed};
use super::pieces::{Piece, Pieces};
use super::rule::{BASE, Bounds, Number, Rule, State};
use super::{Content, StateSet, Trained, names, parts_of};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{
    Constant, Form, Grid, Kernel, LinearShape, Output, Spec, UpdateKernel, UpdateSpec, UpdateText,
    WriteMode, read, read_write, uniform,
};
use crate::params::{Params, Tensor};
use crate::plan::{Buffer, Builder, Launch, Range, Slice};

/// As `torch.optim.Muon` with Nesterov's look ahead and `adjust_lr_fn="match_rms_adamw"`: one learning rate and
/// one decay serve matrices and the rest.
pub(super) static RULE: Rule = Rule {
    name: "muon",
    what: "`\"muon\"` makes the momentum of each matrix of the layers orthogonal, and updates the rest by AdamW.",
    numbers: NUMBERS,
    carried,
    state: State::PerTensor(|trained| if trained.of_layer { MOMENTUM } else { MOMENTS }),
    rows: |state| {
        let of_layer = state.tensors.iter().filter(|tensor| Trained::of(state, tensor).of_layer);
        of_layer.map(|tensor| tensor.rows).max().unwrap_or(1)
    },
    updates: |_, builder, params, state| updates(builder, params, state),
    kernels: &[&MUON, &SCALE, &POLYNOMIAL, &UPDATE],
    ..BASE
};

const KEPT: &str = "how much of the momentum a step keeps";
/// The numbers of AdamW, and the momentum.
const NUMBERS: &[Number] = &[
    adamw::NUMBERS[0],
    adamw::NUMBERS[1],
    adamw::NUMBERS[2],
    Number::new("momentum", 0.95, Bounds::Share, KEPT),
];

/// Newton-Schulz steps.
const STEPS: usize = 5;

const MOMENTUM: &[StateSet] = &[StateSet::new("momentum_buffer", Buffer::Moment1, Content::Means)];

fn updates(builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
    let pieces = Pieces::new(params, state, &RULE.state);
    let by_adamw = |piece: &Piece| piece.holds(Content::Squares);
    for (tensor, own) in state.tensors.iter().zip(&pieces.by_tensor) {
        if !own.iter().any(by_adamw) {
            matrix(builder, &pieces, own, tensor)?;
        }
    }
    pieces.joined(by_adamw).iter().try_for_each(|piece| update_placed(builder, &pieces, piece))
}

/// The update of a matrix in these pieces.
fn matrix(
    builder: &mut Builder<'_>,
    pieces: &Pieces<'_>,
    own: &[Piece],
    tensor: &Tensor,
) -> Result<()> {
    let count: usize = tensor.shape.iter().product();
    let size = [tensor.rows, count / tensor.rows];
    let label = format!("muon {}", tensor.name);
    let direction = builder.tensor(&label, count as u64)?;
    let parts = own.iter().map(|piece| parts_of(piece.weights.len)).sum::<usize>();
    let squares = builder.tensor("squares of a matrix", parts as u64)?;
    momentum(builder, &label, pieces, own, [direction, squares])?;
    let kernel = SCALE.of([count, parts, 0]).kernel(builder.caps)?;
    let launch = Launch::new(format!("{label} scaled"), kernel);
    let launch = launch.bind("squares", squares).bind("direction", direction);
    builder.dispatch(launch.flops(count as f64))?;
    let direction = orthogonal(builder, &label, direction, size)?;
    // As Liu et al., arXiv:2502.16982: the root mean square of an update is that of AdamW's usual ones.
    let rate = Constant(0.2 * (size[0].max(size[1]) as f64).sqrt());
    let mut first = 0;
    for piece in own {
        let len = piece.weights.len;
        let kernel = UPDATE.of([len, 0, 0]).with(rate).kernel(builder.caps)?;
        let at = [Range { col0: first as u32, ..piece.range() }, Range::default()];
        let launch = pieces.launch(builder, format!("{label} update"), kernel, piece, at);
        builder.dispatch(launch.bind("direction", direction).flops(4.0 * len as f64))?;
        first += len;
    }
    Ok(())
}

/// The momentum of a matrix, into its direction, and the squares of that in parts.
fn momentum(
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
        let places = [at(piece.gradients.offset, piece.at[0]), at(first, part)];
        let kernel = MUON.of([len, 0, 0]).kernel(builder.caps)?;
        let launch = pieces
            .launch(builder, label, kernel, piece, places)
            .bind_all(pieces.states(piece))
            .bind("direction", direction)
            .bind("squares", squares);
        builder.dispatch(launch.flops(6.0 * len as f64))?;
        (first, part) = (first + len, part + parts_of(len));
    }
    Ok(())
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
        let kernel = POLYNOMIAL.of([side, 0, 0]).kernel(builder.caps)?;
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
    builder.product(label, &shape, output, operands, &[], (Some(step), range))
}

fn groups(count: usize) -> Grid {
    Grid::Fixed { x: parts_of(count) as u32, y: 1 }
}

/// Size: elements of a run. Grid: [`parts_of`] workgroups.
static MUON: UpdateKernel = UpdateKernel {
    name: "muon_forward",
    make: muon,
    #[cfg(feature = "testing")]
    tests: twin::MUON,
};

fn muon(spec: UpdateSpec, caps: &Capabilities) -> Result<Kernel> {
    UpdateText {
        sizes: &[("COUNT", spec.sizes[0])],
        numbers: &names(NUMBERS),
        kernel: "12_muon",
        bindings: &[
            read("gradients"),
            read_write("moment1"),
            read_write("direction"),
            read_write("squares"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
            uniform("place"),
        ],
        ..UpdateText::default()
    }
    .reduced(caps, spec, 1024, groups(spec.sizes[0]))
}

/// Sizes: elements of a matrix, and parts of their squares. Grid: as [`MUON`]'s.
static SCALE: UpdateKernel = UpdateKernel {
    name: "muon_scale_forward",
    make: |spec, caps| {
        UpdateText {
            sizes: &[("COUNT", spec.sizes[0]), ("PARTS", spec.sizes[1])],
            kernel: "12_muon_scale",
            bindings: &[read("squares"), read_write("direction")],
            ..UpdateText::default()
        }
        .reduced(caps, spec, 1024, groups(spec.sizes[0]))
    },
    #[cfg(feature = "testing")]
    tests: twin::SCALE,
};

/// Size: rows of a square matrix. Grid: one invocation per element.
static POLYNOMIAL: UpdateKernel = UpdateKernel {
    name: "muon_polynomial_forward",
    make: |spec, caps| {
        UpdateText {
            sizes: &[("SIDE", spec.sizes[0])],
            kernel: "12_muon_polynomial",
            bindings: &[read("gram"), read_write("square")],
            ..UpdateText::default()
        }
        .flat(caps, spec, spec.sizes[0] * spec.sizes[0])
    },
    #[cfg(feature = "testing")]
    tests: twin::POLYNOMIAL,
};

/// Size: elements of a run. The constant is a factor on the learning rate. Grid: one invocation per element.
static UPDATE: UpdateKernel = UpdateKernel {
    name: "muon_update_forward",
    make: |spec, caps| {
        UpdateText {
            sizes: &[("COUNT", spec.sizes[0])],
            float: Some(("RATE", spec.constant)),
            kernel: "12_muon_update",
            bindings: &[
                read_write("weights"),
                read("direction"),
                read("optimizer"),
                uniform("step"),
                uniform("range"),
            ],
            ..UpdateText::default()
        }
        .flat(caps, spec, spec.sizes[0])
    },
    #[cfg(feature = "testing")]
    tests: twin::UPDATE,
};

#[cfg(feature = "testing")]
pub(crate) mod twin;
