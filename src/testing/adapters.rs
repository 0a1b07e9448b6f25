//! Capabilities of adapters that people have, as data for selection.

use crate::caps::{AdapterName, Capabilities, Features, Limits, Target};

/// What distinguishes an adapter here.
struct Row {
    name: &'static str,
    /// As Chromium calls them: it has no architecture for an H200.
    vendor: &'static str,
    architecture: &'static str,
    storage_buffers: u32,
    binding_bytes: u64,
    workgroup_bytes: u32,
    invocations: u32,
    /// Zeros: no subgroups.
    subgroup_size: [u32; 2],
    software: bool,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

const ROWS: [Row; 13] = [
    Row {
        name: "WebGPU floor",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        subgroup_size: [0, 0],
        software: false,
    },
    Row {
        name: "Apple M-series",
        vendor: "apple",
        architecture: "common-3",
        storage_buffers: 10,
        binding_bytes: 4 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [4, 64],
        software: false,
    },
    Row {
        name: "Intel UHD",
        vendor: "intel",
        architecture: "gen-9",
        storage_buffers: 10,
        binding_bytes: 2 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 256,
        subgroup_size: [8, 32],
        software: false,
    },
    Row {
        name: "Adreno, 128 wide",
        vendor: "qualcomm",
        architecture: "adreno-7xx",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [64, 128],
        software: false,
    },
    Row {
        name: "Adreno, small workgroups",
        vendor: "qualcomm",
        architecture: "adreno-6xx",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 16 << 10,
        invocations: 128,
        subgroup_size: [64, 64],
        software: false,
    },
    Row {
        name: "Mali, 16 wide",
        vendor: "arm",
        architecture: "valhall",
        storage_buffers: 8,
        binding_bytes: 256 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 512,
        subgroup_size: [16, 16],
        software: false,
    },
    Row {
        name: "NVIDIA",
        vendor: "nvidia",
        architecture: "",
        storage_buffers: 10,
        binding_bytes: 2 * GIB - 4,
        workgroup_bytes: 48 << 10,
        invocations: 1024,
        subgroup_size: [32, 32],
        software: false,
    },
    Row {
        name: "AMD, 32 or 64 wide",
        vendor: "amd",
        architecture: "rdna-3",
        storage_buffers: 10,
        binding_bytes: 4 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [32, 64],
        software: false,
    },
    Row {
        name: "SwiftShader",
        vendor: "google",
        architecture: "swiftshader",
        storage_buffers: 10,
        binding_bytes: GIB,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        subgroup_size: [4, 4],
        software: true,
    },
    Row {
        name: "lavapipe",
        vendor: "mesa",
        architecture: "llvmpipe",
        storage_buffers: 10,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [8, 8],
        software: true,
    },
    Row {
        name: "lavapipe, no subgroups",
        vendor: "mesa",
        architecture: "llvmpipe",
        storage_buffers: 10,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [0, 0],
        software: true,
    },
    Row {
        name: "crippled",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 16 * MIB,
        workgroup_bytes: 4 << 10,
        invocations: 64,
        subgroup_size: [0, 0],
        software: false,
    },
    Row {
        name: "crippled, with subgroups",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 16 * MIB,
        workgroup_bytes: 8 << 10,
        invocations: 32,
        subgroup_size: [4, 16],
        software: false,
    },
];

impl Row {
    fn capabilities(&self, target: Target) -> Capabilities {
        let subgroups = self.subgroup_size[1] > 0;
        Capabilities {
            adapter: AdapterName {
                vendor: self.vendor.into(),
                architecture: self.architecture.into(),
                description: self.name.into(),
                ..AdapterName::default()
            },
            limits: Limits {
                max_storage_buffers_per_shader_stage: self.storage_buffers,
                max_storage_buffer_binding_size: self.binding_bytes,
                max_buffer_size: self.binding_bytes.max(256 * MIB),
                max_compute_workgroup_storage_size: self.workgroup_bytes,
                max_compute_invocations_per_workgroup: self.invocations,
                max_compute_workgroup_size_x: self.invocations,
                ..Limits::default()
            },
            features: Features { subgroups, subgroup_id: subgroups, ..Features::default() },
            subgroup_size: self.subgroup_size,
            software: self.software,
            ..Capabilities::floor(target)
        }
    }
}

/// The adapters, for a target.
pub fn table(target: Target) -> Vec<Capabilities> {
    ROWS.iter().map(|row| row.capabilities(target)).collect()
}

/// What is left of an adapter's capabilities on a device: what selection would say if the adapter's
/// own limits were lowered to those of the device.
pub fn restrict(adapter: &Capabilities, device: &Capabilities) -> Capabilities {
    let mut left = adapter.clone();
    let (have, most) = (&mut left.limits, &device.limits);
    have.max_storage_buffers_per_shader_stage =
        have.max_storage_buffers_per_shader_stage.min(most.max_storage_buffers_per_shader_stage);
    have.max_storage_buffer_binding_size =
        have.max_storage_buffer_binding_size.min(most.max_storage_buffer_binding_size);
    have.max_buffer_size = have.max_buffer_size.min(most.max_buffer_size);
    have.max_compute_workgroup_storage_size =
        have.max_compute_workgroup_storage_size.min(most.max_compute_workgroup_storage_size);
    have.max_compute_invocations_per_workgroup =
        have.max_compute_invocations_per_workgroup.min(most.max_compute_invocations_per_workgroup);
    have.max_compute_workgroup_size_x =
        have.max_compute_workgroup_size_x.min(most.max_compute_workgroup_size_x);
    left.features.subgroups &= device.features.subgroups;
    left.features.subgroup_id &= device.features.subgroup_id;
    if !left.features.subgroups {
        left.subgroup_size = [0, 0];
    } else if !left.software {
        // A kernel may count on the narrowest subgroup: only a device that has it can run it.
        left.subgroup_size = device.subgroup_size;
    }
    left.target = device.target;
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::GpuClass;

    #[test]
    fn every_class_has_a_row() {
        let rows = table(Target::Browser);
        for class in GpuClass::ALL {
            let of = |caps: &&Capabilities| !caps.software && caps.class() == class;
            assert!(rows.iter().any(|caps| of(&caps)), "{}", class.called);
        }
        let nvidia = rows.iter().find(|caps| caps.adapter.vendor == "nvidia").unwrap();
        assert_eq!(nvidia.class(), GpuClass::LARGE);
    }
}
