//! A problem of attention over tensors, with its data, its mask by definition and its right answers.

use super::forward::SOFTMAX;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::attention::twin::masked::{MaskedAttention, MaskedInputs};
use crate::kernels::{AttentionPass, DenseMask, Element, Geometry, Kernel};
use crate::ops::{
    AttentionKey, AttentionMask, AttentionOperation, DensePart, MaskShape, PerItem, Role, View,
};
use crate::plan::Plan;
use crate::testing::harness::{Operand, POISON};
use crate::testing::lane::Lane;
use crate::testing::measure::{hold, wide};
use half::f16;

/// The order and spacing of a tensor's axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AxisOrder {
    /// `[batch, heads, rows, head_dim]`
    Heads,
    /// `[batch, rows, heads, head_dim]`
    Rows,
    /// As `Heads`, with room for more rows after those in use, and not from the beginning.
    Cache,
}

/// One problem: sizes, mask and storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorSetting {
    pub name: &'static str,
    pub heads: (usize, usize, usize),
    pub batch: usize,
    pub rows: (usize, usize),
    pub element: Element,
    pub layouts: [AxisOrder; 2],
    pub soft_cap: Option<f32>,
    pub scale: Option<f32>,
    pub mask: Mask,
    /// Every kernel that selection may return, not only this device's.
    pub all_kernels: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mask {
    Whole,
    Causal,
    /// Causal with queries at a position of their own, some before the first key.
    Offset,
    /// Both sides, and keys in use by item, none in the second.
    WindowAndLengths,
    /// Both directions within documents.
    Documents,
    /// Drafts after a prefix that all see.
    Tree,
    /// Bits by head, with rows that see nothing.
    Boolean,
    /// A bias by item and head, minus infinity in places, with a causal mask.
    Additive,
}

/// A mask as the call has it, its dense words, and the same by its definition.
pub(crate) struct MaskData {
    pub mask: AttentionMask,
    pub words: Vec<u32>,
    pub bias: Box<dyn Fn(usize, usize, usize, usize) -> Option<f64>>,
}

impl MaskData {
    pub fn new(lane: &Lane, setting: &TensorSetting) -> Self {
        let (batch, (queries, keys), heads) = (setting.batch, setting.rows, setting.heads.0);
        let none = AttentionMask::default();
        let rule = |mask, shown: Box<dyn Fn(usize, usize, usize) -> bool>| Self {
            mask,
            words: vec![],
            bias: Box::new(move |item, _, row, key| shown(item, row, key).then_some(0.0)),
        };
        match setting.mask {
            Mask::Whole => rule(none, Box::new(|_, _, _| true)),
            Mask::Causal => {
                let mask = AttentionMask { causal: true, ..none };
                rule(mask, Box::new(move |_, row, key| key + queries <= row + keys))
            }
            Mask::Offset => {
                let query_offset = Some(PerItem::Each(vec![-3]));
                let mask = AttentionMask { causal: true, query_offset, ..none };
                rule(mask, Box::new(|_, row, key| key + 3 <= row))
            }
            Mask::WindowAndLengths => {
                let lengths = vec![keys - 4, 0];
                let mask =
                    AttentionMask { window: Some(6), key_lengths: Some(lengths.clone()), ..none };
                let near = move |row: usize, key: usize| (row + keys - queries).abs_diff(key) < 6;
                rule(mask, Box::new(move |item, row, key| key < lengths[item] && near(row, key)))
            }
            Mask::Documents => {
                let starts: Vec<_> = (0..batch).map(|_| lane.documents(queries)).collect();
                let mask = AttentionMask { documents: Some(starts.clone()), ..none };
                rule(mask, Box::new(move |item, row, key| starts[item][row] == starts[item][key]))
            }
            Mask::Tree => {
                Self::bits(lane, keys - queries, [0, 0, queries.div_ceil(32)], queries, 0)
            }
            Mask::Boolean => {
                let row = keys.div_ceil(32);
                Self::bits(lane, 0, [0, queries * row, row], heads * queries, 7)
            }
            Mask::Additive => Self::additive(lane, setting),
        }
    }

    /// Random bits with one row in four empty where `empty` says so.
    pub fn bits(lane: &Lane, from: usize, strides: [usize; 3], rows: usize, empty: usize) -> Self {
        let mut words = lane.integers(rows * strides[2], u32::MAX as usize);
        for row in (0..rows).filter(|row| empty > 0 && row % empty == 0) {
            words[row * strides[2]..][..strides[2]].fill(0);
        }
        let count = words.len();
        let dense =
            Some(DensePart { kind: DenseMask::Bits, strides, keys_from: from, words: count });
        let bits = words.clone();
        Self {
            mask: AttentionMask { dense, ..AttentionMask::default() },
            words,
            bias: Box::new(move |item, head, row, key| {
                let bit = key.wrapping_sub(from);
                let at = item * strides[0] + head * strides[1] + row * strides[2] + bit / 32;
                (key < from || bits[at] >> (bit % 32) & 1 != 0).then_some(0.0)
            }),
        }
    }

