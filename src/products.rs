//! Products of matrices as data: their shapes, the tiles that compute them, and what was measured of
//! them on a device, which takes the place of selection's estimate.

use crate::format::{Element, WeightFormat};

/// Which product, and which of its dimensions is the batch of tokens (a run-time value).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// C[tokens, N] = A[tokens, K] · B[N, K]ᵀ: a linear layer forward.
    MatmulT,
    /// C[tokens, N] = A[tokens, K] · B[K, N]: the gradient of its input.
    Matmul,
    /// C[K, N] = A[tokens, K]ᵀ · B[tokens, N]: the gradient of its weight.
    MatmulAt,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::MatmulT, Self::Matmul, Self::MatmulAt];

    pub const fn name(self) -> &'static str {
        match self {
            Self::MatmulT => "matmul_t",
            Self::Matmul => "matmul",
            Self::MatmulAt => "matmul_at",
        }
    }
}

/// Constant dimensions of a product, in [`Form`]'s letters, and the most tokens it will see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearShape {
    pub form: Form,
    pub n: usize,
    pub k: usize,
    /// Elements from one row of A to the next; more than K when A holds further columns.
    pub a_stride: usize,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    pub tokens: usize,
    /// Whether rows of A or C that have a column for each row of the matrix are padded to a multiple of four.
    /// That dimension is N of [`Form::MatmulT`] and K of the other forms. [`Form::Matmul`] needs zeros in A's
    /// padding; C's padding may hold anything.
    pub padded: bool,
    /// How B lies: packed only where it is a matrix of weights, in rows of whole groups, or in f16 of vectors.
    pub b: WeightFormat,
    /// How A lies: in f16, two elements to a word, only where products round it and rows are of vectors.
    pub a: Element,
    /// Operands may be rounded to f16, where a device multiplies those faster.
    pub half: bool,
}

impl LinearShape {
    /// A product whose operands have no columns besides those used.
    pub fn new(form: Form, n: usize, k: usize, tokens: usize) -> Self {
        let (a_stride, c_stride) = (k, n);
        let (a, b) = (Element::F32, WeightFormat::F32);
        Self { form, n, k, a_stride, c_stride, tokens, padded: false, a, b, half: false }
    }

    /// Whether rows are read by vectors of four: each begins at a multiple of four and, its padding included,
    /// holds one.
    pub fn by_vectors(&self) -> bool {
        let k = if self.form == Form::MatmulT { self.k } else { self.padded_len(self.k) };
        [self.part_stride(), k, self.a_stride, self.c_stride].iter().all(|size| size % 4 == 0)
    }

    /// A number of the matrix's rows, with the padding behind them.
    fn padded_len(&self, rows: usize) -> usize {
        if self.padded { rows.next_multiple_of(4) } else { rows }
    }

    /// Elements from one row of a part of C to the next.
    pub(crate) fn part_stride(&self) -> usize {
        if self.form == Form::MatmulT { self.padded_len(self.n) } else { self.n }
    }

    /// Rows of C.
    pub(crate) fn m(&self) -> usize {
        if self.form == Form::MatmulAt { self.k } else { self.tokens }
    }

    /// Elements of C, or of a part of it.
    pub(crate) fn part_elements(&self) -> u64 {
        self.m() as u64 * self.part_stride() as u64
    }

    /// Terms of each sum.
    pub(crate) fn depth(&self) -> usize {
        if self.form == Form::MatmulAt { self.tokens } else { self.k }
    }
}

/// How results are divided among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearTile {
    /// BM×BN results per workgroup through workgroup memory in steps of BK, TM×TN an invocation.
    Tiled { bm: usize, bn: usize, bk: usize, tm: usize, tn: usize },
    /// BM×BN results per workgroup in steps of BK, WM×WN a subgroup, by matrices that it holds.
    Matrix { bm: usize, bn: usize, bk: usize, wm: usize, wn: usize },
    /// TM×TN results per invocation, straight from storage.
    Direct { tm: usize, tn: usize },
}

/// The fastest tile and split measured for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunedProduct {
    pub shape: LinearShape,
    pub tile: LinearTile,
    /// Parts of K.
    pub splits: usize,
    pub nanoseconds: u64,
    /// Of what the estimate picks.
    pub estimated_nanoseconds: u64,
}

/// Numbers of a product in [`TunedProduct::to_numbers`].
const NUMBERS: usize = 19;
/// The first of them, which are its shape's.
const SHAPE_NUMBERS: usize = 10;

