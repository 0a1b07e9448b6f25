//! Bind group layouts and compute pipelines, one for each distinct kernel text.
//!
//! A pipeline is shared between calls once the device has accepted the call that compiled it. One that no installed
//! plan uses is kept, up to a number of them, since the next model may use it.

use crate::kernels::{Access, Binding, Kernel, Wgsl};
use crate::{Counters, LocalFuture};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Pipelines kept that no plan uses: those of a trainer with inference are about 120, each a few tens
/// of kilobytes in a browser.
const MOST_UNUSED: usize = 512;

/// The call whose pipelines every call may use.
const PROVED: u64 = 0;

pub(super) struct Pipelines {
    device: wgpu::Device,
    layouts: RefCell<BTreeMap<Vec<Access>, wgpu::BindGroupLayout>>,
    made: RefCell<BTreeMap<Wgsl, CachedPipeline>>,
    /// Counts uses, so that the pipelines used longest ago go first.
    uses: Cell<u64>,
    most_unused: Cell<usize>,
    counters: Rc<Cell<Counters>>,
}

struct CachedPipeline {
    /// Installed plans hold it too.
    pipeline: Rc<wgpu::ComputePipeline>,
    /// The call that compiled it, until the device has accepted that; then [`PROVED`].
    call: u64,
    used: u64,
}

/// What a pipeline is made of.
struct PipelineParts {
    device: wgpu::Device,
    module: wgpu::ShaderModule,
    layout: wgpu::PipelineLayout,
    name: &'static str,
}

impl PipelineParts {
    fn compile(&self) -> wgpu::ComputePipeline {
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(self.name),
            layout: Some(&self.layout),
            module: &self.module,
            entry_point: Some(self.name),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        })
    }
}

impl Pipelines {
    pub fn new(device: wgpu::Device, counters: Rc<Cell<Counters>>) -> Self {
        Self {
            device,
            layouts: RefCell::default(),
            made: RefCell::default(),
            uses: Cell::default(),
            most_unused: Cell::new(MOST_UNUSED),
            counters,
        }
    }

    pub fn layout(&self, bindings: &[Binding]) -> wgpu::BindGroupLayout {
        let mut layouts = self.layouts.borrow_mut();
        let accesses: Vec<Access> = bindings.iter().map(|binding| binding.access).collect();
        if let Some(layout) = layouts.get(&accesses) {
            return layout.clone();
        }
        let entries: Vec<_> =
            (0..).zip(&accesses).map(|(binding, access)| layout_entry(binding, *access)).collect();
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        layouts.insert(accesses, layout.clone());
        layout
    }

    /// The pipeline of a kernel, and whether this call compiled it. It compiles a kernel that was never
    /// compiled, and one that only another call compiled whose success is not known yet.
    pub fn get(&self, kernel: &Kernel, call: u64) -> (Rc<wgpu::ComputePipeline>, bool) {
        #[cfg(feature = "testing")]
        super::installed::note(kernel);
        if let Some(kept) = self.made.borrow_mut().get_mut(&kernel.wgsl)
            && (kept.call == PROVED || kept.call == call)
        {
            kept.used = self.next_use();
            return (Rc::clone(&kept.pipeline), false);
        }
        (self.keep(&kernel.wgsl, self.parts(kernel).compile(), call), true)
    }

    fn next_use(&self) -> u64 {
        self.uses.set(self.uses.get() + 1);
        self.uses.get()
    }

    /// Shares what a call compiled: the device has accepted it.
    pub fn prove(&self, call: u64, compiled: &[Wgsl]) {
        let mut made = self.made.borrow_mut();
        for wgsl in compiled {
            if let Some(kept) = made.get_mut(wgsl)
                && kept.call == call
            {
                kept.call = PROVED;
            }
        }
    }

    /// Drops what a call compiled that has failed. Layouts go too: any may be why.
    pub fn forget(&self, call: u64, compiled: &[Wgsl]) {
        let mut made = self.made.borrow_mut();
        for wgsl in compiled {
            if made.get(wgsl).is_some_and(|kept| kept.call == call) {
                made.remove(wgsl);
            }
        }
        self.layouts.take();
    }

