//! Masks of attention over tensors, as the kernels read them: an interval of keys for each query, then an interval of
//! queries for each key, then a dense part.

use crate::error::{Result, room};
use crate::kernels::{DenseMask, Geometry};

/// One value for all batch items, or one each.
#[derive(Clone, Debug, PartialEq)]
pub enum PerItem<T> {
    All(T),
    Each(Vec<T>),
}

impl<T> PerItem<T> {
    fn of(&self, item: usize) -> Option<&T> {
        match self {
            Self::All(value) => Some(value),
            Self::Each(values) => values.get(item),
        }
    }
}

/// A mask given for each query and key, for all or some batch items and heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DensePart {
    pub kind: DenseMask,
    /// Words from one batch item, head and query row to the next; 0 shares them.
    pub strides: [usize; 3],
    /// First key with a bit; earlier keys are shown. 0 for an additive mask.
    pub keys_from: usize,
    /// Words of all rows.
    pub words: usize,
}

/// What queries see. Intervals of keys (all fields but `dense`) and the dense part combine. It fits the
/// tensors: [`AttentionCall::judge`](super::AttentionCall::judge) makes sure of that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionMask {
    /// A query sees keys up to its own position.
    pub causal: bool,
    /// A query sees keys fewer than this many positions away.
    pub window: Option<usize>,
    /// First position of each position's document, for one item or for each.
    pub documents: Option<Vec<Vec<u32>>>,
    /// Keys in use.
    pub key_lengths: Option<Vec<usize>>,
    /// Position of the first query among the keys; by default the last query's is the last key's.
    pub query_offset: Option<PerItem<i64>>,
    pub dense: Option<DensePart>,
}

/// Rows of queries and keys, and how many batch items have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskShape {
    pub batch: usize,
    pub heads: usize,
    pub query_rows: usize,
    pub key_rows: usize,
}

/// First and one past the last.
type Interval = [u32; 2];

impl AttentionMask {
    /// The kind of the dense part.
    pub fn dense_kind(&self) -> DenseMask {
        self.dense.map_or(DenseMask::None, |dense| dense.kind)
    }

    /// The words that kernels read. `geometry` gets where they are. The dense part's words come last and are zeros: the
    /// caller fills them. Intervals of queries are there for the backward pass alone.
    ///
    /// # Errors
    /// `out-of-memory` where the module's own memory has no room for them.
    pub fn words(
        &self,
        shape: MaskShape,
        backward: bool,
        geometry: &mut Geometry,
    ) -> Result<Vec<u32>> {
        let shared = self.key_lengths.is_none()
            && !matches!(self.query_offset, Some(PerItem::Each(_)))
            && self.documents.as_ref().is_none_or(|documents| documents.len() == 1);
        let items = if shared { 1 } else { shape.batch };
        let dense = self.dense.map_or(0, |part| part.words);
        let rows = shape.query_rows + if backward { shape.key_rows } else { 0 };
        let mut words = room("a mask", (2 * items as u64 * rows as u64) + dense as u64)?;
        let intervals: Vec<Vec<Interval>> = (0..items).map(|item| self.keys(item, shape)).collect();
        words.extend(intervals.iter().flatten().flatten());
        let stride = |rows: usize| if shared { 0 } else { 2 * rows as u32 };
        geometry.intervals =
            [stride(shape.query_rows), stride(shape.key_rows), 0, words.len() as u32];
        for of_keys in intervals.iter().filter(|_| backward) {
            words.extend(queries(of_keys, shape.key_rows).iter().flatten());
        }
        if let Some(part) = self.dense {
            let [batch, head, row] = part.strides.map(|stride| stride as u32);
            geometry.dense = [batch, head, row, words.len() as u32];
            geometry.dense_keys_from = part.keys_from as u32;
            words.resize(words.len() + part.words, 0);
        }
        Ok(words)
    }

    /// Puts the one query of each item at the item's last key in use, as decoding has it.
    pub(super) fn end_at_last_key(&mut self, shape: MaskShape) {
        let length =
            |item: usize| self.key_lengths.as_ref().map_or(shape.key_rows, |all| all[item]);
        let last = (0..shape.batch).map(|item| length(item) as i64 - 1).collect();
        self.query_offset = Some(PerItem::Each(last));
    }

