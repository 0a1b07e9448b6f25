//! Encodes installed plans into the device's passes, submits them and reads back.

use super::WgpuDevice;
use crate::error::{Error, Result};
use crate::program::{Encoder, Program, Scheduled, encode};
use crate::{BufferCopy, Gpu, LocalFuture, PlanId, Region, Replay, submit_checked};
use std::rc::Rc;

type Pipeline = Rc<wgpu::ComputePipeline>;
pub(super) type WgpuProgram = Program<Pipeline, wgpu::BindGroup>;

pub(super) struct InstalledPlan {
    pub program: Rc<WgpuProgram>,
    pub ranges: wgpu::Buffer,
}

/// A submit under way.
struct Encoding<'a> {
    device: &'a WgpuDevice,
    // Ends before its encoder does.
    pass: wgpu::ComputePass<'static>,
    encoder: wgpu::CommandEncoder,
    dispatches: u64,
    /// What is to be copied to staging, until a submit does it.
    read: Option<Region>,
    copied: Option<Copied>,
}

/// A region's copy in a staging buffer, which a submit fills.
struct Copied {
    staging: wgpu::Buffer,
    bytes: u64,
    submitted: wgpu::SubmissionIndex,
}

impl<'a> Encoding<'a> {
    fn new(device: &'a WgpuDevice, read: Option<Region>) -> Self {
        let (encoder, pass) = device.begin();
        Self { device, pass, encoder, dispatches: 0, read, copied: None }
    }

    /// Ends the pass and begins another in a fresh encoder. Gives the one that has ended.
    fn begin_again(&mut self) -> wgpu::CommandEncoder {
        let (encoder, pass) = self.device.begin();
        drop(std::mem::replace(&mut self.pass, pass));
        std::mem::replace(&mut self.encoder, encoder)
    }

    /// Submits what is left, and fetches what was asked for.
    fn end(self) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let Self { device, pass, encoder, dispatches, read, copied } = self;
        device.count(|c| c.dispatches += dispatches);
        drop(pass);
        let copied = match read {
            Some(region) => Some(device.send_with_copy(encoder, region)?),
            None => {
                device.send(encoder);
                copied
            }
        };
        let Some(Copied { staging, bytes, submitted }) = copied else {
            return Ok(Box::pin(async { Ok(Vec::new()) }));
        };
        Ok(device.staging.fetch(staging, bytes, submitted, &device.loss))
    }
}

impl Encoder<Pipeline, wgpu::BindGroup> for Encoding<'_> {
    fn most_groups(&self) -> u32 {
        self.device.caps.limits.max_compute_workgroups_per_dimension
    }

    fn schedules(&mut self) {
        self.device.count(|c| c.schedules += 1);
    }

    fn set_pipeline(&mut self, pipeline: &Pipeline) {
        self.pass.set_pipeline(pipeline);
    }

    fn set_bindings(&mut self, bindings: &wgpu::BindGroup) {
        self.pass.set_bind_group(0, bindings, &[]);
    }

    fn dispatch(&mut self, groups: [u32; 2]) {
        self.pass.dispatch_workgroups(groups[0], groups[1], 1);
        self.dispatches += 1;
    }

    fn cut(&mut self) {
        let ended = self.begin_again();
        self.device.send(ended);
    }

    fn cut_behind_copy(&mut self) -> Result<()> {
        let ended = self.begin_again();
        match self.read.take() {
            Some(region) => self.copied = Some(self.device.send_with_copy(ended, region)?),
            None => drop(self.device.send(ended)),
        }
        Ok(())
    }
}

/// Queries a set may hold.
const MOST_QUERIES: usize = 4096;

impl WgpuDevice {
    pub(super) fn program(&self, plan: PlanId) -> Result<Rc<WgpuProgram>> {
        let found = self.plans.borrow().get(&plan).map(|plan| Rc::clone(&plan.program));
        found.ok_or_else(|| Error::internal(format!("plan {} is not installed", plan.0)))
    }

    /// A submit's own error scopes, where the call that makes it has none open.
    pub(super) fn in_error_scope<T: 'static>(
        &self,
        work: impl FnOnce() -> Result<LocalFuture<Result<T>>>,
    ) -> Result<LocalFuture<Result<T>>> {
        if self.has_error_scope() { work() } else { submit_checked(self, work) }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn send(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        self.count(|c| c.submits += 1);
        self.queue.submit([encoder.finish()])
    }

    /// An encoder, and a pass in it.
    fn begin(&self) -> (wgpu::CommandEncoder, wgpu::ComputePass<'static>) {
        let mut encoder = self.encoder();
        let pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let pass = pass.forget_lifetime();
        (encoder, pass)
    }

    pub(super) fn replay(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let mut encoding = Encoding::new(self, read);
        encode(replays, submits, &|plan| self.program(plan), &mut encoding)?;
        encoding.end()
    }

    pub(super) fn copy_buffers(&self, copies: &[BufferCopy]) -> Result<()> {
        let mut encoder = self.encoder();
        for &BufferCopy { from: Region { buffer, offset, bytes }, to, at } in copies {
            let from = self.raw_buffer(buffer)?;
            encoder.copy_buffer_to_buffer(&from, offset, &self.raw_buffer(to)?, at, bytes);
        }
        self.send(encoder);
        Ok(())
    }

    /// Submits an encoder with a copy to staging at its end.
    fn send_with_copy(&self, mut encoder: wgpu::CommandEncoder, region: Region) -> Result<Copied> {
        // Before a staging buffer is taken from those that are free.
        let source = self.raw_buffer(region.buffer)?;
        let Region { offset, bytes, .. } = region;
        let staging = self.staging(bytes);
        encoder.copy_buffer_to_buffer(&source, offset, &staging, 0, bytes);
        let submitted = self.send(encoder);
        Ok(Copied { staging, bytes, submitted })
    }

    /// One compute pass per dispatch with a timestamp at both ends.
    pub(super) fn timed_replay(
        &self,
        replay: Replay,
    ) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        if !self.capabilities().features.timestamps {
            return Ok(Box::pin(async { Ok(None) }));
        }
        let program = self.program(replay.plan)?;
        let most = self.caps.limits.max_compute_workgroups_per_dimension;
        let schedule = program.scheduled(replay.rows, most, || self.count(|c| c.schedules += 1))?;
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
            let queries = self.timed_passes(&mut encoder, &program, dispatches);
            let (count, offset) = (dispatches.len() as u32 * 2, (batch * MOST_QUERIES) as u64 * 8);
            encoder.resolve_query_set(&queries, 0..count, &resolved, offset);
        }
        let staging = self.staging(bytes);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
        let submitted = self.send(encoder);
        resolved.destroy(); // once the submit is done
        let period = f64::from(self.queue.get_timestamp_period());
        let fetched = self.staging.fetch(staging, bytes, submitted, &self.loss);
        let count = program.dispatch_count();
        let indices: Vec<usize> = schedule.iter().map(|(index, _)| *index).collect();
        Ok(Box::pin(async move {
            let bytes = fetched.await?;
            let stamps: Vec<u64> =
                bytes.as_chunks().0.iter().map(|&stamp| u64::from_le_bytes(stamp)).collect();
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
        program: &WgpuProgram,
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
            pass.set_pipeline(program.pipeline(*index));
            pass.set_bind_group(0, &program.bindings.borrow()[program.group(*index)], &[]);
            pass.dispatch_workgroups(groups[0], groups[1], 1);
        }
        queries
    }
}
