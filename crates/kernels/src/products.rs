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
    /// The format of B. Packed only where it is a matrix of weights with rows of whole groups. f16 only where its rows
    /// are of vectors.
    pub b: WeightFormat,
    /// The format of A. f16, two elements to a word, only where products round it and its rows are of vectors.
    pub a: Element,
    /// The format of C. f16 only where it is overwritten and its rows are of vectors.
    pub c: Element,
    /// Operands may be rounded to f16, where a device multiplies those faster.
    pub half: bool,
}

impl LinearShape {
    /// A product whose operands have no columns besides those used.
    pub fn new(form: Form, n: usize, k: usize, tokens: usize) -> Self {
        let (a_stride, c_stride) = (k, n);
        let (a, b, c) = (Element::F32, WeightFormat::F32, Element::F32);
        Self { form, n, k, a_stride, c_stride, tokens, padded: false, a, b, c, half: false }
    }

    /// Whether rows are read by vectors of four: each begins at a multiple of four and, its padding included,
    /// holds one.
    pub fn by_vectors(&self) -> bool {
        let k = if self.form == Form::MatmulT { self.k } else { self.padded_len(self.k) };
        [self.part_stride(), k, self.a_stride, self.c_stride].iter().all(|size| size % 4 == 0)
    }

    /// A number of the matrix's rows, with the padding that follows them.
    fn padded_len(&self, rows: usize) -> usize {
        if self.padded { rows.next_multiple_of(4) } else { rows }
    }

    /// Elements from one row of a part of C to the next.
    pub fn part_stride(&self) -> usize {
        if self.form == Form::MatmulT { self.padded_len(self.n) } else { self.n }
    }

    /// Rows of C.
    pub fn m(&self) -> usize {
        if self.form == Form::MatmulAt { self.k } else { self.tokens }
    }

    /// Elements of C, or of a part of it.
    pub fn part_elements(&self) -> u64 {
        self.m() as u64 * self.part_stride() as u64
    }

    /// Terms of each sum.
    pub fn depth(&self) -> usize {
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
    /// Nanoseconds of what the estimate picks.
    pub estimated_nanoseconds: u64,
}

/// Numbers of a product in [`TunedProduct::to_numbers`].
const NUMBERS: usize = 20;
/// The first of them, which are its shape's.
const SHAPE_NUMBERS: usize = 11;

impl TunedProduct {
    /// Tells the numbers of this version from others that may have been kept: how many of them there are,
    /// how many of those are the shape's, and a count of changes in what they mean.
    pub const FORMAT: [usize; 3] = [NUMBERS, SHAPE_NUMBERS, 2];

    /// Products as plain numbers, to be kept where there is only text.
    pub fn to_numbers(products: &[Self]) -> Vec<f64> {
        let mut numbers = Vec::with_capacity(products.len() * NUMBERS);
        for product in products {
            product.with(&mut |number| {
                numbers.push(number as f64);
                number
            });
        }
        numbers
    }

    /// The products of [`TunedProduct::to_numbers`]. What is no product is left out.
    pub fn from_numbers(numbers: &[f64]) -> Vec<Self> {
        let any = Self {
            shape: LinearShape::new(Form::MatmulT, 0, 0, 0),
            tile: LinearTile::Direct { tm: 0, tn: 0 },
            splits: 0,
            nanoseconds: 0,
            estimated_nanoseconds: 0,
        };
        let product = |numbers: &[f64]| {
            let mut numbers = numbers.iter();
            any.with(&mut |_| numbers.next().map_or(0, |&number| number as usize))
        };
        numbers.chunks_exact(NUMBERS).filter_map(product).collect()
    }

    /// The list of a product's numbers. Each is given to `each`, one after the other, and what that returns takes
    /// its place: none where this is no product.
    fn with(mut self, each: &mut dyn FnMut(usize) -> usize) -> Option<Self> {
        let shape = &mut self.shape;
        shape.form = *Form::ALL.get(each(shape.form as usize))?;
        shape.n = each(shape.n);
        shape.k = each(shape.k);
        shape.a_stride = each(shape.a_stride);
        shape.c_stride = each(shape.c_stride);
        shape.tokens = each(shape.tokens);
        shape.padded = each(usize::from(shape.padded)) == 1;
        let mut lies = |element| Element::halved(each(element as usize) == Element::F16 as usize);
        [shape.a, shape.c] = [lies(shape.a), lies(shape.c)];
        shape.b = *WeightFormat::ALL.get(each(shape.b as usize))?;
        shape.half = each(usize::from(shape.half)) == 1;
        let (kind, sizes) = match self.tile {
            LinearTile::Tiled { bm, bn, bk, tm, tn } => (0, [bm, bn, bk, tm, tn]),
            LinearTile::Direct { tm, tn } => (1, [0, 0, 0, tm, tn]),
            LinearTile::Matrix { bm, bn, bk, wm, wn } => (2, [bm, bn, bk, wm, wn]),
        };
        let (kind, [bm, bn, bk, tm, tn]) = (each(kind), sizes.map(&mut *each));
        self.tile = match kind {
            0 => LinearTile::Tiled { bm, bn, bk, tm, tn },
            1 => LinearTile::Direct { tm, tn },
            _ => LinearTile::Matrix { bm, bn, bk, wm: tm, wn: tn },
        };
        self.splits = each(self.splits);
        self.nanoseconds = each(self.nanoseconds as usize) as u64;
        self.estimated_nanoseconds = each(self.estimated_nanoseconds as usize) as u64;
        Some(self)
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
        let shape = LinearShape { half: true, a: Element::F16, c: Element::F16, ..shape };
        let matrix = TunedProduct { shape, tile, ..tiled };
        let numbers = TunedProduct::to_numbers(&[tiled, direct, matrix]);
        // As FORMAT's version has them: another order or meaning asks for another version.
        let rows: [[u32; NUMBERS]; 3] = [
            [2, 768, 2048, 2048, 768, 511, 0, 0, 0, 0, 0, 0, 64, 64, 16, 8, 4, 8, 31_250, 40_001],
            [1, 768, 2048, 4096, 768, 511, 1, 0, 0, 1, 0, 1, 0, 0, 0, 16, 16, 1, 31_250, 40_001],
            [
                1, 768, 2048, 4096, 768, 511, 1, 1, 1, 1, 1, 2, 128, 64, 32, 64, 32, 8, 31_250,
                40_001,
            ],
        ];
        assert_eq!(numbers, rows.concat().into_iter().map(f64::from).collect::<Vec<_>>());
        assert_eq!(TunedProduct::FORMAT, [NUMBERS, 11, 2]);
        assert_eq!(TunedProduct::from_numbers(&numbers), [tiled, direct, matrix]);
        // Cut off; of a form that does not exist.
        assert_eq!(TunedProduct::from_numbers(&numbers[..2 * NUMBERS - 1]), [tiled]);
        assert_eq!(TunedProduct::from_numbers(&[&[7.0], &numbers[1..NUMBERS]].concat()), []);
    }
}