    /// The keys that each query of an item sees. Neither their beginnings nor their ends ever fall.
    fn keys(&self, item: usize, shape: MaskShape) -> Vec<Interval> {
        let keys = self.key_lengths.as_ref().map_or(shape.key_rows, |lengths| lengths[item]) as i64;
        let aligned = shape.key_rows as i64 - shape.query_rows as i64;
        let offset = self.query_offset.as_ref().and_then(|offset| offset.of(item).copied());
        let offset = offset.unwrap_or(aligned);
        let documents = self.documents.as_ref().map(|all| &all[item.min(all.len() - 1)]);
        let ends = documents.map(|starts| crate::data::document_ends(starts));
        (0..shape.query_rows)
            .map(|row| {
                let position = offset.saturating_add(row as i64);
                let (mut first, mut end) = (0, keys);
                if self.causal {
                    end = end.min(position.saturating_add(1));
                }
                if let Some(window) = self.window.map(|window| window as i64) {
                    first = position.saturating_add(1).saturating_sub(window);
                    end = end.min(position.saturating_add(window));
                }
                if let (Some(starts), Some(ends)) = (documents, &ends) {
                    first = first.max(i64::from(starts[row]));
                    end = end.min(i64::from(ends[row]));
                }
                let first = first.clamp(0, keys);
                [first as u32, end.max(first) as u32]
            })
            .collect()
    }
}

/// The queries that see each key, from the keys that each query sees.
fn queries(keys: &[Interval], key_rows: usize) -> Vec<Interval> {
    let (mut first, mut end) = (0, 0);
    (0..key_rows as u32)
        .map(|key| {
            while first < keys.len() && keys[first][1] <= key {
                first += 1;
            }
            while end < keys.len() && keys[end][0] <= key {
                end += 1;
            }
            [first as u32, end.max(first) as u32]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: MaskShape = MaskShape { batch: 1, heads: 1, query_rows: 5, key_rows: 5 };

    fn keys(mask: &AttentionMask, shape: MaskShape) -> Vec<Interval> {
        mask.keys(0, shape)
    }

    #[test]
    fn intervals_of_every_kind() {
        let none = AttentionMask::default();
        assert_eq!(keys(&none, SHAPE), [[0, 5]; 5]);
        let causal = AttentionMask { causal: true, ..none.clone() };
        assert_eq!(keys(&causal, SHAPE), [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5]]);
        let window = AttentionMask { window: Some(2), ..causal.clone() };
        assert_eq!(keys(&window, SHAPE), [[0, 1], [0, 2], [1, 3], [2, 4], [3, 5]]);
        let both = AttentionMask { window: Some(2), ..none.clone() };
        assert_eq!(keys(&both, SHAPE), [[0, 2], [0, 3], [1, 4], [2, 5], [3, 5]]);
        let documents = AttentionMask { documents: Some(vec![vec![0, 0, 2, 2, 2]]), ..none };
        assert_eq!(keys(&documents, SHAPE), [[0, 2], [0, 2], [2, 5], [2, 5], [2, 5]]);
        let shape = MaskShape { query_rows: 2, ..SHAPE };
        assert_eq!(keys(&causal, shape), [[0, 4], [0, 5]]);
        let early = AttentionMask { query_offset: Some(PerItem::All(-1)), ..causal };
        assert_eq!(keys(&early, shape), [[0, 0], [0, 1]]);
    }

    #[test]
    fn queries_are_the_other_side() {
        for window in [None, Some(1), Some(3)] {
            for (causal, offset) in [(true, 0), (false, -2), (true, -3), (false, 9), (true, 2)] {
                let query_offset = Some(PerItem::All(offset));
                let mask = AttentionMask { causal, window, query_offset, ..Default::default() };
                let shape = MaskShape { query_rows: 7, key_rows: 6, ..SHAPE };
                let of_keys = keys(&mask, shape);
                let of_queries = queries(&of_keys, 6);
                for key in 0..6 {
                    for row in 0..7 {
                        let [first, end] = of_keys[row as usize];
                        let [from, to] = of_queries[key as usize];
                        let seen = first <= key && key < end;
                        assert_eq!(seen, from <= row && row < to, "{mask:?} {row} {key}");
                    }
                }
            }
        }
    }
}
