//! What `matrix.rs` writes out, as loops of plain WGSL for devices without matrices: for tests.

use super::matrix_parts::{Product, Size, Tile, Transfer, Writer, place_text, product_head};
use std::fmt::Write;

/// Loops over an invocation's share of the sums: `row` and `column` are those of `m` × `n` sums.
const SHARES: &str = "for(var share=0u;share<MATRIX_M*MATRIX_N/LANES;share++){\n\
     let result=matrix_lane+share*LANES;\nlet row=i*MATRIX_M+result/MATRIX_N;\n\
     let column=j*MATRIX_N+result%MATRIX_N;\n";

/// Writes parts as loops.
pub(super) struct Loops;

impl Writer for Loops {
    fn tile(text: &mut String, tile: &Tile) {
        let Tile { name, panels, .. } = tile;
        let cells = tile.cells() / 4;
        let _ =
            writeln!(text, "var<workgroup> {name}_tile:array<array<vec2<u32>,{cells}>,{panels}>;");
        place_text(text, tile);
        let _ = writeln!(text, "{name}_tile[panel][at/4u]=cells;\n}}");
    }

    fn product(text: &mut String, size: Size, product: &Product) {
        let [m, n, _] = size;
        let Product { left, left_rows, right, right_rows, k, .. } = product;
        product_head(text, size, product);
        let place = |by_lines: bool, line: &str, pitch: usize| {
            if by_lines { format!("{line}*{pitch}u+s") } else { format!("s*{pitch}u+{line}") }
        };
        let x = place(*left_rows, "row", left.pitch());
        let y = place(!*right_rows, "column", right.pitch());
        let _ = write!(
            text,
            "for(var i=0u;i<{}u;i++){{\nfor(var j=0u;j<{}u;j++){{\n{SHARES}var sum=0.0;\n\
             for(var s=0u;s<{k}u;s++){{\nlet x={x};\nlet y={y};\n\
             sum+=half_of({}_tile[a][x/4u],x)*half_of({}_tile[b][y/4u],y);\n}}\n\
             (*sums)[i][j][share]+=sum;\n}}\n}}\n}}\n}}\n",
            product.m / m,
            product.n / n,
            left.name,
            right.name
        );
    }

    fn transfer(text: &mut String, size: Size, transfer: &Transfer) {
        let Transfer { sheet, back, .. } = transfer;
        let (name, pitch) = (sheet.name, sheet.pitch());
        let [rows, columns] = transfer.counts(size);
        for verb in ["store", "load"].into_iter().take(1 + usize::from(*back)) {
            transfer.head(text, size, verb);
            let place = format!("{name}[p][row*{pitch}u+column]");
            let sum = format!("(*sums)[i][strip*{columns}u+j][share]");
            let (to, from) = if verb == "store" { (place, sum) } else { (sum, place) };
            let _ = write!(
                text,
                "for(var i=0u;i<{rows}u;i++){{\nfor(var j=0u;j<{columns}u;j++){{\n{SHARES}{to}={from};\n}}\n}}\n}}\n}}\n"
            );
        }
    }
}
