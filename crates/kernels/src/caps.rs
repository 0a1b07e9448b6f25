//! What a device can do, as plain data. Selection ([`crate::kernels`]) reads nothing else, so it
//! can be tested against a table of adapters with no GPU present.

mod class;
mod matrix;

pub use class::{Decoding, GpuClass};
#[cfg(any(test, feature = "testing"))]
pub use matrix::samples as matrix_samples;
pub use matrix::{MATRIX_DIRECTIVES, MATRIX_FEATURE, MatrixConfig, MatrixElement};

pub use crate::params::ALIGN;

use crate::error::{Error, Result};
use crate::products::TunedProduct;
use serde::{Deserialize, Serialize};

/// The subset of WebGPU's limits that kernels and plans depend on, under their WebGPU names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    pub max_storage_buffers_per_shader_stage: u32,
    pub max_storage_buffer_binding_size: u64,
    pub max_buffer_size: u64,
    pub max_uniform_buffer_binding_size: u64,
    pub max_compute_workgroup_storage_size: u32,
    pub max_compute_invocations_per_workgroup: u32,
    pub max_compute_workgroup_size_x: u32,
    pub max_compute_workgroups_per_dimension: u32,
}

impl Default for Limits {
    /// The floor that WebGPU guarantees on every adapter.
    fn default() -> Self {
        Self {
            max_storage_buffers_per_shader_stage: 8,
            max_storage_buffer_binding_size: 128 << 20,
            max_buffer_size: 256 << 20,
            max_uniform_buffer_binding_size: 64 << 10,
            max_compute_workgroup_storage_size: 16 << 10,
            max_compute_invocations_per_workgroup: 256,
            max_compute_workgroup_size_x: 256,
            max_compute_workgroups_per_dimension: 65_535,
        }
    }
}

impl Limits {
    /// Applies a caller's cap on the limit called `name`. Raising a limit above what the adapter
    /// has does nothing.
    pub fn cap(&mut self, name: &str, value: u64) -> Result<()> {
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        let lower = |field: &mut u32| *field = (*field).min(small);
        match name {
            "maxStorageBuffersPerShaderStage" => {
                lower(&mut self.max_storage_buffers_per_shader_stage)
            }
            "maxStorageBufferBindingSize" => {
                self.max_storage_buffer_binding_size =
                    self.max_storage_buffer_binding_size.min(value);
            }
            "maxBufferSize" => self.max_buffer_size = self.max_buffer_size.min(value),
            "maxUniformBufferBindingSize" => {
                self.max_uniform_buffer_binding_size =
                    self.max_uniform_buffer_binding_size.min(value);
            }
            "maxComputeWorkgroupStorageSize" => lower(&mut self.max_compute_workgroup_storage_size),
            "maxComputeInvocationsPerWorkgroup" => {
                lower(&mut self.max_compute_invocations_per_workgroup)
            }
            "maxComputeWorkgroupSizeX" => lower(&mut self.max_compute_workgroup_size_x),
            "maxComputeWorkgroupsPerDimension" => {
                lower(&mut self.max_compute_workgroups_per_dimension)
            }
            _ => {
                return Err(Error::options(format!(
                    "limits.{name} is not a limit that tinyloom reads; use one of maxStorageBuffersPerShaderStage, \
                     maxStorageBufferBindingSize, maxBufferSize, maxUniformBufferBindingSize, \
                     maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX, \
                     maxComputeWorkgroupsPerDimension"
                )));
            }
        }
        Ok(())
    }

    /// The most bytes that one storage binding, and so one shard of parameters, may hold.
    pub fn binding_bytes(&self) -> u64 {
        self.max_storage_buffer_binding_size.min(self.max_buffer_size) / 256 * 256
    }

    /// The most bytes of a shard of parameters.
    pub fn shard_bytes(&self) -> u64 {
        self.binding_bytes().min(1 << 30)
    }

    /// The most invocations a one-dimensional workgroup may have.
    pub fn workgroup_invocations(&self) -> u32 {
        self.max_compute_invocations_per_workgroup.min(self.max_compute_workgroup_size_x)
    }
}

/// Optional features. `subgroup_id` is WGSL's language feature of that name, without which an
/// invocation cannot portably tell which subgroup it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    pub subgroups: bool,
    pub subgroup_id: bool,
    pub f16: bool,
    pub timestamps: bool,
    #[serde(default)]
    pub subgroup_matrix: bool,
}

/// How an adapter names itself; any field may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterName {
    pub vendor: String,
    pub architecture: String,
    pub device: String,
    pub description: String,
}

/// Which WGSL front end compiles the shaders: the browser's own, or naga in a native build.
/// They differ in whether `enable subgroups;` is required (Tint) or rejected (naga 30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Native,
    #[default]
    Browser,
}

/// Everything that selection may look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub adapter: AdapterName,
    pub limits: Limits,
    pub features: Features,
    /// Smallest and largest subgroup width; both 0 when subgroups are absent.
    pub subgroup_size: [u32; 2],
    /// Products of matrices that a subgroup computes; none without [`Features::subgroup_matrix`].
    #[serde(default, rename = "subgroupMatrixConfigs", skip_serializing_if = "Vec::is_empty")]
    pub matrices: Vec<MatrixConfig>,
    /// Tests have the functions of matrices computed by plain WGSL.
    #[serde(skip)]
    pub emulated: bool,
    /// The adapter runs on the CPU, where workgroup memory and barriers cost more than they save.
    pub software: bool,
    #[serde(default)]
    pub target: Target,
    /// Bytes that the caller allows on this device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_budget: Option<u64>,
    /// What has been measured on the device for its own sake.
    #[serde(skip)]
    pub tuned: Vec<TunedProduct>,
    /// Instead of the class's, for tests and measurements.
    #[serde(skip)]
    pub decoding: Option<Decoding>,
}

impl Capabilities {
    /// WebGPU's guaranteed floor with no optional feature.
    pub fn floor(target: Target) -> Self {
        Self {
            adapter: AdapterName::default(),
            limits: Limits::default(),
            features: Features::default(),
            subgroup_size: [0, 0],
            matrices: Vec::new(),
            emulated: false,
            software: false,
            target,
            memory_budget: None,
            tuned: Vec::new(),
            decoding: None,
        }
    }

    /// Bytes that buffers may take together, where that is known: those that the caller allows, or on a
    /// CPU a guess. There they are the machine's memory, of which no API tells, and beyond that the system
    /// ends the process without a word.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_budget.or(self.software.then_some(4 << 30))
    }

    /// Whether the subgroup forms of the reductions may run: any width from 4 to 128 will do.
    pub fn reduces_by_subgroup(&self) -> bool {
        self.features.subgroups
            && self.features.subgroup_id
            && self.subgroup_size[0] >= 4
            && self.subgroup_size[1] <= 128
    }
}
