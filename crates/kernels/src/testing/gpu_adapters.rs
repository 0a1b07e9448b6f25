//! Capabilities of adapters that people have, as data for selection.

use crate::caps::{
    AdapterName, Capabilities, Features, Limits, MatrixConfig, MatrixElement, Target,
};

/// What distinguishes an adapter here.
struct AdapterRow {
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
    /// Products of matrices, for which `shader-f16` is there too.
    matrices: &'static [MatrixConfig],
    software: bool,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

const fn matrix(
    component: MatrixElement,
    result: MatrixElement,
    [m, n, k]: [u32; 3],
) -> MatrixConfig {
    MatrixConfig { component, result, m, n, k }
}

// As Chromium lists them on an H200. Those of 8-bit integers are left out.
const NVIDIA: [MatrixConfig; 6] = [
    matrix(MatrixElement::F16, MatrixElement::F32, [16, 16, 16]),
    matrix(MatrixElement::F16, MatrixElement::F16, [16, 16, 16]),
    matrix(MatrixElement::F16, MatrixElement::F32, [16, 8, 16]),
    matrix(MatrixElement::F16, MatrixElement::F16, [16, 8, 16]),
    matrix(MatrixElement::F16, MatrixElement::F32, [16, 8, 8]),
    matrix(MatrixElement::F16, MatrixElement::F16, [16, 8, 8]),
];
const APPLE: [MatrixConfig; 2] = [
    matrix(MatrixElement::F32, MatrixElement::F32, [8, 8, 8]),
    matrix(MatrixElement::F16, MatrixElement::F16, [8, 8, 8]),
];
const INTEL: [MatrixConfig; 2] = [
    matrix(MatrixElement::F16, MatrixElement::F32, [8, 16, 16]),
    matrix(MatrixElement::F16, MatrixElement::F16, [8, 16, 16]),
];

const ROWS: [AdapterRow; 14] = [
    AdapterRow {
        name: "WebGPU floor",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        subgroup_size: [0, 0],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "Apple M-series",
        vendor: "apple",
        architecture: "common-3",
        storage_buffers: 10,
        binding_bytes: 4 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [4, 64],
        matrices: &APPLE,
        software: false,
    },
    AdapterRow {
        name: "Intel UHD",
        vendor: "intel",
        architecture: "gen-9",
        storage_buffers: 10,
        binding_bytes: 2 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 256,
        subgroup_size: [8, 32],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "Adreno, 128 wide",
        vendor: "qualcomm",
        architecture: "adreno-7xx",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [64, 128],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "Adreno, small workgroups",
        vendor: "qualcomm",
        architecture: "adreno-6xx",
        storage_buffers: 8,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 16 << 10,
        invocations: 128,
        subgroup_size: [64, 64],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "Mali, 16 wide",
        vendor: "arm",
        architecture: "valhall",
        storage_buffers: 8,
        binding_bytes: 256 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 512,
        subgroup_size: [16, 16],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "NVIDIA",
        vendor: "nvidia",
        architecture: "",
        storage_buffers: 10,
        binding_bytes: 2 * GIB - 4,
        workgroup_bytes: 48 << 10,
        invocations: 1024,
        subgroup_size: [32, 32],
        matrices: &NVIDIA,
        software: false,
    },
    AdapterRow {
        name: "AMD, 32 or 64 wide",
        vendor: "amd",
        architecture: "rdna-3",
        storage_buffers: 10,
        binding_bytes: 4 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [32, 64],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "SwiftShader",
        vendor: "google",
        architecture: "swiftshader",
        storage_buffers: 10,
        binding_bytes: GIB,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        subgroup_size: [4, 4],
        matrices: &[],
        software: true,
    },
    AdapterRow {
        name: "lavapipe",
        vendor: "mesa",
        architecture: "llvmpipe",
        storage_buffers: 10,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [8, 8],
        matrices: &[],
        software: true,
    },
    AdapterRow {
        name: "lavapipe, no subgroups",
        vendor: "mesa",
        architecture: "llvmpipe",
        storage_buffers: 10,
        binding_bytes: 128 * MIB,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [0, 0],
        matrices: &[],
        software: true,
    },
    AdapterRow {
        name: "Intel, with matrices",
        vendor: "intel",
        architecture: "xe-2lpg",
        storage_buffers: 10,
        binding_bytes: 2 * GIB - 4,
        workgroup_bytes: 32 << 10,
        invocations: 1024,
        subgroup_size: [16, 32],
        matrices: &INTEL,
        software: false,
    },
    AdapterRow {
        name: "crippled",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 16 * MIB,
        workgroup_bytes: 4 << 10,
        invocations: 64,
        subgroup_size: [0, 0],
        matrices: &[],
        software: false,
    },
    AdapterRow {
        name: "crippled, with subgroups",
        vendor: "",
        architecture: "",
        storage_buffers: 8,
        binding_bytes: 16 * MIB,
        workgroup_bytes: 8 << 10,
        invocations: 32,
        subgroup_size: [4, 16],
        matrices: &[],
        software: false,
    },
];

impl AdapterRow {
    fn capabilities(&self, target: Target) -> Capabilities {
        let subgroups = self.subgroup_size[1] > 0;
        let matrices = !self.matrices.is_empty();
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
            features: Features {
                subgroups,
                subgroup_id: subgroups,
                f16: matrices,
                subgroup_matrix: matrices,
                ..Features::default()
            },
            subgroup_size: self.subgroup_size,
            matrices: self.matrices.to_vec(),
            software: self.software,
            ..Capabilities::floor(target)
        }
    }
}

