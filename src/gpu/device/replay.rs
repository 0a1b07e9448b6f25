//! Replays installed plans: nothing is made, looked up or compiled here.

use super::WgpuDevice;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, Cuts, Gpu, LocalFuture, PlanId, Region, Replay, watched};
use crate::kernels::Grid;
use crate::plan::{Cost, Dispatch, Plan, Range};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// A dispatch, whose GPU objects its plan has.
pub(super) struct Installed {
    /// Index into [`InstalledPlan::pipelines`].
    pub pipeline: usize,
    pub grid: Grid,
    pub range: Range,
    /// For splitting.
    pub cost: Cost,
}

impl Installed {
    pub fn new(plan: &Plan, dispatch: &Dispatch) -> Self {
        Self {
            pipeline: dispatch.kernel,
            grid: plan.kernels[dispatch.kernel].grid,
            range: dispatch.range,
            cost: dispatch.cost,
        }
    }
}

pub(super) struct InstalledPlan {
    pub pipelines: Vec<Rc<wgpu::ComputePipeline>>,
    pub dispatches: Vec<Installed>,
    /// Of each dispatch.
    pub bind_groups: RefCell<Vec<wgpu::BindGroup>>,
    pub ranges: wgpu::Buffer,
    /// The batch that costs refer to.
    pub tokens: usize,
    pub schedule: RefCell<Schedule>,
}

/// Queries a set may hold.
const MOST_QUERIES: usize = 4096;

/// The dispatches that have work to do for some number of rows.
#[derive(Default)]
pub(super) struct Schedule {
    rows: Option<usize>,
    dispatches: Vec<Scheduled>,
}

/// Index of a dispatch into [`InstalledPlan::dispatches`], and its workgroups.
type Scheduled = (usize, [u32; 2]);

impl InstalledPlan {
    fn cost(&self, dispatch: usize, replay: &Replay) -> f64 {
        self.dispatches[dispatch].cost.of_rows(replay.rows, self.tokens, replay.keys)
    }

    /// The schedule for this many rows; another number than in the last replay builds it.
    fn scheduled(&self, rows: usize, device: &WgpuDevice) -> Result<Ref<'_, Schedule>> {
        if self.schedule.borrow().rows != Some(rows) {
            device.count(|c| c.schedules += 1);
            let most = device.caps.limits.max_compute_workgroups_per_dimension;
            let mut schedule = self.schedule.borrow_mut();
            let Schedule { rows: built, dispatches } = &mut *schedule;
            *built = None;
            dispatches.clear();
            for (index, dispatch) in self.dispatches.iter().enumerate() {
                let groups = dispatch.grid.resolve(dispatch.range.rows_of(rows), most)?;
                if let Some(groups) = groups {
                    dispatches.push((index, groups));
                }
            }
            *built = Some(rows);
        }
        Ok(self.schedule.borrow())
    }
}

impl WgpuDevice {
    pub(super) fn installed(&self, plan: PlanId) -> Result<Rc<InstalledPlan>> {
        let found = self.plans.borrow().get(&plan).map(Rc::clone);
        found.ok_or_else(|| Error::internal(format!("plan {} is not installed", plan.0)))
    }

