//! The rotary embedding of whole rows.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Kernel, Spec, read, read_write, uniform};
use super::limits::{FLAT_WORKGROUP, check_storage, workgroup_size};
use super::modules::{key_rows, quads};
use super::norm::NormTerms;
use super::shape::{CacheRows, PartialSums, RopeShape};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;

/// Rotates rows in place, or back. `half`: reads f32 and writes f16. `sums`: adds up partial sums first. Not every
/// shape has these two forms ([`rope_has_halves`], [`RopeShape::rotates_sums`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeRows {
    pub shape: RopeShape,
    pub forward: bool,
    pub half: bool,
    pub sums: PartialSums,
}

impl RopeRows {
    /// In place.
    pub const fn new(shape: RopeShape, forward: bool) -> Self {
        Self { shape, forward, half: false, sums: PartialSums::WHOLE }
    }

    /// The constants of a rotation of whole rows, in either direction.
    fn rotation(self, caps: &Capabilities) -> Result<Composer> {
        let RopeShape { heads, head_dim, dims, stride } = self.shape;
        Ok(Composer::flat(caps, self)?
            .size("HEADS", heads)
            .size("HEAD_DIM", head_dim)
            .size("HALF", dims / 2)
            .size("STRIDE", stride)
            .float("DIRECTION", if self.forward { 1.0 } else { -1.0 }))
    }
}

impl Spec for RopeRows {
    fn name(&self) -> &'static str {
        if self.forward { "rope_forward" } else { "rope_backward" }
    }

    /// Grid: in place an invocation for each pair that is rotated. Into f16, one for each four elements of a row. From
    /// partial sums, one for each eight.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, half, sums, .. } = *self;
        if half {
            debug_assert!(rope_has_halves(shape), "{shape:?}");
            let bindings = [
                read("qkv"),
                read("table"),
                read("documents"),
                read_write("rotated"),
                uniform("step"),
            ];
            let composer = quads(self.rotation(caps)?, Element::F16);
            return composer.by_row(caps, "04_rope_f16", &bindings, shape.stride / 4);
        }
        if sums == PartialSums::WHOLE {
            let bindings = [read_write("qkv"), read("table"), read("documents"), uniform("step")];
            let pairs = shape.heads * shape.dims / 2;
            return self.rotation(caps)?.by_row(caps, "04_rope", &bindings, pairs);
        }
        let composer = Composer::flat(caps, *self)?.when("CACHED", false).when("NORMED", false);
        by_heads(composer, caps, (shape, sums), &[])
    }
}

/// Rotates rows in place, or from `sums` to their sums, and appends their keys and values to a cache in f32, where the shape
/// [rotates sums](RopeShape::rotates_sums). Bindings: the parts if there are any, table, documents, rows, step, the norms'
/// weight if there are any, cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeAppend {
    pub shape: RopeShape,
    pub sums: PartialSums,
    pub cache: CacheRows,
    /// Norms of query and key heads before they rotate, where [`rope_norms_heads`].
    pub norms: Option<NormTerms>,
}

/// Whether a rotation that appends can also norm the heads of this shape: the invocations of a head are in one workgroup,
/// whose memory has a number for each.
pub fn rope_norms_heads(caps: &Capabilities, shape: RopeShape) -> bool {
    let invocations = shape.head_dim / 8;
    let what = "rope_forward";
    let fits =
        |size: u32| invocations <= size as usize && check_storage(caps, [4 * size], what).is_ok();
    shape.rotates_sums()
        && invocations.is_power_of_two()
        && workgroup_size(caps, FLAT_WORKGROUP, 1, what).is_ok_and(fits)
}

impl Spec for RopeAppend {
    fn name(&self) -> &'static str {
        "rope_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, sums, cache, norms } = *self;
        let composer = key_rows(Composer::flat(caps, *self)?, cache.ring)
            .size("QUERY_HEADS", cache.shape.heads)
            .when("CACHED", true)
            .when("NORMED", norms.is_some());
        let Some(NormTerms { epsilon, shifted }) = norms else {
            let mut kernel = by_heads(composer, caps, (shape, sums), &[read_write("cache")])?;
            kernel.variant += ", to the cache";
            return Ok(kernel);
        };
        debug_assert!(rope_norms_heads(caps, shape), "{shape:?}");
        let composer =
            composer.vectors(4).float("EPSILON", epsilon.0 as f32).when("SHIFTED", shifted);
        let more = [read("weight"), read_write("cache")];
        let mut kernel = by_heads(composer, caps, (shape, sums), &more)?;
        kernel.variant += ", norms, to the cache";
        Ok(kernel)
    }
}

/// A kernel of 04_rope_forward_summed.wgsl.
fn by_heads(
    composer: Composer,
    caps: &Capabilities,
    (shape, sums): (RopeShape, PartialSums),
    more: &[Binding],
) -> Result<Kernel> {
    let summed = sums != PartialSums::WHOLE;
    let composer = composer.when("SUMMED", summed).when("ROTATED", true);
    let composer = if summed {
        composer.unrolled("PARTS", sums.count).size("PART_ROW", sums.apart / 4)
    } else {
        composer
    };
    let bindings = [if summed { &[read("parts")][..] } else { &[] }, more];
    let mut kernel = rotated_heads(composer, caps, "04_rope_forward_summed", shape, bindings)?;
    if summed {
        kernel.variant += &format!(", {} parts", sums.count);
    }
    Ok(kernel)
}

/// Rows of heads, with those of queries and keys rotated. What else is bound comes first, and last. Grid: `tokens · stride / 8` invocations.
pub(super) fn rotated_heads(
    composer: Composer,
    caps: &Capabilities,
    module: &'static str,
    shape: RopeShape,
    [first, last]: [&[Binding]; 2],
) -> Result<Kernel> {
    debug_assert!(shape.rotates_sums(), "{shape:?}");
    let RopeShape { heads, head_dim, stride, .. } = shape;
    let bindings = [read("table"), read("documents"), read_write("rows"), uniform("step")];
    let bindings = [first, &bindings, last].concat();
    composer
        .size("HEAD_DIM", head_dim)
        .size("VECTORS", head_dim / 4)
        .size("HALF", head_dim / 8)
        .size("ROW_HEADS", stride / head_dim)
        .size("ROTATED_HEADS", heads)
        .by_row(caps, module, &bindings, stride / 8)
}

/// Whether rows in f16 can have heads of this shape turned.
pub const fn rope_has_halves(shape: RopeShape) -> bool {
    shape.dims.is_multiple_of(4) && shape.head_dim.is_multiple_of(4)
}
