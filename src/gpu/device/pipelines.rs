//! Bind group layouts and compute pipelines, one for each distinct kernel text in a device's life.

use crate::gpu::{Counters, LocalFuture};
use crate::kernels::{Binding, Kernel, Wgsl};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

pub(super) struct Pipelines {
    device: wgpu::Device,
    layouts: RefCell<HashMap<Vec<Binding>, wgpu::BindGroupLayout>>,
    made: RefCell<HashMap<Wgsl, wgpu::ComputePipeline>>,
    counters: Rc<Cell<Counters>>,
}

/// What a pipeline is made of.
struct Parts {
    device: wgpu::Device,
    module: wgpu::ShaderModule,
    layout: wgpu::PipelineLayout,
    name: &'static str,
}

impl Parts {
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
        Self { device, layouts: RefCell::default(), made: RefCell::default(), counters }
    }

    pub fn layout(&self, bindings: &[Binding]) -> wgpu::BindGroupLayout {
        let mut layouts = self.layouts.borrow_mut();
        let make = || {
            let entries: Vec<_> =
                (0..).zip(bindings).map(|(binding, kind)| layout_entry(binding, *kind)).collect();
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            })
        };
        layouts.entry(bindings.to_vec()).or_insert_with(make).clone()
    }

    /// The pipeline of a kernel, compiled here and now where nobody has before.
    pub fn get(&self, kernel: &Kernel) -> wgpu::ComputePipeline {
        if let Some(pipeline) = self.made.borrow().get(&kernel.wgsl) {
            return pipeline.clone();
        }
        self.keep(&kernel.wgsl, self.parts(kernel).compile())
    }

    fn parts(&self, kernel: &Kernel) -> Parts {
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(kernel.wgsl.text().into()),
        });
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&self.layout(&kernel.bindings))],
            immediate_size: 0,
        });
        Parts { device: self.device.clone(), module, layout, name: kernel.name }
    }

    fn keep(&self, wgsl: &Wgsl, pipeline: wgpu::ComputePipeline) -> wgpu::ComputePipeline {
        self.made
            .borrow_mut()
            .entry(wgsl.clone())
            .or_insert_with(|| {
                let mut counters = self.counters.get();
                counters.pipelines += 1;
                self.counters.set(counters);
                pipeline
            })
            .clone()
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

        // What is wrong with a kernel is told where it is asked for.
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let mut begun: Vec<(Wgsl, Parts, _)> = Vec::new();
        for kernel in kernels {
            let known = self.made.borrow().contains_key(&kernel.wgsl);
            if known || begun.iter().any(|(wgsl, ..)| *wgsl == kernel.wgsl) {
                continue;
            }
            let parts = self.parts(kernel);
            let compiling = browser::begin_pipeline(&self.device, || parts.compile());
            begun.push((kernel.wgsl.clone(), parts, compiling));
        }
        drop(scope);
        let pipelines = Rc::clone(self);
        Box::pin(async move {
            for (wgsl, parts, compiling) in begun {
                let Some(compiling) = compiling else { continue };
                let Ok(compiled) = compiling.await else { continue };
                let adopt = browser::adopt_pipeline(&parts.device, &compiled, || parts.compile());
                if let Some(pipeline) = adopt {
                    pipelines.keep(&wgsl, pipeline);
                }
            }
        })
    }
}

fn layout_entry(binding: u32, kind: Binding) -> wgpu::BindGroupLayoutEntry {
    let ty = match kind {
        Binding::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Binding::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
        Binding::Uniform => wgpu::BufferBindingType::Uniform,
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}
