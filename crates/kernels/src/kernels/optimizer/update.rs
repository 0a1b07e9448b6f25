//! Kernels of optimizers' rules. Each is written down in its rule's file; all others see this of it.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec};
use crate::kernels::limits::{elements, reduction, row_workgroup, variant, workgroup_size};
use crate::kernels::shape::Constant;
use std::hash::{Hash, Hasher};

/// A kernel of a rule.
#[derive(Debug)]
pub struct UpdateKernel {
    /// Its entry point.
    pub name: &'static str,
    /// The kernel of these sizes on a device.
    pub make: fn(UpdateSpec, &Capabilities) -> Result<Kernel>,
    #[cfg(feature = "testing")]
    pub tests: super::cases::update::UpdateTests,
}

impl UpdateKernel {
    /// The kernel of these sizes; what they are is the kernel's own matter.
    pub const fn of(&'static self, sizes: [usize; 3]) -> UpdateSpec {
        UpdateSpec { kernel: self, sizes, constant: Constant(0.0) }
    }
}

/// A kernel of a rule with its sizes.
#[derive(Clone, Copy, Debug)]
pub struct UpdateSpec {
    pub kernel: &'static UpdateKernel,
    pub sizes: [usize; 3],
    pub constant: Constant,
}

impl UpdateSpec {
    /// This spec with a constant in its text.
    pub const fn with(self, constant: Constant) -> Self {
        Self { constant, ..self }
    }
}

impl Spec for UpdateSpec {
    fn name(&self) -> &'static str {
        self.kernel.name
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        (self.kernel.make)(*self, caps)
    }
}

impl PartialEq for UpdateSpec {
    fn eq(&self, other: &Self) -> bool {
        let Self { kernel, sizes, constant } = self;
        (kernel.name, sizes, constant) == (other.kernel.name, &other.sizes, &other.constant)
    }
}

impl Eq for UpdateSpec {}

impl Hash for UpdateSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { kernel, sizes, constant } = self;
        (kernel.name, sizes, constant).hash(state);
    }
}

/// What the text of a kernel of family 12 is made of.
#[derive(Debug, Default)]
pub(crate) struct UpdateText<'a> {
    pub sizes: &'a [(&'static str, usize)],
    /// Names of the rule's numbers, which become constants with their places in the step.
    pub numbers: &'a [&'static str],
    pub float: Option<(&'static str, Constant)>,
    /// A form that its file asks for by `#if`.
    pub when: Option<(&'static str, bool)>,
    /// Its file below `shaders`.
    pub kernel: &'static str,
    /// Elements of a load, where its text has vectors.
    pub lanes: usize,
    pub bindings: &'a [Binding],
}

impl UpdateText<'_> {
    fn composer(&self, spec: impl Spec, size: u32, subgroups: Option<bool>) -> Composer {
        let mut composer = Composer::new(spec, size).vectors(self.lanes);
        for (name, value) in self.sizes {
            composer = composer.size(name, *value);
        }
        for (place, name) in self.numbers.iter().enumerate() {
            composer = composer.size(&constant_name(name), place);
        }
        if let Some((name, value)) = self.float {
            composer = composer.float(name, value.0 as f32);
        }
        if let Some((name, value)) = self.when {
            composer = composer.when(name, value);
        }
        composer = composer.module(self.kernel);
        if let Some(subgroups) = subgroups {
            composer = composer.reduction(subgroups);
        }
        composer
    }

    /// One invocation per element.
    pub fn flat(&self, caps: &Capabilities, spec: impl Spec, count: usize) -> Result<Kernel> {
        let size = workgroup_size(caps, 256, 1, spec.name())?;
        let flat = Grid::Flat { rows: 1, per_block: count, per_group: size as usize };
        self.composer(spec, size, None).finish(
            caps,
            self.bindings,
            flat.fixed(caps, 1)?,
            "flat",
            "one invocation per element, workgroup as large as the device allows up to 256",
        )
    }

    /// One invocation per vector: four elements where the run is a multiple of them, or one.
    pub fn vectors(&self, caps: &Capabilities, spec: impl Spec, count: usize) -> Result<Kernel> {
        let lanes = elements(count);
        let text = UpdateText { lanes, ..*self };
        text.flat(caps, spec, count / lanes)
    }

    /// Workgroups of `groups`, which reduce as rows of `columns` columns are reduced.
    pub fn reduced(
        &self,
        caps: &Capabilities,
        spec: impl Spec,
        columns: usize,
        groups: Grid,
    ) -> Result<Kernel> {
        let (subgroups, why) = reduction(caps);
        let size = row_workgroup(caps, columns, spec.name())?;
        let grid = groups.fixed(caps, 1)?;
        self.composer(spec, size, Some(subgroups)).finish(
            caps,
            self.bindings,
            grid,
            variant(subgroups),
            why,
        )
    }
}

/// `beta2Decay` as a shader's `BETA2_DECAY`.
fn constant_name(name: &str) -> String {
    let mut constant = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}
