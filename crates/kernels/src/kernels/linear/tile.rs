//! Which tile a product takes, and into how many parts its K is split.

use super::choice::{Choice, PART};
use super::matrix::matrix_choices;
use crate::caps::{Capabilities, GpuClass};
use crate::error::{Error, Result};
use crate::kernels::compose::{Binding, uniform};
use crate::products::{Form, LinearShape, LinearTile, TunedProduct};

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

    /// `lanes` is for matrices: invocations of a subgroup.
    pub(in crate::kernels) fn invocations(self, lanes: u32) -> u32 {
        match self {
            Self::Tiled { bm, bn, tm, tn, .. } => (bm / tm * (bn / tn)) as u32,
            Self::Matrix { bm, bn, wm, wn, .. } => (bm / wm * (bn / wn)) as u32 * lanes,
            Self::Direct { .. } => 1,
        }
    }

    /// Whether K may be cut into parts that a second kernel adds up.
    pub(in crate::kernels) fn splits(self) -> bool {
        !matches!(self, Self::Direct { .. })
    }

    /// Vectors of padding after each row of the two operands' tiles. Where an operand is transposed on its way, they
    /// keep the stores of a subgroup in different banks.
    pub(in crate::kernels) const fn pads(form: Form) -> [usize; 2] {
        match form {
            Form::MatmulT => [2, 2],
            Form::Matmul => [2, 0],
            Form::MatmulAt => [0, 0],
        }
    }

    /// Whether each invocation keeps the places of its loads. That was up to a fifth faster, but for one form of the
    /// largest tile, which it takes registers that the sums need.
    pub(in crate::kernels) fn walks(self, form: Form) -> bool {
        form != Form::Matmul || self.results() < CHOICES[0].tile.results()
    }

    /// Bytes of workgroup memory: a tile of each operand with its pad.
    fn bytes(self, form: Form) -> u32 {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => {
                let [pad_a, pad_b] = Self::pads(form);
                (4 * bk * (bm + tm * pad_a + bn + tn * pad_b)) as u32
            }
            Self::Matrix { .. } | Self::Direct { .. } => 0,
        }
    }

    /// What is bound last where the text leaves sizes open.
    pub(in crate::kernels) fn sizes(self) -> &'static [Binding] {
        const SIZES: [Binding; 1] = [uniform("sizes")];
        if matches!(self, Self::Direct { .. }) { &SIZES } else { &[] }
    }

    fn results(self) -> usize {
        match self {
            Self::Tiled { bm, bn, .. } | Self::Matrix { bm, bn, .. } => bm * bn,
            Self::Direct { tm, tn } => tm * tn,
        }
    }

    pub(in crate::kernels) fn label(self) -> String {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => format!("tiled {bm}x{bn}x{bk}, {tm}x{tn} each"),
            Self::Matrix { bm, bn, bk, wm, wn } => {
                format!("matrix {bm}x{bn}x{bk}, {wm}x{wn} a subgroup")
            }
            Self::Direct { tm, tn } => format!("direct, {tm}x{tn} each"),
        }
    }

    /// Whether its steps of K are unrolled too, where that was faster: by a tenth, for more text to compile.
    pub(in crate::kernels) fn unrolls_depth(self, form: Form) -> bool {
        let least = if form == Form::MatmulAt { 128 } else { 64 };
        matches!(self, Self::Tiled { bm, .. } if bm >= least)
    }

    /// Workgroups over the results of a product.
    pub fn groups(self, shape: &LinearShape) -> usize {
        match self {
            Self::Tiled { bm, bn, .. } | Self::Matrix { bm, bn, .. } => {
                shape.m().div_ceil(bm) * shape.n.div_ceil(bn)
            }
            Self::Direct { tm, tn } => shape.m().div_ceil(tm) * shape.n.div_ceil(tn),
        }
    }
}

