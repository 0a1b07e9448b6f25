//! Options of masks as users give them: held to the sizes of the tensors, and packed.

use super::mask::{AttentionMask, DensePart, MaskShape, PerItem};
use super::refuse::{Shown, Sizes, allowed, whole, whole_numbers};
use crate::error::{Error, Result, room};
use crate::kernels::DenseMask;

/// The bytes of a dense mask, wherever they are: packing copies them once.
pub trait DenseData {
    fn bytes(&self) -> usize;

    /// Copies the bytes from `from` on.
    fn read(&self, from: usize, into: &mut [u8]);
}

impl DenseData for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn read(&self, from: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[from..from + into.len()]);
    }
}

/// How a dense mask is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DenseKind<'a> {
    /// Rows of bits, one for each pair of queries: one list for all items, or lists of these numbers of words.
    Tree { lists: Option<&'a [f64]> },
    /// A byte for each query and key, in a shape that broadcasts.
    Boolean { shape: &'a [f64] },
    /// An f32 for each query and key, in a shape that broadcasts.
    Additive { shape: &'a [f64] },
}

/// A dense mask.
#[derive(Clone, Copy)]
pub struct DenseOption<'a> {
    pub kind: DenseKind<'a>,
    pub data: &'a dyn DenseData,
}

impl std::fmt::Debug for DenseOption<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DenseOption").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Options of masks, of which nothing is known but that numbers are numbers.
#[derive(Clone, Debug, Default)]
pub struct MaskOptions<'a> {
    pub causal: bool,
    pub window: Option<f64>,
    pub query_offset: Option<PerItem<f64>>,
    /// First position of each position's document.
    pub documents: Option<PerItem<&'a [f64]>>,
    pub key_lengths: Option<&'a [f64]>,
    pub dense: Option<DenseOption<'a>>,
}

const WINDOW: [f64; 2] = [1.0, u32::MAX as f64];
const OFFSET: [f64; 2] = [-(1 << 30) as f64, (1 << 30) as f64];
/// Largest bias: the backward pass takes it from a sum in f32 again, which then has 0.06 left for the rest.
const MOST_BIAS: f32 = 1e6;
/// Stands for −∞ in the kernels.
const HIDDEN: f32 = -1e30;
/// Bytes of a boolean mask that are copied at a time.
const PIECE: usize = 1 << 16;

impl MaskOptions<'_> {
    /// What can be judged without the tensors; `place` is the call.
    pub(super) fn judge_alone(&self, place: &str) -> Result<()> {
        if let Some(window) = self.window
            && whole(window, WINDOW).is_none()
        {
            let (shown, allowed) = (Shown(window), allowed(WINDOW));
            return Err(Error::options(format!(
                "{place}: window is {shown}; give {allowed}, or leave it out"
            )));
        }
        let Some(offset) = &self.query_offset else { return Ok(()) };
        let shown = match offset {
            PerItem::All(offset) if whole(*offset, OFFSET).is_none() => {
                let (shown, allowed) = (Shown(*offset), allowed(OFFSET));
                return Err(Error::options(format!(
                    "{place}: queryOffset is {shown}; give {allowed}, or a list of them, or leave it out"
                )));
            }
            PerItem::All(offset) => Shown(*offset).to_string(),
            PerItem::Each(list) => format!("an array of length {}", list.len()),
        };
        if !self.causal && self.window.is_none() {
            return Err(Error::options(format!(
                "{place}: queryOffset is {shown} without causal or window; give one, or leave it out"
            )));
        }
        if self.documents.is_some() {
            return Err(Error::options(format!(
                "{place}: queryOffset is {shown} and documents are given, whose queries belong to the \
                 keys of their own positions; leave one of them out"
            )));
        }
        Ok(())
    }

    /// The mask, whose dense part is still to be filled in.
    pub(super) fn judge(&self, place: &str, shape: MaskShape) -> Result<AttentionMask> {
        let dense = self.dense.map(|dense| dense.judge(place, shape)).transpose()?;
        Ok(AttentionMask {
            causal: self.causal,
            window: self.window.map(|window| window as usize),
            documents: self.documents.as_ref().map(|d| documents(place, d, shape)).transpose()?,
            key_lengths: self.key_lengths.map(|list| lengths(place, list, shape)).transpose()?,
            query_offset: self
                .query_offset
                .as_ref()
                .map(|o| offsets(place, o, shape))
                .transpose()?,
            dense,
        })
    }
}

