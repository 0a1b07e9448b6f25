//! Adafactor (Shazeer and Stern, arXiv:1804.04235) as `torch.optim.Adafactor`: second moments of matrices are the
//! product of a mean for each row and one for each column. There is no first moment. A step is in proportion to the
//! size of a tensor's weights, and its rate is at most one over the root of the updates made.

use super::pieces::{Piece, Pieces};
use super::rule::{BASE, Bounds, Carried, Number, Rule, State};
use super::{Content, StateSet, names, parts_of};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{
    Constant, Grid, Kernel, Spec, UpdateKernel, UpdateSpec, UpdateText, read, read_write, uniform,
};
use crate::params::Tensor;
use crate::plan::{Buffer, Builder, Range, Slice};

pub(super) static RULE: Rule = Rule {
    name: "adafactor",
    what: "`\"adafactor\"` keeps a number for each row and each column of a matrix, and steps in proportion to the \
           size of a tensor's weights.",
    learning_rate: 1e-2,
    weight_decay: 1e-2,
    numbers: NUMBERS,
    carried: |_| [Carried::Count, Carried::Rate(0.0)],
    state: State::PerTensor(|trained| if trained.shape.len() > 1 { FACTORS } else { WHOLE }),
    updates: |_, builder, params, state| {
        let pieces = Pieces::new(params, state, &RULE.state);
        let mut tensors = state.tensors.iter().zip(&pieces.by_tensor);
        tensors.try_for_each(|(tensor, own)| update(builder, &pieces, own, tensor))
    },
    kernels: &[&ROWS, &COLUMNS, &COLUMN_MEANS, &NORMS, &UPDATE],
    ..BASE
};

const NUMBERS: &[Number] = &[
    Number::new(
        "beta2Decay",
        -0.8,
        Bounds::AtMost(0.0),
        "the power of the updates made that is the newest gradient's share of the second moment",
    ),
    Number::new(
        "epsilon",
        // f32's, as PyTorch has it.
        f32::EPSILON as f64,
        Bounds::Positive,
        "the least root of the second moment",
    ),
    Number::new(
        "leastScale",
        1e-3,
        Bounds::AtLeast(0.0),
        "the least size of a tensor's weights that a step is in proportion to",
    ),
    Number::new(
        "clipThreshold",
        1.0,
        Bounds::AtLeast(1.0),
        "the largest root mean square of a tensor's update, before the rate",
    ),
];

const FACTORS: &[StateSet] = &[
    StateSet::new("row_var", Buffer::Moment1, Content::RowSquares),
    StateSet::new("col_var", Buffer::Moment2, Content::ColumnSquares),
];

const WHOLE: &[StateSet] = &[StateSet::new("variance", Buffer::Moment1, Content::Squares)];

/// Rows of a column that an invocation adds up.
const STRETCH: usize = 128;

/// The update of a tensor in these pieces.
fn update(
    builder: &mut Builder<'_>,
    pieces: &Pieces<'_>,
    own: &[Piece],
    tensor: &Tensor,
) -> Result<()> {
    let count: usize = tensor.shape.iter().product();
    let label = format!("adafactor {}", tensor.name);
    // 0 for a vector: each of its elements has a second moment of its own.
    let factored = own.iter().any(|piece| piece.holds(Content::RowSquares));
    let columns = if factored { own[0].columns } else { 0 };
    for piece in own {
        row_means(builder, &label, pieces, piece, columns)?;
    }
    if factored {
        column_means(builder, &label, pieces, own, count / columns)?;
    }
    let column_state = pieces.states(&own[0]).get(1).copied();
    let parts = own.iter().map(|piece| parts_of(piece.weights.len)).sum::<usize>();
    let squares = builder.tensor(&label, 2 * parts as u64)?;
    for update in [false, true] {
        let mut part = 0;
        for piece in own {
            let len = piece.weights.len;
            let [row0, col0] = [piece.at[0], own[0].at[1]].map(|at| at as u32);
            let at = [piece.range(), Range { row0, rows: part, col0, cols: 0 }];
            part += parts_of(len) as u32;
            let (what, spec) = if update {
                ("update", UPDATE.of([len, columns, parts]).with(Constant(count as f64)))
            } else {
                ("norms", NORMS.of([len, columns, 0]))
            };
            let kernel = spec.kernel(builder.caps)?;
            let launch = pieces
                .launch(builder, format!("{label} {what}"), kernel, piece, at)
                .bind_all(pieces.states(piece).into_iter().take(1).chain(column_state))
                .bind("squares", squares);
            builder.dispatch(launch.flops(8.0 * len as f64))?;
        }
    }
    Ok(())
}

/// The means of a piece's rows; `columns` is 0 for a vector, each element of which is a row.
fn row_means(
    builder: &mut Builder<'_>,
    label: &str,
    pieces: &Pieces<'_>,
    piece: &Piece,
    columns: usize,
) -> Result<()> {
    let (len, columns) = (piece.weights.len, columns.max(1));
    let at = [piece.range(), Range { row0: piece.at[0] as u32, ..Range::default() }];
    let kernel = ROWS.of([len / columns, columns, 0]).kernel(builder.caps)?;
    let launch = pieces.launch(builder, format!("{label} rows"), kernel, piece, at);
    let rows = pieces.states(piece).into_iter().take(1);
    builder.dispatch(launch.bind_all(rows).flops(2.0 * len as f64))
}

