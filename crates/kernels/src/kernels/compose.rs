//! Builds WGSL: directives, constants, the kernel with what it imports, its entry point.

pub use super::operand::{Access, Binding};
use super::operand::{Accessor, DeclaredOperand, Placement, written};
pub(crate) use super::operand::{read, read_write, uniform};
use super::preprocess::Preprocessor;
use super::shape::PartialSums;
use super::spec::KernelSpec;
use super::unroll::unroll;
use crate::caps::{Capabilities, MATRIX_DIRECTIVES, MatrixConfig, Target};
use crate::decimal::Decimal;
use crate::error::{Error, Result};
use std::fmt::Write;
use std::sync::Arc;

/// Workgroups of a dispatch as a function of the rows it covers, a run-time value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grid {
    Fixed {
        x: u32,
        y: u32,
    },
    /// Rows in blocks of `rows`, `per_block` units of work each, `per_group` units a workgroup,
    /// the workgroups folded into two dimensions.
    Flat {
        rows: usize,
        per_block: usize,
        per_group: usize,
    },
    /// A tile of `rows` rows for each x, `y` of them side by side.
    RowsByX {
        rows: usize,
        y: u32,
    },
    /// A tile of `rows` rows for each y, `x` of them side by side.
    RowsByY {
        rows: usize,
        x: u32,
    },
}

impl Grid {
    /// This grid for `rows` rows, however many the batch has.
    ///
    /// # Errors
    /// As [`Grid::resolve`].
    pub(super) fn fixed(self, caps: &Capabilities, rows: usize) -> Result<Self> {
        let most = caps.limits.max_compute_workgroups_per_dimension;
        let [x, y] = self.resolve(rows, most)?.unwrap_or([1, 1]);
        Ok(Self::Fixed { x, y })
    }

    /// The workgroup counts for `rows` rows, none when there is no work.
    ///
    /// # Errors
    /// `limit-exceeded` when a dimension is too long even so.
    pub fn resolve(self, rows: usize, most: u32) -> Result<Option<[u32; 2]>> {
        let (x, y) = match self {
            Self::Fixed { x, y } => (x as usize, y as usize),
            Self::Flat { rows: block, per_block, per_group } => {
                let groups = (rows.div_ceil(block) * per_block).div_ceil(per_group);
                let y = groups.div_ceil(most.max(1) as usize);
                (if y == 0 { 0 } else { groups.div_ceil(y) }, y)
            }
            Self::RowsByX { rows: tile, y } => (rows.div_ceil(tile), y as usize),
            Self::RowsByY { rows: tile, x } => (x as usize, rows.div_ceil(tile)),
        };
        let longest = x.max(y);
        if longest > most as usize {
            let name = "maxComputeWorkgroupsPerDimension";
            return Err(Error::limit(name, u64::from(most), longest as u64, "a dispatch"));
        }
        Ok((x > 0 && y > 0).then_some([x as u32, y as u32]))
    }
}

/// A kernel's text. Plans hold hundreds of dispatches of a few dozen kernels, so texts are compared with their marked
/// loops and operands, which are written out once for each pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wgsl {
    composed: Arc<str>,
    /// Constants up to which marked loops are written out.
    unrolled: Vec<(&'static str, usize)>,
    /// What it declares with `#operand`.
    operands: Vec<DeclaredOperand>,
    /// What stands for these.
    accessors: Vec<Accessor>,
}

impl Wgsl {
    /// What is compiled.
    pub fn text(&self) -> String {
        unroll(&written(&self.composed, &self.accessors), &self.unrolled)
    }
}

/// A kernel ready to compile: what selection decided, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it computes.
    pub spec: KernelSpec,
    /// Entry point, `operation_direction`: [`Spec::name`].
    pub name: &'static str,
    pub variant: String,
    /// Why this variant, workgroup size and tile.
    pub reason: String,
    pub workgroup_size: u32,
    /// Binding `i` is `bindings[i]`.
    pub bindings: Vec<Binding>,
    pub grid: Grid,
    /// What the last binding, `sizes`, holds where there is one: sizes that the text leaves open, so that products of
    /// several shapes share a pipeline.
    pub sizes: Option<[u32; 4]>,
    /// What the text was joined from, in order: files below `shaders` without the ending.
    pub modules: Vec<&'static str>,
    pub wgsl: Wgsl,
}