fn offsets(place: &str, given: &PerItem<f64>, shape: MaskShape) -> Result<PerItem<i64>> {
    match given {
        PerItem::All(offset) => Ok(PerItem::All(*offset as i64)),
        PerItem::Each(list) => {
            let what = format!("{place}: queryOffset");
            Ok(PerItem::Each(whole_numbers(&what, list, (shape.batch, "batch items"), |_| OFFSET)?))
        }
    }
}

fn lengths(place: &str, given: &[f64], shape: MaskShape) -> Result<Vec<usize>> {
    let what = format!("{place}: keyLengths");
    let within = |_| [0.0, shape.key_rows as f64];
    let list = whole_numbers(&what, given, (shape.batch, "batch items"), within)?;
    Ok(list.into_iter().map(|length| length as usize).collect())
}

fn documents(place: &str, given: &PerItem<&[f64]>, shape: MaskShape) -> Result<Vec<Vec<u32>>> {
    let MaskShape { batch, query_rows, key_rows, .. } = shape;
    if query_rows != key_rows {
        return Err(Error::options(format!(
            "{place}: documents needs as many queries as keys, and there are {query_rows} and \
             {key_rows}; use a boolean mask"
        )));
    }
    match given {
        PerItem::All(list) => Ok(vec![starts(&format!("{place}: documents"), list, query_rows)?]),
        PerItem::Each(lists) if lists.len() != batch => Err(Error::options(format!(
            "{place}: documents has {} lists; give one list, or {batch}, one for each batch item",
            lists.len()
        ))),
        PerItem::Each(lists) => {
            let of = |(item, list): (usize, &&[f64])| {
                starts(&format!("{place}: documents[{item}]"), list, query_rows)
            };
            lists.iter().enumerate().map(of).collect()
        }
    }
}

/// Starts of documents that follow one another: each position's is the one before's, or its own.
fn starts(what: &str, given: &[f64], rows: usize) -> Result<Vec<u32>> {
    let list = whole_numbers(what, given, (rows, "positions"), |index| [0.0, index as f64])?;
    let wrong = (1..rows).find(|&at| list[at] != at as i64 && list[at] != list[at - 1]);
    match wrong {
        None => Ok(list.into_iter().map(|start| start as u32).collect()),
        Some(at) => Err(Error::options(format!(
            "{what}[{at}] is {}; give {}, as the position before, or {at}, where a document begins",
            list[at],
            list[at - 1]
        ))),
    }
}

/// A mask's own axes.
struct Matrix {
    /// Batch items, heads, queries, keys: 1 where it is broadcast.
    own: [usize; 4],
}

impl Matrix {
    /// A shape that broadcasts to the tensors', and that has `elements` elements.
    fn judge(what: &str, given: &[f64], elements: usize, shape: MaskShape) -> Result<Self> {
        let full = [shape.batch, shape.heads, shape.query_rows, shape.key_rows];
        let mut own = [1.0; 4];
        let fits = (1..=4).contains(&given.len()) && {
            own[4 - given.len()..].copy_from_slice(given);
            own.iter().zip(full).all(|(&size, all)| size == 1.0 || size == all as f64)
        };
        if !fits {
            let shown: Vec<_> = given.iter().map(|&size| Shown(size).to_string()).collect();
            return Err(Error::options(format!(
                "{what}.shape is [{}]; give one that broadcasts to {} (batch, heads, queries, keys)",
                shown.join(", "),
                Sizes(&full)
            )));
        }
        let own = own.map(|size| size as usize);
        // In 64 bits: a full mask may have more elements than a browser's 32 bits count.
        let count: u64 = own.iter().map(|&size| size as u64).product();
        if elements as u64 != count {
            return Err(Error::options(format!(
                "{what}.data has {elements} elements and {} has {count}; give as many",
                Sizes(&own)
            )));
        }
        Ok(Self { own })
    }

    fn rows(&self) -> usize {
        self.own[..3].iter().product()
    }

    /// The dense part, with rows of `row` words.
    fn part(&self, kind: DenseMask, row: usize) -> Result<DensePart> {
        let [items, heads, rows, _] = self.own;
        let words = self.rows() as u64 * row as u64;
        let words = usize::try_from(words).map_err(|_| no_room(words))?;
        let stride = |size: usize, words: usize| if size == 1 { 0 } else { words };
        let strides =
            [stride(items, heads * rows * row), stride(heads, rows * row), stride(rows, row)];
        Ok(DensePart { kind, strides, keys_from: 0, words })
    }
}

/// What [`room`] says of more words than can be counted.
fn no_room(words: u64) -> Error {
    room::<u32>("a mask", words.max(u64::MAX / 8))
        .map(drop)
        .err()
        .unwrap_or_else(|| Error::internal("there is room for more words than can be counted"))
}