/// The means of the columns of a matrix with `rows` rows in all.
fn column_means(
    builder: &mut Builder<'_>,
    label: &str,
    pieces: &Pieces<'_>,
    own: &[Piece],
    rows: usize,
) -> Result<()> {
    let columns = own[0].columns;
    let stretches_of = |piece: &Piece| (piece.weights.len / columns).div_ceil(STRETCH);
    let stretches: usize = own.iter().map(stretches_of).sum();
    let sums: Slice = builder.tensor(label, (stretches * columns) as u64)?;
    let at = |col0: usize| Range { col0: col0 as u32, ..Range::default() };
    let mut first = 0;
    for piece in own {
        let len = piece.weights.len;
        let kernel = COLUMNS.of([len / columns, columns, 0]).kernel(builder.caps)?;
        let places = [piece.range(), at(first)];
        let launch = pieces.launch(builder, format!("{label} columns"), kernel, piece, places);
        builder.dispatch(launch.bind("sums", sums).flops(2.0 * len as f64))?;
        first += stretches_of(piece);
    }
    let kernel = COLUMN_MEANS.of([rows, columns, stretches]).kernel(builder.caps)?;
    let places = [Range::default(), at(own[0].at[1])];
    let launch = pieces
        .launch(builder, format!("{label} column means"), kernel, &own[0], places)
        .bind_all(pieces.states(&own[0]).into_iter().skip(1))
        .bind("sums", sums);
    builder.dispatch(launch.flops((stretches * columns) as f64))
}

/// Sizes: rows, columns. Grid: one workgroup per row.
static ROWS: UpdateKernel = UpdateKernel {
    name: "adafactor_rows_forward",
    make: rows,
    #[cfg(feature = "testing")]
    tests: twin::ROWS,
};

fn rows(spec: UpdateSpec, caps: &Capabilities) -> Result<Kernel> {
    let [rows, columns, _] = spec.sizes;
    UpdateText {
        sizes: &[("ROWS", rows), ("COLUMNS", columns)],
        numbers: &names(NUMBERS),
        kernel: "12_adafactor_rows",
        bindings: &[
            read("gradients"),
            read_write("moment1"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
            uniform("place"),
        ],
        ..UpdateText::default()
    }
    .reduced(caps, spec, columns, Grid::Flat { rows: 1, per_block: rows, per_group: 1 })
}

/// Sizes: rows, columns. Grid: one invocation per stretch and column.
static COLUMNS: UpdateKernel = UpdateKernel {
    name: "adafactor_columns_forward",
    make: |spec, caps| {
        let [rows, columns, _] = spec.sizes;
        UpdateText {
            sizes: &[("ROWS", rows), ("COLUMNS", columns), ("STRETCH", STRETCH)],
            kernel: "12_adafactor_columns",
            bindings: &[
                read("gradients"),
                read_write("sums"),
                read("optimizer"),
                uniform("range"),
                uniform("place"),
            ],
            ..UpdateText::default()
        }
        .flat(caps, spec, rows.div_ceil(STRETCH) * columns)
    },
    #[cfg(feature = "testing")]
    tests: twin::COLUMNS,
};

/// Sizes: rows, columns, stretches. Grid: one invocation per column.
static COLUMN_MEANS: UpdateKernel = UpdateKernel {
    name: "adafactor_column_means_forward",
    make: |spec, caps| {
        let [rows, columns, stretches] = spec.sizes;
        UpdateText {
            sizes: &[("ROWS", rows), ("COLUMNS", columns), ("STRETCHES", stretches)],
            numbers: &names(NUMBERS),
            kernel: "12_adafactor_column_means",
            bindings: &[
                read("sums"),
                read_write("moment2"),
                read("optimizer"),
                uniform("step"),
                uniform("place"),
            ],
            ..UpdateText::default()
        }
        .flat(caps, spec, columns)
    },
    #[cfg(feature = "testing")]
    tests: twin::COLUMN_MEANS,
};

/// Sizes: elements, and columns or 0 for a vector. Grid: [`parts_of`] workgroups.
static NORMS: UpdateKernel = UpdateKernel {
    name: "adafactor_norms_forward",
    make: |spec, caps| strided(spec, caps, false),
    #[cfg(feature = "testing")]
    tests: twin::NORMS,
};

/// As [`NORMS`], with the parts of the tensor, whose size is the constant.
static UPDATE: UpdateKernel = UpdateKernel {
    name: "adafactor_update_forward",
    make: |spec, caps| strided(spec, caps, true),
    #[cfg(feature = "testing")]
    tests: twin::UPDATE,
};

fn strided(spec: UpdateSpec, caps: &Capabilities, update: bool) -> Result<Kernel> {
    let [count, columns, parts] = spec.sizes;
    let (kernel, weights, squares) = if update {
        ("12_adafactor_update", read_write("weights"), read("squares"))
    } else {
        ("12_adafactor_norms", read("weights"), read_write("squares"))
    };
    let bindings = [
        weights,
        read("gradients"),
        read("moment1"),
        squares,
        read("optimizer"),
        uniform("step"),
        uniform("range"),
        uniform("place"),
        read("moment2"),
    ];
    UpdateText {
        sizes: &[("COUNT", count), ("COLUMNS", columns), ("PARTS", parts)],
        numbers: &names(NUMBERS),
        float: update.then_some(("TENSOR", spec.constant)),
        when: Some(("FACTORED", columns > 0)),
        kernel,
        bindings: &bindings[..8 + usize::from(columns > 0)],
        ..UpdateText::default()
    }
    .reduced(caps, spec, 1024, Grid::Fixed { x: parts_of(count) as u32, y: 1 })
}

#[cfg(feature = "testing")]
pub(crate) mod twin;