    pub fn additive(lane: &Lane, setting: &TensorSetting) -> Self {
        let (batch, (queries, keys), heads) = (setting.batch, setting.rows, setting.heads.0);
        let strides = [heads * queries * keys, queries * keys, keys];
        let mut values = lane.normal(batch * strides[0]);
        values.iter_mut().step_by(5).for_each(|value| *value = -1e30);
        values[..2 * keys].fill(-1e30);
        let (kind, count) = (DenseMask::Additive, values.len());
        let dense = Some(DensePart { kind, strides, keys_from: 0, words: count });
        let words = values.iter().map(|value| value.to_bits()).collect();
        Self {
            mask: AttentionMask { causal: true, dense, ..AttentionMask::default() },
            words,
            bias: Box::new(move |item, head, row, key| {
                let value = values[item * strides[0] + head * strides[1] + row * strides[2] + key];
                (key + queries <= row + keys && value > -5e29).then_some(f64::from(value))
            }),
        }
    }
}

/// A call ready to run: the plan, and what the host writes before it.
pub(crate) struct Compiled {
    pub plan: Plan,
    pub geometry: Geometry,
    pub mask: Vec<u32>,
    /// Rows to replay the plan for.
    pub rows: usize,
}

impl Compiled {
    /// A call whose tensors have the views that `view` gives for queries and for keys.
    pub fn new(
        caps: &Capabilities,
        key: AttentionKey,
        view: impl Fn(bool) -> View,
        (mask, dense): (&AttentionMask, &[u32]),
    ) -> Result<Self> {
        use Role::{DKey, DOutput, DQuery, DValue, Key, Output, Query, Value};
        let [of_query, of_key] = [false, true].map(view);
        let views = [Query, Output, DOutput, DQuery].map(|role| (role, of_query));
        let of_keys = [Key, Value, DKey, DValue].map(|role| (role, of_key));
        let mut geometry = key.geometry(key.key_rows, &[views, of_keys].concat());
        let AttentionKey { batch, heads, query_rows, key_rows, .. } = key;
        let shape = MaskShape { batch, heads, query_rows, key_rows };
        let backward = key.operation == AttentionOperation::Backward;
        let mut mask = mask.words(shape, backward, &mut geometry)?;
        let intervals = mask.len() - dense.len();
        mask[intervals..].copy_from_slice(dense);
        Ok(Self { plan: key.plan(caps)?, geometry, mask, rows: key.rows() })
    }
}

/// A tensor's place in a buffer of some elements.
pub(crate) fn view(layout: AxisOrder, counts: [usize; 3], head_dim: usize) -> (View, usize) {
    let [batch, heads, rows] = counts;
    let row = head_dim;
    let (offset, strides, len) = match layout {
        AxisOrder::Heads => (0, [heads * rows * row, rows * row, row], batch * heads * rows * row),
        AxisOrder::Rows => (0, [heads * rows * row, row, heads * row], batch * heads * rows * row),
        AxisOrder::Cache => {
            let room = rows + 5;
            (8, [heads * room * row, room * row, row], 8 + batch * heads * room * row)
        }
    };
    (View { offset, strides }, len)
}

/// Index of each element of a contiguous tensor in the buffer of its view.
pub(crate) fn places(view: View, counts: [usize; 3], head_dim: usize) -> Vec<usize> {
    let [batch, heads, rows] = counts;
    (0..batch * heads * rows * head_dim)
        .map(|i| {
            let (row, element) = (i / head_dim, i % head_dim);
            let place = [row / rows / heads, row / rows % heads, row % rows];
            let far: usize = place.iter().zip(view.strides).map(|(p, stride)| p * stride).sum();
            view.offset + far + element
        })
        .collect()
}

/// A tensor under test: its view, and what of its buffer it has.
pub(crate) struct Placed {
    pub view: View,
    pub len: usize,
    pub places: Vec<usize>,
    pub element: Element,
}

impl Placed {
    pub fn new(setting: &TensorSetting, keys: bool) -> Self {
        let (heads, kv_heads, head_dim) = setting.heads;
        let (heads, rows) = if keys { (kv_heads, setting.rows.1) } else { (heads, setting.rows.0) };
        let counts = [setting.batch, heads, rows];
        let (view, len) = view(setting.layouts[usize::from(keys)], counts, head_dim);
        Self { view, len, places: places(view, counts, head_dim), element: setting.element }
    }

