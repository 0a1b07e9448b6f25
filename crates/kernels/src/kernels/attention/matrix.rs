//! Attention on matrices that a subgroup holds: which product of matrices it uses, and its tiles.

use crate::caps::{Capabilities, MatrixConfig};
use crate::kernels::shape::{AttentionShape, AttentionTile};

/// Lanes of the forward pass that share a row of scores. One lane for each row would leave half as many subgroups to
/// wait for memory and barriers (`docs/decisions/050-matrix-attention-forward.md`).
pub(super) const SHARERS: usize = 2;

/// The largest head whose results a subgroup can hold: 16 rows of them are 64 registers of each lane.
pub(super) const LARGEST_HEAD: usize = 128;

/// The product of matrices that attention of this shape may use, if its operands may be rounded to f16.
///
/// # Errors
/// Why it uses none, in words.
pub(super) fn usable(
    caps: &Capabilities,
    shape: AttentionShape,
) -> std::result::Result<MatrixConfig, String> {
    let without = "no subgroup matrices from f16 to f32";
    // Loops that stand in for matrices are for tests on a CPU, which has no use for tiles otherwise.
    let wanted = caps.emulated || !caps.software;
    let config = caps.half_matrix().filter(|_| wanted).ok_or(without)?;
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let head = shape.head_dim;
    if head > LARGEST_HEAD || !head.is_multiple_of(n.max(k)) {
        let multiple = n.max(k);
        return Err(format!(
            "heads of {head} are no multiple of {multiple} up to {LARGEST_HEAD}, as matrices need"
        ));
    }
    if !(caps.matrix_lanes() as usize).is_multiple_of(m) {
        return Err(without.into());
    }
    Ok(config)
}

impl AttentionTile {
    /// Tiles of matrices: neighbours share a row.
    pub const fn matrix(rows: usize, columns: usize) -> Self {
        Self::matrix_in_parts(rows, columns, 1)
    }

    /// As [`Self::matrix`], forward: the columns are divided among `parts` subgroups for each row.
    pub const fn matrix_in_parts(rows: usize, columns: usize, parts: usize) -> Self {
        let size = rows * SHARERS * parts;
        Self { rows, columns, row_groups: rows, size, resident: false, matrix: true }
    }

    /// Subgroups that share a row's columns.
    pub(super) const fn key_parts(&self) -> usize {
        self.size / (self.rows * SHARERS)
    }

    pub(super) fn matrix_label(&self) -> String {
        let parts = match self.key_parts() {
            1 => String::new(),
            parts => format!(", keys in {parts} parts"),
        };
        format!("matrix {}x{}, {SHARERS} lanes per row{parts}", self.rows, self.columns)
    }
}

/// What tests of both passes choose tiles for.
#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use crate::caps::{MatrixElement, matrix_samples};

    pub fn device(kibibytes: u32) -> Capabilities {
        let (component, result) = (MatrixElement::F16, MatrixElement::F32);
        let matrix = MatrixConfig { component, result, m: 16, n: 16, k: 16 };
        let mut caps = matrix_samples::device(&[matrix], [32, 32]);
        (caps.adapter.vendor, caps.adapter.architecture) = ("nvidia".into(), String::new());
        caps.limits.max_compute_workgroup_storage_size = kibibytes << 10;
        caps
    }

    pub const fn shape(head_dim: usize) -> AttentionShape {
        AttentionShape { heads: 12, kv_heads: 4, head_dim }
    }
}
