//! Attention on matrices that a subgroup holds: tiles in workgroup memory, and the products between them written
//! out, since browsers check each place in a tile that is no constant.
//!
//! A subgroup has as many rows of scores as it has lanes. A product leaves its sums in a [`Sheet`] of workgroup
//! memory, where each invocation has a row to itself: no value crosses lanes.

#[cfg(any(test, feature = "testing"))]
use super::matrix_emulated::Loops;
use super::matrix_parts::{Part, Product, Size, Tile, Transfer, Writer, place_text, product_head};
use crate::caps::{Capabilities, MatrixConfig};
use crate::format::Element;
use crate::kernels::compose::Composer;
use crate::kernels::shape::{AttentionShape, AttentionTile};
use std::fmt::Write;

/// Lanes of the forward pass that share a row of scores. One each would leave half as many subgroups to wait for memory
/// and barriers (`docs/decisions/050-matrix-attention-forward.md`).
pub(super) const SHARERS: usize = 2;

/// The largest head whose results a subgroup can hold: 16 rows of them are 64 registers of each lane.
pub(super) const LARGEST_HEAD: usize = 128;

/// Adds the constants and types of matrices.
pub(super) fn matrix_types(
    caps: &Capabilities,
    composer: Composer,
    config: MatrixConfig,
) -> Composer {
    let module = if caps.emulated {
        "lib/attention/matrix_emulated"
    } else {
        "lib/attention/matrix_subgroup"
    };
    composer.matrix(caps, config, module)
}

/// Adds the constants and types of matrices, and the parts.
pub(super) fn with_matrices(
    caps: &Capabilities,
    composer: Composer,
    config: MatrixConfig,
    parts: &[Part],
) -> Composer {
    let size = [config.m, config.n, config.k].map(|size| size as usize);
    let sheets = parts.iter().filter_map(|part| match part {
        Part::Sheet(sheet) => Some((sheet.name.to_ascii_uppercase() + "_PITCH", sheet.pitch())),
        _ => None,
    });
    let composer = sheets.fold(composer, |composer, (name, pitch)| composer.size(&name, pitch));
    let composer = matrix_types(caps, composer, config);
    #[cfg(any(test, feature = "testing"))]
    if caps.emulated {
        return composer.written("attention_matrix", &Loops::text(size, parts));
    }
    composer.written("attention_matrix", &Matrices::text(size, parts))
}

/// Storage of rows that a kernel reads or writes: `NAMEQuad`, `NAME_cells` and `NAME_floats` of four elements read,
/// `NAME_quad` of four written. In f16 they need `lib/quad`.
pub(super) fn quads(composer: Composer, rows: &[(&str, Element)]) -> Composer {
    let halves = rows.iter().any(|(_, element)| *element == Element::F16);
    let composer = if halves { Element::F16.module(composer) } else { composer };
    let mut text = String::new();
    for (name, element) in rows {
        let [quad, cells, floats, back] = match element {
            Element::F32 => ["vec4<f32>", "cells_of(x)", "x", "x"],
            Element::F16 => ["vec2<u32>", "halves_of(x)", "unpack_quad(x)", "pack_quad(x)"],
        };
        let _ = write!(
            text,
            "alias {name}Quad={quad};\nfn {name}_cells(x:{quad})->Cells{{return {cells};}}\n\
             fn {name}_floats(x:{quad})->vec4<f32>{{return {floats};}}\n\
             fn {name}_quad(x:vec4<f32>)->{quad}{{return {back};}}\n"
        );
    }
    composer.written("attention_quads", &text)
}

/// The matrix `across` lines and `along` a line of a tile, whose lines are its rows or its columns.
fn load(kind: &str, tile: &Tile, rows: bool, across: usize, along: usize) -> String {
    let (name, pitch) = (tile.name, tile.pitch());
    let major = if rows { "row_major" } else { "col_major" };
    let panel = if kind == "Left" { 'a' } else { 'b' };
    let at = across * pitch + along;
    format!("subgroupMatrixLoad<{kind},{major}>(&{name}_tile[{panel}],{at}u,{pitch}u)")
}

