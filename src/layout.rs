//! Where each parameter lives: named tensors to ranges of a few large buffers ("shards").
//!
//! Gradients and both optimizer moments use the same layout, so one description serves four sets
//! of buffers. Tensors that are multiplied by the same input (q, k, v; gate, up) lie one after the
//! other, so that kernels see them as one matrix. Matrices come first and norms last, so that
//! weight decay applies to a prefix of each shard.

use crate::config::ModelConfig;
use crate::error::{Error, Result};

/// Elements in 256 bytes of f32: WebGPU's offset alignment for bindings.
pub const ALIGN: usize = 64;
/// Elements that a part begins at a multiple of: the same bytes in f16, for what mirrors a shard in that.
const PART_ALIGN: usize = 2 * ALIGN;

/// A run of a matrix's rows inside one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub shard: usize,
    /// First element of the part in its shard; a multiple of [`PART_ALIGN`].
    pub offset: usize,
    pub row0: usize,
    pub rows: usize,
}

/// A parameter as kernels see it: row-major `[rows, cols]`, one part unless it is larger than a
/// binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub parts: Vec<Part>,
}

/// A tensor of the checkpoint: some consecutive rows of a [`Matrix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// Index into [`Layout::matrices`].
    pub matrix: usize,
    pub row0: usize,
    pub rows: usize,
}

/// A run of elements in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub shard: usize,
    pub offset: usize,
    pub len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Elements, padding included.
    pub len: usize,
    /// Elements before this index are decayed by the optimizer, those after it are not.
    pub decay_end: usize,
}

/// Indices of one decoder layer's matrices.
#[derive(Clone, Copy, Debug)]
pub struct LayerMatrices {
    pub attention_norm: usize,
    pub qkv: usize,
    pub output: usize,
    pub mlp_norm: usize,
    pub gate_up: usize,
    pub down: usize,
}

#[derive(Clone, Debug)]
pub struct Layout {
    pub matrices: Vec<Matrix>,
    pub tensors: Vec<Tensor>,
    pub shards: Vec<Shard>,
    pub layers: Vec<LayerMatrices>,
    pub embedding: usize,
    /// Equal to `embedding` when the embeddings are tied.
    pub lm_head: usize,
    pub final_norm: usize,
}

impl Layout {
    /// Lays out a model's parameters in shards of at most `binding_bytes`.
    ///
    /// # Errors
    /// `limit-exceeded` if a single row does not fit a binding.
    pub fn new(config: &ModelConfig, binding_bytes: u64) -> Result<Self> {
        let mut builder = Builder::new((binding_bytes / 4) as usize / PART_ALIGN * PART_ALIGN);
        let hidden = config.hidden_size;
        let head = config.head_dim;
        let (query, key_value) =
            (config.num_attention_heads * head, config.num_key_value_heads * head);
        let feed = config.intermediate_size;

        let embedding = builder.matrix(
            config.vocab_size,
            hidden,
            &[("model.embed_tokens.weight", config.vocab_size)],
        )?;
        let mut projections = Vec::new();
        for layer in 0..config.num_hidden_layers {
            let name = |suffix: &str| format!("model.layers.{layer}.{suffix}.weight");
            let qkv = [
                (name("self_attn.q_proj"), query),
                (name("self_attn.k_proj"), key_value),
                (name("self_attn.v_proj"), key_value),
            ];
            let gate_up = [(name("mlp.gate_proj"), feed), (name("mlp.up_proj"), feed)];
            projections.push((
                builder.matrix(query + 2 * key_value, hidden, &qkv)?,
                builder.matrix(hidden, query, &[(name("self_attn.o_proj"), hidden)])?,
                builder.matrix(2 * feed, hidden, &gate_up)?,
                builder.matrix(hidden, feed, &[(name("mlp.down_proj"), hidden)])?,
            ));
        }
        let lm_head = if config.tie_word_embeddings {
            embedding
        } else {
            builder.matrix(config.vocab_size, hidden, &[("lm_head.weight", config.vocab_size)])?
        };
        builder.end_decay();
        let mut layers = Vec::new();
        for (layer, (qkv, output, gate_up, down)) in projections.into_iter().enumerate() {
            let name = |suffix: &str| format!("model.layers.{layer}.{suffix}.weight");
            layers.push(LayerMatrices {
                attention_norm: builder.vector(name("input_layernorm"), hidden)?,
                qkv,
                output,
                mlp_norm: builder.vector(name("post_attention_layernorm"), hidden)?,
                gate_up,
                down,
            });
        }
        let final_norm = builder.vector("model.norm.weight".into(), hidden)?;
        builder.close();
        Ok(Self {
            matrices: builder.matrices,
            tensors: builder.tensors,
            shards: builder.shards,
            layers,
            embedding,
            lm_head,
            final_norm,
        })
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

    /// The number of a matrix's part among those of all matrices.
    pub fn part_number(&self, matrix: usize, part: usize) -> usize {
        self.matrices[..matrix].iter().map(|matrix| matrix.parts.len()).sum::<usize>() + part
    }

    /// Parameters, padding not counted.
    pub fn parameter_count(&self) -> usize {
        self.tensors.iter().map(|t| t.shape.iter().product::<usize>()).sum()
    }

    /// Bytes of one set of shards.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.len as u64 * 4).sum()
    }
}

struct Builder {
    capacity: usize,
    matrices: Vec<Matrix>,
    tensors: Vec<Tensor>,
    shards: Vec<Shard>,
    used: usize,
    decay_end: Option<usize>,
}

impl Builder {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            matrices: vec![],
            tensors: vec![],
            shards: vec![],
            used: 0,
            decay_end: None,
        }
    }

    fn matrix<S: AsRef<str>>(
        &mut self,
        rows: usize,
        cols: usize,
        members: &[(S, usize)],
    ) -> Result<usize> {
        let index = self.place(rows, cols, members[0].0.as_ref())?;
        let mut row0 = 0;
        for (name, rows) in members {
            let shape = vec![*rows, cols];
            self.tensors.push(Tensor {
                name: name.as_ref().into(),
                shape,
                matrix: index,
                row0,
                rows: *rows,
            });
            row0 += rows;
        }
        Ok(index)
    }

    fn vector(&mut self, name: String, len: usize) -> Result<usize> {
        let index = self.place(1, len, &name)?;
        self.tensors.push(Tensor { name, shape: vec![len], matrix: index, row0: 0, rows: 1 });
        Ok(index)
    }

    /// Puts a matrix into the open shard, or a new one, cutting it by rows only when it is larger
    /// than a whole shard. Cut parts begin at row counts divisible by [`ALIGN`], so that both the
    /// part and any matrix indexed by its rows can be bound at its start.
    fn place(&mut self, rows: usize, cols: usize, name: &str) -> Result<usize> {
        let fits = rows.checked_mul(cols).is_some_and(|len| len <= self.capacity);
        let per_part = if fits { rows } else { self.capacity / cols / ALIGN * ALIGN };
        if per_part == 0 {
            let need = (cols * ALIGN * 4) as u64;
            return Err(Error::limit(
                "maxStorageBufferBindingSize",
                self.capacity as u64 * 4,
                need,
                name,
            ));
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
        self.matrices.push(Matrix { rows, cols, parts });
        Ok(self.matrices.len() - 1)
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
