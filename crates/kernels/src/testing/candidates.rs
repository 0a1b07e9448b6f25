//! Kernels side by side for the benchmark: every variant that an operation has on a device, and
//! which one selection picks.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::attention::cases::forward::{
    delta_of, forward_of, group_sum_of, key_value_of, query_of,
};
use crate::kernels::{
    self as k, Access, AttentionPass, AttentionShape, BackwardRows, BatchAttention, Binding,
    CacheAttention, DecodeSplits, Kernel, KvCacheFormat, Spec,
};
use serde::{Deserialize, Serialize};

/// Attention over one document of `tokens` tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttentionWork {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub tokens: usize,
    /// Operands may be rounded to f16. With `halves` they and the results are in f16.
    #[serde(default)]
    pub half: bool,
    #[serde(default)]
    pub halves: bool,
    /// With `halves`: the gradients that the backward pass reads and writes are in f16 too.
    #[serde(default)]
    pub gradients: bool,
}

/// A kernel as a benchmark runs it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub name: &'static str,
    pub variant: String,
    pub reason: String,
    pub picked: bool,
    pub grid: [u32; 2],
    /// `read`, `write` or `uniform`, by binding.
    pub bindings: Vec<&'static str>,
    /// What the last of them holds, where the text leaves sizes open.
    pub sizes: Option<[u32; 4]>,
    pub wgsl: String,
}

impl Candidate {
    pub(crate) fn new(
        caps: &Capabilities,
        kernel: Kernel,
        tokens: usize,
        picked: bool,
    ) -> Result<Self> {
        let most = caps.limits.max_compute_workgroups_per_dimension;
        let access = |binding: &Binding| match binding.access {
            Access::Read => "read",
            Access::ReadWrite => "write",
            Access::Uniform => "uniform",
        };
        Ok(Self {
            name: kernel.name,
            grid: kernel.grid.resolve(tokens, most)?.unwrap_or([0, 0]),
            bindings: kernel.bindings.iter().map(access).collect(),
            sizes: kernel.sizes,
            variant: kernel.variant,
            reason: kernel.reason,
            picked,
            wgsl: kernel.wgsl.text(),
        })
    }
}

/// The attention kernels of a training step, each pass in every variant; document ends follow `tokens` elements after
/// the starts.
///
/// # Errors
/// `limit-exceeded` when the device has no kernel for the shape.
pub fn attention(caps: &Capabilities, work: AttentionWork) -> Result<Vec<Candidate>> {
    let AttentionWork { heads, kv_heads, head_dim, tokens, half, halves, gradients } = work;
    let shape = AttentionShape { heads, kv_heads, head_dim };
    let batch = BatchAttention { shape, tokens, rounds: half, ..BatchAttention::default() };
    if half {
        let rows = BackwardRows {
            qkv_f16: halves,
            d_output_f16: gradients,
            d_qkv_f16: gradients,
            rotated: false,
        };
        return by_matrices(caps, batch, rows);
    }
    let delta = delta_of(shape, k::PartialSums::WHOLE).kernel(caps)?;
    let mut candidates = vec![Candidate::new(caps, delta, tokens, true)?];
    let owner = k::key_value_owner(caps, batch);
    if owner == k::KeyValueOwner::Head {
        let kernel = group_sum_of(shape).kernel(caps)?;
        candidates.push(Candidate::new(caps, kernel, tokens, true)?);
    }
    for pass in [AttentionPass::Forward, AttentionPass::Query, AttentionPass::KeyValue] {
        let of = |tile| match pass {
            AttentionPass::Forward => forward_of(batch, tile).kernel(caps),
            AttentionPass::Query => query_of(batch, tile).kernel(caps),
            AttentionPass::KeyValue => key_value_of(batch, (owner, tokens), tile).kernel(caps),
        };
        let picked = of(None)?;
        for tile in k::attention_tiles(caps, shape, pass) {
            let kernel = of(Some(tile))?;
            if kernel.wgsl != picked.wgsl {
                candidates.push(Candidate::new(caps, kernel, tokens, false)?);
            }
        }
        candidates.push(Candidate::new(caps, picked, tokens, true)?);
    }
    Ok(candidates)
}