impl TunedProduct {
    /// Tells the numbers of this version from others that may have been kept: how many of them there are,
    /// how many of those are the shape's, and a count of changes in what they mean.
    pub const FORMAT: [usize; 3] = [NUMBERS, SHAPE_NUMBERS, 2];

    /// Products as plain numbers, to be kept where there is only text.
    pub fn to_numbers(products: &[Self]) -> Vec<f64> {
        let numbers = |product: &Self| -> [f64; NUMBERS] {
            let LinearShape { form, n, k, a_stride, c_stride, tokens, padded, a, b, half } =
                product.shape;
            let (kind, tile) = match product.tile {
                LinearTile::Tiled { bm, bn, bk, tm, tn } => (0, [bm, bn, bk, tm, tn]),
                LinearTile::Direct { tm, tn } => (1, [0, 0, 0, tm, tn]),
                LinearTile::Matrix { bm, bn, bk, wm, wn } => (2, [bm, bn, bk, wm, wn]),
            };
            let [bm, bn, bk, tm, tn] = tile;
            let (form, a, b) = (form as usize, a as usize, b as usize);
            let (padded, half) = (usize::from(padded), usize::from(half));
            let times = [product.nanoseconds, product.estimated_nanoseconds].map(|x| x as usize);
            let [own, estimated] = times;
            [
                form,
                n,
                k,
                a_stride,
                c_stride,
                tokens,
                padded,
                a,
                b,
                half,
                kind,
                bm,
                bn,
                bk,
                tm,
                tn,
                product.splits,
                own,
                estimated,
            ]
            .map(|number| number as f64)
        };
        products.iter().flat_map(numbers).collect()
    }

    /// The products of [`TunedProduct::to_numbers`]. What is no product is left out.
    pub fn from_numbers(numbers: &[f64]) -> Vec<Self> {
        let product = |numbers: &[f64]| {
            let numbers: [f64; NUMBERS] = numbers.try_into().ok()?;
            let [
                form,
                n,
                k,
                a_stride,
                c_stride,
                tokens,
                padded,
                a,
                b,
                half,
                kind,
                bm,
                bn,
                bk,
                tm,
                tn,
                splits,
                own,
                estimated,
            ] = numbers.map(|x| x as usize);
            let form = *Form::ALL.iter().find(|known| **known as usize == form)?;
            let tile = match kind {
                0 => LinearTile::Tiled { bm, bn, bk, tm, tn },
                1 => LinearTile::Direct { tm, tn },
                _ => LinearTile::Matrix { bm, bn, bk, wm: tm, wn: tn },
            };
            let a = if a == Element::F16 as usize { Element::F16 } else { Element::F32 };
            let b = *WeightFormat::ALL.get(b)?;
            let (padded, half) = (padded == 1, half == 1);
            let shape = LinearShape { form, n, k, a_stride, c_stride, tokens, padded, a, b, half };
            let [nanoseconds, estimated_nanoseconds] = [own as u64, estimated as u64];
            Some(Self { shape, tile, splits, nanoseconds, estimated_nanoseconds })
        };
        numbers.chunks(NUMBERS).filter_map(product).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_kept_as_numbers() {
        let shape = LinearShape::new(Form::MatmulAt, 768, 2048, 511);
        let tiled = TunedProduct {
            shape,
            tile: LinearTile::Tiled { bm: 64, bn: 64, bk: 16, tm: 8, tn: 4 },
            splits: 8,
            nanoseconds: 31_250,
            estimated_nanoseconds: 40_001,
        };
        let shape = LinearShape {
            form: Form::Matmul,
            a_stride: 4096,
            padded: true,
            b: WeightFormat::F16,
            ..shape
        };
        let direct =
            TunedProduct { shape, tile: LinearTile::Direct { tm: 16, tn: 16 }, splits: 1, ..tiled };
        let tile = LinearTile::Matrix { bm: 128, bn: 64, bk: 32, wm: 64, wn: 32 };
        let shape = LinearShape { half: true, a: Element::F16, ..shape };
        let matrix = TunedProduct { shape, tile, ..tiled };
        let numbers = TunedProduct::to_numbers(&[tiled, direct, matrix]);
        assert_eq!(TunedProduct::from_numbers(&numbers), [tiled, direct, matrix]);
        // Cut off; of a form that does not exist.
        assert_eq!(TunedProduct::from_numbers(&numbers[..2 * NUMBERS - 1]), [tiled]);
        assert_eq!(TunedProduct::from_numbers(&[&[7.0], &numbers[1..NUMBERS]].concat()), []);
    }
}
