//! Attention over tensors by itself: a call checked and compiled into a plan of one to three
//! dispatches.

use super::mask::{AttentionMask, MaskShape, PerItem};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{self as k, AttentionPass, AttentionShape, Element, Geometry, Strides};
use crate::plan::{Buffer, Builder, Phase, Plan, Range, Slice};
use serde::Deserialize;

/// Where a tensor `[batch, heads, rows, head_dim]` lies in a buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct View {
    /// The buffer, as [`Buffer::Given`] names it.
    pub id: u32,
    pub offset: usize,
    /// From one batch item, head and row to the next. Elements of a row are contiguous.
    pub strides: [usize; 3],
}

/// Attention of queries over keys and values; the gradients' views are given for the backward pass.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttentionCall {
    pub query: View,
    pub key: View,
    pub value: View,
    pub output: View,
    /// f32 `[batch, heads, query rows]`, contiguous. Forward may do without.
    #[serde(default)]
    pub logsumexp: Option<u32>,
    #[serde(default)]
    pub gradients: Option<GradientViews>,
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub query_rows: usize,
    pub key_rows: usize,
    pub head_dim: usize,
    #[serde(default)]
    pub element: Element,
    #[serde(default)]
    pub soft_cap: Option<f32>,
    #[serde(default)]
    pub scale: Option<f32>,
    #[serde(default)]
    pub mask: AttentionMask,
}

/// What the backward pass reads and writes besides the forward's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GradientViews {
    pub d_output: View,
    pub d_query: View,
    pub d_key: View,
    pub d_value: View,
}

/// A call ready to run: the plan, and what the host writes before it.
#[derive(Clone, Debug)]
pub struct AttentionPlan {
    pub plan: Plan,
    /// Contents of [`Buffer::Step`].
    pub geometry: Geometry,
    /// Contents of [`Buffer::Batch`].
    pub mask: Vec<u32>,
    /// Rows to replay the plan for.
    pub rows: usize,
}

/// Bytes of the buffer of that id.
pub type BufferBytes<'a> = &'a dyn Fn(u32) -> Option<u64>;

/// The uniform in the place of a batch's `Step`.
const GEOMETRY: Slice = Slice::new(Buffer::Step, 0, size_of::<Geometry>() as u64);

/// Most of what a size may be. Products of sizes are safe once the views that have them are known to
/// lie in their buffers, which is checked before anything is made of them.
const MOST: usize = 1 << 28;

