//! LoRA adapters on a frozen base (Hu et al., arXiv:2106.09685).
//!
//! An adapter is data ([`LoraConfig`]): rank, alpha, targets by PEFT's names of modules, seed. On a base it is a model
//! of its own, [`Adapter::model`], whose architecture is the base's with more weights
//! ([`Architecture::adapted`](crate::arch::Architecture::adapted)), whose layout is one over the base's
//! ([`Params::adapted`](crate::params::Params::adapted)), and which finds what it does not own in the base's buffers.
//! All that takes a model takes this one: a trainer has gradients and moments of the adapter's weights alone, since a
//! layout's own weights are what is trained; generation, loss and looks read base and adapter, with a key-value cache
//! of their own; a save holds the adapter's tensors under PEFT's names. Several adapters share one base, and none of
//! them changes it before it is merged.

use super::tensor_storage::TensorStorage;
use crate::arch::{LowRank, WeightId};
use crate::config::LoraConfig;
use crate::error::{Error, Result};
use crate::gpu::Pending;
use crate::params::{Params, Tensor};
use crate::plan::Buffer;
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::resources::Resources;
use crate::session::weights::Weights;
use std::rc::Rc;

/// Elements of a base's tensor that are read back at a time.
const MERGED_ELEMENTS: usize = 1 << 20;

/// An adapter, attached to its base.
#[derive(Debug)]
pub struct Adapter {
    base: Rc<Model>,
    model: Rc<Model>,
    lora: LoraConfig,
}

impl Adapter {
    /// A new adapter: A drawn as PEFT draws it, from the seed, and B zero, so that base and adapter give
    /// what the base gives.
    ///
    /// # Errors
    /// `invalid-options`, also for a target that no module of the base has, and where the base has an
    /// adapter; `limit-exceeded`, `out-of-memory`, `freed`, `device-lost`, `aborted`.
    pub async fn create(
        base: &Rc<Model>,
        lora: LoraConfig,
        progress: Progress<'_>,
    ) -> Result<Rc<Self>> {
        let weights = Weights::adapted(&base.weights, &lora, progress).await?;
        Ok(Rc::new(Self { base: Rc::clone(base), model: Rc::new(Model::new(weights)), lora }))
    }

    pub fn base(&self) -> &Rc<Model> {
        &self.base
    }

    /// Base and adapter: what generates, is trained and saved.
    pub fn model(&self) -> &Rc<Model> {
        &self.model
    }

    pub fn config(&self) -> &LoraConfig {
        &self.lora
    }

    /// Gives up the adapter's memory. The base stays.
    pub fn free(&self) {
        self.model.free();
    }

    /// Adds `scale · B·A` to each adapted module of the base and frees the adapter. Other adapters of the
    /// base go on from the changed one. No step of the base's own training may be under way.
    ///
    /// # Errors
    /// `freed`, also after a merge; `invalid-options` where the base is packed; `device-lost`; `aborted` before
    /// anything is changed.
    pub async fn merge(&self, progress: Progress<'_>) -> Result<()> {
        // Held to the end: a call of `free` meanwhile does not leave the base half merged.
        let buffers = self.model.weights.buffers()?;
        self.base.weights.expect_own_numbers("merge")?;
        progress.report(0, 1, "merge")?;
        let products = &self.model.layout().architecture.low_rank;
        let mut pending = Pending::default();
        for low in products {
            // Steps of other adapters may be queued between the modules.
            self.base.changed();
            self.merge_module(&buffers, low, &mut pending).await?;
        }
        pending.accepted().await?;
        self.base.changed();
        self.free();
        // Whoever wants no more of it now comes too late.
        let _ = progress.report(1, 1, "merge");
        Ok(())
    }

    async fn merge_module(
        &self,
        buffers: &Resources,
        low: &LowRank,
        pending: &mut Pending,
    ) -> Result<()> {
        let gpu = self.base.gpu();
        let find = |name| buffers.get(name);
        let storage_of =
            |layout, tensor| TensorStorage { layout, tensor, set: Buffer::Weights, find: &find };
        let (own, base) = (self.model.layout(), self.base.layout());
        let [a, b] = [tensor_of(own, low.a, 0)?, tensor_of(own, low.b, 0)?];
        let (columns, rank) = (own.matrices[low.a].cols, own.matrices[low.b].cols);
        let a = floats(&storage_of(own, a).read(gpu, 0..rank * columns)?.await?);
        let b = floats(&storage_of(own, b).read(gpu, 0..low.rows * rank)?.await?);
        let module = tensor_of(base, low.target, low.row0)?;
        let rows = (MERGED_ELEMENTS / columns).max(1);
        for first in (0..low.rows).step_by(rows) {
            let last = low.rows.min(first + rows);
            let read = storage_of(base, module).read(gpu, first * columns..last * columns)?;
            let mut weights = floats(&read.await?);
            let of_rows = &b[first * rank..last * rank];
            add_low_rank(&mut weights, [of_rows, &a], rank, low.scale);
            let storage = storage_of(base, module);
            pending.queue(&**gpu, || storage.write(gpu, first * columns, &weights))?;
        }
        Ok(())
    }
}

/// Adds `scale · B·A` to rows of a matrix. B has one row for each, and A has the matrix's columns. Sums are f64.
fn add_low_rank(weights: &mut [f32], [b, a]: [&[f32]; 2], rank: usize, scale: f64) {
    let columns = a.len() / rank;
    for (row, b) in weights.chunks_exact_mut(columns).zip(b.chunks_exact(rank)) {
        for (column, weight) in row.iter_mut().enumerate() {
            let of_column = a[column..].iter().step_by(columns);
            let sum: f64 =
                b.iter().zip(of_column).map(|(&b, &a)| f64::from(b) * f64::from(a)).sum();
            *weight = (f64::from(*weight) + scale * sum) as f32;
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// The tensor that begins at a row of a weight.
fn tensor_of(layout: &Params, weight: WeightId, row0: usize) -> Result<&Tensor> {
    let found = layout.tensors.iter().find(|t| t.matrix == weight && t.row0 == row0);
    found.ok_or_else(|| Error::internal("an adapter of a module that the base has not"))
}
