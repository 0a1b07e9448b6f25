//! What a kernel of attention by matrices declares: tiles, sheets, products and transfers, and what their texts share
//! whether matrices or plain WGSL compute them.

use std::fmt::Write;

/// Cells behind each line of a tile: without them the loads of a matrix meet in the same banks.
const PAD: usize = 8;
/// Floats behind each line of a sheet: neighbours' vectors of four begin in different banks.
const SHEET_PAD: usize = 4;

/// Operands in f16 in workgroup memory: `lines` of `len` elements in each of `panels`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub name: &'static str,
    pub panels: usize,
    pub lines: usize,
    pub len: usize,
}

impl Tile {
    /// Elements from one line to the next.
    pub const fn pitch(&self) -> usize {
        self.len + PAD
    }

    /// Elements of a panel: its last line needs no pad.
    pub const fn cells(&self) -> usize {
        self.lines * self.pitch() - PAD
    }

    pub const fn bytes(&self) -> usize {
        2 * self.panels * self.cells()
    }
}

/// Sums in f32 in workgroup memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sheet {
    pub name: &'static str,
    pub panels: usize,
    pub lines: usize,
    pub len: usize,
}

impl Sheet {
    /// Floats from one line to the next.
    pub const fn pitch(&self) -> usize {
        self.len + SHEET_PAD
    }

    pub const fn bytes(&self) -> usize {
        4 * self.panels * self.lines * self.pitch()
    }
}

/// `m` × `n` sums of `k` products of a panel of one tile with a panel of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub name: &'static str,
    pub left: Tile,
    /// A line of the left tile is a row, its elements lie along K; else a line is of one K, its elements lie along M.
    pub left_rows: bool,
    pub right: Tile,
    /// A line of the right tile is of one K, its elements lie along N; else a line is a column, along K.
    pub right_rows: bool,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// How `m` × `n` sums get to a sheet, a strip of the sheet's columns at a time, and with `back` from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub name: &'static str,
    pub sheet: Sheet,
    pub m: usize,
    pub n: usize,
    pub back: bool,
}

/// What a kernel declares in workgroup memory, and its functions of matrices.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// `put_NAME(line, four, cells)` puts elements `4 · four`… of a line; lines are counted through all panels.
    Tile(Tile),
    Sheet(Sheet),
    /// `NAME(left panel, right panel, &sums)` adds to the sums.
    Product(Product),
    /// `store_NAME(panel, strip, &sums)` and with `back` `load_NAME`. The strip is a literal.
    Transfer(Transfer),
}

/// Size of a matrix: M, N and K.
pub(super) type Size = [usize; 3];

/// How parts are written: as a subgroup's matrices, or as loops that stand in for them.
pub(super) trait Writer {
    fn tile(text: &mut String, tile: &Tile);
    fn product(text: &mut String, size: Size, product: &Product);
    fn transfer(text: &mut String, size: Size, transfer: &Transfer);

    /// All parts, one after the other.
    fn text(size: Size, parts: &[Part]) -> String {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Tile(tile) => Self::tile(&mut text, tile),
                Part::Sheet(sheet) => sheet_text(&mut text, sheet),
                Part::Product(product) => Self::product(&mut text, size, product),
                Part::Transfer(transfer) => Self::transfer(&mut text, size, transfer),
            }
        }
        text
    }
}

fn sheet_text(text: &mut String, sheet: &Sheet) {
    let Sheet { name, panels, lines, .. } = sheet;
    let floats = lines * sheet.pitch();
    let _ = writeln!(text, "var<workgroup> {name}:array<array<f32,{floats}>,{panels}>;");
}

/// Where `put_NAME` puts four cells. The remainders tell browsers that the place is within the tile.
pub(super) fn place_text(text: &mut String, tile: &Tile) {
    let Tile { name, panels, lines, len } = tile;
    let (all, fours, pitch) = (panels * lines, len / 4, tile.pitch());
    let _ = write!(
        text,
        "fn put_{name}(line:u32,four:u32,cells:Cells){{\nlet l=line%{all}u;\nlet panel=l/{lines}u;\n\
         let at=l%{lines}u*{pitch}u+four%{fours}u*4u;\n"
    );
}

/// The head of a product's function, and the panels that it multiplies.
pub(super) fn product_head(text: &mut String, [m, n, _]: Size, product: &Product) {
    let Product { name, left, right, .. } = product;
    let (rows, columns) = (product.m / m, product.n / n);
    let _ = write!(
        text,
        "fn {name}(left:u32,right:u32,sums:ptr<function,array<array<Sums,{columns}>,{rows}>>){{\n\
         let a=left%{}u;\nlet b=right%{}u;\n",
        left.panels, right.panels
    );
}

impl Transfer {
    /// Matrices down, and those across that a strip has: strips are equal.
    pub fn counts(&self, [m, n, _]: Size) -> [usize; 2] {
        let all = self.n / n;
        let most = (self.sheet.len / n).min(all);
        let strip = (1..=most).rev().find(|count| all.is_multiple_of(*count));
        [self.m / m, strip.unwrap_or(1)]
    }

    /// The head of a function, with its panel.
    pub fn head(&self, text: &mut String, [m, n, _]: Size, verb: &str) {
        let Self { name, sheet, .. } = self;
        let (rows, columns) = (self.m / m, self.n / n);
        let _ = write!(
            text,
            "fn {verb}_{name}(panel:u32,strip:u32,sums:ptr<function,array<array<Sums,{columns}>,{rows}>>){{\n\
             let p=panel%{}u;\n",
            sheet.panels
        );
    }
}