    /// A submit's own error scopes, where the call that makes it has none open.
    pub(super) fn in_watch<T: 'static>(
        &self,
        work: impl FnOnce() -> Result<LocalFuture<Result<T>>>,
    ) -> Result<LocalFuture<Result<T>>> {
        if self.watching() { work() } else { watched(self, work) }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("replay") })
    }

    fn send(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        self.count(|c| c.submits += 1);
        self.queue.submit([encoder.finish()])
    }

    /// Cost of the replays' dispatches that have work to do.
    fn cost(&self, replays: &[Replay]) -> Result<f64> {
        let mut sum = 0.0;
        for replay in replays {
            let plan = self.installed(replay.plan)?;
            let schedule = plan.scheduled(replay.rows, self)?;
            sum += schedule.dispatches.iter().map(|&(i, _)| plan.cost(i, replay)).sum::<f64>();
        }
        Ok(sum)
    }

    /// Encodes replays one after the other. Nothing is allocated here that grows with dispatches.
    pub(super) fn replay(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let total = if submits > 1 { self.cost(replays)? } else { 0.0 };
        let mut cuts = Cuts::new(total, submits);
        let mut encoder = self.encoder();
        let mut pass = begin_pass(&mut encoder);
        let mut dispatches = 0;
        for replay in replays {
            let plan = self.installed(replay.plan)?;
            let bind_groups = plan.bind_groups.borrow();
            let mut bound = None;
            for &(index, groups) in &plan.scheduled(replay.rows, self)?.dispatches {
                let dispatch = &plan.dispatches[index];
                if cuts.before(plan.cost(index, replay)) {
                    drop(pass);
                    self.send(std::mem::replace(&mut encoder, self.encoder()));
                    pass = begin_pass(&mut encoder);
                    bound = None;
                }
                if bound.replace(dispatch.pipeline) != Some(dispatch.pipeline) {
                    pass.set_pipeline(&plan.pipelines[dispatch.pipeline]);
                }
                pass.set_bind_group(0, &bind_groups[index], &[]);
                pass.dispatch_workgroups(groups[0], groups[1], 1);
                dispatches += 1;
            }
        }
        drop(pass);
        self.count(|c| c.dispatches += dispatches);
        self.finish(encoder, read)
    }

    pub(super) fn copy_buffer(&self, from: BufferId, to: BufferId, bytes: u64) -> Result<()> {
        let mut encoder = self.encoder();
        let from = self.raw_buffer(from)?;
        encoder.copy_buffer_to_buffer(&from, 0, &self.raw_buffer(to)?, 0, bytes);
        self.send(encoder);
        Ok(())
    }

    /// Submits an encoder, with a copy to staging at its end if a region is asked for.
    fn finish(
        &self,
        mut encoder: wgpu::CommandEncoder,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let Some(region) = read else {
            self.send(encoder);
            return Ok(Box::pin(async { Ok(Vec::new()) }));
        };
        // Before a staging buffer is taken from those that are free.
        let source = self.raw_buffer(region.buffer)?;
        let staging = self.staging(region.bytes);
        encoder.copy_buffer_to_buffer(&source, region.offset, &staging, 0, region.bytes);
        let submitted = self.send(encoder);
        Ok(self.staging.fetch(staging, region.bytes, submitted, &self.loss))
    }

    /// One compute pass per dispatch with a timestamp at both ends.
    pub(super) fn timed_replay(
        &self,
        replay: Replay,
    ) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        if !self.capabilities().features.timestamps {
            return Ok(Box::pin(async { Ok(None) }));
        }
        let plan = self.installed(replay.plan)?;
        let schedule = plan.scheduled(replay.rows, self)?;
        let schedule = &schedule.dispatches;
        let bytes = schedule.len() as u64 * 16;
        let resolved = self.allocate(&wgpu::BufferDescriptor {
            label: Some("timestamps"),
            size: bytes.max(16),
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut encoder = self.encoder();
        for (batch, dispatches) in schedule.chunks(MOST_QUERIES / 2).enumerate() {
            let queries = self.timed_passes(&mut encoder, &plan, dispatches);
            let (count, offset) = (dispatches.len() as u32 * 2, (batch * MOST_QUERIES) as u64 * 8);
            encoder.resolve_query_set(&queries, 0..count, &resolved, offset);
        }
        let staging = self.staging(bytes);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
        let submitted = self.send(encoder);
        resolved.destroy(); // once the submit is done
        let period = f64::from(self.queue.get_timestamp_period());
        let fetched = self.staging.fetch(staging, bytes, submitted, &self.loss);
        let count = plan.dispatches.len();
        let indices: Vec<usize> = schedule.iter().map(|(index, _)| *index).collect();
        Ok(Box::pin(async move {
            let bytes = fetched.await?;
            let stamps: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes(b.try_into().expect("chunks of 8")))
                .collect();
            let mut times = vec![0.0; count];
            for (index, pair) in indices.iter().zip(stamps.chunks_exact(2)) {
                times[*index] = pair[1].saturating_sub(pair[0]) as f64 * period / 1000.0;
            }
            Ok(Some(times))
        }))
    }

    /// Encodes a pass per dispatch, and gives the queries of their timestamps.
    fn timed_passes(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &InstalledPlan,
        dispatches: &[Scheduled],
    ) -> wgpu::QuerySet {
        let queries = self.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: dispatches.len() as u32 * 2,
        });
        for (query, (index, groups)) in (0..).step_by(2).zip(dispatches) {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &queries,
                    beginning_of_pass_write_index: Some(query),
                    end_of_pass_write_index: Some(query + 1),
                }),
            });
            let dispatch = &plan.dispatches[*index];
            pass.set_pipeline(&plan.pipelines[dispatch.pipeline]);
            pass.set_bind_group(0, &plan.bind_groups.borrow()[*index], &[]);
            pass.dispatch_workgroups(groups[0], groups[1], 1);
        }
        queries
    }
}

fn begin_pass(encoder: &mut wgpu::CommandEncoder) -> wgpu::ComputePass<'static> {
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
}