impl DenseOption<'_> {
    fn judge(&self, place: &str, shape: MaskShape) -> Result<DensePart> {
        let bytes = self.data.bytes();
        match self.kind {
            DenseKind::Tree { lists } => tree(place, lists, bytes / 4, shape),
            DenseKind::Boolean { shape: own } => {
                let matrix = Matrix::judge(&format!("{place}: boolean"), own, bytes, shape)?;
                matrix.part(DenseMask::Bits, shape.key_rows.div_ceil(32))
            }
            DenseKind::Additive { shape: own } => {
                let what = format!("{place}: additive");
                let matrix = Matrix::judge(&what, own, bytes / 4, shape);
                // A wrong number is what is reported first.
                matrix
                    .map_err(|error| wrong_bias(&what, self.data).unwrap_or(error))?
                    .part(DenseMask::Additive, shape.key_rows)
            }
        }
    }

    /// Fills the words of the dense part, which are zeros, for `key_rows` keys.
    pub(super) fn fill(&self, place: &str, key_rows: usize, words: &mut [u32]) -> Result<()> {
        match self.kind {
            DenseKind::Tree { .. } => {
                self.data.read(0, bytemuck::cast_slice_mut(words));
                Ok(())
            }
            DenseKind::Boolean { .. } => {
                fill_bits(self.data, key_rows, words);
                Ok(())
            }
            DenseKind::Additive { .. } => {
                fill_biases(&format!("{place}: additive"), self.data, key_rows, words)
            }
        }
    }
}

/// The part of a tree of the last keys.
fn tree(place: &str, lists: Option<&[f64]>, words: usize, shape: MaskShape) -> Result<DensePart> {
    let MaskShape { batch, query_rows, key_rows, .. } = shape;
    if query_rows > key_rows {
        return Err(Error::options(format!(
            "{place}: tree has {query_rows} queries and there are {key_rows} keys; the last keys are \
             the tree's own"
        )));
    }
    if let Some(lists) = lists
        && lists.len() != batch
    {
        return Err(Error::options(format!(
            "{place}: tree.words is an array of length {}; give a Uint32Array, or an array of {batch}, \
             one for each batch item",
            lists.len()
        )));
    }
    let row = query_rows.div_ceil(32);
    let each = query_rows * row;
    let wrong = |name: &str, have: usize| {
        Error::options(format!(
            "{place}: {name} has {have} words; give a Uint32Array of {each}, {row} for each of \
             {query_rows} queries"
        ))
    };
    let batch_stride = match lists {
        None if words != each => return Err(wrong("tree.words", words)),
        None => 0,
        Some(lists) => {
            if let Some(item) = lists.iter().position(|&have| have != each as f64) {
                return Err(wrong(&format!("tree.words[{item}]"), lists[item] as usize));
            }
            each
        }
    };
    let strides = [batch_stride, 0, row];
    Ok(DensePart { kind: DenseMask::Bits, strides, keys_from: key_rows - query_rows, words })
}

/// Sets a bit for each key, from rows with a byte for each key, or with one byte for all keys.
fn fill_bits(data: &dyn DenseData, key_rows: usize, words: &mut [u32]) {
    let row = key_rows.div_ceil(32);
    let rows = words.len() / row;
    let columns = data.bytes() / rows;
    let at_once = (PIECE / columns).max(1);
    let mut piece = vec![0; at_once.min(rows) * columns];
    for (index, words) in words.chunks_mut(at_once * row).enumerate() {
        let piece = &mut piece[..words.len() / row * columns];
        data.read(index * at_once * columns, piece);
        for (words, seen) in words.chunks_mut(row).zip(piece.chunks(columns)) {
            for key in 0..key_rows {
                let byte = if columns == 1 { seen[0] } else { seen[key] };
                words[key / 32] |= u32::from(byte != 0) << (key % 32);
            }
        }
    }
}

fn judge_bias(what: &str, at: usize, value: f32) -> Result<()> {
    if value <= MOST_BIAS {
        return Ok(());
    }
    let shown = Shown(f64::from(value));
    Err(Error::options(format!(
        "{what}.data[{at}] is {shown}; give a number up to 1e6, or -Infinity to hide a key"
    )))
}

/// The first bias that is refused.
fn wrong_bias(what: &str, data: &dyn DenseData) -> Option<Error> {
    let all = data.bytes() / 4;
    let mut piece = vec![0.0; all.min(PIECE)];
    (0..all).step_by(PIECE).find_map(|from| {
        let piece = &mut piece[..(all - from).min(PIECE)];
        data.read(4 * from, bytemuck::cast_slice_mut(piece));
        let refused = |(at, &value): (usize, &f32)| judge_bias(what, from + at, value).err();
        piece.iter().enumerate().find_map(refused)
    })
}