    /// The tensor in its buffer, all else poison.
    pub fn operand(&self, values: &[f32]) -> Operand {
        let mut words = vec![POISON; (self.len * self.element.bytes()).div_ceil(4)];
        for (&at, &value) in self.places.iter().zip(values) {
            match self.element {
                Element::F32 => words[at] = value.to_bits(),
                Element::F16 => {
                    let shift = 16 * (at % 2);
                    let bits = u32::from(f16::from_f32(value).to_bits());
                    words[at / 2] = words[at / 2] & !(0xffff << shift) | bits << shift;
                }
            }
        }
        Operand::words(&words)
    }

    pub fn poison(&self) -> Operand {
        Operand::poison((self.len * self.element.bytes()).div_ceil(4))
    }

    /// What a kernel wrote, and that it wrote nothing else.
    pub fn read(&self, words: &[u32]) -> Result<Vec<f32>, String> {
        let half = |at: usize| (words[at / 2] >> (16 * (at % 2))) as u16;
        let poison = |at: usize| match self.element {
            Element::F32 => words[at] == POISON,
            Element::F16 => half(at) == (POISON >> (16 * (at % 2))) as u16,
        };
        let mut free = vec![true; self.len];
        self.places.iter().for_each(|&at| free[at] = false);
        let wrong = |&at: &usize| free[at] && !poison(at);
        hold(("others", self.len, &self.places), || match (0..self.len).find(wrong) {
            Some(at) => Err(format!("element {at} of the buffer is not the tensor's")),
            None => Ok(()),
        })?;
        let read = |&at: &usize| match self.element {
            Element::F32 => f32::from_bits(words[at]),
            Element::F16 => f16::from_bits(half(at)).to_f32(),
        };
        Ok(self.places.iter().map(read).collect())
    }
}

/// A problem with its data and right answers.
pub(crate) struct TensorProblem {
    pub setting: TensorSetting,
    pub mask: MaskData,
    pub twin: MaskedAttention,
    pub placed: [Placed; 2],
    /// Query, key, value, d_output; as the kernels see them.
    pub data: [Vec<f32>; 4],
    pub exact: [Vec<f64>; 4],
}

impl TensorProblem {
    pub fn new(lane: &Lane, setting: TensorSetting) -> Self {
        let (heads, kv_heads, head_dim) = setting.heads;
        let twin = MaskedAttention {
            batch: setting.batch,
            heads,
            kv_heads,
            query_rows: setting.rows.0,
            key_rows: setting.rows.1,
            head_dim,
            scale: setting.scale.map_or_else(|| 1.0 / (head_dim as f64).sqrt(), f64::from),
            soft_cap: setting.soft_cap.map(f64::from),
        };
        let [queries, keys] = twin.elements();
        let data = [queries, keys, keys, queries].map(|len| {
            let mut values = lane.normal(len);
            if setting.element == Element::F16 {
                values.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32());
            }
            values
        });
        let exact = data.each_ref().map(|values| wide(values));
        let mask = MaskData::new(lane, &setting);
        let placed = [false, true].map(|keys| Placed::new(&setting, keys));
        Self { setting, mask, twin, placed, data, exact }
    }

    pub fn inputs(&self) -> MaskedInputs<'_> {
        let [query, key, value, _] = &self.exact;
        MaskedInputs { query, key, value }
    }

    pub fn compiled(&self, caps: &Capabilities, backward: bool) -> Result<Compiled> {
        let TensorSetting { heads: (heads, kv_heads, head_dim), batch, rows, .. } = self.setting;
        let operation =
            if backward { AttentionOperation::Backward } else { AttentionOperation::Forward };
        let key = AttentionKey {
            operation,
            batch,
            heads,
            kv_heads,
            query_rows: rows.0,
            key_rows: rows.1,
            head_dim,
            element: self.setting.element,
            soft_cap: self.setting.soft_cap,
            scale: self.setting.scale,
            dense: self.mask.mask.dense_kind(),
        };
        let view = |of_keys| self.placed[usize::from(of_keys)].view;
        Compiled::new(caps, key, view, (&self.mask.mask, &self.mask.words))
    }

    /// The kernel of that name in the plan for each adapter of the table, or for this device alone.
    pub fn kernels(&self, lane: &Lane, name: &str) -> Result<Vec<Kernel>> {
        let make = |caps: &Capabilities| {
            let plan = self.compiled(caps, name != AttentionPass::Forward.kernel_name())?.plan;
            Ok(plan.kernels.into_iter().filter(|kernel| kernel.name == name).collect())
        };
        if self.setting.all_kernels { lane.chosen(make) } else { make(lane.caps()) }
    }

    pub fn tolerance(&self) -> f64 {
        if self.setting.element == Element::F16 { 2e-3 } else { 2.0 * SOFTMAX }
    }
}
