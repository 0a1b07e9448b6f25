//! Plans of attention over tensors: one to three dispatches over roles.

use super::{AttentionOperation, Role};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{
    self as k, AttentionPass, AttentionShape, Constant, DecodeOver, DenseMask, Element, Geometry,
    Scores, Spec, Strides, TensorAttention,
};
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, Range, Slice};

/// What the plan of attention depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionKey {
    pub operation: AttentionOperation,
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub query_rows: usize,
    /// For [`AttentionOperation::Decode`] rounded up to a power of two: the number of ranges is
    /// compiled in, so that a plan lasts until the length doubles.
    pub key_rows: usize,
    pub head_dim: usize,
    pub element: Element,
    pub soft_cap: Option<f32>,
    pub scale: Option<f32>,
    pub dense: DenseMask,
}

/// Where a tensor `[batch, heads, rows, head_dim]` is in its buffer, in elements: multiples of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub offset: usize,
    /// From one batch item, head and row to the next. Elements of a row are contiguous.
    pub strides: [usize; 3],
}

impl View {
    /// A tensor that has its buffer to itself, in order.
    pub const fn in_order([_, heads, rows, head_dim]: [usize; 4]) -> Self {
        Self { offset: 0, strides: [heads * rows * head_dim, rows * head_dim, head_dim] }
    }

    /// In vectors of four elements.
    fn vectors(self) -> Strides {
        let [batch, head, row] = self.strides.map(|stride| (stride / 4) as u32);
        [batch, head, row, (self.offset / 4) as u32]
    }
}

/// Notes a tensor's view in the uniform.
pub(super) fn place(geometry: &mut Geometry, role: Role, view: View) {
    let strides = match role {
        Role::Query => &mut geometry.query,
        Role::Key => &mut geometry.key,
        Role::Value => &mut geometry.value,
        Role::Output => &mut geometry.output,
        Role::DOutput => &mut geometry.d_output,
        Role::DQuery => &mut geometry.d_query,
        Role::DKey => &mut geometry.d_key,
        Role::DValue => &mut geometry.d_value,
        Role::Logsumexp | Role::Mask | Role::Geometry => return,
    };
    *strides = view.vectors();
}

impl AttentionKey {
    /// The uniform of a call with these views. [`AttentionMask::words`](super::AttentionMask::words) adds where the
    /// mask is. `key_rows` are the tensors' own.
    pub fn geometry(&self, key_rows: usize, views: &[(Role, View)]) -> Geometry {
        let mut geometry = Geometry {
            batch: self.batch as u32,
            query_rows: self.query_rows as u32,
            key_rows: key_rows as u32,
            ..Geometry::default()
        };
        views.iter().for_each(|&(role, view)| place(&mut geometry, role, view));
        geometry
    }

    const fn shape(&self) -> AttentionShape {
        let Self { heads, kv_heads, head_dim, .. } = *self;
        AttentionShape { heads, kv_heads, head_dim }
    }

    fn scores(&self) -> Scores {
        let constant = |x: f32| Constant(f64::from(x));
        Scores { soft_cap: self.soft_cap.map(constant), scale: self.scale.map(constant) }
    }

    /// Rows to replay the plan for.
    pub fn rows(&self) -> usize {
        match self.operation {
            AttentionOperation::Forward | AttentionOperation::Decode => self.query_rows,
            AttentionOperation::Backward => self.query_rows.max(self.key_rows),
        }
    }

    /// The plan. It binds whole buffers; sizes of its slices are those of tensors without gaps.
    ///
    /// # Errors
    /// `limit-exceeded`.
    pub fn plan(&self, caps: &Capabilities) -> Result<Plan> {
        let builder = Builder::new(caps, Phase::Forward, self.query_rows, Buffer::Step);
        let mut compiler = Compiler { key: *self, builder };
        match self.operation {
            AttentionOperation::Forward => compiler.forward(),
            AttentionOperation::Backward => compiler.backward(),
            AttentionOperation::Decode => compiler.decode(),
        }?;
        Ok(compiler.builder.finish(&[]))
    }
}

struct Compiler<'a> {
    key: AttentionKey,
    builder: Builder<'a>,
}