/// Writes parts as a subgroup's matrices, with constant places.
struct Matrices;

impl Writer for Matrices {
    fn tile(text: &mut String, tile: &Tile) {
        let Tile { name, panels, .. } = tile;
        let cells = tile.cells();
        let _ = writeln!(text, "var<workgroup> {name}_tile:array<array<f16,{cells}>,{panels}>;");
        place_text(text, tile);
        for (i, element) in ["x", "y", "z", "w"].iter().enumerate() {
            let _ = writeln!(text, "{name}_tile[panel][at+{i}u]=cells.{element};");
        }
        text.push_str("}\n");
    }

    fn product(text: &mut String, size: Size, product: &Product) {
        let [m, n, k] = size;
        let Product { left, left_rows, right, right_rows, .. } = product;
        product_head(text, size, product);
        for s in (0..product.k).step_by(k) {
            text.push_str("{\n");
            for i in 0..product.m / m {
                let (across, along) = if *left_rows { (i * m, s) } else { (s, i * m) };
                let _ =
                    writeln!(text, "let l{i}={};", load("Left", left, *left_rows, across, along));
            }
            for j in 0..product.n / n {
                let (across, along) = if *right_rows { (s, j * n) } else { (j * n, s) };
                let from = load("Right", right, *right_rows, across, along);
                let _ = writeln!(text, "let r{j}={from};");
                for i in 0..product.m / m {
                    let _ = writeln!(
                        text,
                        "(*sums)[{i}][{j}]=subgroupMatrixMultiplyAccumulate(l{i},r{j},(*sums)[{i}][{j}]);"
                    );
                }
            }
            text.push_str("}\n");
        }
        text.push_str("}\n");
    }

    fn transfer(text: &mut String, size: Size, transfer: &Transfer) {
        let [m, n, _] = size;
        let Transfer { sheet, back, .. } = transfer;
        let (name, pitch) = (sheet.name, sheet.pitch());
        let [rows, columns] = transfer.counts(size);
        let strips = transfer.n / n / columns;
        for verb in ["store", "load"].into_iter().take(1 + usize::from(*back)) {
            transfer.head(text, size, verb);
            text.push_str("switch strip{\n");
            for strip in 0..strips {
                let default = if strip + 1 == strips { ",default" } else { "" };
                let _ = writeln!(text, "case {strip}u{default}:{{");
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let (at, sum) =
                        (i * m * pitch + j * n, format!("(*sums)[{i}][{}]", strip * columns + j));
                    let _ = if verb == "store" {
                        writeln!(
                            text,
                            "subgroupMatrixStore<row_major>(&{name}[p],{at}u,{sum},{pitch}u);"
                        )
                    } else {
                        writeln!(
                            text,
                            "{sum}=subgroupMatrixLoad<Sums,row_major>(&{name}[p],{at}u,{pitch}u);"
                        )
                    };
                }
                text.push_str("}\n");
            }
            text.push_str("}\n}\n");
        }
    }
}

/// The product of matrices that attention of this shape may use.
///
/// # Errors
/// Why it uses none, in words: empty where nobody allows operands in f16.
pub(super) fn usable(
    caps: &Capabilities,
    shape: AttentionShape,
) -> std::result::Result<MatrixConfig, String> {
    if !shape.half {
        return Err(String::new());
    }
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
        let size = rows * SHARERS;
        Self { rows, columns, row_groups: rows, size, resident: false, matrix: true }
    }

    pub(super) fn matrix_label(&self) -> String {
        format!("matrix {}x{}, {SHARERS} lanes per row", self.rows, self.columns)
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

    pub fn shape(head_dim: usize, tokens: usize) -> AttentionShape {
        let (heads, kv_heads, half) = (12, 4, true);
        AttentionShape { heads, kv_heads, head_dim, tokens, half, ..AttentionShape::default() }
    }
}