    /// Drops the pipelines used longest ago where more are kept than should be.
    pub fn trim(&self) {
        let mut made = self.made.borrow_mut();
        let most = self.most_unused.get();
        if made.len() <= most {
            return;
        }
        let unused =
            |kept: &CachedPipeline| kept.call == PROVED && Rc::strong_count(&kept.pipeline) == 1;
        let mut uses: Vec<u64> =
            made.values().filter(|kept| unused(kept)).map(|kept| kept.used).collect();
        if let Some(excess) = uses.len().checked_sub(most + 1) {
            uses.sort_unstable();
            let last = uses[excess];
            made.retain(|_, kept| !unused(kept) || kept.used > last);
        }
    }

    #[cfg(feature = "testing")]
    pub fn set_most_unused(&self, most: usize) {
        self.most_unused.set(most);
    }

    /// A text as WebGPU has read and checked it.
    pub fn module(&self, name: &str, text: String) -> wgpu::ShaderModule {
        self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(name),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        })
    }

    fn parts(&self, kernel: &Kernel) -> PipelineParts {
        let module = self.module(kernel.name, kernel.wgsl.text());
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&self.layout(&kernel.bindings))],
            immediate_size: 0,
        });
        PipelineParts { device: self.device.clone(), module, layout, name: kernel.name }
    }

    fn keep(
        &self,
        wgsl: &Wgsl,
        pipeline: wgpu::ComputePipeline,
        call: u64,
    ) -> Rc<wgpu::ComputePipeline> {
        let mut counters = self.counters.get();
        counters.pipelines += 1;
        self.counters.set(counters);
        let pipeline = Rc::new(pipeline);
        let kept = CachedPipeline { pipeline: Rc::clone(&pipeline), call, used: self.next_use() };
        self.made.borrow_mut().insert(wgsl.clone(), kept);
        pipeline
    }

    /// Natively a pipeline is compiled when it is asked for.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn prepare<'a>(
        self: &Rc<Self>,
        _kernels: impl Iterator<Item = &'a Kernel>,
    ) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    /// Compiles the kernels that no one has, side by side and off the page's thread. One that the
    /// browser refuses is left to [`Pipelines::get`], whose error scopes tell why.
    #[cfg(target_arch = "wasm32")]
    pub fn prepare<'a>(
        self: &Rc<Self>,
        kernels: impl Iterator<Item = &'a Kernel>,
    ) -> LocalFuture<()> {
        use super::browser;
        use super::scopes::{Filter, Scope};

        // Errors of a kernel are reported by the call that asks for it.
        let scopes = Filter::ALL.map(|filter| Scope::push(&self.device, filter));
        let mut begun: Vec<(Wgsl, PipelineParts, _)> = Vec::new();
        for kernel in kernels {
            let known = self.made.borrow().contains_key(&kernel.wgsl);
            if known || begun.iter().any(|(wgsl, ..)| *wgsl == kernel.wgsl) {
                continue;
            }
            let parts = self.parts(kernel);
            let compiling = browser::begin_pipeline(&self.device, || parts.compile());
            begun.push((kernel.wgsl.clone(), parts, compiling));
        }
        let refused: Vec<_> = scopes.into_iter().rev().map(Scope::pop).collect();
        let pipelines = Rc::clone(self);
        Box::pin(async move {
            let mut accepted = true;
            for refused in refused {
                accepted &= refused.await.is_none();
            }
            if !accepted {
                pipelines.layouts.take();
                return;
            }
            for (wgsl, parts, compiling) in begun {
                let Some(compiling) = compiling else { continue };
                let Ok(compiled) = compiling.await else { continue };
                let adopt = browser::adopt_pipeline(&parts.device, &compiled, || parts.compile());
                if let Some(pipeline) = adopt {
                    pipelines.keep(&wgsl, pipeline, PROVED);
                }
            }
        })
    }
}

fn layout_entry(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    let ty = match access {
        Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
        Access::Uniform => wgpu::BufferBindingType::Uniform,
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}
