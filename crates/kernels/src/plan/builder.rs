//! Collects dispatches, then gives virtual tensors their slots.

use super::launch::Launch;
use super::slots::{self, Lifetime};
use super::{Buffer, Cost, Dispatch, HeadRows, Phase, Plan, Range, STEP_BYTES, Slice};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{Access, Kernel, KernelSpec, LinearShape, Spec};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes between entries of [`Buffer::Ranges`].
pub const RANGE_STRIDE: u64 = 256;

#[derive(Debug)]
pub struct Builder<'a> {
    pub caps: &'a Capabilities,
    pub phase: Phase,
    /// Rows of the largest batch.
    pub tokens: usize,
    /// The uniform that kernels read as `step`.
    pub step: Buffer,
    /// With their kernels, which are numbered when the plan is finished.
    pub(super) dispatches: Vec<(Rc<Kernel>, Dispatch)>,
    /// The kernels made so far.
    kernels: Vec<Rc<Kernel>>,
    ranges: Vec<Range>,
    pub(super) virtuals: Vec<u64>,
    pub(super) products: Vec<LinearShape>,
    pub head: Option<HeadRows>,
}

impl<'a> Builder<'a> {
    pub fn new(caps: &'a Capabilities, phase: Phase, tokens: usize, step: Buffer) -> Self {
        Self {
            caps,
            phase,
            tokens,
            step,
            dispatches: Vec::new(),
            kernels: Vec::new(),
            ranges: Vec::new(),
            virtuals: Vec::new(),
            products: Vec::new(),
            head: None,
        }
    }

    /// Gives the first activations, of these sizes in bytes, their numbers.
    pub fn reserve(&mut self, bytes: Vec<u64>) {
        self.virtuals = bytes;
    }

    /// A new activation of `elements` f32.
    ///
    /// # Errors
    /// As [`Builder::check_tensor`].
    pub fn tensor(&mut self, what: &str, elements: u64) -> Result<Slice> {
        let bytes = elements * 4;
        self.check_tensor(what, bytes)?;
        self.virtuals.push(bytes);
        Ok(Slice::new(Buffer::Virtual(self.virtuals.len() - 1), 0, bytes))
    }

    /// Whether there are activations.
    pub fn has_tensors(&self) -> bool {
        !self.virtuals.is_empty()
    }

    /// Holds an activation against the device's limits.
    ///
    /// # Errors
    /// `limit-exceeded` when it does not fit one binding.
    pub fn check_tensor(&self, what: &str, bytes: u64) -> Result<()> {
        let have = self.caps.limits.binding_bytes();
        if bytes <= have {
            return Ok(());
        }
        let name = "maxStorageBufferBindingSize";
        let what = format!("the activation {what} of {} tokens", self.tokens);
        Err(Error::limit(name, have, bytes, &what))
    }

    /// All token rows.
    pub fn all_rows(&self) -> Range {
        Range { row0: 0, rows: self.tokens as u32, col0: 0, cols: 0 }
    }

    /// The `step` uniform as a binding.
    pub fn step(&self) -> Slice {
        Slice::new(self.step, 0, STEP_BYTES)
    }

    /// Puts a range among the plan's uniforms and returns its binding.
    pub fn range(&mut self, range: Range) -> Slice {
        let index = self.ranges.iter().position(|r| *r == range).unwrap_or_else(|| {
            self.ranges.push(range);
            self.ranges.len() - 1
        });
        Slice::new(Buffer::Ranges, index as u64 * RANGE_STRIDE, 16)
    }

    /// The kernel of a spec. Layers have the same few, and each is composed once.
    ///
    /// # Errors
    /// As [`Spec::kernel`].
    pub fn kernel(&mut self, spec: impl Spec) -> Result<Rc<Kernel>> {
        match self.known(&spec.into()) {
            Some(kernel) => Ok(kernel),
            None => Ok(self.keep(spec.kernel(self.caps)?)),
        }
    }

    fn known(&self, spec: &KernelSpec) -> Option<Rc<Kernel>> {
        self.kernels.iter().find(|kernel| kernel.spec == *spec).map(Rc::clone)
    }

    fn keep(&mut self, kernel: Kernel) -> Rc<Kernel> {
        let kernel = Rc::new(kernel);
        self.kernels.push(Rc::clone(&kernel));
        kernel
    }

