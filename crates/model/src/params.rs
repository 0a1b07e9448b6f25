//! Where each parameter lives: named tensors to ranges of a few large buffers ("shards").
//!
//! Parameters that are multiplied by the same input (q, k, v; gate, up) are neighbours, so that kernels see them as one
//! matrix. What is decayed comes first and the rest last, so that weight decay applies to a prefix of each shard.
//! Gradients and optimizer state have the layout of the trained parameters ([`Params::trained`]), which is that of the
//! weights where all are trained. Optimizers that update tensor by tensor have places of their own (`optim/pieces.rs`).
//!
//! A LoRA adapter's weights are a layout over the base's ([`Params::adapted`]). The numbers of their shards follow
//! those of the base's, which stay where they are. So a plan finds both by the same names.
//!
//! A layout may hold its matrices packed ([`Params::packed`]): each part of one is a buffer of its own then, and
//! the shards have what is left, which is f32.

use crate::arch::{Architecture, Init, Param, Stored, Swap, Weight, WeightId};
use crate::error::{Error, Result};
use crate::format::WeightFormat;

/// Elements in 256 bytes of f32: WebGPU's offset alignment for bindings.
pub const ALIGN: usize = 64;
/// Elements that a part begins at a multiple of: the same bytes in f16, for what mirrors a shard in that.
const PART_ALIGN: usize = 2 * ALIGN;

/// A run of a matrix's rows inside one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of its shard. In a packed matrix, the number of the part among those of all matrices, which is its
    /// buffer's number.
    pub shard: usize,
    /// First element of the part in its shard; a multiple of `PART_ALIGN`. Of a packed matrix 0.
    pub offset: usize,
    pub row0: usize,
    pub rows: usize,
}

/// A weight as kernels see it: row-major `[rows, cols]`, one part unless it is larger than a
/// binding, none if it is not in this layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub parts: Vec<Part>,
    /// The number of the first part among those of all matrices.
    pub first_part: usize,
    /// Its format on the GPU.
    pub format: WeightFormat,
    /// Whether products read its rows.
    multiplied: bool,
    decay: bool,
}

impl Matrix {
    /// Elements that a part takes in its shard, padding included.
    fn reserved(&self, part: &Part) -> usize {
        (part.rows * self.cols).next_multiple_of(PART_ALIGN)
    }
}

/// A tensor of the checkpoint: some consecutive rows of a [`Matrix`], there perhaps in another order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// Index into [`Params::matrices`].
    pub matrix: WeightId,
    pub row0: usize,
    pub rows: usize,
    /// How the checkpoint stores the rows.
    pub stored: Stored,
    pub init: Init,
}

impl Tensor {
    /// What takes its elements from the order that they have here to the checkpoint's, if that is another one.
    pub fn swap(&self) -> Option<Swap> {
        let elements: usize = self.shape.iter().product();
        self.stored.swap(self.rows, elements / self.rows)
    }
}

/// A run of elements in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// As [`Part::shard`].
    pub shard: usize,
    pub offset: usize,
    pub len: usize,
}

impl Run {
    fn continues(&self, next: &Self) -> bool {
        self.shard == next.shard && self.offset + self.len == next.offset
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Elements, padding included.
    pub len: usize,
    /// Elements before this index are decayed by the optimizer, those after it are not.
    pub decay_end: usize,
}

/// A run of elements that the optimizer updates at once: contiguous in the weights and in what has
/// the layout of the trained parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub weights: Run,
    pub state: Run,
    /// Elements at the beginning of the run that are decayed.
    pub decayed: usize,
}

#[derive(Clone, Debug)]
pub struct Params {
    pub architecture: Architecture,
    /// By [`WeightId`].
    pub matrices: Vec<Matrix>,
    /// Its own tensors, in their order in the shards.
    pub tensors: Vec<Tensor>,
    /// The base's, then its own.
    pub shards: Vec<Shard>,
    /// The format of the matrices that can be packed, except a LoRA adapter's, which are f32.
    pub weights: WeightFormat,
    /// Weights and shards of the base, if it is a layout over one.
    base: Base,
    capacity: usize,
}

