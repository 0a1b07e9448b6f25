//! Which tile a product takes, and into how many parts its K is split.

use super::linear::{Form, LinearShape};
use crate::caps::Capabilities;

/// How results are divided among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearTile {
    /// BM×BN results a workgroup through workgroup memory in steps of BK, TM×TN an invocation.
    Tiled { bm: usize, bn: usize, bk: usize, tm: usize, tn: usize },
    /// TM×TN results an invocation, straight from storage.
    Direct { tm: usize, tn: usize },
}

/// A tile, the parts of K, and why.
#[derive(Clone, Debug)]
pub struct LinearPick {
    pub tile: LinearTile,
    pub splits: usize,
    pub reason: String,
}

impl LinearTile {
    const fn tiled([bm, bn, bk]: [usize; 3], [tm, tn]: [usize; 2]) -> Self {
        Self::Tiled { bm, bn, bk, tm, tn }
    }

    pub(super) fn invocations(self) -> u32 {
        match self {
            Self::Tiled { bm, bn, tm, tn, .. } => (bm / tm * (bn / tn)) as u32,
            Self::Direct { .. } => 1,
        }
    }

    /// Bytes of workgroup memory: a tile of each operand, more for one that is transposed.
    fn bytes(self, form: Form) -> u32 {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => {
                let pad = |each: usize, transposed: bool| if transposed { 2 * each } else { 0 };
                let m = bm + pad(tm, form != Form::MatmulAt);
                let n = bn + pad(tn, form == Form::MatmulT);
                (4 * bk * (m + n)) as u32
            }
            Self::Direct { .. } => 0,
        }
    }

    pub(super) fn label(self) -> String {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => format!("tiled {bm}x{bn}x{bk}, {tm}x{tn} each"),
            Self::Direct { tm, tn } => format!("direct, {tm}x{tn} each"),
        }
    }

    /// Whether it is for products that fill a GPU by far.
    pub(super) fn is_largest(self) -> bool {
        matches!(self, Self::Tiled { bm: 128, bn: 128, .. })
    }

    /// Workgroups over the results of a product.
    pub fn groups(self, shape: &LinearShape) -> usize {
        match self {
            Self::Tiled { bm, bn, .. } => shape.m().div_ceil(bm) * shape.n.div_ceil(bn),
            Self::Direct { tm, tn } => shape.m().div_ceil(tm) * shape.n.div_ceil(tn),
        }
    }
}

/// Largest first: a larger tile reads each operand fewer times. The second does for the first where
/// its workgroup memory does not fit, 16 KiB among them.
const TILES: [LinearTile; 6] = [
    LinearTile::tiled([128, 128, 16], [8, 8]),
    LinearTile::tiled([128, 128, 8], [8, 8]),
    LinearTile::tiled([128, 64, 16], [8, 8]),
    LinearTile::tiled([64, 64, 16], [8, 4]),
    LinearTile::tiled([32, 32, 16], [4, 4]),
    LinearTile::tiled([16, 16, 16], [4, 4]),
];
/// On SwiftShader a vector load costs as much as twenty vector multiply-adds, whatever the address
/// pattern: the larger the block the better, but compiling it takes longer (two cores: 16×16 0.5 s a
/// pipeline and 3.6 GFLOP/s, 16×8 0.2 s and 2.9, 8×8 0.1 s and 2.4). Large products take the first,
/// small ones the second.
const DIRECT: [LinearTile; 2] =
    [LinearTile::Direct { tm: 16, tn: 16 }, LinearTile::Direct { tm: 8, tn: 8 }];
/// Multiply-adds from which the larger block repays its compilation within a hundred steps.
const LARGE_PRODUCT: u64 = 4 << 20;

/// Fewest workgroups that keep a large GPU busy; below, K is split or a smaller tile is chosen. On
/// an H200 (132 multiprocessors) 48 tiles ran fastest in 8 parts (384 workgroups), 72 in 4 (288),
/// 128 and 192 in 2, 384 in one: `bench/NOTES.md`.
const BUSY_GROUPS: usize = 256;
/// Workgroups from which 128×128 results each are faster than 128×64, and where K is deep: on an
/// H200 256 of them took 410 µs for 495 (`matmul_t`, 2,048³) and 153 for 188 (512×8,192×768).
const MANY_GROUPS: usize = 512;
const MANY_DEEP_GROUPS: usize = 256;
const DEEP: usize = 768;
/// Workgroups from which, with K this deep, they are still faster where K is cut into so many parts:
/// 641 µs for 699 (`matmul`, 4,096×768×4,096), 62 for 71 (`matmul_t`, 1,024³).
const LARGE_SPLIT_GROUPS: usize = 60;
const LARGE_SPLIT_DEPTH: usize = 1024;
const LARGE_SPLITS: usize = 4;
/// Most parts of K, and fewest steps of a part: each part is written and read once.
const MOST_SPLITS: usize = 8;
const LEAST_DEPTH: usize = 64;

