//! Matrices held by a subgroup together, an experimental feature of WebGPU.

use super::Capabilities;
use crate::error::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The feature's name. The draft of WebGPU will call it `subgroup-matrix`.
pub const MATRIX_FEATURE: &str = "chromium-experimental-subgroup-matrix";
/// Directives of a text that uses it. Which subgroup computes what does not depend on data, but a compiler
/// cannot prove that of a subgroup's id.
pub const MATRIX_DIRECTIVES: &str = "enable chromium_experimental_subgroup_matrix;\n\
     diagnostic(off, chromium.subgroup_matrix_uniformity);\n";

/// Invocations that stand in for a subgroup where the functions of matrices are emulated.
const EMULATED_LANES: u32 = 32;

/// What a matrix may have as elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatrixElement {
    F32,
    F16,
    U32,
    I32,
    U8,
    I8,
}

impl MatrixElement {
    pub const ALL: [Self; 6] = [Self::F32, Self::F16, Self::U32, Self::I32, Self::U8, Self::I8];

    /// Its name in WebGPU and WGSL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U8 => "u8",
            Self::I8 => "i8",
        }
    }
}

/// A product that a subgroup computes: M×K by K×N elements, added to M×N results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatrixConfig {
    #[serde(rename = "componentType")]
    pub component: MatrixElement,
    #[serde(rename = "resultComponentType")]
    pub result: MatrixElement,
    #[serde(rename = "M")]
    pub m: u32,
    #[serde(rename = "N")]
    pub n: u32,
    #[serde(rename = "K")]
    pub k: u32,
}

impl Capabilities {
    /// The product for operands in f16 that products of the crate use: sums in f32, the largest first.
    pub fn half_matrix(&self) -> Option<MatrixConfig> {
        let features = self.features;
        let usable = features.subgroup_matrix && features.f16 && self.reduces_by_subgroup();
        let half = |config: &&MatrixConfig| {
            (config.component, config.result) == (MatrixElement::F16, MatrixElement::F32)
        };
        let size = |config: &&MatrixConfig| config.m * config.n * config.k;
        let largest = self.matrices.iter().filter(half).max_by_key(size).copied();
        largest.filter(|_| usable || self.emulated)
    }

    /// Invocations for each subgroup of a workgroup that multiplies matrices: the widest there may be.
    pub fn matrix_lanes(&self) -> u32 {
        if self.emulated { EMULATED_LANES } else { self.subgroup_size[1].max(1) }
    }

    /// Whether a pipeline may use a product in workgroups of `invocations` by 1 by 1.
    ///
    /// # Errors
    /// `limit-exceeded` where the device lacks the feature or this product, or where the workgroup is no whole
    /// number of the widest subgroups.
    pub fn allows_matrix(&self, config: MatrixConfig, invocations: u32, what: &str) -> Result<()> {
        let refused = |why: String| Err(Error::new(ErrorCode::LimitExceeded, why));
        let MatrixConfig { component, result, m, n, k } = config;
        if !((self.features.subgroup_matrix || self.emulated) && self.matrices.contains(&config)) {
            let [component, result] = [component, result].map(MatrixElement::name);
            return refused(format!(
                "{what} needs subgroup matrices of {m}x{n}x{k}, {component} to {result}, and this device has none"
            ));
        }
        let widest = self.matrix_lanes();
        if !invocations.is_multiple_of(widest) {
            return refused(format!(
                "{what} needs workgroups of a multiple of {widest} invocations (subgroupMaxSize) for its subgroup \
                 matrices, not of {invocations}"
            ));
        }
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod samples {
    use super::*;
    use crate::caps::{Features, Target};

    /// A device with these shapes of matrices and subgroups of these sizes, and else the default limits.
    pub fn device(matrices: &[MatrixConfig], subgroup_size: [u32; 2]) -> Capabilities {
        let features = Features {
            subgroups: true,
            subgroup_id: true,
            f16: true,
            subgroup_matrix: true,
            ..Features::default()
        };
        let matrices = matrices.to_vec();
        Capabilities { features, matrices, subgroup_size, ..Capabilities::floor(Target::Browser) }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::device;
    use super::*;

    const SQUARE: MatrixConfig = config(MatrixElement::F16, MatrixElement::F32, [16, 16, 16]);

    const fn config(
        component: MatrixElement,
        result: MatrixElement,
        [m, n, k]: [u32; 3],
    ) -> MatrixConfig {
        MatrixConfig { component, result, m, n, k }
    }

    #[test]
    fn sums_are_in_f32() {
        use MatrixElement::{F16, F32};
        let small = config(F16, F32, [16, 8, 8]);
        let same = config(F16, F16, [16, 16, 16]);
        assert_eq!(device(&[small, same, SQUARE], [32, 32]).half_matrix(), Some(SQUARE));
        assert_eq!(device(&[same, config(F32, F32, [8, 8, 8])], [32, 32]).half_matrix(), None);
        let mut without = device(&[SQUARE], [32, 32]);
        without.features.f16 = false;
        assert_eq!(without.half_matrix(), None);
    }

    #[test]
    fn another_shape_or_a_part_of_a_subgroup_is_refused() {
        let device = device(&[SQUARE], [16, 32]);
        assert_eq!(device.allows_matrix(SQUARE, 128, "a product"), Ok(()));
        for (matrix, invocations, why) in [
            (MatrixConfig { n: 8, ..SQUARE }, 128, "of 16x8x16, f16 to f32"),
            (MatrixConfig { result: MatrixElement::F16, ..SQUARE }, 128, "f16 to f16"),
            (SQUARE, 48, "a multiple of 32 invocations (subgroupMaxSize)"),
            (SQUARE, 16, "not of 16"),
        ] {
            let error = device.allows_matrix(matrix, invocations, "a product").unwrap_err();
            assert_eq!(error.code, ErrorCode::LimitExceeded);
            assert!(error.message.contains(why), "{error}");
        }
        let mut off = device.clone();
        off.features.subgroup_matrix = false;
        assert!(off.allows_matrix(SQUARE, 128, "a product").is_err());
    }
}
