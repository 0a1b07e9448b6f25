//! What the kernels of loss and optimizer leave for the host, and tables that it writes for them.

use super::resources::Resources;
use super::throughput::PageYields;
use crate::arch::{Architecture, Rope};
use crate::error::Result;
use crate::gpu::{BufferId, Gpu, Pending};
use crate::plan::{Buffer, METRICS_BYTES, OPTIMIZER_BYTES};
pub(crate) use crate::plan::{Initialize, RowChoice, Sampling, Step};
use std::ops::Range;

/// [`Buffer::Metrics`](crate::plan::Buffer), as `07_loss_sum.wgsl` and `12_step_decision.wgsl` write it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct StepResult {
    /// Sum of the losses of the last batch, and its targets counted.
    pub loss: f32,
    pub counted: f32,
    /// Both over the accumulation.
    pub total_loss: f32,
    pub total_counted: f32,
    pub grad_norm: f32,
    /// 1 where the update was left out.
    pub skipped: f32,
    pub reserved: [f32; 2],
}

/// [`Buffer::Optimizer`](crate::plan::Buffer), as `12_step_decision.wgsl` writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct OptimizerState {
    /// What the rule carries over the updates made; 0 before the first.
    pub carried1: f32,
    pub carried2: f32,
    /// Factor on the gradients, and whether the update happened.
    pub factor: f32,
    pub updated: f32,
}

const _: () = assert!(size_of::<StepResult>() as u64 == METRICS_BYTES);
const _: () = assert!(size_of::<OptimizerState>() as u64 == OPTIMIZER_BYTES);

/// The tables of rotary angles that plans read, each with its rotation.
pub(super) fn rope_tables<'a>(
    resources: &Resources,
    architecture: &'a Architecture,
) -> Result<Vec<(BufferId, &'a Rope)>> {
    let ropes = architecture.ropes.iter().enumerate();
    let tables = ropes.map(|(id, rope)| (Buffer::RopeTable(id), rope));
    let there = tables.filter(|(name, _)| resources.has(*name));
    there.map(|(name, rope)| Ok((resources.get(name)?, rope))).collect()
}

/// Writes those tables: of texts that are long or not.
pub(super) async fn write_rope_tables(
    gpu: &dyn Gpu,
    tables: Vec<(BufferId, &Rope)>,
    positions: Range<usize>,
    long: bool,
) -> Result<()> {
    for (buffer, rope) in tables {
        let angles = (rope.frequencies(long), rope.magnitude());
        write_rope_table(gpu, buffer, positions.clone(), angles).await?;
    }
    Ok(())
}

/// Writes (cos, sin) of each position and pair, computed in f64: drivers' own sines err too much. The
/// host holds a piece of the table at a time, and yields between pieces.
async fn write_rope_table(
    gpu: &dyn Gpu,
    buffer: BufferId,
    positions: Range<usize>,
    (frequencies, magnitude): (Vec<f64>, f64),
) -> Result<()> {
    const PIECE: usize = 8192;
    let rows = (PIECE / frequencies.len().max(1)).max(1);
    let (mut yields, mut pending) = (PageYields::new(gpu), Pending::default());
    let mut piece = Vec::with_capacity(rows * frequencies.len() * 2);
    for first in positions.clone().step_by(rows) {
        piece.clear();
        for position in first..positions.end.min(first + rows) {
            for frequency in &frequencies {
                let angle = position as f64 * frequency;
                piece.push((magnitude * libm::cos(angle)) as f32);
                piece.push((magnitude * libm::sin(angle)) as f32);
            }
        }
        let offset = (first * frequencies.len()) as u64 * 8;
        pending.queue(gpu, || gpu.write(buffer, offset, bytemuck::cast_slice(&piece)))?;
        if yields.yield_to_page().await {
            pending.accepted().await?;
        }
    }
    pending.accepted().await
}
