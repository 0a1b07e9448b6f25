//! Attention's backward pass by five plain products, with probabilities and score gradients in memory.

use super::backward::{BUSY_GROUPS, attention_backward_f16};
use super::operands::{BACKWARD_ROWS, backward_rows, common, fused_rows, pass_flags};
use crate::caps::{Capabilities, GpuClass};
use crate::error::Result;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::shape::{
    AttentionProducts as Products, AttentionShape, BatchAttention, Scores,
};
use std::ops::Range;

/// Rows of a strip and keys of one of its tiles.
pub const STRIP: usize = 128;
/// Columns of a workgroup's results, its steps of K, and its invocations.
const COLUMNS: usize = 64;
const STEPS: usize = 16;
const INVOCATIONS: usize = 128;
/// Bytes of a tile of one head.
const TILE_BYTES: u64 = 4 * (STRIP * STRIP) as u64;
/// Vectors of padding after each step of K.
const PAD: usize = 2;
const BYTES: usize = 4 * STEPS * (STRIP + COLUMNS + 16 * PAD);
/// Most bytes of probabilities. Score gradients may take as many again.
const SCRATCH_BYTES: u64 = 64 << 20;
/// The same for one document as long as a batch, in MiB on a [`GpuClass::LARGE`](crate::caps::GpuClass). Fewer heads at a
/// time keep smaller GPUs busy (`docs/decisions/077-long-texts-by-products.md`).
const LONG_SCRATCH_MIB: usize = 400;
/// Fewest workgroups of sums of a document as long as a batch, on a [`GpuClass::LARGE`](crate::caps::GpuClass).
const LEAST_LONG_GROUPS: usize = 256;
/// Fewest workgroups of scores that keep a [`GpuClass::LARGE`](crate::caps::GpuClass) busy, in a batch of as many tiles as
/// there is room for. With 12 heads of 64 on an H200 the backward pass took 71 µs of 128 tokens (24 workgroups) where a
/// pair of kernels by smaller tiles that also kept scores took 55, 79 and 74 of 256 (72), 96 and 91 of 384 (144), 82
/// and 106 of 512 (240); with 6 heads 57 and 47 of 128 tokens (12), 70 and 67 of 256 (36). Kernels that keep none were
/// up to 16 % slower than that pair.
const LEAST_GROUPS: usize = 32;
/// Strips of a short document, of 512 tokens.
const SHORT_STRIPS: u64 = 4;
/// Strips from which on sums have two dispatches, whatever their workgroups. Of 4,096 tokens with 9 heads of 64 an H200
/// adds up at 19 TFLOP/s in one dispatch, and at 27 in two.
const LONG_STRIPS: usize = 16;
/// Keys of the smallest windows. Tiles that reach beyond are computed whole.
const LEAST_WINDOW: usize = 256;

/// The room of a backward pass by products: tiles of 128 queries × 128 keys of each head, and how many heads have
/// theirs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductTiles {
    pub tiles: usize,
    pub heads: usize,
}

impl ProductTiles {
    /// The heads of each turn, of `all` heads: the turns differ by one head at most.
    pub fn turns(self, all: usize) -> impl Iterator<Item = Range<usize>> {
        let turns = all.div_ceil(self.heads);
        (0..turns).map(move |turn| turn * all / turns..(turn + 1) * all / turns)
    }
}

/// Room for batches of up to `batch.tokens` whose documents are short: of four strips. As many heads at a
/// time as have room for all of them. `None` where other kernels take the pass.
pub fn attention_product_tiles(caps: &Capabilities, batch: BatchAttention) -> Option<ProductTiles> {
    let all_heads = batch.shape.heads;
    // In 64 bits: a browser's 32 would overflow.
    let strips = batch.tokens.div_ceil(STRIP) as u64;
    let room = caps.limits.binding_bytes().min(SCRATCH_BYTES) / TILE_BYTES;
    let least = all_tiles(strips).min(strips * all_tiles(SHORT_STRIPS) / SHORT_STRIPS);
    let at_once = (room / least.max(1)).min(all_heads as u64) as usize;
    if at_once == 0 || !by_products(caps, batch) {
        return None;
    }
    let heads = all_heads.div_ceil(all_heads.div_ceil(at_once));
    let tiles = (room / heads as u64).min(all_tiles(strips));
    let groups = (STRIP / COLUMNS * heads) as u64 * tiles;
    let busy = groups >= caps.class().workgroups(LEAST_GROUPS) as u64;
    busy.then_some(ProductTiles { tiles: tiles as usize, heads })
}

