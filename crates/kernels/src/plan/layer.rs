//! One bind group for the dispatches of a layer of a decoded token. A browser's host pays for each bind group that it
//! sets, and at each dispatch for each binding (`docs/decisions/059-one-bind-group-per-layer.md`).
//!
//! What only the layer uses then has places in one virtual tensor, and weights that are neighbours are bound together.
//! This is decided from the operands of all dispatches, before they are bound.

use super::{Buffer, Builder, Dispatch, Slice};
use crate::caps::ALIGN;
use crate::kernels::{Access, Binding, Kernel, Placement, read_write};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Bytes at a multiple of which a binding may begin.
const BINDING_ALIGN: u64 = 4 * ALIGN as u64;
/// Most bytes between weights that are bound together: no part is padded by more in its shard.
const GAP: u64 = 2 * BINDING_ALIGN;
/// What runs of weights are called. No shader has these words.
const WEIGHTS: [&str; 4] =
    ["shared_weights", "shared_weights1", "shared_weights2", "shared_weights3"];

/// What the dispatches of a layer bind, each of them all of it.
type Region = (Binding, Slice);
/// The kernel of such a dispatch, and what it binds.
type BoundKernel = (Kernel, Vec<Slice>);

/// The tensor for what only the layer uses. Before that it has the angles that the embedding leaves for all layers.
#[derive(Debug, Default)]
struct Own {
    /// Its number.
    id: usize,
    /// Where virtual tensors begin in it.
    places: BTreeMap<usize, u64>,
    bytes: u64,
}

impl Own {
    fn add(&mut self, id: usize, bytes: u64) {
        self.places.insert(id, self.bytes);
        self.bytes = (self.bytes + bytes).next_multiple_of(BINDING_ALIGN);
    }

    /// A slice as it will be: in this tensor, or as it is.
    fn moved(&self, slice: Slice) -> Slice {
        let place = match slice.buffer {
            Buffer::Virtual(id) => self.places.get(&id),
            _ => None,
        };
        let moved =
            |at| Slice { buffer: Buffer::Virtual(self.id), offset: at + slice.offset, ..slice };
        place.map_or(slice, moved)
    }
}