/// The passes of a training step in each tile of matrices.
fn by_matrices(
    caps: &Capabilities,
    batch: BatchAttention,
    rows: BackwardRows,
) -> Result<Vec<Candidate>> {
    let BatchAttention { shape, tokens, .. } = batch;
    let BackwardRows { qkv_f16, d_output_f16, d_qkv_f16, .. } = rows;
    let delta = k::AttentionDelta {
        output_f16: qkv_f16,
        d_output_f16,
        ..delta_of(shape, k::PartialSums::WHOLE)
    };
    let mut candidates = vec![Candidate::new(caps, delta.kernel(caps)?, tokens, true)?];
    let mut add = |picked: &Kernel, kernel: Result<Kernel>| -> Result<()> {
        let kernel = kernel?;
        let is_picked = kernel.wgsl == picked.wgsl;
        candidates.push(Candidate::new(caps, kernel, tokens, is_picked)?);
        Ok(())
    };
    let forward =
        |tile| k::AttentionForward { batch, qkv_f16, output_f16: qkv_f16, tile }.kernel(caps);
    let picked = forward(None)?;
    for tile in k::matrix_forward_tiles(caps, shape) {
        add(&picked, forward(Some(tile)))?;
    }
    let query = |tile| k::AttentionBackwardQuery { batch, rows, tile }.kernel(caps);
    let picked = query(None)?;
    for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::Query) {
        add(&picked, query(Some(tile)))?;
    }
    let key_value = |owner, tile| {
        k::AttentionBackwardKeyValue { batch, rows, owner, ends: tokens, tile }.kernel(caps)
    };
    let own = k::key_value_owner(caps, batch);
    let picked = key_value(own, None)?;
    for owner in [k::KeyValueOwner::Group, k::KeyValueOwner::Head] {
        for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::KeyValue) {
            add(&picked, key_value(owner, Some(tile)))?;
        }
    }
    let sum = k::AttentionGroupSum { d_qkv_f16, ..group_sum_of(shape) }.kernel(caps)?;
    candidates.push(Candidate::new(caps, sum, tokens, own == k::KeyValueOwner::Head)?);
    Ok(candidates)
}

/// One decoded token over a cache of `tokens` tokens: each form of the cache, cut into no more
/// ranges than selection says, and into half and twice as many.
///
/// # Errors
/// `limit-exceeded` when the device has no kernel for the shape.
pub fn decode(caps: &Capabilities, work: AttentionWork) -> Result<Vec<DecodeCandidate>> {
    let AttentionWork { heads, kv_heads, head_dim, tokens, .. } = work;
    let shape = AttentionShape { heads, kv_heads, head_dim };
    let attention = CacheAttention { shape, ..CacheAttention::default() };
    let picked = k::decode_splits(caps, shape, tokens, 1)?;
    let mut counts = vec![picked.count, 1, picked.count / 2, picked.count * 2];
    counts.retain(|&count| count > 0);
    let mut seen = vec![];
    let mut candidates = vec![];
    for cache in KvCacheFormat::ALL {
        for &count in &counts {
            if seen.contains(&(cache, count)) {
                continue;
            }
            seen.push((cache, count));
            let splits = DecodeSplits::given(count);
            let whole = count == picked.count;
            let over = k::DecodeOver::Cache(attention, cache);
            let kernel = k::AttentionDecode { over, splits }.kernel(caps)?;
            let mut stages = vec![Candidate::new(caps, kernel, 1, whole)?];
            if count > 1 {
                let kernel =
                    k::AttentionDecodeMerge { of: over.partials(), splits }.kernel(caps)?;
                stages.push(Candidate::new(caps, kernel, 1, whole)?);
            }
            candidates.push(DecodeCandidate {
                cache: cache.name(),
                ranges: count,
                picked: whole,
                cache_bytes: (shape.row_words(cache) * tokens) as u64 * 4,
                partial_bytes: splits.partials(&shape) as u64 * 4,
                stages,
            });
        }
    }
    Ok(candidates)
}

/// The kernels that run one after the other for a decoded token.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecodeCandidate {
    pub cache: &'static str,
    pub ranges: usize,
    pub picked: bool,
    pub cache_bytes: u64,
    pub partial_bytes: u64,
    pub stages: Vec<Candidate>,
}