impl Kernel {
    /// Whether it multiplies on subgroup matrices.
    pub fn on_matrices(&self) -> bool {
        self.wgsl.composed.contains(MATRIX_DIRECTIVES)
    }

    /// The same kernel, with its operands at these places in bindings that other kernels share. None where a binding
    /// would need two types, where an operand begins inside an element, and where the text declares an operand by
    /// `#binding`.
    pub fn placed(&self, bindings: &[Binding], placements: &[Placement]) -> Option<Self> {
        let (mut accessors, rest) = Accessor::all(&self.wgsl.operands, bindings, placements)?;
        let all = accessors.len() == placements.len();
        accessors.last_mut().filter(|_| all)?.declaration += &rest;
        let wgsl = Wgsl { accessors, ..self.wgsl.clone() };
        let variant = format!("{}, shared bindings", self.variant);
        Some(Self { wgsl, variant, bindings: bindings.to_vec(), ..self.clone() })
    }

    /// Says in the variant's name how many parts the kernel adds up.
    pub(super) fn of_parts(mut self, parts: PartialSums) -> Self {
        if parts != PartialSums::WHOLE {
            let _ = write!(self.variant, ", {} parts", parts.count);
        }
        self
    }
}

/// What a kernel computes: an operation with its shape and options, as plain data. How many rows it covers, and which part
/// of a matrix, is said by the dispatch. The shader's header gives each binding's shape.
///
/// `tokens` in a shape helps to choose a tile: no result depends on it, except where a field says so. A `tile` is given
/// for measurements and tests; none leaves it to selection.
pub trait Spec: Copy + Into<KernelSpec> {
    /// The kernel's entry point, `operation_direction`.
    fn name(&self) -> &'static str;

    /// The kernel on a device: variant, reason, workgroup size, modules, bindings, grid and text.
    ///
    /// # Errors
    /// `limit-exceeded` when no variant fits the device; `internal` for a form that the kernel does not have.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel>;

    /// Arithmetic of attention over a cache, per row and key: two products, or one of a single head.
    fn flops_per_cached_key(&self) -> f64 {
        0.0
    }
}