impl Compiler<'_> {
    fn slice(&self, role: Role) -> Slice {
        let key = &self.key;
        let rows = |heads: usize, rows: usize| key.batch as u64 * heads as u64 * rows as u64;
        let tensor = |rows: u64| rows * (key.head_dim * key.element.bytes()) as u64;
        let bytes = match role {
            Role::Query | Role::Output | Role::DOutput | Role::DQuery => {
                tensor(rows(key.heads, key.query_rows))
            }
            Role::Key | Role::Value | Role::DKey | Role::DValue => {
                tensor(rows(key.kv_heads, key.key_rows))
            }
            Role::Logsumexp => 4 * rows(key.heads, key.query_rows),
            // Bytes of one list of intervals. Only the call knows whether there are more, and how large a dense part
            // is.
            Role::Mask => 8 * key.query_rows as u64,
            Role::Geometry => size_of::<Geometry>() as u64,
        };
        // The call's own tensor fits one binding, also where the rounded number of keys would not.
        Slice::new(role.buffer(), 0, bytes.min(self.builder.caps.limits.binding_bytes()))
    }

    /// A launch over tensors of these roles.
    fn launch<const N: usize>(&self, kernel: k::Kernel, roles: [Role; N]) -> Launch {
        let operands = roles.map(|role| (role.names()[1], self.slice(role)));
        Launch::new(kernel.name, kernel).bind_all(operands)
    }

    fn kernel(&self, pass: AttentionPass) -> Result<k::Kernel> {
        let AttentionKey { element, dense, batch, .. } = self.key;
        let tokens = self.key.query_rows.max(self.key.key_rows);
        let of = TensorAttention { shape: self.key.shape(), scores: self.key.scores(), tokens };
        k::AttentionTensors { of, pass, element, dense, batch }.kernel(self.builder.caps)
    }

    fn dispatch(&mut self, launch: Launch, rows: usize, flops_per_score: f64) -> Result<()> {
        let key = &self.key;
        let scores = (key.batch * key.heads) as f64 * key.query_rows as f64 * key.key_rows as f64;
        let flops = flops_per_score * scores * key.head_dim as f64;
        let range = Range { row0: 0, rows: rows as u32, col0: 0, cols: 0 };
        self.builder.dispatch(launch.rows(range).flops(flops))
    }

    fn forward(&mut self) -> Result<()> {
        use Role::{Geometry, Key, Logsumexp, Mask, Output, Query, Value};
        let kernel = self.kernel(AttentionPass::Forward)?;
        let roles = [Query, Key, Value, Mask, Output, Logsumexp, Geometry];
        self.dispatch(self.launch(kernel, roles), self.key.query_rows, 4.0)
    }

    fn backward(&mut self) -> Result<()> {
        use Role::{
            DKey, DOutput, DQuery, DValue, Geometry, Key, Logsumexp, Mask, Output, Query, Value,
        };
        let AttentionKey { batch, heads, query_rows, key_rows, element, .. } = self.key;
        let pairs = batch as u64 * heads as u64 * query_rows as u64;
        let statistics = self.builder.tensor("statistics", 2 * pairs)?;
        let shape = self.key.shape();
        let kernel =
            k::AttentionDeltaTensors { shape, element, batch }.kernel(self.builder.caps)?;
        let launch = self.launch(kernel, [Output, DOutput, Logsumexp, Geometry]);
        self.dispatch(launch.bind("statistics", statistics), query_rows, 0.0)?;
        let kernel = self.kernel(AttentionPass::Query)?;
        let roles = [Query, Key, Value, DOutput, Mask, DQuery, Geometry];
        let launch = self.launch(kernel, roles);
        self.dispatch(launch.bind("statistics", statistics), query_rows, 6.0)?;
        let kernel = self.kernel(AttentionPass::KeyValue)?;
        let roles = [Query, Key, Value, DOutput, Mask, DKey, DValue, Geometry];
        let launch = self.launch(kernel, roles);
        self.dispatch(launch.bind("statistics", statistics), key_rows, 8.0)
    }

    fn decode(&mut self) -> Result<()> {
        use Role::{Geometry, Key, Logsumexp, Mask, Output, Query, Value};
        let AttentionKey { batch, key_rows, element, .. } = self.key;
        let (caps, shape) = (self.builder.caps, self.key.shape());
        let splits = k::decode_splits(caps, shape, key_rows, batch)?;
        let over = DecodeOver::Tensors(shape, self.key.scores(), element, batch);
        let kernel = k::AttentionDecode { over, splits }.kernel(caps)?;
        let launch = self.launch(kernel, [Query, Key, Value, Mask, Geometry]);
        if splits.count == 1 {
            let written = [Output, Logsumexp].map(|role| (role.names()[1], self.slice(role)));
            return self.dispatch(launch.bind_all(written), 1, 4.0);
        }
        let elements = batch * splits.partials(&shape);
        let partials = self.builder.tensor("partials", elements as u64)?;
        self.dispatch(launch.bind("partials", partials), 1, 4.0)?;
        let kernel = k::AttentionDecodeMerge { of: over.partials(), splits }.kernel(caps)?;
        let launch = self.launch(kernel, [Mask, Output, Logsumexp, Geometry]);
        self.dispatch(launch.bind("partials", partials), 1, 0.0)
    }
}
