//! Packed weights of inference: their forms, packing a matrix, unpacking it for kernels that read f32.

use super::compose::{Binding, Composer, Grid, Kernel, read, read_write, shader};
use super::spec::KernelSpec;
use super::workgroup_size;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How the matrices of a model are read when it infers. Norms and embeddings are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
    F16,
    /// Signed bytes, `GROUP` neighbours of a row to an f32 scale: the largest magnitude over 127.
    Int8,
    /// Four bits, `GROUP` neighbours of a row to an f32 scale: the element of the largest magnitude
    /// is −8 of them, as in ggml's Q4_0.
    Int4,
}

/// Neighbours in a row that share a scale.
const GROUP: usize = 32;

impl WeightFormat {
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Int8, Self::Int4];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Whether rows of this many elements are packed: whole groups are, others stay f32.
    pub const fn packs(self, columns: usize) -> bool {
        !matches!(self, Self::F32) && columns.is_multiple_of(GROUP)
    }

    /// Elements of a vector of 16 bytes.
    pub const fn elements(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 8,
            Self::Int8 => 16,
            Self::Int4 => 32,
        }
    }

    /// Vectors of 16 bytes before a packed matrix's scales.
    const fn vectors(self, elements: usize) -> usize {
        elements / self.elements()
    }

    /// Bytes of a packed matrix: its rows, then the scales of all groups.
    pub const fn bytes(self, rows: usize, columns: usize) -> u64 {
        let elements = rows * columns;
        let scales = match self {
            Self::F32 | Self::F16 => 0,
            Self::Int8 | Self::Int4 => (elements / GROUP).div_ceil(4),
        };
        16 * (self.vectors(elements) + scales) as u64
    }

    /// The module through which kernels read a packed matrix of `elements` elements, with its
    /// constants.
    pub(super) fn module(self, composer: Composer, elements: usize) -> Composer {
        let module = match self {
            Self::F32 => return composer,
            Self::F16 => shader!("lib/weights_f16"),
            Self::Int8 => shader!("lib/weights_int8"),
            Self::Int4 => shader!("lib/weights_int4"),
        };
        composer
            .unrolled("QUADS", self.elements() / 4)
            .size("SCALES", self.vectors(elements))
            .module(module)
    }
}

fn composer(caps: &Capabilities, spec: KernelSpec) -> Result<Composer> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    Ok(Composer::new(spec, size).module(shader!("lib/flat")))
}

/// One invocation for each of `count` units.
fn finish(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    format: WeightFormat,
    count: usize,
    reason: &str,
) -> Result<Kernel> {
    let per_group = composer.workgroup_size();
    let grid = Grid::Flat { rows: 1, per_block: count, per_group }.fixed(caps, 1)?;
    composer.finish(caps, bindings, grid, format.name(), reason)
}

/// `pack_weights_forward`: a matrix of f32 into a packed one. Bindings: matrix, packed.
///
/// # Errors
/// `limit-exceeded` when a workgroup does not fit.
pub fn pack_weights(
    caps: &Capabilities,
    format: WeightFormat,
    rows: usize,
    columns: usize,
) -> Result<Kernel> {
    if format == WeightFormat::F32 {
        return Err(Error::internal("f32 is not packed"));
    }
    let groups = rows * columns / GROUP;
    let composer = composer(caps, KernelSpec::PackWeights { format, rows, columns })?
        .size("GROUPS", groups)
        .size("WORDS", GROUP * 4 / format.elements())
        .module(shader!("lib/finite"))
        .module(match format {
            WeightFormat::Int8 => shader!("lib/pack_int8"),
            WeightFormat::Int4 => shader!("lib/pack_int4"),
            _ => shader!("lib/pack_f16"),
        })
        .module(shader!("08_pack_weights"));
    finish(
        composer,
        caps,
        &[read("matrix"), read_write("packed")],
        format,
        groups,
        "one invocation a group of 32 elements",
    )
}

/// `unpack_weights_forward`: a packed matrix as f32, for kernels that read that. Bindings:
/// matrix, packed.
///
/// # Errors
/// As [`pack_weights`].
pub fn unpack_weights(
    caps: &Capabilities,
    format: WeightFormat,
    rows: usize,
    columns: usize,
) -> Result<Kernel> {
    let elements = rows * columns;
    let vectors = format.vectors(elements);
    let composer = composer(caps, KernelSpec::UnpackWeights { format, rows, columns })?
        .size("VECTORS", vectors);
    let composer = format.module(composer, elements).module(shader!("08_unpack_weights"));
    finish(
        composer,
        caps,
        &[read_write("matrix"), read("packed")],
        format,
        vectors,
        "one invocation a vector of 16 bytes",
    )
}