/// Collects what a kernel is made of.
#[derive(Debug)]
pub(super) struct Composer {
    spec: KernelSpec,
    workgroup_size: u32,
    header: String,
    /// Files below `shaders` that follow the constants, without the ending.
    modules: Vec<&'static str>,
    /// What `#if` may ask.
    flags: Vec<(&'static str, bool)>,
    subgroups: bool,
    matrix: Option<MatrixConfig>,
    sizes: Option<[u32; 4]>,
    /// Constants up to which marked loops are written out.
    unrolled: Vec<(&'static str, usize)>,
}

/// The sections of `lib/matrix.wgsl`.
pub(super) const MATRIX_USERS: [&str; 3] = ["OF_FORWARD", "OF_BACKWARD", "OF_PRODUCTS"];

impl Composer {
    pub fn new(spec: impl Into<KernelSpec>, workgroup_size: u32) -> Self {
        let mut header = String::new();
        let _ = writeln!(header, "const WORKGROUP: u32 = {workgroup_size}u;");
        Self {
            spec: spec.into(),
            workgroup_size,
            header,
            modules: Vec::new(),
            flags: Vec::new(),
            subgroups: false,
            matrix: None,
            sizes: None,
            unrolled: Vec::new(),
        }
    }

    /// Invocations of a workgroup.
    pub fn workgroup_size(&self) -> usize {
        self.workgroup_size as usize
    }

    /// Adds `const name: u32`.
    pub fn size(mut self, name: &str, value: usize) -> Self {
        let _ = writeln!(self.header, "const {name}: u32 = {value}u;");
        self
    }

    /// Adds a constant array of `u32`.
    pub fn sizes(self, name: &str, mut values: impl Iterator<Item = usize>) -> Self {
        self.array(name, &mut values)
    }

    /// Compiled once, not for each kind of iterator.
    fn array(mut self, name: &str, values: &mut dyn Iterator<Item = usize>) -> Self {
        let values: Vec<_> = values.map(|value| format!("{value}u")).collect();
        let _ = writeln!(self.header, "const {name} = array({});", values.join(", "));
        self
    }

    /// Adds `const name: u32`, up to which loops marked with `#unroll` are written out. Up to a [`size`](Self::size) they
    /// stay loops.
    pub fn unrolled(self, name: &'static str, value: usize) -> Self {
        self.unroll(name, value).size(name, value)
    }

    /// Writes out marked loops up to a constant of this value that the text has.
    pub fn unroll(mut self, name: &'static str, value: usize) -> Self {
        self.unrolled.push((name, value));
        self
    }

    /// Leaves sizes to [`Kernel::sizes`], for which the last binding is.
    pub fn open(mut self, [a, b, c, d]: [usize; 4]) -> Self {
        self.sizes = Some([a as u32, b as u32, c as u32, d as u32]);
        self
    }

    /// Adds `const name: f32`, written so that it reads back as the same float.
    pub fn float(mut self, name: &str, value: f32) -> Self {
        let _ = writeln!(self.header, "const {name}: f32 = {};", Decimal(value));
        self
    }

    /// Adds `const name: bool`, which `#if` may ask too.
    pub fn flag(mut self, name: &'static str, value: bool) -> Self {
        let _ = writeln!(self.header, "const {name}: bool = {value};");
        self.when(name, value)
    }

    /// Says what `#if` finds for a name.
    pub fn when(mut self, name: &'static str, value: bool) -> Self {
        self.flags.push((name, value));
        self
    }

    /// Says for `#if` which of some names is chosen, or none of them.
    pub fn one_of(self, names: &[&'static str], chosen: &str) -> Self {
        names.iter().fold(self, |composer, name| composer.when(name, *name == chosen))
    }

    /// Says how many elements a vector of `lib/vector.wgsl` has: [`super::limits::elements`].
    pub fn vectors(self, lanes: usize) -> Self {
        self.when("BY_FOUR", lanes == 4)
    }

    /// Says whether an operand is the sum of `parts`, which are read by vectors of `lanes` elements.
    pub fn summed_parts(self, parts: PartialSums, lanes: usize) -> Self {
        let sums = parts != PartialSums::WHOLE;
        let composer = self.when("SUMMED", sums);
        if !sums {
            return composer;
        }
        composer.unrolled("PARTS", parts.count).size("PART_ROW", parts.apart / lanes)
    }

    /// Adds a file below `shaders`, unless it is in the text already.
    pub fn module(mut self, path: &'static str) -> Self {
        self.modules.push(path);
        self
    }

    /// Adds the workgroup reductions in the form given by [`super::reduction`].
    pub fn reduction(mut self, subgroups: bool) -> Self {
        self.subgroups = subgroups;
        self.module("lib/reduce")
    }

    /// Gives the text's variables of subgroups their values.
    pub fn with_subgroups(mut self) -> Self {
        self.subgroups = true;
        self
    }

    /// Adds a module that uses subgroups and declares their ids as `lib/reduce.wgsl` does.
    pub fn subgroup_module(mut self, module: &'static str) -> Self {
        self.subgroups = true;
        self.module(module)
    }

    /// Adds the constants of `lib/matrix.wgsl` for one product of matrices, and says whether plain WGSL stands in for it.
    pub fn matrix(mut self, caps: &Capabilities, config: MatrixConfig) -> Self {
        self.matrix = Some(config);
        self.subgroups = !caps.emulated;
        let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
        (self.size("MATRIX_M", m).size("MATRIX_N", n).size("MATRIX_K", k))
            .size("LANES", caps.matrix_lanes() as usize)
            .when("EMULATED", caps.emulated)
    }

    /// Adds bounds of loops over what a subgroup's matrices hold, and unrolls them. Loops that stand in for matrices
    /// stay: they are for CPUs, whose compilers take long for many copies.
    pub fn matrix_loops(self, caps: &Capabilities, counts: &[(&'static str, usize)]) -> Self {
        counts.iter().fold(self, |composer, &(name, count)| {
            if caps.emulated { composer.size(name, count) } else { composer.unrolled(name, count) }
        })
    }

    /// The text up to its entry point: directives, constants, files.
    fn body<'b>(
        &'b self,
        caps: &Capabilities,
        bindings: &'b [Binding],
    ) -> Result<Preprocessor<'b>> {
        let flags = [self.flags.as_slice(), &[("SUBGROUPS", self.subgroups)]].concat();
        let text = [&self.directives(caps), self.header.as_str(), "\n"].concat();
        let mut body = Preprocessor::new(flags, &self.header, bindings, text);
        self.modules.iter().try_for_each(|path| body.import(path))?;
        Ok(body)
    }

    /// The directives that a text begins with.
    fn directives(&self, caps: &Capabilities) -> String {
        let mut text = String::new();
        if self.subgroups && caps.target == Target::Browser {
            text += "enable subgroups;\n";
        }
        if self.matrix.is_some() && !caps.emulated {
            text += "enable f16;\n";
            text += MATRIX_DIRECTIVES;
        }
        text
    }

    /// Finishes the text with the entry point.
    ///
    /// # Errors
    /// `limit-exceeded` when the bindings need more storage buffers than a stage may have, and as
    /// [`Capabilities::allows_matrix`].
    pub fn finish(
        self,
        caps: &Capabilities,
        bindings: &[Binding],
        grid: Grid,
        variant: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<Kernel> {
        let storage = bindings.iter().filter(|b| b.access != Access::Uniform).count() as u64;
        let allowed = u64::from(caps.limits.max_storage_buffers_per_shader_stage);
        if storage > allowed {
            return Err(Error::limit(
                "maxStorageBuffersPerShaderStage",
                allowed,
                storage,
                self.spec.name(),
            ));
        }
        let name = self.spec.name();
        if let Some(config) = self.matrix {
            caps.allows_matrix(config, self.workgroup_size, name)?;
        }
        let (extra, store) = if self.subgroups {
            (
                ",\n  @builtin(subgroup_id) subgroup: u32, @builtin(num_subgroups) subgroups: u32,\n  \
                 @builtin(subgroup_invocation_id) subgroup_invocation: u32",
                "  subgroup_index = subgroup;\n  subgroup_count = subgroups;\n  subgroup_lane = subgroup_invocation;\n",
            )
        } else {
            ("", "")
        };
        let Preprocessor { mut text, imported, operands, .. } = self.body(caps, bindings)?;
        let _ = writeln!(
            text,
            "\n@compute @workgroup_size({size})\nfn {name}(@builtin(local_invocation_index) lane: u32,\n  \
             @builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>{extra}) {{\n\
             {store}  run(lane, workgroup, workgroups);\n}}",
            size = self.workgroup_size
        );
        let two = || Error::internal(format!("{name} declares an operand of two types"));
        let accessors = Accessor::alone(&operands, bindings).ok_or_else(two)?;
        Ok(Kernel {
            spec: self.spec,
            name,
            variant: variant.into(),
            reason: reason.into(),
            grid,
            workgroup_size: self.workgroup_size,
            bindings: bindings.to_vec(),
            sizes: self.sizes,
            modules: imported,
            wgsl: Wgsl { composed: text.into(), unrolled: self.unrolled, operands, accessors },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_no_device_has_are_an_error() {
        let flat = Grid::Flat { rows: 1, per_block: 1, per_group: 64 };
        let tiles = Grid::RowsByX { rows: 8, y: 1 };
        for grid in [flat, tiles, Grid::RowsByY { rows: 8, x: 1 }, Grid::Fixed { x: 2, y: 1 }] {
            let error = grid.resolve(100, 0).unwrap_err();
            assert!(error.message.contains("maxComputeWorkgroupsPerDimension"), "{error}");
            assert!(grid.resolve(100, 65_535).unwrap().is_some());
        }
        assert_eq!(flat.resolve(100, 1).unwrap_err().code, crate::error::ErrorCode::LimitExceeded);
        assert_eq!(flat.resolve(0, 0).unwrap(), None);
    }
}