/// As [`attention_product_tiles`], for one document of `batch.tokens`. Some heads at a time have room for all of its
/// tiles. GPUs that share the CPU's memory have no such room.
pub fn attention_long_product_tiles(
    caps: &Capabilities,
    batch: BatchAttention,
    turns: usize,
) -> Option<ProductTiles> {
    let (heads, strips) = (batch.shape.heads, batch.tokens.div_ceil(STRIP));
    let tiles = all_tiles(strips as u64);
    let most = (caps.class().workgroups(LONG_SCRATCH_MIB) as u64) << 20;
    let at_once = caps.limits.binding_bytes().min(most) / (TILE_BYTES * tiles.max(1));
    if at_once == 0 || caps.class().units < GpuClass::DESKTOP.units {
        return None;
    }
    let turns = heads.div_ceil(at_once as usize).max(turns);
    let room = ProductTiles { tiles: tiles as usize, heads: heads.div_ceil(turns) };
    let least = room.turns(heads).map(|turn| turn.len()).min().unwrap_or(0);
    let groups = 3 * least * strips * (batch.shape.head_dim / COLUMNS);
    let busy = groups >= caps.class().workgroups(LEAST_LONG_GROUPS);
    (by_products(caps, batch) && busy).then_some(room)
}

/// Whether the backward pass can be by products, whatever its room.
fn by_products(caps: &Capabilities, batch: BatchAttention) -> bool {
    let BatchAttention { shape, window, dropout, rounds, .. } = batch;
    let limits = &caps.limits;
    let fits = limits.workgroup_invocations() >= INVOCATIONS as u32
        && limits.max_compute_workgroup_storage_size >= BYTES as u32
        && limits.max_storage_buffers_per_shader_stage >= 8;
    let can = !caps.software && fits && shape.head_dim.is_multiple_of(COLUMNS);
    let wide = window.is_none_or(|window| window >= LEAST_WINDOW);
    // What is kept has no masks of dropout in it, and kernels of matrices multiply again.
    let matrices = rounds && attention_backward_f16(caps, shape);
    can && wide && dropout.is_none() && !matrices
}

/// Whether the sums of the pass by products rotate the gradients of queries and keys back, where the rotation is of whole
/// heads. Sums in one dispatch do not: of 512 tokens of seed on an H200 they take 11.5 µs longer per layer, and the
/// rotation's own dispatch some 3.
pub fn attention_products_rotate(
    caps: &Capabilities,
    batch: BatchAttention,
    room: ProductTiles,
) -> bool {
    !sums_at_once(caps, batch, room)
}

/// Tiles of a document of `strips` strips.
pub const fn all_tiles(strips: u64) -> u64 {
    strips * (strips + 1) / 2
}

/// The kernels of the pass, in the order of their dispatches. Sums in two make long batches faster, in one batches with
/// few workgroups.
pub fn attention_products(
    caps: &Capabilities,
    batch: BatchAttention,
    room: ProductTiles,
) -> &'static [Products] {
    if sums_at_once(caps, batch, room) {
        &[Products::Scores, Products::Sums]
    } else {
        &[Products::Scores, Products::QuerySums, Products::KeyValueSums]
    }
}

/// Whether all sums have one dispatch.
fn sums_at_once(caps: &Capabilities, batch: BatchAttention, room: ProductTiles) -> bool {
    let strips = batch.tokens.div_ceil(STRIP);
    strips < LONG_STRIPS && room.heads * strips < caps.class().workgroups(BUSY_GROUPS)
}

/// A kernel of the backward pass by products, of `heads` heads from `first_head` on. Each head has up to `tiles` tiles of probabilities, and as many of score
/// gradients. Document ends follow `ends` elements after the starts, and tables of the tiles `2 * ends` after the
/// starts. Bindings of the scores' kernel: qkv, d_output, lse, delta, documents, probabilities (as `gradient`), step,
/// d_scores. Bindings of the sums' kernels: qkv, d_output, documents, probabilities, d_scores, d_qkv, step, where heads
/// share keys the parts for `attention_group_sum`, and for gradients that are rotated back the table of angles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardProducts {
    pub shape: AttentionShape,
    pub scores: Scores,
    pub window: Option<usize>,
    /// Most rows of a batch.
    pub tokens: usize,
    /// The sums rotate the gradients of queries and keys back.
    pub rotated: bool,
    pub tiles: usize,
    pub first_head: usize,
    pub heads: usize,
    pub ends: usize,
    pub products: Products,
}

