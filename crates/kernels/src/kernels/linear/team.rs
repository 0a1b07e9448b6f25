//! The matrix-vector product where one subgroup computes whole results ([`Decoding`](crate::caps::Decoding)).

use super::{Matvec, MatvecInput, MatvecOutput};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::KvCacheFormat;
use crate::kernels::compose::{Composer, Grid, Kernel};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{UNIT, cache_sizes, key_rows, scores};
use crate::kernels::shape::{CacheAttention, MASKED, NewKey, PARTIAL_STATE, RANGE_KEYS};

/// Words of a matrix that an invocation has in flight. They stay in registers, as does the row's part.
const WORDS_IN_FLIGHT: usize = 64;
/// Fewest rows of a matrix where each subgroup computes several. With fewer rows too few subgroups are busy.
const VERY_MANY: usize = 8192;
/// Invocations of a workgroup that merges ranges, which all of them share, and of another workgroup.
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

/// Whether a product with rows of `k` numbers can merge ranges of keys.
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
pub(super) fn team(caps: &Capabilities, shape: &Matvec) -> Option<Team> {
    let merges = shape.input.merges();
    let several =
        shape.packed() && shape.n >= VERY_MANY && matches!(shape.output, MatvecOutput::Plain);
    let rows = caps.decoding().team_rows;
    let lanes = caps.subgroup_size[0];
    let fits = caps.reduces_by_subgroup()
        && shape.k.is_multiple_of(4)
        && shape.k / shape.unit() >= lanes as usize;
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
pub(super) fn by_teams(caps: &Capabilities, shape: Matvec, team: &Team) -> Result<Kernel> {
    let Matvec { n, k, input, output, weights, .. } = shape;
    let &Team { lanes, size, rows } = team;
    let words = if shape.packed() { 4 * UNIT / weights.elements() } else { 4 };
    let iterations = (k / shape.unit()).div_ceil(lanes as usize);
    let most = (WORDS_IN_FLIGHT / (words * rows)).max(1);
    let unrolled = iterations.div_ceil(iterations.div_ceil(most));
    let composer = Composer::new(shape, size)
        .size("LANES", lanes as usize)
        .size("TURNS", iterations.div_ceil(unrolled) * unrolled)
        .unrolled("UNROLLED", unrolled)
        .unrolled("ROWS", rows);
    let (composer, merged) = match input {
        MatvecInput::Plain | MatvecInput::Norm { .. } => (composer.when("RANGES", false), ""),
        MatvecInput::PartialSoftmax(heads, splits, newest) => {
            check_storage(caps, [4 * k as u32], "matvec")?;
            (ranges(composer, &heads, (splits.count, newest)), ", ranges merged")
        }
    };
    let (width, fused) = (shape.width(), output.fused(input.is_normed()));
    let grid = Grid::Flat { rows: 1, per_block: n, per_group: rows * (size / lanes) as usize };
    shape.text(composer, 0, true).subgroup_module("03_matvec_team").finish(
        caps,
        &shape.operands(false)?,
        grid.fixed(caps, 1)?,
        format!("{lanes} lanes for {rows} results, {width}{merged}{fused}"),
        format!("one row: a subgroup has results by itself, {unrolled} loads of each in flight"),
    )
}

/// What puts ranges of keys together.
fn ranges(
    composer: Composer,
    attention: &CacheAttention,
    (splits, newest): (usize, NewKey),
) -> Composer {
    let heads = &attention.shape;
    let composer = composer
        .size("VECTORS", heads.head_dim / 4)
        .size("PARTIAL_VECTORS", (heads.head_dim + PARTIAL_STATE) / 4)
        .size("RANGE_KEYS", RANGE_KEYS)
        .size("WINDOW", attention.window.unwrap_or(u32::MAX as usize))
        .unrolled("SPLITS", splits)
        .float("MASKED", MASKED)
        .when("RANGES", true)
        .when("TENSORS", false)
        .when("BATCHED", false)
        .when("NEW_KEY_APART", newest == NewKey::Apart);
    match newest {
        NewKey::Among => composer,
        NewKey::Apart => {
            let composer = scores(composer, heads, attention.scores)
                .unrolled("VECTOR_STEPS", (heads.head_dim / 4).ilog2() as usize)
                .size("KV_HEADS", heads.kv_heads)
                .size("MEMBERS", heads.members());
            key_rows(cache_sizes(composer, KvCacheFormat::F32, heads), attention.ring)
        }
    }
}