/// How many weights and shards of a layout are another's.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    weights: usize,
    shards: usize,
}

impl Params {
    /// Lays out a model's parameters in shards of at most `binding_bytes`.
    ///
    /// # Errors
    /// `limit-exceeded` if a single row does not fit a binding.
    pub fn new(architecture: Architecture, binding_bytes: u64) -> Result<Self> {
        Self::packed(architecture, binding_bytes, WeightFormat::F32)
    }

    /// A layout with matrices, embedding and head among them, in another format where their rows are of whole groups.
    ///
    /// # Errors
    /// As [`Params::new`].
    pub fn packed(
        architecture: Architecture,
        binding_bytes: u64,
        weights: WeightFormat,
    ) -> Result<Self> {
        let capacity = (binding_bytes / 4) as usize / PART_ALIGN * PART_ALIGN;
        Self::place(architecture, capacity, weights, &|_| true)
    }

    /// The layout of what only the trained weights have: gradients and optimizer state.
    ///
    /// # Errors
    /// None that the layout of all weights had not.
    pub fn trained(&self, trained: &dyn Fn(WeightId) -> bool) -> Result<Self> {
        Self::place(self.architecture.clone(), self.capacity, WeightFormat::F32, trained)
    }

    fn place(
        architecture: Architecture,
        capacity: usize,
        weights: WeightFormat,
        wanted: &dyn Fn(WeightId) -> bool,
    ) -> Result<Self> {
        let format = |id: WeightId| {
            let packs = weights.packs(architecture.weights[id].columns);
            if packs && architecture.is_matrix(id) { weights } else { WeightFormat::F32 }
        };
        let mut builder = Builder::new(&architecture, capacity);
        for decay in [true, false] {
            if !decay {
                builder.end_decay();
            }
            for (id, weight) in architecture.weights.iter().enumerate() {
                if weight.decay == decay && wanted(id) {
                    builder.weight(id, weight, format(id))?;
                }
            }
        }
        builder.close();
        let Builder { matrices, tensors, shards, .. } = builder;
        let base = Base::default();
        Ok(Self { architecture, matrices, tensors, shards, weights, base, capacity })
    }

    /// The layout over this one of an architecture with more weights.
    ///
    /// # Errors
    /// As [`Params::new`].
    pub fn adapted(&self, architecture: Architecture) -> Result<Self> {
        let base = Base { weights: self.matrices.len(), shards: self.shards.len() };
        let own =
            Self::place(architecture, self.capacity, WeightFormat::F32, &|id| id >= base.weights)?;
        let parts: usize = self.matrices.iter().map(|matrix| matrix.parts.len()).sum();
        let behind = |mut matrix: Matrix| {
            matrix.first_part += parts;
            matrix.parts.iter_mut().for_each(|part| part.shard += base.shards);
            matrix
        };
        let more = own.matrices.into_iter().skip(base.weights).map(behind);
        let matrices = self.matrices.iter().cloned().chain(more).collect();
        let shards = [self.shards.clone(), own.shards].concat();
        Ok(Self { matrices, shards, weights: self.weights, base, ..own })
    }

    /// Its own shards, with their numbers.
    pub fn own_shards(&self) -> impl Iterator<Item = (usize, &Shard)> {
        self.shards.iter().enumerate().skip(self.base.shards)
    }

    /// Its own packed parts: the number of each one's buffer, and its bytes.
    pub fn own_packed(&self) -> impl Iterator<Item = (usize, u64)> {
        let own = self.matrices.iter().skip(self.base.weights);
        own.filter(|matrix| matrix.format != WeightFormat::F32).flat_map(|matrix| {
            let bytes = |part: &Part| matrix.format.bytes(part.rows, matrix.cols);
            matrix.parts.iter().map(move |part| (part.shard, bytes(part)))
        })
    }