/// Copies biases, from rows with an f32 for each key, or with one f32 for all keys.
fn fill_biases(what: &str, data: &dyn DenseData, key_rows: usize, words: &mut [u32]) -> Result<()> {
    let rows = words.len() / key_rows;
    let given = data.bytes() / 4;
    // What is broadcast is copied to the front, and spread from there to the back.
    data.read(0, bytemuck::cast_slice_mut(&mut words[..given]));
    for (at, word) in words[..given].iter_mut().enumerate() {
        let value = f32::from_bits(*word);
        judge_bias(what, at, value)?;
        if value < -MOST_BIAS {
            *word = HIDDEN.to_bits();
        }
    }
    if given < words.len() {
        for row in (0..rows).rev() {
            let bias = words[row];
            words[row * key_rows..][..key_rows].fill(bias);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use crate::kernels::Geometry;

    const SHAPE: MaskShape = MaskShape { batch: 2, heads: 2, query_rows: 3, key_rows: 40 };

    /// The words of a dense mask.
    fn packed(kind: DenseKind, data: &Vec<u8>) -> Result<(DensePart, Vec<u32>)> {
        let dense = DenseOption { kind, data };
        let options = MaskOptions { dense: Some(dense), ..MaskOptions::default() };
        let mask = options.judge("here", SHAPE)?;
        let mut geometry = Geometry::default();
        let mut words = mask.words(SHAPE, false, &mut geometry)?;
        let words = words.split_off(geometry.dense[3] as usize);
        let mut filled = words.clone();
        dense.fill("here", SHAPE.key_rows, &mut filled)?;
        assert_eq!(words, vec![0; filled.len()]);
        Ok((mask.dense.unwrap(), filled))
    }

    #[test]
    fn bits_of_every_broadcast() {
        let data: Vec<u8> = (0..2 * 3 * 40).map(|at| u8::from(at % 7 == 3)).collect();
        let (part, words) =
            packed(DenseKind::Boolean { shape: &[2.0, 1.0, 3.0, 40.0] }, &data).unwrap();
        assert_eq!((part.strides, part.words), ([6, 0, 2], 12));
        for (at, &byte) in data.iter().enumerate() {
            let (row, key) = (at / 40, at % 40);
            assert_eq!(words[2 * row + key / 32] >> (key % 32) & 1, u32::from(byte), "{row} {key}");
        }
        let (part, words) =
            packed(DenseKind::Boolean { shape: &[3.0, 1.0] }, &vec![1, 0, 9]).unwrap();
        assert_eq!(part.strides, [0, 0, 2]);
        assert_eq!(words, [u32::MAX, 0xff, 0, 0, u32::MAX, 0xff]);
    }

    #[test]
    fn biases_are_spread_and_small_ones_hidden() {
        let bytes = |values: &[f32]| bytemuck::cast_slice(values).to_vec();
        let data = bytes(&[0.5, f32::NEG_INFINITY, -2e6, -1e6]);
        let (part, words) =
            packed(DenseKind::Additive { shape: &[2.0, 2.0, 1.0, 1.0] }, &data).unwrap();
        assert_eq!((part.strides, words.len()), ([80, 40, 0], 160));
        for (at, &word) in words.iter().enumerate() {
            assert_eq!(f32::from_bits(word), [0.5, -1e30, -1e30, -1e6][at / 40], "{at}");
        }
        let refused = |value| {
            packed(DenseKind::Additive { shape: &[1.0] }, &bytes(&[value])).map(drop).unwrap_err()
        };
        for (value, shown) in [(f32::NAN, "NaN"), (1e7, "10000000"), (f32::INFINITY, "Infinity")] {
            let error = refused(value);
            assert_eq!(error.code, ErrorCode::InvalidOptions);
            assert!(
                error.message.starts_with(&format!("here: additive.data[0] is {shown};")),
                "{error}"
            );
        }
    }

    #[test]
    fn one_piece_after_another_gives_the_same_bits() {
        let (keys, rows) = (1000, 400);
        let data: Vec<u8> = (0..keys * rows).map(|at| u8::from(at * at % 11 < 4)).collect();
        assert!(data.len() > 3 * PIECE);
        let mut words = vec![0; rows * 32];
        fill_bits(&data, keys, &mut words);
        for (at, &byte) in data.iter().enumerate() {
            let (row, key) = (at / keys, at % keys);
            assert_eq!(words[32 * row + key / 32] >> (key % 32) & 1, u32::from(byte));
        }
    }
}