    /// Appends a dispatch. Traffic is taken as every bound byte once.
    ///
    /// # Errors
    /// `internal` where an operand is missing, unknown or doubled; `limit-exceeded` where one does not fit a binding.
    pub fn dispatch(&mut self, launch: Launch) -> Result<()> {
        let range = launch.rows.unwrap_or_else(|| self.all_rows());
        let slices = self.resolve(&launch)?;
        let Launch { label, kernel, flops, .. } = launch;
        for (i, a) in slices.iter().enumerate() {
            let access = kernel.bindings[i].access;
            self.check_binding(&label, access, a)?;
            let writes = access == Access::ReadWrite;
            if writes && slices.iter().enumerate().any(|(j, b)| i != j && a.buffer == b.buffer) {
                return Err(Error::internal(format!(
                    "{label}: {:?} is bound twice and written",
                    a.buffer
                )));
            }
        }
        let bytes = slices.iter().map(|s| s.bytes as f64).sum();
        let flops_per_earlier_key = kernel.spec.flops_per_cached_key();
        let cost = Cost { flops, bytes, flops_per_earlier_key };
        let dispatch = Dispatch {
            kernel: 0,
            slices,
            operands: Vec::new(),
            range,
            phase: self.phase,
            label,
            cost,
        };
        self.dispatches.push((kernel, dispatch));
        Ok(())
    }

    /// The number of dispatches so far.
    pub fn dispatched(&self) -> usize {
        self.dispatches.len()
    }

    /// Dispatches from the one at an index on, with their kernels.
    #[cfg(test)]
    pub fn dispatches_from(&self, first: usize) -> impl Iterator<Item = (&Kernel, &Dispatch)> {
        self.dispatches[first..].iter().map(|(kernel, dispatch)| (&**kernel, dispatch))
    }

    /// The range whose binding begins there.
    #[cfg(test)]
    pub fn range_at(&self, offset: u64) -> Range {
        self.ranges[(offset / RANGE_STRIDE) as usize]
    }

    /// Holds what a dispatch binds against the device's limits on one binding.
    fn check_binding(&self, label: &str, access: Access, slice: &Slice) -> Result<()> {
        let limits = &self.caps.limits;
        let (name, have) = match access {
            Access::Uniform => {
                ("maxUniformBufferBindingSize", limits.max_uniform_buffer_binding_size)
            }
            Access::Read | Access::ReadWrite => {
                ("maxStorageBufferBindingSize", limits.binding_bytes())
            }
        };
        if slice.bytes <= have {
            return Ok(());
        }
        let what = match slice.buffer {
            Buffer::Cache(_) => "the key-value cache of a layer".into(),
            Buffer::BatchCache(_) => {
                format!("the key-value cache of a layer for {} sequences", self.tokens)
            }
            Buffer::RopeTable(_) => "the table of rotary positions".into(),
            other => format!("{other:?}"),
        };
        Err(Error::limit(name, have, slice.bytes, &format!("{what}, bound by {label},")))
    }

    /// Gives every virtual tensor a slot, reusing `existing` ones where they fit.
    pub fn finish(self, existing: &[u64]) -> Plan {
        let mut lifetimes: Vec<Option<Lifetime>> = vec![None; self.virtuals.len()];
        for (index, (_, dispatch)) in self.dispatches.iter().enumerate() {
            for slice in &dispatch.slices {
                if let Buffer::Virtual(id) = slice.buffer {
                    let life = lifetimes[id].get_or_insert(Lifetime {
                        bytes: self.virtuals[id],
                        first: index,
                        last: index,
                    });
                    life.last = index;
                }
            }
        }
        let used: Vec<usize> = (0..lifetimes.len()).filter(|&id| lifetimes[id].is_some()).collect();
        let alive: Vec<Lifetime> = lifetimes.iter().flatten().copied().collect();
        let (slot_of, slots) = slots::assign(&alive, existing);
        let slot: BTreeMap<usize, usize> = used.into_iter().zip(slot_of).collect();
        drop(self.kernels);
        let (mut kernels, mut dispatches): (Vec<Rc<Kernel>>, Vec<Dispatch>) = (vec![], vec![]);
        let place = |slice: &mut Slice| {
            if let Buffer::Virtual(id) = slice.buffer {
                slice.buffer = Buffer::Slot(slot[&id]);
            }
        };
        let mut head = self.head;
        if let Some(HeadRows { states, gradient }) = &mut head {
            place(states);
            gradient.as_mut().map(place);
        }
        for (kernel, mut dispatch) in self.dispatches {
            dispatch.all_slices().for_each(place);
            let same = |k: &Rc<Kernel>| {
                let parts = (k.grid, k.sizes, &k.wgsl);
                Rc::ptr_eq(k, &kernel) || parts == (kernel.grid, kernel.sizes, &kernel.wgsl)
            };
            dispatch.kernel = kernels.iter().position(same).unwrap_or(kernels.len());
            if dispatch.kernel == kernels.len() {
                kernels.push(kernel);
            }
            dispatches.push(dispatch);
        }
        Plan {
            kernels: kernels.into_iter().map(Rc::unwrap_or_clone).collect(),
            dispatches,
            ranges: self.ranges,
            slots,
            unshared_bytes: alive.iter().map(|l| l.bytes).sum(),
            tokens: self.tokens,
            products: self.products,
            head,
        }
    }
}