impl Builder<'_> {
    /// Gives each of these layers a bind group for all its dispatches: where their kernels can and it pays. The embedding
    /// leaves `angles` for all of them.
    pub fn share_layers(&mut self, layers: &[Range<usize>], angles: Option<Slice>) {
        let mut all = Own { id: self.virtuals.len(), ..Own::default() };
        let mut bound: BTreeMap<usize, BoundKernel> = BTreeMap::new();
        for layer in layers {
            if let Some((of_layer, own)) = self.shared_layer(layer, angles) {
                bound.extend((layer.start..).zip(of_layer));
                all.places.extend(own.places);
                all.bytes = own.bytes.max(all.bytes);
            }
        }
        if bound.is_empty() {
            return;
        }
        self.virtuals.push(all.bytes);
        for (index, (kernel, dispatch)) in self.dispatches.iter_mut().enumerate() {
            dispatch.slices.iter_mut().for_each(|slice| *slice = all.moved(*slice));
            let Some((shared, slices)) = bound.remove(&index) else { continue };
            let operands = std::mem::replace(&mut dispatch.slices, slices);
            let whole = |slice: &&mut Slice| slice.buffer == Buffer::Virtual(all.id);
            dispatch.slices.iter_mut().filter(whole).for_each(|slice| slice.bytes = all.bytes);
            dispatch.operands = kernel.bindings.iter().copied().zip(operands).collect();
            *kernel = Rc::new(shared);
        }
    }

    /// What a layer's dispatches bind, and the tensor for what only the layer uses. Its last dispatches may have
    /// bindings of their own.
    fn shared_layer(
        &self,
        all: &Range<usize>,
        angles: Option<Slice>,
    ) -> Option<(Vec<BoundKernel>, Own)> {
        let last = all.clone().rfind(|&index| fits(&self.dispatches[index].1))?;
        let dispatches = all.start..last + 1;
        let some = &self.dispatches[dispatches.clone()];
        let own = self.own(all, &dispatches, angles);
        let mut regions: Vec<Region> = vec![];
        let operands = || some.iter().flat_map(operands_of);
        operands().for_each(|operand| add(&mut regions, self.region(&own, operand)));
        let mut names = WEIGHTS.into_iter();
        for (binding, _) in regions.iter_mut().filter(|(_, slice)| of_weights(*slice)) {
            binding.name = names.next()?;
        }
        let fit = some.iter().all(|(_, dispatch)| fits(dispatch)) && self.allows(&regions);
        if !fit || !pays(some.len(), operands().count(), regions.len()) {
            return None;
        }
        let (bindings, slices): (Vec<Binding>, Vec<Slice>) = regions.into_iter().unzip();
        let placement = |(operand, slice): Region| {
            let Slice { buffer, offset, .. } = own.moved(slice);
            let behind = |all: &Slice| offset.checked_sub(all.offset).filter(|at| *at < all.bytes);
            let inside = |all: &Slice| behind(all).filter(|_| all.buffer == buffer);
            let place = slices.iter().enumerate().find_map(|(i, all)| Some((i, inside(all)?)));
            place.map(|(binding, offset)| Placement { operand: operand.name, binding, offset })
        };
        let bound = |of: &(Rc<Kernel>, Dispatch)| {
            let placements = operands_of(of).map(placement).collect::<Option<Vec<_>>>()?;
            Some((of.0.placed(&bindings, &placements)?, slices.clone()))
        };
        Some((some.iter().map(bound).collect::<Option<_>>()?, own))
    }

    /// The tensor of a layer: places for what only its dispatches use. Those that do not share may read it.
    fn own(&self, all: &Range<usize>, sharing: &Range<usize>, angles: Option<Slice>) -> Own {
        let mut own = Own { id: self.virtuals.len(), ..Own::default() };
        let mut add = |id| own.add(id, self.virtuals[id]);
        if let Some(Slice { buffer: Buffer::Virtual(id), .. }) = angles {
            add(id);
        }
        // Whether a layer's dispatches alone use a tensor, by its number.
        let mut alone = BTreeMap::new();
        for (index, dispatch) in self.dispatches.iter().enumerate() {
            for (binding, slice) in operands_of(dispatch) {
                let Buffer::Virtual(id) = slice.buffer else { continue };
                let shares = sharing.contains(&index);
                let may = shares || all.contains(&index) && binding.access == Access::Read;
                let (shared, only) = alone.entry(id).or_insert((false, true));
                (*shared, *only) = (*shared || shares, *only && may);
            }
        }
        alone.into_iter().filter(|(_, uses)| *uses == (true, true)).for_each(|(id, _)| add(id));
        own
    }

    /// What is bound for an operand.
    fn region(&self, own: &Own, (binding, slice): Region) -> Region {
        match own.moved(slice) {
            Slice { buffer: Buffer::Virtual(id), .. } if id == own.id => {
                (read_write("shared_activations"), Slice::new(Buffer::Virtual(id), 0, own.bytes))
            }
            Slice { buffer: Buffer::Virtual(id), .. } => {
                let stream = Binding { name: "shared_stream", ..binding };
                (stream, Slice::new(slice.buffer, 0, self.virtuals[id]))
            }
            slice => (binding, slice),
        }
    }

    /// Whether a device binds these, and a kernel can tell them apart.
    fn allows(&self, regions: &[Region]) -> bool {
        let limits = &self.caps.limits;
        let storage = regions.iter().filter(|(binding, _)| binding.access != Access::Uniform);
        let fits = storage.clone().all(|(_, slice)| slice.bytes <= limits.binding_bytes());
        let names: BTreeSet<_> = regions.iter().map(|(binding, _)| binding.name).collect();
        storage.count() <= limits.max_storage_buffers_per_shader_stage as usize
            && fits
            && names.len() == regions.len()
    }
}

fn operands_of((kernel, dispatch): &(Rc<Kernel>, Dispatch)) -> impl Iterator<Item = Region> {
    kernel.bindings.iter().copied().zip(dispatch.slices.iter().copied())
}

/// Adds what is bound for an operand to the regions, or to one of them.
fn add(regions: &mut Vec<Region>, (binding, slice): Region) {
    let end = |slice: Slice| slice.offset + slice.bytes;
    let joins = |all: Slice| {
        let near = slice.offset <= end(all) + GAP && all.offset <= end(slice) + GAP;
        all.buffer == slice.buffer && (all == slice || of_weights(slice) && near)
    };
    let Some((known, all)) = regions.iter_mut().find(|(_, all)| joins(*all)) else {
        return regions.push((binding, slice));
    };
    if binding.access == Access::ReadWrite {
        known.access = Access::ReadWrite;
    }
    let (first, last) = (all.offset.min(slice.offset), end(*all).max(end(slice)));
    *all = Slice::new(all.buffer, first, last - first);
}

const fn of_weights(slice: Slice) -> bool {
    matches!(slice.buffer, Buffer::Weights(_) | Buffer::Packed(_))
}

/// Whether what a dispatch binds can be bound for a whole layer.
fn fits(dispatch: &Dispatch) -> bool {
    let alone = |slice: &Slice| matches!(slice.buffer, Buffer::Ranges | Buffer::LastHidden);
    !dispatch.slices.iter().any(alone)
}

/// Whether one bind group of `shared` bindings is cheaper than one for each dispatch, with `bound` bindings in all. The
/// unit is half of what a binding costs a host at a dispatch. Setting a bind group costs 1 per binding, and 6 more.
const fn pays(dispatches: usize, bound: usize, shared: usize) -> bool {
    2 * dispatches * shared + shared + 6 < 3 * bound + 6 * dispatches
}