impl TunedProduct {
    fn pick(&self) -> LinearPick {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let (own, estimated) =
            (microseconds(self.nanoseconds), microseconds(self.estimated_nanoseconds));
        let reason = if self.nanoseconds == self.estimated_nanoseconds {
            format!("measured: {own:.1} µs, and no other was faster")
        } else {
            format!("measured: {own:.1} µs where the estimate's pick takes {estimated:.1}")
        };
        LinearPick { tile: self.tile, splits: self.splits, reason }
    }
}

const fn choice(sizes: [usize; 3], each: [usize; 2], factor: f64, busy: f64) -> Choice {
    let tile = LinearTile::tiled(sizes, each);
    Choice { tile, factor, busy, edges: EDGES, together: 1, part: PART }
}

/// Largest first. The second does for the first where that does not fit: with an operand to
/// transpose it needs 18 KiB. The figures are fitted to 25 products on an H100, each with all tiles
/// and splits up to 1,200 workgroups: most estimates are within 3 %.
const CHOICES: [Choice; 5] = [
    choice([128, 128, 16], [8, 8], 1.0, 1.0),
    choice([128, 128, 8], [8, 8], 1.07, 1.0),
    choice([128, 64, 16], [8, 8], 1.01, 1.3),
    choice([64, 64, 16], [8, 4], 1.09, 1.9),
    choice([32, 32, 16], [4, 4], 1.5, 5.0),
];
/// The choices for [`Form::MatmulAt`], which transposes no operand.
const CHOICES_AT: [Choice; 4] = [
    choice([128, 128, 16], [8, 8], 0.98, 1.0),
    choice([128, 64, 16], [8, 8], 1.03, 1.6),
    choice([64, 64, 16], [8, 4], 1.07, 2.2),
    choice([32, 32, 16], [4, 4], 1.75, 5.5),
];

/// [`Choice::edges`] of a tile without matrices.
const EDGES: f64 = 16.0;
/// The dispatch of the second stage on a [`GpuClass::LARGE`], in multiply-adds of a compute unit: it takes a step some
/// 4 µs.
const SUM_DISPATCH: f64 = 800_000.0;
/// Most parts that K may be cut into, and the least depth of one.
const MOST_PARTS: usize = 8;
const LEAST_DEPTH: usize = 64;
/// Most bytes of all parts: memory that the plan keeps, for a tenth of a large product's time.
const PARTS_BYTES: u64 = 64 << 20;

/// On SwiftShader a vector load costs as much as twenty vector multiply-adds, whatever the address pattern: the larger
/// the block the better (two cores: 16×16 6.6 to 7.5 GFLOP/s, 8×8 4.4 to 5), but compiling it takes longer.
const DIRECT: [LinearTile; 2] =
    [LinearTile::Direct { tm: 16, tn: 16 }, LinearTile::Direct { tm: 8, tn: 8 }];
/// Multiply-adds from which a large block repays its compilation within a hundred steps. Products of a form share it.
const LARGE_PRODUCT: u64 = 4 << 20;

/// The tiles that `pick` may choose among on this device, largest first.
pub fn linear_tiles(caps: &Capabilities, shape: &LinearShape) -> Vec<LinearTile> {
    let tiles: Vec<_> = choices(caps, shape).into_iter().map(|choice| choice.tile).collect();
    if tiles.is_empty() { DIRECT.to_vec() } else { tiles }
}

/// What fits the device; nothing on a CPU. Matrices alone where operands may be rounded and the device has them.
fn choices(caps: &Capabilities, shape: &LinearShape) -> Vec<&'static Choice> {
    let form = shape.form;
    let matrices = matrix_choices(caps, shape);
    if !matrices.is_empty() {
        return matrices;
    }
    let fits = |tile: LinearTile| {
        !caps.software
            && tile.invocations(1) <= caps.limits.workgroup_invocations()
            && tile.bytes(form) <= caps.limits.max_compute_workgroup_storage_size
    };
    let all: &[_] = if form == Form::MatmulAt { &CHOICES_AT } else { &CHOICES };
    let mut choices: Vec<_> = all.iter().filter(|choice| fits(choice.tile)).collect();
    if choices.first().is_some_and(|first| first.tile == CHOICES[0].tile) {
        choices.retain(|choice| choice.tile != CHOICES[1].tile);
    }
    choices
}

