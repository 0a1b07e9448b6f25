//! One bind group for the dispatches of a layer of a decoded token. A browser's host pays for each bind group that it
//! sets, and at each dispatch for each binding (`docs/decisions/059-one-bind-group-per-layer.md`).
//!
//! What a layer alone uses lies in one virtual tensor then, weights that are neighbours are bound together, and the
//! layer's kernels find their operands in these (`kernels/share.rs`).

use super::{Buffer, Builder, Dispatch, Slice};
use crate::caps::ALIGN;
use crate::kernels::{Access, Binding, Kernel, View};
use std::ops::Range;

/// Bytes at a multiple of which a binding may begin.
const BINDING_ALIGN: u64 = 4 * ALIGN as u64;
/// Most bytes between weights that are bound together: no part is padded by more in its shard.
const GAP: u64 = 2 * BINDING_ALIGN;
/// What runs of weights are called.
const WEIGHTS: [&str; 4] = ["weights", "weights1", "weights2", "weights3"];

/// What the dispatches of a layer bind, each of them all of it.
type Region = (Binding, Slice);

/// A layer whose dispatches share their bindings.
struct Layer {
    dispatches: Range<usize>,
    own: Own,
    regions: Vec<Region>,
    kernels: Vec<Kernel>,
}

/// The tensor that what a layer alone uses lies in, behind the angles that the embedding leaves for all layers.
struct Own {
    buffer: Buffer,
    /// Where virtual tensors begin in it.
    places: Vec<Option<u64>>,
    bytes: u64,
}

impl Own {
    /// A slice as it will be: in this tensor, or as it is.
    fn moved(&self, slice: Slice) -> Slice {
        let at = match slice.buffer {
            Buffer::Virtual(id) => self.places.get(id).copied().flatten(),
            _ => None,
        };
        let moved = |at| Slice { buffer: self.buffer, offset: at + slice.offset, ..slice };
        at.map_or(slice, moved)
    }
}