    /// Where inference has a packed part of a matrix: the number of its buffer, and the byte at which it begins. Each
    /// part follows the one before, as far as a binding reaches, so that the matrices of a layer are neighbours.
    /// Matrices that nothing multiplies by are not packed.
    pub fn packed_part(
        &self,
        format: WeightFormat,
        weight: WeightId,
        part: usize,
    ) -> Option<(usize, u64)> {
        let (mut buffer, mut end) = (0, 0);
        for (id, matrix) in self.matrices.iter().enumerate() {
            if !matrix.multiplied || !format.packs(matrix.cols) {
                continue;
            }
            for (index, of) in matrix.parts.iter().enumerate() {
                let bytes = format.bytes(of.rows, matrix.cols);
                let mut offset = u64::next_multiple_of(end, 4 * ALIGN as u64);
                if end == 0 || offset + bytes > 4 * self.capacity as u64 {
                    (buffer, offset) = (matrix.first_part + index, 0);
                }
                if (id, index) == (weight, part) {
                    return Some((buffer, offset));
                }
                end = offset + bytes;
            }
        }
        None
    }

    /// What the optimizer updates, `state` being the layout of the trained parameters.
    pub fn updates(&self, state: &Self) -> Vec<Update> {
        let mut parts: Vec<Update> = vec![];
        for (weights, trained) in self.matrices.iter().zip(&state.matrices) {
            for (part, own) in weights.parts.iter().zip(&trained.parts) {
                let len = weights.reserved(part);
                parts.push(Update {
                    weights: Run { shard: part.shard, offset: part.offset, len },
                    state: Run { shard: own.shard, offset: own.offset, len },
                    decayed: if weights.decay { len } else { 0 },
                });
            }
        }
        parts.sort_by_key(|part| (part.state.shard, part.state.offset));
        let mut updates: Vec<Update> = vec![];
        for part in parts {
            match updates.last_mut() {
                Some(last)
                    if last.weights.continues(&part.weights)
                        && last.state.continues(&part.state) =>
                {
                    last.weights.len += part.weights.len;
                    last.state.len += part.state.len;
                    last.decayed += part.decayed;
                }
                _ => updates.push(part),
            }
        }
        updates
    }

    /// Whether the optimizer decays a tensor.
    pub fn decays(&self, tensor: &Tensor) -> bool {
        self.matrices[tensor.matrix].decay
    }

    /// The runs of shard elements that hold a tensor, in row order.
    pub fn runs(&self, tensor: &Tensor) -> Vec<Run> {
        let matrix = &self.matrices[tensor.matrix];
        let end = tensor.row0 + tensor.rows;
        let mut runs = Vec::new();
        for part in &matrix.parts {
            let first = tensor.row0.max(part.row0);
            let last = end.min(part.row0 + part.rows);
            if first < last {
                runs.push(Run {
                    shard: part.shard,
                    offset: part.offset + (first - part.row0) * matrix.cols,
                    len: (last - first) * matrix.cols,
                });
            }
        }
        runs
    }

    /// The deviations of what starts normal, each once.
    pub fn deviations(&self) -> Vec<f64> {
        let mut all: Vec<f64> = vec![];
        for tensor in &self.tensors {
            if let Init::Normal(std) = tensor.init
                && !all.contains(&std)
            {
                all.push(std);
            }
        }
        all
    }

    /// Parameters, padding not counted.
    pub fn parameter_count(&self) -> u64 {
        self.tensors.iter().map(|t| t.shape.iter().product::<usize>() as u64).sum()
    }

    /// Bytes of all matrices, those of its base among them.
    pub fn bytes_with_base(&self) -> u64 {
        let of = |matrix: &Matrix| {
            matrix.parts.iter().map(|part| matrix.format.bytes(part.rows, matrix.cols)).sum::<u64>()
        };
        self.matrices.iter().map(of).sum()
    }

    /// Bytes of its own shards and packed parts, once.
    pub fn bytes(&self) -> u64 {
        let shards: u64 = self.own_shards().map(|(_, shard)| shard.len as u64 * 4).sum();
        shards + self.own_packed().map(|(_, bytes)| bytes).sum::<u64>()
    }
}

struct Builder {
    capacity: usize,
    matrices: Vec<Matrix>,
    tensors: Vec<Tensor>,
    shards: Vec<Shard>,
    used: usize,
    parts: usize,
    decay_end: Option<usize>,
}

