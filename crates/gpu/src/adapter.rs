//! From a wgpu adapter to [`Capabilities`], and the device request that follows from them.

use crate::caps::{AdapterName, Capabilities, Features, Limits, MatrixConfig, Target};
use crate::error::{Error, ErrorCode, Result};
use std::collections::BTreeMap;

/// Which adapter to prefer, natively: a page asks for its adapter before the module has loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerPreference {
    #[default]
    HighPerformance,
    LowPower,
}

/// Which limits selection may count on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LimitsRequest {
    /// All that the adapter has.
    #[default]
    Adapter,
    /// WebGPU's guaranteed floor.
    Default,
    /// All that the adapter has, capped by these.
    Capped(BTreeMap<String, u64>),
}

/// Which optional features may be used where the adapter has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedFeatures {
    pub subgroups: bool,
    pub f16: bool,
    pub timestamps: bool,
    pub subgroup_matrix: bool,
}

impl Default for RequestedFeatures {
    fn default() -> Self {
        Self { subgroups: true, f16: true, timestamps: true, subgroup_matrix: true }
    }
}

/// What a caller asks of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceRequest {
    pub power_preference: PowerPreference,
    pub limits: LimitsRequest,
    pub features: RequestedFeatures,
    /// The most bytes that buffers may take together.
    pub memory_budget: Option<u64>,
}

/// Facts about the adapter that the platform knows and wgpu does not report.
#[derive(Clone, Debug, Default)]
pub struct AdapterFacts {
    pub name: Option<AdapterName>,
    pub subgroups: bool,
    pub subgroup_id: bool,
    pub subgroup_size: [u32; 2],
    /// None: the adapter has no subgroup matrices.
    pub matrices: Vec<MatrixConfig>,
    pub fallback: bool,
}

impl AdapterFacts {
    /// The products of matrices that a request leaves: none without subgroups.
    pub fn matrices_for(&self, wanted: RequestedFeatures) -> &[MatrixConfig] {
        let on = self.subgroups && wanted.subgroups && wanted.subgroup_matrix;
        if on { &self.matrices } else { &[] }
    }
}

/// The capabilities that a request leaves of an adapter.
pub(super) fn capabilities(
    adapter: &wgpu::Adapter,
    facts: &AdapterFacts,
    request: &DeviceRequest,
) -> Result<Capabilities> {
    let has = adapter.features();
    let wanted = request.features;
    let info = adapter.get_info();
    let name = facts.name.clone().unwrap_or_else(|| AdapterName {
        vendor: format!("{:#06x}", info.vendor),
        architecture: String::new(),
        device: info.name.clone(),
        description: format!("{} {}", info.driver, info.driver_info).trim().into(),
    });
    let subgroups = facts.subgroups && wanted.subgroups;
    let matrices = facts.matrices_for(wanted);
    Ok(Capabilities {
        software: info.device_type == wgpu::DeviceType::Cpu
            || facts.fallback
            || names_software(&name),
        adapter: name,
        limits: limits(&adapter.limits(), &request.limits)?,
        features: Features {
            subgroups,
            subgroup_id: subgroups && facts.subgroup_id,
            f16: has.contains(wgpu::Features::SHADER_F16) && wanted.f16,
            timestamps: has.contains(wgpu::Features::TIMESTAMP_QUERY) && wanted.timestamps,
            subgroup_matrix: !matrices.is_empty(),
        },
        subgroup_size: if subgroups { facts.subgroup_size } else { [0, 0] },
        matrices: matrices.to_vec(),
        emulated: false,
        target: if cfg!(target_arch = "wasm32") { Target::Browser } else { Target::Native },
        memory_budget: request.memory_budget,
        tuned: Vec::new(),
        decoding: None,
    })
}

/// Adapters that run on the CPU say so only in their names.
fn names_software(name: &AdapterName) -> bool {
    let all = format!("{} {} {} {}", name.vendor, name.architecture, name.device, name.description)
        .to_ascii_lowercase();
    ["swiftshader", "llvmpipe", "lavapipe", "software", "basic render"]
        .iter()
        .any(|word| all.contains(word))
}

fn limits(adapter: &wgpu::Limits, request: &LimitsRequest) -> Result<Limits> {
    if *request == LimitsRequest::Default {
        return Ok(Limits::default());
    }
    let mut limits = Limits {
        max_storage_buffers_per_shader_stage: adapter.max_storage_buffers_per_shader_stage,
        max_storage_buffer_binding_size: adapter.max_storage_buffer_binding_size,
        max_buffer_size: adapter.max_buffer_size,
        max_uniform_buffer_binding_size: adapter.max_uniform_buffer_binding_size,
        max_compute_workgroup_storage_size: adapter.max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup: adapter.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: adapter.max_compute_workgroup_size_x,
        max_compute_workgroups_per_dimension: adapter.max_compute_workgroups_per_dimension,
    };
    if let LimitsRequest::Capped(caps) = request {
        for (name, value) in caps.iter() {
            limits.cap(name, *value)?;
        }
    }
    Ok(limits)
}

/// Asks for the floor raised to what selection may use, and for the features in use.
pub(super) fn descriptor(caps: &Capabilities) -> wgpu::DeviceDescriptor<'static> {
    let limits = &caps.limits;
    let of_caps = wgpu::Limits {
        max_storage_buffers_per_shader_stage: limits.max_storage_buffers_per_shader_stage,
        max_compute_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        max_uniform_buffer_binding_size: limits.max_uniform_buffer_binding_size,
        max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
        max_buffer_size: limits.max_buffer_size,
        max_compute_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: limits.max_compute_workgroup_size_x,
        ..wgpu::Limits::default()
    };
    let required_limits = of_caps.or_better_values_from(&wgpu::Limits::default());
    let mut required_features = wgpu::Features::empty();
    if caps.features.f16 {
        required_features |= wgpu::Features::SHADER_F16;
    }
    if caps.features.timestamps {
        required_features |= wgpu::Features::TIMESTAMP_QUERY;
    }
    if caps.features.subgroups && caps.target == Target::Native {
        required_features |= wgpu::Features::SUBGROUP;
    }
    wgpu::DeviceDescriptor {
        label: Some("tinyloom"),
        required_features,
        required_limits,
        ..Default::default()
    }
}

/// In a page wgpu's text has a stack after its first line.
pub(super) fn no_device(error: &wgpu::RequestDeviceError) -> Error {
    let text = error.to_string();
    no_adapter(&format!("the adapter gave no device: {}", text.lines().next().unwrap_or_default()))
}

/// What to do about it depends on the host, and is the caller's to say.
pub(super) fn no_adapter(reason: &str) -> Error {
    Error::new(ErrorCode::AdapterUnavailable, format!("no WebGPU adapter: {reason}"))
}