impl Builder<'_> {
    /// Lets the dispatches of each of these layers share a bind group, where their kernels can and it pays. The
    /// embedding leaves `angles` for all of them.
    pub fn share(&mut self, layers: &[Range<usize>], angles: Option<Slice>) {
        let shared: Vec<Layer> =
            layers.iter().filter_map(|layer| self.shared(layer, angles)).collect();
        let bytes = shared.iter().map(|layer| layer.own.bytes).max().unwrap_or(0);
        if bytes == 0 {
            return;
        }
        self.virtuals.push(bytes);
        for Layer { dispatches, own, regions, kernels } in shared {
            for dispatch in &mut self.dispatches {
                dispatch.slices.iter_mut().for_each(|slice| *slice = own.moved(*slice));
            }
            let whole = |&(_, slice): &Region| Slice {
                bytes: if slice.buffer == own.buffer { bytes } else { slice.bytes },
                ..slice
            };
            let slices: Vec<Slice> = regions.iter().map(whole).collect();
            for (index, kernel) in dispatches.zip(kernels) {
                let operands = self.kernels[self.dispatches[index].kernel].bindings.clone();
                let kernel = self.kernel(kernel);
                let dispatch = &mut self.dispatches[index];
                dispatch.kernel = kernel;
                let bound = std::mem::replace(&mut dispatch.slices, slices.clone());
                dispatch.operands = operands.into_iter().zip(bound).collect();
            }
        }
        self.drop_unused_kernels();
    }

    /// A layer's shared bindings. Its last dispatches may have some of their own.
    fn shared(&self, all: &Range<usize>, angles: Option<Slice>) -> Option<Layer> {
        let last = all.clone().rfind(|&index| fits(&self.dispatches[index]))?;
        let dispatches = all.start..last + 1;
        let some = &self.dispatches[dispatches.clone()];
        if !some.iter().all(fits) {
            return None;
        }
        let own = self.own(all, &dispatches, angles);
        let mut regions: Vec<Region> = vec![];
        let mut bound = 0;
        for (&binding, &slice) in some.iter().flat_map(|dispatch| self.bound(dispatch)) {
            bound += 1;
            self.add(&mut regions, &own, binding, own.moved(slice));
        }
        if !self.allowed(&regions) || !pays(some.len(), bound, regions.len()) {
            return None;
        }
        let bindings: Vec<Binding> = regions.iter().map(|(binding, _)| *binding).collect();
        let mut kernels = Vec::with_capacity(some.len());
        for dispatch in some {
            let mut views = vec![];
            for (&operand, &slice) in self.bound(dispatch) {
                let slice = own.moved(slice);
                let binding = regions.iter().position(|(_, all)| within(slice, *all))?;
                views.push(View {
                    operand,
                    binding,
                    offset: slice.offset - regions[binding].1.offset,
                });
            }
            kernels.push(self.kernels[dispatch.kernel].sharing(&bindings, &views)?);
        }
        Some(Layer { dispatches, own, regions, kernels })
    }

    fn bound<'b>(
        &'b self,
        dispatch: &'b Dispatch,
    ) -> impl Iterator<Item = (&'b Binding, &'b Slice)> {
        self.kernels[dispatch.kernel].bindings.iter().zip(&dispatch.slices)
    }

    /// The tensor of a layer: places for what only its dispatches use. Those that do not share may read it.
    fn own(&self, all: &Range<usize>, sharing: &Range<usize>, angles: Option<Slice>) -> Own {
        let uses = |index: usize, id: usize| {
            let mut bound = self.bound(&self.dispatches[index]);
            bound.find(|(_, slice)| slice.buffer == Buffer::Virtual(id)).map(|(it, _)| it.access)
        };
        let alone = |id: usize| {
            let others = |index| {
                uses(index, id).is_some_and(|access| {
                    !(sharing.contains(&index) || all.contains(&index) && access == Access::Read)
                })
            };
            sharing.clone().any(|index| uses(index, id).is_some())
                && !(0..self.dispatches.len()).any(others)
        };
        let mut own = Own {
            buffer: Buffer::Virtual(self.virtuals.len()),
            places: vec![None; self.virtuals.len()],
            bytes: 0,
        };
        let mut put = |id: usize| {
            own.places[id] = Some(own.bytes);
            own.bytes = (own.bytes + self.virtuals[id]).next_multiple_of(BINDING_ALIGN);
        };
        if let Some(Slice { buffer: Buffer::Virtual(id), .. }) = angles {
            put(id);
        }
        (0..self.virtuals.len()).filter(|&id| alone(id)).for_each(put);
        own
    }

    /// Adds what is bound to the regions, or to one of them.
    fn add(&self, regions: &mut Vec<Region>, own: &Own, mut binding: Binding, mut slice: Slice) {
        let of_weights = matches!(slice.buffer, Buffer::Weights(_) | Buffer::Packed(_));
        let before = regions.len();
        match slice.buffer {
            buffer if buffer == own.buffer => {
                binding = Binding { name: "activations", access: Access::ReadWrite };
                slice = Slice::new(buffer, 0, own.bytes);
            }
            Buffer::Virtual(id) => {
                binding.name = "stream";
                slice = Slice::new(slice.buffer, 0, self.virtuals[id]);
            }
            _ if of_weights => {
                let runs = regions.iter().filter(|(binding, _)| WEIGHTS.contains(&binding.name));
                binding.name = WEIGHTS.get(runs.count()).copied().unwrap_or("");
            }
            _ => {}
        }
        for (known, all) in &mut regions[..before] {
            let [end, all_end] = [slice, *all].map(|it| it.offset + it.bytes);
            let neighbours = slice.offset <= all_end + GAP && all.offset <= end + GAP;
            if all.buffer != slice.buffer || (*all != slice && !(of_weights && neighbours)) {
                continue;
            }
            if binding.access == Access::ReadWrite {
                known.access = Access::ReadWrite;
            }
            all.offset = all.offset.min(slice.offset);
            all.bytes = end.max(all_end) - all.offset;
            return;
        }
        regions.push((binding, slice));
    }

    /// Whether a device binds these, which may not alias where they are written, and a kernel can tell them apart.
    fn allowed(&self, regions: &[Region]) -> bool {
        let limits = &self.caps.limits;
        let storage = regions.iter().filter(|(binding, _)| binding.access != Access::Uniform);
        let fits = storage.clone().all(|(_, slice)| slice.bytes <= limits.binding_bytes());
        let apart = |(i, (a, at)): (usize, &Region)| {
            regions[..i].iter().all(|(b, bt)| {
                let written = [a, b].iter().any(|it| it.access == Access::ReadWrite);
                a.name != b.name && (at.buffer != bt.buffer || !written)
            })
        };
        let named = regions.iter().all(|(binding, _)| !binding.name.is_empty());
        storage.count() <= limits.max_storage_buffers_per_shader_stage as usize
            && fits
            && named
            && regions.iter().enumerate().all(apart)
    }

    fn drop_unused_kernels(&mut self) {
        let mut index = 0;
        while index < self.kernels.len() {
            if self.dispatches.iter().any(|dispatch| dispatch.kernel == index) {
                index += 1;
                continue;
            }
            self.kernels.remove(index);
            let behind = self.dispatches.iter_mut().filter(|dispatch| dispatch.kernel > index);
            behind.for_each(|dispatch| dispatch.kernel -= 1);
        }
    }
}

/// Whether what a dispatch binds can be bound for a whole layer.
fn fits(dispatch: &Dispatch) -> bool {
    dispatch.slices.iter().all(|slice| {
        matches!(
            slice.buffer,
            Buffer::Virtual(_)
                | Buffer::Weights(_)
                | Buffer::Packed(_)
                | Buffer::Cache(_)
                | Buffer::RopeTable(_)
                | Buffer::DecodeStep
                | Buffer::Batch
        )
    })
}

/// Whether so many dispatches with `bound` bindings in all had better have one bind group of `shared`. In halves of
/// what a binding costs a host at a dispatch: where its bind group is set it costs one more, and that costs six
/// besides.
const fn pays(dispatches: usize, bound: usize, shared: usize) -> bool {
    2 * dispatches * shared + shared + 6 < 3 * bound + 6 * dispatches
}

/// Whether a slice lies in another.
fn within(slice: Slice, all: Slice) -> bool {
    let [end, all_end] = [slice, all].map(|it| it.offset + it.bytes);
    slice.buffer == all.buffer && all.offset <= slice.offset && end <= all_end
}