/// The tiles that [`pick`] may choose among on this device, largest first.
pub fn linear_tiles(caps: &Capabilities, form: Form) -> Vec<LinearTile> {
    let fits = |tile: &LinearTile| {
        tile.invocations() <= caps.limits.workgroup_invocations()
            && tile.bytes(form) <= caps.limits.max_compute_workgroup_storage_size
    };
    if caps.software {
        return DIRECT.to_vec();
    }
    let tiles: Vec<_> = TILES.into_iter().filter(fits).collect();
    if tiles.is_empty() { DIRECT.to_vec() } else { tiles }
}

/// The 128×128 tile for a product of this form, with K whole or split. Steps of 8 leave room for
/// more workgroups at a time, steps of 16 make fewer barriers: on an H200 the first were faster where
/// an operand is transposed but `matmul_t`'s K is whole, by 14 % at 4,096³ of `matmul`.
fn largest(tiles: &[LinearTile], form: Form, splits: usize) -> Option<LinearTile> {
    let narrow = form == Form::Matmul || form == Form::MatmulT && splits > 1;
    let mut large = tiles.iter().copied().filter(|tile| tile.is_largest());
    if narrow { large.last() } else { large.next() }
}

/// Whether selection ever splits K with this tile, of a device's `tiles`.
pub fn can_split(tiles: &[LinearTile], form: Form, tile: LinearTile) -> bool {
    let tiled = matches!(tile, LinearTile::Tiled { .. });
    tiled && (!tile.is_largest() || largest(tiles, form, LARGE_SPLITS) == Some(tile))
}

/// The largest tile, where a product is large enough for it.
fn pick_largest(tiles: &[LinearTile], shape: &LinearShape) -> Option<LinearPick> {
    let tile = largest(tiles, shape.form, 1)?;
    let (groups, depth) = (tile.groups(shape), shape.depth());
    if groups >= if depth >= DEEP { MANY_DEEP_GROUPS } else { MANY_GROUPS } {
        let reason = format!("largest tile that fits the limits: {groups} workgroups");
        return Some(LinearPick { tile, splits: 1, reason });
    }
    let deep = depth >= LARGE_SPLIT_DEPTH && most_splits(shape) >= LARGE_SPLITS;
    if !deep || groups < LARGE_SPLIT_GROUPS {
        return None;
    }
    let tile = largest(tiles, shape.form, LARGE_SPLITS)?;
    let groups = LARGE_SPLITS * groups;
    let reason = format!("largest tile, since K is deep, and split: {groups} workgroups");
    Some(LinearPick { tile, splits: LARGE_SPLITS, reason })
}

pub(super) fn pick(caps: &Capabilities, shape: &LinearShape) -> LinearPick {
    let tiles = linear_tiles(caps, shape.form);
    if tiles == DIRECT {
        return direct(caps, shape);
    }
    if let Some(pick) = pick_largest(&tiles, shape) {
        return pick;
    }
    let most = most_splits(shape);
    let rest: Vec<_> = tiles.into_iter().filter(|tile| !tile.is_largest()).collect();
    for &tile in &rest {
        let groups = tile.groups(shape);
        let splits = BUSY_GROUPS.div_ceil(groups.max(1)).next_power_of_two();
        if splits <= most {
            let why = if splits > 1 { ", K split" } else { "" };
            let reason = format!(
                "largest tile that makes {BUSY_GROUPS} workgroups{why}: {}",
                groups * splits
            );
            return LinearPick { tile, splits, reason };
        }
    }
    // A split costs a dispatch more, which a product this small does not repay.
    let small = rest.iter().find(|tile| tile.invocations() <= 64).or(rest.last());
    let reason = format!("small product: fewer than {BUSY_GROUPS} workgroups with any tile");
    match small {
        Some(&tile) => LinearPick { tile, splits: 1, reason },
        None => direct(caps, shape),
    }
}

/// Parts that K can be cut into.
fn most_splits(shape: &LinearShape) -> usize {
    if !shape.by_vectors() {
        return 1;
    }
    let most = (shape.depth() / LEAST_DEPTH).clamp(1, MOST_SPLITS);
    1 << most.ilog2()
}

fn direct(caps: &Capabilities, shape: &LinearShape) -> LinearPick {
    let why = if caps.software {
        "the adapter runs on a CPU, where barriers cost more than workgroup memory saves"
    } else {
        "no tile fits the limits on invocations or workgroup memory"
    };
    let operations = (shape.n as u64 * shape.k as u64).saturating_mul(shape.tokens as u64);
    let large = operations >= LARGE_PRODUCT;
    let size = if large {
        "a large product repays a large block"
    } else {
        "small product, quick to compile"
    };
    let tile = DIRECT[usize::from(!large)];
    LinearPick { tile, splits: 1, reason: format!("{why}; {size}") }
}