impl Builder {
    fn new(architecture: &Architecture, capacity: usize) -> Self {
        let absent = |(id, weight): (WeightId, &Weight)| Matrix {
            rows: weight.rows,
            cols: weight.columns,
            parts: vec![],
            first_part: 0,
            format: WeightFormat::F32,
            multiplied: architecture.multiplies(id),
            decay: weight.decay,
        };
        Self {
            capacity,
            matrices: architecture.weights.iter().enumerate().map(absent).collect(),
            tensors: vec![],
            shards: vec![],
            used: 0,
            parts: 0,
            decay_end: None,
        }
    }

    fn weight(&mut self, id: WeightId, weight: &Weight, format: WeightFormat) -> Result<()> {
        let Weight { rows, columns, params, .. } = weight;
        let name = &params[0].name;
        let parts = match format {
            WeightFormat::F32 => self.place(*rows, *columns, name)?,
            _ => self.packed(*rows, *columns, format, name)?,
        };
        let matrix = &mut self.matrices[id];
        matrix.first_part = self.parts;
        matrix.format = format;
        self.parts += parts.len();
        matrix.parts = parts;
        let mut row0 = 0;
        for param in &weight.params {
            let rows = param.rows(weight.columns);
            let Param { name, shape, stored, init } = param.clone();
            self.tensors.push(Tensor { name, shape, matrix: id, row0, rows, stored, init });
            row0 += rows;
        }
        Ok(())
    }

    /// Puts a matrix into the open shard, or a new one, cutting it by rows only when it is larger
    /// than a whole shard. Cut parts begin at row counts divisible by [`ALIGN`], so that both the
    /// part and any matrix indexed by its rows can be bound at its start.
    fn place(&mut self, rows: usize, cols: usize, name: &str) -> Result<Vec<Part>> {
        let fits = rows.checked_mul(cols).is_some_and(|len| len <= self.capacity);
        let per_part = if fits { rows } else { self.capacity / cols / ALIGN * ALIGN };
        if per_part == 0 {
            return Err(self.too_wide((cols * ALIGN * 4) as u64, name));
        }
        let mut parts = Vec::new();
        let mut row0 = 0;
        while row0 < rows {
            let part_rows = per_part.min(rows - row0);
            let len = (part_rows * cols).next_multiple_of(PART_ALIGN);
            if self.used + len > self.capacity.max(len) {
                self.close();
            }
            parts.push(Part { shard: self.shards.len(), offset: self.used, row0, rows: part_rows });
            self.used += len;
            row0 += part_rows;
        }
        Ok(parts)
    }

    fn too_wide(&self, need: u64, name: &str) -> Error {
        Error::limit("maxStorageBufferBindingSize", self.capacity as u64 * 4, need, name)
    }

    /// Parts of a packed matrix, each a buffer: cut as [`Builder::place`] cuts, by their packed bytes.
    fn packed(
        &self,
        rows: usize,
        cols: usize,
        format: WeightFormat,
        name: &str,
    ) -> Result<Vec<Part>> {
        let (most, step) = (self.capacity as u64 * 4, format.bytes(ALIGN, cols));
        let fits = format.bytes(rows, cols) <= most;
        let per_part = if fits { rows } else { (most / step) as usize * ALIGN };
        if per_part == 0 {
            return Err(self.too_wide(step, name));
        }
        let part = |(index, row0): (usize, usize)| Part {
            shard: self.parts + index,
            offset: 0,
            row0,
            rows: per_part.min(rows - row0),
        };
        Ok((0..rows).step_by(per_part).enumerate().map(part).collect())
    }

    fn end_decay(&mut self) {
        self.decay_end = Some(self.used);
    }

    fn close(&mut self) {
        if self.used > 0 {
            // The shard that was open when the norms began ends its decay there; later ones have none.
            let decay_end = self.decay_end.unwrap_or(self.used);
            self.shards.push(Shard { len: self.used, decay_end });
        }
        self.used = 0;
        if self.decay_end.is_some() {
            self.decay_end = Some(0);
        }
    }
}
