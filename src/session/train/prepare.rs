//! The kernels of a trainer, compiled before its model is there.

use super::{Trainer, TrainerOptions};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernels::{Steering, WeightFormat};
use crate::lower::train_plans;
use crate::session::compile::{compile_ahead, distinct};
use crate::session::progress::Progress;
use crate::session::weights::Weights;
use std::rc::Rc;

impl Trainer {
    /// Compiles what [`Trainer::create`] compiles for a model of this config. It allocates nothing, and measures no
    /// products.
    ///
    /// # Errors
    /// `invalid-options`, `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn prepare(
        gpu: &Rc<dyn Gpu>,
        config: &ModelConfig,
        options: TrainerOptions,
        progress: Progress<'_>,
    ) -> Result<()> {
        options.validate()?;
        let choices = options.filled(config.dropout).choices(config.dropout, Steering::Nothing);
        let layout = Weights::planned(gpu, config, WeightFormat::F32)?;
        let plans = train_plans(gpu.capabilities(), &layout, choices)?;
        let kernels = distinct(plans.all());
        compile_ahead(&**gpu, &kernels, kernels.len(), progress).await
    }
}
