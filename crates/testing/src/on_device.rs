//! The lanes' device: what kernels' cases ask for, on wgpu.

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Region, Replay, WgpuDevice, create_checked};
use crate::of_kernels::{Device, Lane, LocalFuture, Mode, Ran};
use crate::plan::{Buffer, Plan};
use std::ops::Deref;
use std::rc::Rc;

/// A lane of the kernels' cases, with its device for those that need more of it.
#[derive(Debug)]
pub struct SessionLane {
    pub(crate) gpu: Rc<WgpuDevice>,
    lane: Rc<Lane>,
}

impl SessionLane {
    pub(crate) fn new(device: &Rc<WgpuDevice>, seed: u64, mode: Mode) -> Rc<Self> {
        let lane = Lane::new(Rc::new(OnDevice(Rc::clone(device))), seed, mode);
        Rc::new(Self { gpu: Rc::clone(device), lane: Rc::new(lane) })
    }

    pub(crate) fn of_kernels(&self) -> Rc<Lane> {
        Rc::clone(&self.lane)
    }
}

impl Deref for SessionLane {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.lane
    }
}

#[derive(Debug)]
struct OnDevice(Rc<WgpuDevice>);

impl Device for OnDevice {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn now(&self) -> f64 {
        self.0.now()
    }

    fn run<'a>(
        &'a self,
        plan: &'a Plan,
        slots: [&'a [u32]; 3],
        rows: usize,
    ) -> LocalFuture<'a, Result<Ran>> {
        Box::pin(async move {
            let gpu = &self.0;
            let mut buffers = Vec::new();
            let began = gpu.now();
            let installed = create_checked(&**gpu, || {
                for (words, label) in slots.iter().zip(["inputs", "outputs", "uniforms"]) {
                    let buffer = gpu.create_buffer(label, words.len() as u64 * 4)?;
                    gpu.write(buffer, 0, bytemuck::cast_slice(words))?;
                    buffers.push(buffer);
                }
                let resolve = |name: Buffer| match name {
                    Buffer::Slot(index) => Ok(buffers[index]),
                    other => Err(Error::internal(format!("no buffer {other:?}"))),
                };
                gpu.install(plan, &resolve)
            });
            let installed = installed.await?;
            let compiled = gpu.now();
            let region = Region { buffer: buffers[1], offset: 0, bytes: slots[1].len() as u64 * 4 };
            let read = gpu.submit(&[Replay::new(installed, rows)], 1, Some(region))?.await?;
            let [compiling, running] = [compiled - began, gpu.now() - compiled];
            gpu.uninstall(installed);
            buffers.into_iter().for_each(|buffer| gpu.destroy_buffer(buffer));
            let outputs = bytemuck::pod_collect_to_vec::<u8, u32>(&read);
            Ok(Ran { outputs, compiling, running })
        })
    }

    fn check<'a>(&'a self, texts: &'a [(&'static str, String)]) -> LocalFuture<'a, Result<()>> {
        Box::pin(create_checked(&*self.0, || {
            texts.iter().for_each(|(name, text)| self.0.check_text(name, text.clone()));
            Ok(())
        }))
    }
}