impl Spec for AttentionBackwardProducts {
    fn name(&self) -> &'static str {
        match self.products {
            Products::Scores => "attention_backward_scores",
            _ => "attention_backward_sums",
        }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, scores, window, tokens, rotated, tiles, ends, products, .. } = *self;
        check_storage(caps, [BYTES as u32], self.name())?;
        let (first, kinds, reason) = match products {
            Products::Scores => (0, 2, "in memory for the sums: five products instead of seven"),
            Products::Sums => (0, 3, "in one dispatch: few workgroups"),
            Products::QuerySums => (0, 1, "of queries alone: many workgroups"),
            Products::KeyValueSums => (1, 2, "of keys and values alone: many workgroups"),
        };
        let loads = |side: usize| side * STEPS / 4 / INVOCATIONS;
        let composer = fused_rows(
            common(Composer::new(*self, INVOCATIONS as u32), shape, scores, window),
            Some(ends),
        )
        .size("STRIP", STRIP)
        .size("BM", STRIP)
        .size("BN", COLUMNS)
        .unrolled("BK", STEPS)
        .size("VECTORS_K", STEPS / 4)
        .size("PAD", PAD)
        .unrolled("TM", 8)
        .unrolled("SIDE", 2)
        .unrolled("LOADS_A", loads(STRIP))
        .unrolled("LOADS_B", loads(COLUMNS))
        .size("TILES", tiles)
        .size("FIRST_HEAD", self.first_head)
        .size("FIRST_TILE", 2 * ends)
        .size("STRIP_OF_TILE", 2 * ends + tokens.div_ceil(STRIP))
        .size("FIRST_KIND", first)
        .unrolled("KINDS", kinds);
        let sums = products != Products::Scores;
        let columns = kinds * self.heads * if sums { shape.head_dim } else { COLUMNS };
        let x = (columns / COLUMNS) as u32;
        let (composer, grid) = if sums {
            let composer = composer
                .size("STRIDE", shape.stride())
                .when("ROTATED", rotated)
                .when("SHARED", shape.heads > shape.kv_heads)
                .module("10_attention_backward_sums");
            (composer, Grid::RowsByY { rows: STRIP, x })
        } else {
            let composer = pass_flags(backward_rows(composer, shape), None)
                .flag("DROPPED", false)
                .when("IN_REGISTERS", false)
                .module("10_attention_backward_scores");
            (composer, Grid::Fixed { x, y: tiles as u32 })
        };
        let bindings = if sums {
            sums_bindings(shape, rotated)
        } else {
            [&BACKWARD_ROWS[..], &[read_write("d_scores")]].concat()
        };
        let rotated = if sums && rotated { ", rotated back" } else { "" };
        let variant = format!("products of 128x64x16, 8x8 each{rotated}");
        composer.finish(caps, &bindings, grid, variant, reason)
    }
}

fn sums_bindings(shape: AttentionShape, rotated: bool) -> Vec<Binding> {
    let parts: &[Binding] = if shape.heads > shape.kv_heads { &[read_write("parts")] } else { &[] };
    let table: &[Binding] = if rotated { &[read("table")] } else { &[] };
    [&SUMS[..], parts, table].concat()
}