/// What was measured on this device, else the tile and the parts of K that are expected to take the least time.
pub(in crate::kernels) fn pick(caps: &Capabilities, shape: &LinearShape) -> LinearPick {
    let measured = caps.tuned.iter().find(|tuned| tuned.shape == *shape);
    let can = |tile: LinearTile, splits| {
        let cut = tile.splits() && can_cut(caps, shape, splits);
        linear_tiles(caps, shape).contains(&tile) && (splits == 1 || cut)
    };
    if let Some(tuned) = measured.filter(|tuned| can(tuned.tile, tuned.splits)) {
        return tuned.pick();
    }
    described(caps, shape, estimated(caps, shape)[0])
}

/// [`pick`] where the kernel that reads the result adds up its parts, so that no dispatch does. Counted where products
/// are by matrices alone (`docs/decisions/079-prompts-of-small-models.md`).
pub(in crate::kernels) fn pick_for_reader(caps: &Capabilities, shape: &LinearShape) -> LinearPick {
    if matrix_choices(caps, shape).is_empty() {
        return pick(caps, shape);
    }
    let all = expected(caps, shape, 0.0);
    let least = all.iter().min_by(|(one, _), (other, _)| one.total_cmp(other));
    least.map_or_else(|| pick(caps, shape), |(_, least)| described(caps, shape, *least))
}

/// [`pick`] for a given number of parts of K.
///
/// # Errors
/// `internal` where the device has no tile for them.
pub(in crate::kernels) fn pick_parts(
    caps: &Capabilities,
    shape: &LinearShape,
    parts: usize,
) -> Result<LinearPick> {
    let best = pick(caps, shape);
    if best.splits == parts {
        return Ok(best);
    }
    let of_parts = expected(caps, shape, SUM_DISPATCH);
    let of_parts = of_parts.into_iter().filter(|(_, (_, splits))| *splits == parts);
    let least = of_parts.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let pick = least.map(|(_, pick)| described(caps, shape, pick));
    pick.ok_or_else(|| Error::internal(format!("no tile for {parts} parts of K")))
}

/// Most candidates for a measurement, and how many times as slow as the first the estimate may think
/// them: it was up to 1.3 times off on an H200, and knows no other GPU.
const MOST_CANDIDATES: usize = 4;
const WORTH_TRYING: f64 = 1.6;

/// Picks that are worth measuring for a product, the estimate's own first.
pub fn linear_candidates(caps: &Capabilities, shape: &LinearShape) -> Vec<LinearPick> {
    let picks = estimated(caps, shape).into_iter().take(MOST_CANDIDATES);
    picks.map(|pick| described(caps, shape, pick)).collect()
}

/// A tile and the parts of K.
type Estimate = (LinearTile, usize);

/// Tiles and parts by their expected time, none much slower than the first.
fn estimated(caps: &Capabilities, shape: &LinearShape) -> Vec<Estimate> {
    let mut picks = expected(caps, shape, SUM_DISPATCH);
    if picks.is_empty() {
        let [large, small] = DIRECT;
        let order = if repays_large(shape) { [large, small] } else { [small, large] };
        return order.map(|tile| (tile, 1)).into();
    }
    picks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let least = picks[0].0;
    picks.retain(|(cost, _)| *cost <= WORTH_TRYING * least);
    picks.into_iter().map(|(_, pick)| pick).collect()
}

/// All tiles and parts with their expected times, where a dispatch that adds up parts takes `dispatch`.
fn expected(caps: &Capabilities, shape: &LinearShape, dispatch: f64) -> Vec<(f64, Estimate)> {
    let (mut all, class) = (vec![], caps.class());
    for choice in choices(caps, shape) {
        for parts in 1..=MOST_PARTS {
            if parts > 1 && !can_cut(caps, shape, parts) {
                break;
            }
            all.push((cost(class, choice, (parts, dispatch), shape), (choice.tile, parts)));
        }
    }
    all
}

