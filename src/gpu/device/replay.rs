//! Replays installed plans: nothing is made, looked up or compiled here.

use super::WgpuDevice;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, LocalFuture, Region, Replay};
use crate::kernels::Grid;
use crate::plan::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A dispatch with its GPU objects.
pub(super) struct Installed {
    /// Index into [`InstalledPlan::pipelines`].
    pub pipeline: usize,
    pub bind_group: wgpu::BindGroup,
    pub grid: Grid,
    pub range: Range,
    /// Share of the plan's cost, for splitting.
    pub weight: f64,
}

pub(super) struct InstalledPlan {
    pub pipelines: Vec<wgpu::ComputePipeline>,
    pub dispatches: Vec<Installed>,
    pub ranges: wgpu::Buffer,
    pub ranges_bytes: u64,
}

/// A dispatch of a plan by index, with its workgroups.
type Scheduled = (Rc<InstalledPlan>, usize, [u32; 2]);

impl WgpuDevice {
    fn plan(&self, replay: &Replay) -> Result<Rc<InstalledPlan>> {
        let plans = self.plans.borrow();
        let found = plans.get(replay.plan.0 as usize).and_then(Option::as_ref);
        found
            .cloned()
            .ok_or_else(|| Error::internal(format!("plan {} is not installed", replay.plan.0)))
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("replay") })
    }

    fn send(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        self.count(|c| c.submits += 1);
        self.queue.submit([encoder.finish()])
    }

    /// The replays' dispatches that have work to do.
    fn schedule(&self, replays: &[Replay]) -> Result<Vec<Scheduled>> {
        let most = self.caps.limits.max_compute_workgroups_per_dimension;
        let mut schedule = Vec::new();
        for replay in replays {
            let plan = self.plan(replay)?;
            for (index, dispatch) in plan.dispatches.iter().enumerate() {
                if let Some(groups) =
                    dispatch.grid.resolve(dispatch.range.rows_of(replay.rows), most)?
                {
                    schedule.push((Rc::clone(&plan), index, groups));
                }
            }
        }
        Ok(schedule)
    }

    pub(super) fn replay(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let schedule = self.schedule(replays)?;
        let total: f64 =
            schedule.iter().map(|(plan, index, _)| plan.dispatches[*index].weight).sum();
        let mut encoder = self.encoder();
        let mut next = schedule.iter().peekable();
        for submit in 1..=submits.max(1) {
            let goal = total * submit as f64 / submits.max(1) as f64;
            let mut done = total * (submit - 1) as f64 / submits.max(1) as f64;
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            while let Some((plan, index, groups)) = next.peek() {
                if done >= goal && submit < submits {
                    break;
                }
                let dispatch = &plan.dispatches[*index];
                pass.set_pipeline(&plan.pipelines[dispatch.pipeline]);
                pass.set_bind_group(0, &dispatch.bind_group, &[]);
                pass.dispatch_workgroups(groups[0], groups[1], 1);
                done += dispatch.weight;
                next.next();
            }
            drop(pass);
            if submit < submits {
                self.send(std::mem::replace(&mut encoder, self.encoder()));
            }
        }
        self.count(|c| c.dispatches += schedule.len() as u64);
        self.finish(encoder, read)
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
        let staging = self.staging.take(region.bytes);
        self.with_buffer(region.buffer, |allocation| {
            encoder.copy_buffer_to_buffer(
                &allocation.buffer,
                region.offset,
                &staging,
                0,
                region.bytes,
            );
        })?;
        let submitted = self.send(encoder);
        Ok(self.staging.fetch(staging, region.bytes, submitted, Arc::clone(&self.trouble)))
    }

    /// One compute pass a dispatch with a timestamp at both ends.
    pub(super) fn timed_replay(
        &self,
        replay: Replay,
    ) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        if !self.capabilities().features.timestamps {
            return Ok(Box::pin(async { Ok(None) }));
        }
        /// Queries a set may hold.
        const MOST: usize = 4096;
        let schedule = self.schedule(&[replay])?;
        let plan = self.plan(&replay)?;
        let bytes = schedule.len() as u64 * 16;
        let resolved = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("timestamps"),
            size: bytes.max(16),
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut encoder = self.encoder();
        for (batch, dispatches) in schedule.chunks(MOST / 2).enumerate() {
            let queries = self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: dispatches.len() as u32 * 2,
            });
            for (query, (plan, index, groups)) in (0..).step_by(2).zip(dispatches) {
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
                pass.set_bind_group(0, &dispatch.bind_group, &[]);
                pass.dispatch_workgroups(groups[0], groups[1], 1);
            }
            encoder.resolve_query_set(
                &queries,
                0..dispatches.len() as u32 * 2,
                &resolved,
                (batch * MOST) as u64 * 8,
            );
        }
        let staging = self.staging.take(bytes);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
        let submitted = self.send(encoder);
        let period = f64::from(self.queue.get_timestamp_period());
        let fetched = self.staging.fetch(staging, bytes, submitted, Arc::clone(&self.trouble));
        let count = plan.dispatches.len();
        let indices: Vec<usize> = schedule.iter().map(|(_, index, _)| *index).collect();
        Ok(Box::pin(async move {
            let bytes = fetched.await?;
            resolved.destroy();
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
}
