//! The matrix-vector product where a subgroup has results by itself ([`Decoding`](crate::caps::Decoding)).

use super::parts::{bindings, norm_operand, results};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{KvCache, WeightFormat};
use crate::kernels::compose::{Composer, Grid, Kernel};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{UNIT, cache_sizes, key_rows, packed_flags, packed_matrix, scores};
use crate::kernels::shape::{
    AttentionShape, MASKED, MatvecInput, MatvecOutput, MatvecShape, NewestKey, PARTIAL_STATE,
    RANGE_KEYS,
};

/// Words of a matrix that an invocation has in flight: they stay in registers, as do as many of what is multiplied.
const WORDS_IN_FLIGHT: usize = 64;
/// Fewest rows of a matrix of which each subgroup has several: with fewer, too few subgroups are busy.
const VERY_MANY: usize = 8192;
/// Invocations of a workgroup that puts ranges together, all of which share that work, and of another one.
const SIZE_MERGING: u32 = 256;
const SIZE: u32 = 128;

/// Who multiplies.
pub(super) struct Team {
    /// Invocations of a team.
    lanes: u32,
    /// Invocations of a workgroup.
    size: u32,
    /// Results of a team.
    rows: usize,
}

/// Elements of a row that are read together.
fn unit(shape: &MatvecShape) -> usize {
    if shape.weights.packs(shape.k) { UNIT } else { 4 }
}

/// Whether a product of `k` numbers can put together what ranges of keys have left.
pub fn matvec_merges(caps: &Capabilities, k: usize) -> bool {
    let lanes = caps.subgroup_size[0] as usize;
    let bytes = caps.limits.max_compute_workgroup_storage_size as usize;
    caps.reduces_by_subgroup()
        && k.is_multiple_of(4)
        && k >= UNIT * lanes
        && 4 * k <= bytes
        && caps.limits.workgroup_invocations() as usize >= lanes
}

/// The teams of a product; none where others take it.
pub(super) fn team(caps: &Capabilities, shape: &MatvecShape) -> Option<Team> {
    let merges = matches!(shape.input, MatvecInput::Ranges(..));
    let several = shape.weights.packs(shape.k)
        && shape.n >= VERY_MANY
        && matches!(shape.output, MatvecOutput::Plain);
    let rows = caps.decoding().team_rows;
    let lanes = caps.subgroup_size[0];
    let fits = caps.reduces_by_subgroup()
        && shape.k.is_multiple_of(4)
        && shape.k / unit(shape) >= lanes as usize;
    let (rows, size) = match (merges, several && rows > 0) {
        _ if !fits => return None,
        (true, _) => (1, SIZE_MERGING),
        (false, true) => (rows.min(lanes as usize), SIZE),
        (false, false) => return None,
    };
    let size = workgroup_size(caps, size.max(lanes), lanes, "matvec").ok()?;
    Some(Team { lanes, size, rows })
}

/// `matvec_forward` by teams, with the bindings of the other form.
pub(super) fn by_teams(caps: &Capabilities, shape: MatvecShape, team: &Team) -> Result<Kernel> {
    let MatvecShape { n, k, first, input, output, weights } = shape;
    let &Team { lanes, size, rows } = team;
    let packed = weights.packs(k);
    let words = if packed { 4 * UNIT / weights.elements() } else { 4 };
    let turns = (k / unit(&shape)).div_ceil(lanes as usize);
    let most = (WORDS_IN_FLIGHT / (words * rows)).max(1);
    let unrolled = turns.div_ceil(turns.div_ceil(most));
    let normed = matches!(input, MatvecInput::Norm { .. });
    let bindings = bindings(shape)?;
    let composer = Composer::new(shape, size)
        .size("N", n)
        .size("K", k)
        .size("LANES", lanes as usize)
        .size("TURNS", turns.div_ceil(unrolled) * unrolled)
        .unrolled("UNROLLED", unrolled)
        .unrolled("ROWS", rows)
        .size("SUMS", 1 + usize::from(normed));
    let composer = units(composer, weights, (n, k));
    let composer = norm_operand(composer, input, true);
    let composer = match input {
        MatvecInput::Plain | MatvecInput::Norm { .. } => composer.when("RANGES", false),
        MatvecInput::Ranges(heads, splits, newest) => {
            check_storage(caps, [4 * k as u32], "matvec")?;
            ranges(composer, &heads, (splits.count, newest))
        }
    };
    let composer = results(composer, first, output);
    let merged = if matches!(input, MatvecInput::Ranges(..)) { ", ranges merged" } else { "" };
    let form = if packed { weights.name() } else { "vec4" };
    let grid = Grid::Flat { rows: 1, per_block: n, per_group: rows * (size / lanes) as usize };
    composer.subgroup_module("03_matvec_team").finish(
        caps,
        &bindings,
        grid.fixed(caps, 1)?,
        format!("{lanes} lanes for {rows} results, {form}{merged}{}", output.fused(normed)),
        format!("one row: a subgroup has results by itself, {unrolled} loads of each in flight"),
    )
}

/// The modules that read `rows` rows of a matrix of `k` columns by units: eight elements of a packed row, else four.
pub(in crate::kernels) fn units(
    composer: Composer,
    weights: WeightFormat,
    (rows, k): (usize, usize),
) -> Composer {
    let packed = weights.packs(k);
    if packed {
        packed_matrix(composer, weights, rows * k)
    } else {
        packed_flags(composer.unrolled("QUADS", 1), WeightFormat::F32).module("lib/weights")
    }
}

/// What puts ranges of keys together.
fn ranges(
    composer: Composer,
    heads: &AttentionShape,
    (splits, newest): (usize, NewestKey),
) -> Composer {
    let composer = composer
        .size("VECTORS", heads.head_dim / 4)
        .size("PARTIAL_VECTORS", (heads.head_dim + PARTIAL_STATE) / 4)
        .size("RANGE_KEYS", RANGE_KEYS)
        .size("WINDOW", heads.window.unwrap_or(u32::MAX as usize))
        .unrolled("SPLITS", splits)
        .float("MASKED", MASKED)
        .when("RANGES", true)
        .when("NEWEST_APART", newest == NewestKey::Apart);
    match newest {
        NewestKey::Among => composer,
        NewestKey::Apart => {
            let composer = scores(composer, heads)
                .unrolled("VECTOR_STEPS", (heads.head_dim / 4).ilog2() as usize)
                .size("KV_HEADS", heads.kv_heads)
                .size("MEMBERS", heads.heads / heads.kv_heads);
            key_rows(cache_sizes(composer, KvCache::F32, heads), heads.ring)
        }
    }
}
