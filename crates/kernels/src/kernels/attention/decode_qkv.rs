//! The newest row of a decoded text, from the residual stream to what ranges of keys leave, in one dispatch.

use super::decode::composer;
use super::decode_tile::{QueryHeads, key_iterations, pick};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::KvCacheFormat;
use crate::kernels::compose::{Binding, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::linear::MatvecInput;
use crate::kernels::linear::matvec::norm_operand;
use crate::kernels::modules::{UNIT, cache_sizes, key_rows, matrix_units};
use crate::kernels::shape::{CacheAttention, DecodeQkvShape, DecodeSplits};

/// Units of a matrix that an invocation has in flight: they stay in registers.
const UNITS_IN_FLIGHT: usize = 24;
/// Most elements of the queries' matrix, which each range reads again. More were not measured.
const MOST_ELEMENTS: usize = 768 * 768;
/// Most iterations over a row that are not in a loop.
const UNROLLED_PASSES: usize = 4;

/// A workgroup whose teams have all pairs of a head between them.
struct Workgroup {
    size: usize,
    /// Invocations of a team: the narrowest subgroup.
    lanes: usize,
    /// Pairs of each team.
    pairs: usize,
}

impl Workgroup {
    /// None where two kernels are expected to be faster ([`Decoding`](crate::caps::Decoding)), or one cannot do it.
    fn of(caps: &Capabilities, shape: &DecodeQkvShape) -> Option<Self> {
        let (lanes, head_dim) = (caps.subgroup_size[0] as usize, shape.heads.shape.head_dim);
        let size = caps.decoding().qkv_invocations.min(head_dim / 2 * lanes);
        let pairs = (head_dim / 2 * lanes).checked_div(size)?;
        let fits = caps.reduces_by_subgroup()
            && caps.limits.workgroup_invocations() as usize >= size
            && head_dim.is_power_of_two()
            && size.is_power_of_two()
            && (head_dim / 4..=size).contains(&lanes)
            && pairs <= lanes
            && shape.k.is_multiple_of(4)
            && shape.heads.shape.width() * shape.k <= MOST_ELEMENTS
            && pick(caps, shape.heads.shape, QueryHeads::Qkv(size))
                .is_ok_and(|tile| tile.size == size);
        fits.then_some(Self { size, lanes, pairs })
    }
}

/// Whether [`AttentionDecodeQkv`] is expected to be faster than a product and then attention. Where it is, the output
/// product can add the newest key.
pub fn decode_qkv_fuses(caps: &Capabilities, shape: &DecodeQkvShape) -> bool {
    Workgroup::of(caps, shape).is_some()
}

fn bindings(packed: bool, biased: bool) -> Vec<Binding> {
    let matrix = read(if packed { "packed" } else { "b" });
    let mut bindings = vec![read("a"), matrix, read("norm_weight"), read("angles")];
    bindings.extend(["cache", "query", "partials"].map(read_write));
    bindings.push(uniform("step"));
    bindings.extend(biased.then_some(read("bias")));
    bindings
}

/// The newest row's norm, product and rotation, and its queries over the keys before it, in a cache of f32. Bindings: the
/// residual stream, the matrix, the norm's weight, the angles of the row's position, the cache, queries, partials, step,
/// and the bias if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeQkv {
    pub shape: DecodeQkvShape,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecodeQkv {
    fn name(&self) -> &'static str {
        "attention_decode_qkv"
    }

    /// `internal` where not [`decode_qkv_fuses`].
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self {
            shape: DecodeQkvShape { heads: attention, k, epsilon, biased, weights },
            splits,
        } = *self;
        let CacheAttention { shape: heads, scores, window, ring } = attention;
        let Some(Workgroup { size, lanes, pairs }) = Workgroup::of(caps, &self.shape) else {
            return Err(Error::internal("this adapter does not join the newest row's kernels"));
        };
        let tile = pick(caps, heads, QueryHeads::Qkv(size))?;
        check_storage(caps, [tile.bytes(heads, true) as u32], self.name())?;
        let packed = weights.packs(k);
        let (rows, unit) = (2 * pairs, if packed { UNIT } else { 4 });
        let row_iterations = (k / unit).div_ceil(lanes);
        let unrolled =
            row_iterations.div_ceil(row_iterations.div_ceil((UNITS_IN_FLIGHT / rows).max(1)));
        let passes = row_iterations.div_ceil(unrolled);
        let composer =
            key_iterations(composer(*self, tile.size, (heads, scores), &splits), &tile, heads)
                .size("HEAD_DIM", heads.head_dim)
                .size("HALF", heads.head_dim / 2)
                .size("K", k)
                .size("ROW_LANES", lanes)
                .unrolled("PAIRS", pairs)
                .unrolled("ROWS", rows)
                .unrolled("ROW_STEPS", lanes.ilog2() as usize)
                .unrolled("UNROLLED", unrolled)
                .size("WINDOW", window.unwrap_or(u32::MAX as usize));
        let composer = if passes <= UNROLLED_PASSES {
            composer.unrolled("PASSES", passes)
        } else {
            composer.size("PASSES", passes)
        };
        let composer = norm_operand(
            matrix_units(composer, weights, (heads.stride(), k)),
            MatvecInput::Norm { epsilon },
            true,
        )
        .module("lib/matvec/norm_weight")
        .when("TENSORS", false)
        .when("BATCHED", false);
        let composer = key_rows(cache_sizes(composer, KvCacheFormat::F32, &heads), ring)
            .when("BIASED", biased)
            .module("lib/matvec/pair_bias");
        let form = if packed { weights.name() } else { "vec4" };
        composer
            .with_subgroups()
            .module("05_attention_decode_qkv")
            .finish(
                caps,
                &bindings(packed, biased),
                Grid::Fixed { x: (heads.heads + 2 * heads.kv_heads) as u32, y: splits.count as u32 },
                format!("{lanes} lanes for {rows} rows, {form}; {} lanes per key", tile.lanes),
                format!("a query head's workgroups each multiply for themselves, {unrolled} loads of each row in flight"),
            )
    }
}