/// The adapters, for a target.
pub fn table(target: Target) -> Vec<Capabilities> {
    ROWS.iter().map(|row| row.capabilities(target)).collect()
}

/// The adapters with matrices as [`emulating`] makes them.
pub fn emulated(target: Target) -> Vec<Capabilities> {
    table(target).iter().filter_map(emulating).collect()
}

/// An adapter with matrices as one without features, where plain WGSL stands in for them; none where its sums are
/// not in f32.
pub fn emulating(adapter: &Capabilities) -> Option<Capabilities> {
    adapter.half_matrix()?;
    let (features, subgroup_size, emulated) = (Features::default(), [0, 0], true);
    let mut adapter = Capabilities { features, subgroup_size, emulated, ..adapter.clone() };
    adapter.adapter.description += ", emulated";
    Some(adapter)
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
    left.features.f16 &= device.features.f16;
    left.features.subgroup_matrix &= device.features.subgroup_matrix;
    if left.features.subgroup_matrix {
        left.matrices.retain(|config| device.matrices.contains(config));
    }
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
    fn matrices_have_sums_in_f32_or_are_not_used() {
        let rows = table(Target::Browser);
        let of = |name: &str| rows.iter().find(|caps| caps.adapter.description == name).unwrap();
        let sizes = |caps: &Capabilities| caps.half_matrix().map(|c| [c.m, c.n, c.k]);
        assert_eq!(sizes(of("NVIDIA")), Some([16, 16, 16]));
        assert_eq!(sizes(of("Intel, with matrices")), Some([8, 16, 16]));
        assert_eq!(sizes(of("Apple M-series")), None);
        assert_eq!(sizes(of("AMD, 32 or 64 wide")), None);
        let emulated = emulated(Target::Browser);
        assert_eq!(emulated.len(), 2);
        // What a device without the feature is left with, and one with another shape.
        let floor = Capabilities::floor(Target::Browser);
        assert_eq!(sizes(&restrict(of("NVIDIA"), &floor)), None);
        assert_eq!(sizes(&restrict(&emulated[0], &floor)), Some([16, 16, 16]));
        assert_eq!(sizes(&restrict(of("NVIDIA"), of("Intel, with matrices"))), None);
    }

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