/// A pick with its reason.
fn described(caps: &Capabilities, shape: &LinearShape, (tile, splits): Estimate) -> LinearPick {
    let groups = tile.groups(shape) * splits;
    let what = if splits > 1 { "tile and split of K" } else { "tile" };
    let reason = match tile {
        LinearTile::Direct { .. } => direct_reason(caps, tile),
        LinearTile::Matrix { .. } | LinearTile::Tiled { .. } => {
            let matrix = matches!(tile, LinearTile::Matrix { .. });
            let by = if matrix { "subgroup matrices: " } else { "" };
            format!("{by}the {what} that should take the least time: {groups} workgroups")
        }
    };
    LinearPick { tile, splits, reason }
}

/// Whether K may be cut into this many parts.
fn can_cut(caps: &Capabilities, shape: &LinearShape, parts: usize) -> bool {
    let most = PARTS_BYTES.min(caps.limits.binding_bytes());
    let deep = shape.depth().checked_div(parts).is_some_and(|depth| depth >= LEAST_DEPTH);
    deep && shape.by_vectors() && shape.part_elements().saturating_mul(4 * parts as u64) <= most
}

/// Expected time in multiply-adds of one compute unit. Workgroups are handed out evenly: the unit
/// that gets the most of them ends last.
fn cost(
    class: GpuClass,
    choice: &Choice,
    (parts, dispatch): (usize, f64),
    shape: &LinearShape,
) -> f64 {
    let Choice { tile, factor, busy, edges, together, part } = *choice;
    let groups = (tile.groups(shape) * parts).div_ceil(class.units);
    let groups = groups.next_multiple_of(together) as f64;
    let depth = shape.depth() as f64 / parts as f64 + edges;
    let product = groups.max(busy) * depth * tile.results() as f64 * factor;
    let element = part * GpuClass::LARGE.gigabytes as f64 / class.gigabytes as f64;
    let sum = dispatch + element * (parts + 1) as f64 * shape.part_elements() as f64;
    product + if parts > 1 { sum } else { 0.0 }
}

/// Whether a product is so large that the larger direct block repays its compilation.
fn repays_large(shape: &LinearShape) -> bool {
    (shape.n as u64 * shape.k as u64).saturating_mul(shape.tokens as u64) >= LARGE_PRODUCT
}