impl AttentionCall {
    fn shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            soft_cap: self.soft_cap,
            scale: self.scale,
            tokens: self.query_rows.max(self.key_rows),
            ..AttentionShape::default()
        }
    }

    fn mask_shape(&self) -> MaskShape {
        let Self { batch, heads, query_rows, key_rows, .. } = *self;
        MaskShape { batch, heads, query_rows, key_rows }
    }

    /// The forward pass. `dense` are the words of the mask's dense part.
    ///
    /// # Errors
    /// `invalid-options` for sizes, views or a mask that make no sense; `limit-exceeded`.
    pub fn forward(
        &self,
        caps: &Capabilities,
        dense: &[u32],
        bytes: BufferBytes,
    ) -> Result<AttentionPlan> {
        let mut call = Compiled::new(self, caps, false, dense, bytes)?;
        let [query, key, value] = call.inputs()?;
        let output = call.rows("output", self.output, true, self.heads, self.query_rows)?;
        call.geometry.output = self.strides(self.output);
        let lse = call.logsumexp(Phase::Forward)?;
        call.written_once(&[output, lse], &[query, key, value])?;
        let mask = call.mask_slice();
        let kernel = call.kernel(AttentionPass::Forward)?;
        let slices = vec![query, key, value, mask, output, lse, GEOMETRY];
        call.dispatch(kernel, slices, self.query_rows, 4.0)?;
        Ok(call.finish(self.query_rows))
    }

    /// The gradients, from the output and logsumexp of the forward pass.
    ///
    /// # Errors
    /// As [`AttentionCall::forward`].
    pub fn backward(
        &self,
        caps: &Capabilities,
        dense: &[u32],
        bytes: BufferBytes,
    ) -> Result<AttentionPlan> {
        let views = self.gradients.ok_or_else(|| Error::internal("a call without gradients"))?;
        let mut call = Compiled::new(self, caps, true, dense, bytes)?;
        let [query, key, value] = call.inputs()?;
        let (of_query, of_key) = ((self.heads, self.query_rows), (self.kv_heads, self.key_rows));
        let rows = |name, view, written, (heads, rows): (usize, usize)| {
            call.rows(name, view, written, heads, rows)
        };
        let output = rows("output", self.output, false, of_query)?;
        let d_output = rows("dOutput", views.d_output, false, of_query)?;
        let d_query = rows("dQuery", views.d_query, true, of_query)?;
        let d_key = rows("dKey", views.d_key, true, of_key)?;
        let d_value = rows("dValue", views.d_value, true, of_key)?;
        call.geometry.output = self.strides(self.output);
        call.geometry.d_output = self.strides(views.d_output);
        call.geometry.d_query = self.strides(views.d_query);
        call.geometry.d_key = self.strides(views.d_key);
        call.geometry.d_value = self.strides(views.d_value);
        let lse = call.logsumexp(Phase::Backward)?;
        call.written_once(&[d_query, d_key, d_value], &[query, key, value, output, d_output, lse])?;
        let mask = call.mask_slice();
        let statistics = call
            .builder
            .tensor("statistics", 2 * (self.batch * self.heads * self.query_rows) as u64)?;
        let kernel = k::attention_delta_tensors(caps, self.shape(), self.element, self.batch)?;
        let slices = vec![output, d_output, lse, statistics, GEOMETRY];
        call.dispatch(kernel, slices, self.query_rows, 0.0)?;
        let kernel = call.kernel(AttentionPass::Query)?;
        let slices = vec![query, key, value, d_output, statistics, mask, d_query, GEOMETRY];
        call.dispatch(kernel, slices, self.query_rows, 6.0)?;
        let kernel = call.kernel(AttentionPass::KeyValue)?;
        let slices = vec![query, key, value, d_output, statistics, mask, d_key, d_value, GEOMETRY];
        call.dispatch(kernel, slices, self.key_rows, 8.0)?;
        Ok(call.finish(self.query_rows.max(self.key_rows)))
    }

    /// One query row of each batch item over its keys in use. The mask may have key lengths and a
    /// window behind the last key, nothing else.
    ///
    /// # Errors
    /// As [`AttentionCall::forward`].
    pub fn decode(&self, caps: &Capabilities, bytes: BufferBytes) -> Result<AttentionPlan> {
        let mask = &self.mask;
        if self.query_rows != 1 || mask.documents.is_some() || mask.dense.is_some() {
            return Err(Error::options(
                "decode takes one query row an item, a window and key lengths; forward takes any mask",
            ));
        }
        let lengths = mask.key_lengths.clone().unwrap_or_else(|| vec![self.key_rows; self.batch]);
        let last = lengths.iter().map(|&length| length as i64 - 1).collect();
        let call = Self {
            mask: AttentionMask { query_offset: Some(PerItem::Each(last)), ..mask.clone() },
            ..self.clone()
        };
        call.decode_last(caps, bytes)
    }

    fn decode_last(&self, caps: &Capabilities, bytes: BufferBytes) -> Result<AttentionPlan> {
        let mut call = Compiled::new(self, caps, false, &[], bytes)?;
        let [query, key, value] = call.inputs()?;
        let output = call.rows("output", self.output, true, self.heads, 1)?;
        call.geometry.output = self.strides(self.output);
        let lse = call.logsumexp(Phase::Forward)?;
        call.written_once(&[output, lse], &[query, key, value])?;
        let (mask, shape) = (call.mask_slice(), self.shape());
        // A number of ranges is compiled in: it changes when the length doubles.
        let capacity = self.key_rows.next_power_of_two();
        let splits = k::decode_splits(caps, shape, capacity, self.batch)?;
        let kernel = k::attention_decode_tensors(caps, shape, self.element, &splits, self.batch)?;
        if splits.count == 1 {
            let slices = vec![query, key, value, mask, output, lse, GEOMETRY];
            call.dispatch(kernel, slices, 1, 4.0)?;
            return Ok(call.finish(1));
        }
        let elements = self.batch * splits.partials(&shape);
        let partials = call.builder.tensor("partials", elements as u64)?;
        call.dispatch(kernel, vec![query, key, value, mask, partials, GEOMETRY], 1, 4.0)?;
        let kernel =
            k::attention_decode_merge_tensors(caps, shape, self.element, &splits, self.batch)?;
        call.dispatch(kernel, vec![partials, mask, output, lse, GEOMETRY], 1, 0.0)?;
        Ok(call.finish(1))
    }

    /// In vectors of four elements.
    fn strides(&self, view: View) -> Strides {
        let [batch, head, row] = view.strides.map(|stride| (stride / 4) as u32);
        [batch, head, row, (view.offset / 4) as u32]
    }

    fn check(&self) -> Result<()> {
        let sizes = [
            ("batch", self.batch),
            ("heads", self.heads),
            ("key heads", self.kv_heads),
            ("query rows", self.query_rows),
            ("key rows", self.key_rows),
            ("head_dim", self.head_dim),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| !(1..=MOST).contains(size)) {
            return Err(Error::options(format!("{name} is {size}; it must be from 1 to {MOST}")));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::options(format!(
                "{} query heads are not a multiple of {} key heads",
                self.heads, self.kv_heads
            )));
        }
        if !self.head_dim.is_multiple_of(4) || self.head_dim > 256 {
            return Err(Error::options(format!(
                "head_dim is {}; it must be a multiple of 4, at most 256",
                self.head_dim
            )));
        }
        for (name, value) in [("softCap", self.soft_cap), ("scale", self.scale)] {
            if value.is_some_and(|value| !value.is_finite() || value <= 0.0) {
                let value = value.unwrap_or_default();
                return Err(Error::options(format!("{name} is {value}; it must be above 0")));
            }
        }
        Ok(())
    }
}