const SUMS: [Binding; 7] = [
    read("qkv"),
    read("d_output"),
    read("documents"),
    read("probabilities"),
    read("d_scores"),
    read_write("gradient"),
    uniform("step"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Target;
    use crate::kernels::shape::Constant;

    #[test]
    fn long_documents_have_room_for_some_heads_at_a_time() {
        let mut caps = Capabilities::floor(Target::Browser);
        caps.adapter.architecture = "hopper".into();
        caps.adapter.vendor = "nvidia".into();
        let in_turns = |caps: &Capabilities, heads, tokens, turns| {
            let shape = AttentionShape { heads, kv_heads: heads, head_dim: 64 };
            let batch = BatchAttention { shape, tokens, ..BatchAttention::default() };
            attention_long_product_tiles(caps, batch, turns)
        };
        let room = |caps: &Capabilities, heads, tokens| in_turns(caps, heads, tokens, 1);
        // 528 tiles are 33 MiB. A binding of 128 MiB holds those of three heads.
        assert_eq!(room(&caps, 9, 4096), Some(ProductTiles { tiles: 528, heads: 3 }));
        caps.limits.max_storage_buffer_binding_size = 1 << 31;
        caps.limits.max_buffer_size = 1 << 31;
        assert_eq!(room(&caps, 9, 4096), Some(ProductTiles { tiles: 528, heads: 9 }));
        // Of 16 heads 12 have room: eight in each of two turns.
        assert_eq!(room(&caps, 16, 4096), Some(ProductTiles { tiles: 528, heads: 8 }));
        assert_eq!(in_turns(&caps, 9, 4096, 2), Some(ProductTiles { tiles: 528, heads: 5 }));
        // Too few workgroups, and tiles of one head that have no room.
        assert_eq!([room(&caps, 2, 512), room(&caps, 12, 16_384)], [None; 2]);
        caps.adapter.architecture = "ada".into();
        assert_eq!(room(&caps, 16, 4096), Some(ProductTiles { tiles: 528, heads: 4 }));
        caps.adapter.architecture = "metal-3".into();
        caps.adapter.vendor = "apple".into();
        assert_eq!(room(&caps, 9, 4096), None);
        let turns = |heads, all| {
            let room = ProductTiles { tiles: 1, heads };
            room.turns(all).map(|turn| turn.len()).collect::<Vec<_>>()
        };
        assert_eq!([turns(7, 9), turns(9, 9), turns(4, 9)], [vec![4, 5], vec![9], vec![3; 3]]);
    }

    #[test]
    fn products_are_for_batches_that_keep_a_gpu_busy_and_fit() {
        let mut caps = Capabilities::floor(Target::Browser);
        caps.adapter.architecture = "hopper".into();
        caps.adapter.vendor = "nvidia".into();
        let shape = |heads, tokens| BatchAttention {
            shape: AttentionShape { heads, kv_heads: heads, head_dim: 64 },
            tokens,
            ..BatchAttention::default()
        };
        let tiles = |heads, tokens| {
            attention_product_tiles(&caps, shape(heads, tokens)).map(|room| room.tiles)
        };
        assert_eq!([tiles(12, 0), tiles(12, 128), tiles(6, 128)], [None; 3]);
        assert_eq!(tiles(6, 256), Some(3));
        assert_eq!([tiles(12, 256), tiles(12, 512)], [Some(3), Some(10)]);
        // 85 tiles of 12 heads are 64 MiB, and enough for 34 strips of documents of 512.
        assert_eq!(
            [tiles(12, 1536), tiles(12, 1537), tiles(12, 4352)],
            [Some(78), Some(85), Some(85)]
        );
        // From there on some heads at a time: 64 documents of 256 tokens, three of six heads.
        let some = attention_product_tiles(&caps, shape(6, 16_384));
        assert_eq!(some, Some(ProductTiles { tiles: 341, heads: 3 }));
        assert_eq!([tiles(16, 65_536), tiles(16, 16 << 20)], [None; 2]);
        let refused = [
            BatchAttention {
                shape: AttentionShape { heads: 12, kv_heads: 12, head_dim: 80 },
                ..shape(12, 512)
            },
            BatchAttention { dropout: Some(Constant(0.1)), ..shape(12, 512) },
            BatchAttention { window: Some(255), ..shape(12, 512) },
        ];
        assert!(refused.iter().all(|shape| attention_product_tiles(&caps, *shape).is_none()));
        let software = Capabilities { software: true, ..caps.clone() };
        assert_eq!(attention_product_tiles(&software, shape(12, 512)), None);
        let room = ProductTiles { tiles: 1, heads: 12 };
        let sums = |tokens| attention_products(&caps, shape(12, tokens), room).len();
        assert_eq!([sums(512), sums(4096)], [2, 3]);
        let few = ProductTiles { heads: 6, ..room };
        let sums = |tokens| attention_products(&caps, shape(12, tokens), few).len();
        assert_eq!([sums(1024), sums(4096)], [2, 3]);
    }
}
