//! What a dispatch binds, by the names that operands have in its kernel's table.

use super::{Builder, Range, Slice};
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use std::rc::Rc;

/// An operand, and its name in the kernel's text.
pub type NamedSlice = (&'static str, Slice);

/// A kernel with its operands, for [`Builder::dispatch`].
#[derive(Clone, Debug)]
pub struct Launch {
    pub(super) label: String,
    pub(super) kernel: Rc<Kernel>,
    operands: Vec<NamedSlice>,
    pub(super) rows: Option<Range>,
    pub(super) flops: f64,
}

impl Launch {
    /// A launch over all token rows.
    pub fn new(label: impl Into<String>, kernel: impl Into<Rc<Kernel>>) -> Self {
        Self {
            label: label.into(),
            kernel: kernel.into(),
            operands: vec![],
            rows: None,
            flops: 0.0,
        }
    }

    pub fn bind(mut self, name: &'static str, slice: Slice) -> Self {
        self.operands.push((name, slice));
        self
    }

    /// Binds an operand that only some variants of the kernel have.
    pub fn bind_some(mut self, name: &'static str, slice: Option<Slice>) -> Self {
        self.operands.extend(slice.map(|slice| (name, slice)));
        self
    }

    pub fn bind_all(mut self, operands: impl IntoIterator<Item = NamedSlice>) -> Self {
        self.operands.extend(operands);
        self
    }

    /// The token rows that it covers. The kernel reads them as `range`.
    pub const fn rows(mut self, rows: Range) -> Self {
        self.rows = Some(rows);
        self
    }

    pub const fn flops(mut self, flops: f64) -> Self {
        self.flops = flops;
        self
    }

    fn operand(&self, name: &str) -> Option<Slice> {
        self.operands.iter().find(|(known, _)| *known == name).map(|(_, slice)| *slice)
    }

    fn wrong(&self, name: &str, what: &str) -> Error {
        Error::internal(format!("{}: {what} operand {name:?} of {}", self.label, self.kernel.name))
    }
}

impl Builder<'_> {
    /// A slice for each binding of a kernel, in the order of its table. The builder binds the uniforms `step`, `range`
    /// and `sizes` where the launch does not.
    pub(super) fn resolve(&mut self, launch: &Launch) -> Result<Vec<Slice>> {
        let Launch { kernel, operands, .. } = launch;
        for (index, (name, _)) in operands.iter().enumerate() {
            if !kernel.bindings.iter().any(|binding| binding.name == *name) {
                return Err(launch.wrong(name, "unknown"));
            }
            if operands[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(launch.wrong(name, "doubled"));
            }
        }
        let slice = |name| {
            let given = launch.operand(name).or_else(|| self.uniform(name, launch));
            given.ok_or_else(|| launch.wrong(name, "missing"))
        };
        kernel.bindings.iter().map(|binding| binding.name).map(slice).collect()
    }

    fn uniform(&mut self, name: &str, launch: &Launch) -> Option<Slice> {
        match name {
            "step" => Some(self.step()),
            "range" => launch.rows.map(|rows| self.range(rows)),
            "sizes" => launch
                .kernel
                .sizes
                .map(|[row0, rows, col0, cols]| self.range(Range { row0, rows, col0, cols })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::{Capabilities, Target};
    use crate::kernels::{Form, LinearProduct, LinearShape, Output, WriteMode};
    use crate::plan::{Buffer, Phase, Plan};

    const NAMES: [&str; 4] = ["a", "b", "c", "residual"];

    /// A product whose operands are bound in this order.
    fn product(names: &[&'static str]) -> Result<Plan> {
        let caps = Capabilities::floor(Target::Native);
        let mut builder = Builder::new(&caps, Phase::Forward, 8, Buffer::Step);
        let shape = LinearShape::new(Form::MatmulT, 12, 20, 8);
        let kernel = builder.kernel(LinearProduct::picked(&caps, shape, Output::Residual)).unwrap();
        let rows = builder.all_rows();
        let operand = |name: &&'static str| {
            let number = name.bytes().next().map_or(0, u32::from);
            (*name, Slice::new(Buffer::Given(number), 0, 4))
        };
        let operands: Vec<_> = names.iter().map(operand).collect();
        builder.dispatch(Launch::new("a product", kernel).rows(rows).bind_all(operands))?;
        Ok(builder.finish(&[]))
    }

    #[test]
    fn the_kernel_has_the_order_of_operands() {
        let plan = product(&NAMES).unwrap();
        let bound = |plan: &Plan| plan.dispatches[0].slices.clone();
        for (slice, binding) in bound(&plan).iter().zip(&plan.kernels[0].bindings) {
            let expected = match binding.name {
                "step" => Buffer::Step,
                "range" | "sizes" => Buffer::Ranges,
                name => Buffer::Given(u32::from(name.as_bytes()[0])),
            };
            assert_eq!(slice.buffer, expected, "{}", binding.name);
        }
        for shift in 1..NAMES.len() {
            let mut names = NAMES;
            names.rotate_left(shift);
            let other = product(&names).unwrap();
            assert_eq!((bound(&other), other.ranges), (bound(&plan), plan.ranges.clone()));
        }
    }

    #[test]
    fn wrong_names_are_told() {
        let message = |names: &[&'static str]| product(names).unwrap_err().message;
        for (names, expected) in [
            (&NAMES[..3], r#"a product: missing operand "residual" of matmul_t"#),
            (&["a", "b", "c", "residual", "bias"], r#"a product: unknown operand "bias" of"#),
            (&["a", "b", "c", "residual", "b"], r#"a product: doubled operand "b" of"#),
        ] {
            let message = message(names);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn rows_that_are_not_given_are_not_guessed() {
        let caps = Capabilities::floor(Target::Native);
        let mut builder = Builder::new(&caps, Phase::Forward, 8, Buffer::Step);
        let shape = LinearShape::new(Form::MatmulT, 12, 20, 8);
        let output = Output::Mode(WriteMode::Overwrite);
        let kernel = builder.kernel(LinearProduct::picked(&caps, shape, output)).unwrap();
        let slice = Slice::new(Buffer::Given(0), 0, 4);
        let launch = Launch::new("p", kernel).bind_all(["a", "b", "c"].map(|name| (name, slice)));
        let error = builder.dispatch(launch).unwrap_err();
        assert!(error.message.contains(r#"missing operand "range""#), "{error}");
    }
}