/// A call being compiled.
struct Compiled<'a> {
    call: &'a AttentionCall,
    builder: Builder<'a>,
    bytes: BufferBytes<'a>,
    geometry: Geometry,
    mask: Vec<u32>,
}

impl<'a> Compiled<'a> {
    fn new(
        call: &'a AttentionCall,
        caps: &'a Capabilities,
        backward: bool,
        dense: &[u32],
        bytes: BufferBytes<'a>,
    ) -> Result<Self> {
        call.check()?;
        let mut geometry = Geometry {
            query: call.strides(call.query),
            key: call.strides(call.key),
            value: call.strides(call.value),
            batch: call.batch as u32,
            query_rows: call.query_rows as u32,
            key_rows: call.key_rows as u32,
            ..Geometry::default()
        };
        let mask = call.mask.words(call.mask_shape(), backward, dense, &mut geometry)?;
        let builder = Builder::new(caps, Phase::Forward, call.query_rows, Buffer::Step);
        Ok(Self { call, builder, bytes, geometry, mask })
    }

    fn inputs(&self) -> Result<[Slice; 3]> {
        let call = self.call;
        Ok([
            self.rows("query", call.query, false, call.heads, call.query_rows)?,
            self.rows("key", call.key, false, call.kv_heads, call.key_rows)?,
            self.rows("value", call.value, false, call.kv_heads, call.key_rows)?,
        ])
    }

    fn mask_slice(&self) -> Slice {
        Slice::new(Buffer::Batch, 0, self.mask.len() as u64 * 4)
    }

    fn slice(&self, name: &str, id: u32, need: u64) -> Result<Slice> {
        let bytes = (self.bytes)(id)
            .ok_or_else(|| Error::options(format!("{name} is no tensor of this runtime")))?;
        if need > bytes {
            return Err(Error::options(format!("{name} reaches byte {need} of {bytes}")));
        }
        Ok(Slice::new(Buffer::Given(id), 0, bytes))
    }

    /// A view's buffer, the view held against its bounds.
    fn rows(
        &self,
        name: &str,
        view: View,
        written: bool,
        heads: usize,
        rows: usize,
    ) -> Result<Slice> {
        let head_dim = self.call.head_dim;
        if view.strides.iter().chain([&view.offset]).any(|x| !x.is_multiple_of(4)) {
            return Err(Error::options(format!(
                "{name} has strides {:?} from {}; they must be multiples of 4 elements",
                view.strides, view.offset
            )));
        }
        let counts = [self.call.batch, heads, rows];
        let mut axes: Vec<_> = view.strides.into_iter().zip(counts).filter(|a| a.1 > 1).collect();
        axes.sort_unstable();
        let mut span = head_dim;
        for (stride, count) in axes {
            if written && stride < span {
                return Err(Error::options(format!(
                    "{name} is written, but elements of it share a place"
                )));
            }
            let far = stride.checked_mul(count - 1).and_then(|far| far.checked_add(span));
            span = far.ok_or_else(|| Error::options(format!("{name} has a stride of {stride}")))?;
        }
        let end = (view.offset as u64).saturating_add(span as u64);
        self.slice(name, view.id, end.saturating_mul(self.call.element.bytes() as u64))
    }

    fn logsumexp(&mut self, phase: Phase) -> Result<Slice> {
        let elements = (self.call.batch * self.call.heads * self.call.query_rows) as u64;
        match self.call.logsumexp {
            Some(id) => self.slice("logsumexp", id, elements * 4),
            None if phase == Phase::Forward => self.builder.tensor("logsumexp", elements),
            None => Err(Error::options("backward needs the logsumexp of the forward pass")),
        }
    }

    /// A buffer that is written may be bound to nothing else.
    fn written_once(&self, written: &[Slice], read: &[Slice]) -> Result<()> {
        for (index, slice) in written.iter().enumerate() {
            let others = written.iter().skip(index + 1).chain(read);
            if others.into_iter().any(|other| other.buffer == slice.buffer) {
                return Err(Error::options(
                    "a tensor that is written shares its buffer with another of the call; give it \
                     one of its own",
                ));
            }
        }
        Ok(())
    }

    fn kernel(&self, pass: AttentionPass) -> Result<k::Kernel> {
        let call = self.call;
        let dense = call.mask.dense_kind();
        k::attention_tensors(self.builder.caps, call.shape(), pass, call.element, dense, call.batch)
    }

    fn dispatch(
        &mut self,
        kernel: k::Kernel,
        slices: Vec<Slice>,
        rows: usize,
        flops_a_score: f64,
    ) -> Result<()> {
        let call = self.call;
        let scores =
            (call.batch * call.heads) as f64 * call.query_rows as f64 * call.key_rows as f64;
        let flops = flops_a_score * scores * call.head_dim as f64;
        let range = Range { row0: 0, rows: rows as u32, col0: 0, cols: 0 };
        self.builder.dispatch_rows(kernel.name, kernel, slices, range, flops)
    }

    fn finish(self, rows: usize) -> AttentionPlan {
        let plan = self.builder.finish(&[]);
        AttentionPlan { plan, geometry: self.geometry, mask: self.mask, rows }
    }
}
