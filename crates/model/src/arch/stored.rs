//! The order in which a checkpoint has a parameter's elements, where kernels see rows.

/// How a checkpoint has the rows that kernels see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// One after the other, as they are.
    #[default]
    Rows,
    /// By their columns: a matrix is `[in, out]`.
    Columns,
    /// Head by head: this many rows of a head's query, then of its key, then of its value. Kernels see the queries of
    /// all heads, then all keys, then all values.
    Heads(usize),
}

impl Stored {
    /// This order of rows, for what has no columns to exchange.
    pub(super) const fn by_rows(self) -> Self {
        match self {
            Self::Columns => Self::Rows,
            Self::Rows | Self::Heads(_) => self,
        }
    }

    /// What takes elements from the order of the rows to the checkpoint's, if that is another one.
    pub const fn swap(self, rows: usize, columns: usize) -> Option<Swap> {
        match self {
            Self::Rows => None,
            Self::Columns => Some(Swap([rows, columns, 1])),
            Self::Heads(size) => Some(Swap([3, rows / (3 * size), size * columns])),
        }
    }
}

/// An exchange of the first two axes of elements of these lengths along three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap([usize; 3]);

impl Swap {
    /// Where an element goes.
    pub const fn place(self, element: usize) -> usize {
        let Self([a, b, c]) = self;
        (element / c % b * a + element / (b * c)) * c + element % c
    }

    /// The way back.
    pub const fn back(self) -> Self {
        let Self([a, b, c]) = self;
        Self([b, a, c])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(stored: Stored, rows: usize, columns: usize) -> Vec<usize> {
        let swap = stored.swap(rows, columns).unwrap();
        (0..rows * columns).map(|element| swap.place(element)).collect()
    }

    #[test]
    fn columns_are_a_transposed_matrix() {
        assert_eq!(places(Stored::Columns, 2, 3), [0, 2, 4, 1, 3, 5]);
        assert_eq!(Stored::Rows.swap(2, 3), None);
    }

    #[test]
    fn heads_have_their_queries_keys_and_values_side_by_side() {
        // Two heads of two rows of one element: q0 q0 q1 q1 k0 k0 k1 k1 v0 v0 v1 v1 here.
        let expected = [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11];
        assert_eq!(places(Stored::Heads(2), 12, 1), expected);
        let rows = places(Stored::Heads(2), 12, 3);
        let of_rows = expected.iter().flat_map(|row| [0, 1, 2].map(|column| row * 3 + column));
        assert_eq!(rows, of_rows.collect::<Vec<_>>());
    }

    #[test]
    fn the_way_back_ends_where_it_began() {
        for (stored, rows, columns) in [(Stored::Columns, 5, 7), (Stored::Heads(4), 36, 5)] {
            let swap = stored.swap(rows, columns).unwrap();
            for element in 0..rows * columns {
                assert_eq!(swap.back().place(swap.place(element)), element);
            }
        }
    }
}