fn direct_reason(caps: &Capabilities, tile: LinearTile) -> String {
    let why = if caps.software {
        "the adapter runs on a CPU, where barriers cost more than workgroup memory saves"
    } else {
        "no tile fits the limits on invocations or workgroup memory"
    };
    let size = if tile == DIRECT[0] {
        "a large product repays a large block"
    } else {
        "a small product, quick to compile"
    };
    format!("{why}; {size}")
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::caps::{MatrixConfig, MatrixElement, Target, matrix_samples};
    use crate::kernels::TunedProduct;
    use crate::testing::gpu_adapters;

    /// Picks that were the fastest of all tiles and splits on an H100, or within 4 %.
    #[test]
    fn picks_are_those_that_measured_best() {
        let table = gpu_adapters::table(Target::Native);
        let caps = table.iter().find(|caps| caps.adapter.description.contains("NVIDIA")).unwrap();
        for (form, [m, n, k], best) in [
            (Form::MatmulT, [4096, 4096, 4096], "128x128x16 in 1"),
            (Form::MatmulT, [4096, 4096, 768], "128x128x16 in 1"),
            (Form::MatmulT, [4096, 1280, 768], "128x64x16 in 1"),
            (Form::MatmulT, [4096, 768, 2048], "128x64x16 in 1"),
            (Form::MatmulT, [512, 768, 768], "64x64x16 in 4"),
            (Form::Matmul, [4096, 768, 4096], "128x64x16 in 1"),
            (Form::Matmul, [512, 768, 4096], "128x64x16 in 8"),
            (Form::Matmul, [512, 2048, 768], "64x64x16 in 1"),
            (Form::MatmulAt, [4096, 768, 4096], "128x128x16 in 2"),
            (Form::MatmulAt, [768, 768, 4096], "128x128x16 in 7"),
            (Form::MatmulAt, [768, 2048, 4096], "128x128x16 in 4"),
            (Form::MatmulAt, [768, 2048, 512], "64x64x16 in 1"),
        ] {
            let (k, tokens) = if form == Form::MatmulAt { (m, k) } else { (k, m) };
            let LinearPick { tile, splits, .. } = pick(caps, &LinearShape::new(form, n, k, tokens));
            let LinearTile::Tiled { bm, bn, bk, .. } = tile else { panic!("{tile:?}") };
            assert_eq!(format!("{bm}x{bn}x{bk} in {splits}"), best, "{form:?} {m}x{n}x{k}");
        }
    }

    #[test]
    fn parts_that_their_reader_adds_up_cost_no_dispatch() {
        let half = MatrixConfig {
            component: MatrixElement::F16,
            result: MatrixElement::F32,
            m: 16,
            n: 16,
            k: 16,
        };
        let mut caps = matrix_samples::device(&[half], [32, 32]);
        (caps.adapter.vendor, caps.adapter.architecture) = ("nvidia".into(), String::new());
        caps.limits.max_compute_workgroup_storage_size = 48 << 10;
        let of = |n, k| LinearShape { half: true, ..LinearShape::new(Form::MatmulT, n, k, 512) };
        // SmolLM2-135M: output, and queries, keys and values; Qwen3-0.6B: down.
        for (n, k, alone, read) in [(576, 576, 1, 3), (960, 576, 1, 2), (1024, 3072, 4, 4)] {
            let parts = [pick, pick_for_reader].map(|pick| pick(&caps, &of(n, k)).splits);
            assert_eq!(parts, [alone, read], "{n}x{k}");
            assert_eq!(pick_parts(&caps, &of(n, k), read).unwrap().splits, read);
        }
        // Without matrices nothing changes.
        let f32 = LinearShape { half: false, ..of(576, 576) };
        assert_eq!(pick_for_reader(&caps, &f32).splits, pick(&caps, &f32).splits);
    }

    #[test]
    fn what_was_measured_is_picked_where_it_fits() {
        let mut caps = Capabilities::floor(Target::Browser);
        let shape = LinearShape::new(Form::MatmulT, 768, 768, 512);
        let candidates = linear_candidates(&caps, &shape);
        assert_eq!(candidates[0].tile, pick(&caps, &shape).tile);
        let LinearPick { tile, splits, .. } = candidates[1];
        let tuned = |tile, splits| TunedProduct {
            shape,
            tile,
            splits,
            nanoseconds: 31_250,
            estimated_nanoseconds: 40_000,
        };
        caps.tuned = vec![tuned(tile, splits)];
        let measured = pick(&caps, &shape);
        assert_eq!((measured.tile, measured.splits), (tile, splits));
        assert!(measured.reason.contains("31.2 µs") && measured.reason.contains("40.0"));
        let other = LinearShape { tokens: 511, ..shape };
        assert!(!pick(&caps, &other).reason.contains("measured"));
        // Remembered from another device, or no tile at all: 20 KiB, parts of 3 terms, 7 × 7 results.
        for (tile, splits) in [
            (CHOICES[0].tile, 1),
            (tile, 256),
            (DIRECT[0], 1),
            (LinearTile::Direct { tm: 7, tn: 7 }, 1),
        ] {
            caps.tuned = vec![tuned(tile, splits)];
            assert!(!pick(&caps, &shape).reason.contains("measured"), "{tile:?} in {splits}");
        }
    }

    #[test]
    fn parts_stay_within_their_bytes_and_a_binding() {
        for caps in gpu_adapters::table(Target::Native) {
            let most = PARTS_BYTES.min(caps.limits.binding_bytes());
            for form in Form::ALL {
                for (n, k, tokens) in [(1280, 6912, 2048), (3456, 1280, 2048), (8192, 8192, 65_536)]
                {
                    let shape = LinearShape::new(form, n, k, tokens);
                    let pick = pick(&caps, &shape);
                    let bytes = 4 * pick.splits as u64 * shape.part_elements();
                    assert!(pick.splits == 1 || bytes <= most, "{shape:?}: {pick:?}");
                }
            }
        }
    }
}
