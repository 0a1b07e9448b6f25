//! Softmax of a tensor by itself: one dispatch.

use super::refuse::Sizes;
use super::{Operation, OperationKey, Places, Role, TENSORS, TensorView};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{Element, RowPlace, Softmax, Spec, softmax_unit};
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, Range, Slice};

/// Softmax over the last axis, into a tensor that is made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftmaxCall {
    pub input: TensorView,
}

/// What the plan of a softmax depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxKey {
    pub rows: usize,
    pub columns: usize,
    pub element: Element,
}

impl SoftmaxCall {
    /// The operation.
    ///
    /// # Errors
    /// `invalid-options` for elements with gaps, or that begin where the kernel cannot read.
    pub fn judge(self) -> Result<Operation> {
        let TensorView { id, element, offset, shape, strides } = &self.input;
        let columns = shape.last().copied().unwrap_or(1);
        let unit = softmax_unit(columns, *element);
        if !self.input.contiguous() || !offset.is_multiple_of(unit) {
            return Err(Error::options(format!(
                "softmax: input has offset {offset} and strides {}; give a contiguous tensor \
                 whose offset is a multiple of {unit}",
                Sizes(strides)
            )));
        }
        let rows = shape.iter().product::<usize>() / columns;
        let input = (offset / unit) as u32;
        let place = RowPlace { rows: rows as u32, input, output: 0, reserved: 0 };
        let mut buffers = [None; TENSORS];
        buffers[Role::Query as usize] = Some(*id);
        Ok(Operation {
            key: OperationKey::Softmax(SoftmaxKey { rows, columns, element: *element }),
            places: Places::Softmax(place),
            mask: vec![],
            buffers,
            made: vec![Role::Output],
        })
    }
}

impl SoftmaxKey {
    /// The plan: [`Role::Query`] to [`Role::Output`].
    ///
    /// # Errors
    /// `limit-exceeded`.
    pub fn plan(&self, caps: &Capabilities) -> Result<Plan> {
        let Self { rows, columns, element } = *self;
        let kernel = Softmax { columns, element }.kernel(caps)?;
        let bytes = rows as u64 * columns as u64 * element.bytes() as u64;
        let slice = |role: Role, bytes| Slice::new(role.buffer(), 0, bytes);
        let launch = Launch::new(kernel.name, kernel)
            .bind("input", slice(Role::Query, bytes))
            .bind("output", slice(Role::Output, bytes))
            .bind("place", slice(Role::Geometry, size_of::<RowPlace>() as u64));
        let range = Range { row0: 0, rows: rows as u32, col0: 0, cols: 0 };
        let mut builder = Builder::new(caps, Phase::Forward, rows, Buffer::Step);
        let flops = 5.0 * rows as f64 * columns as f64;
        builder.dispatch(launch.rows(range).flops(flops))?;
        Ok(builder.finish(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Target;
    use crate::error::ErrorCode;

    fn input(element: Element, shape: &[usize], offset: usize) -> TensorView {
        let strides =
            (1..=shape.len()).map(|axis| shape[axis..].iter().product()).collect::<Vec<_>>();
        TensorView { id: 7, element, offset, shape: shape.to_vec(), strides }
    }

    #[test]
    fn rows_that_fit_make_one_dispatch() {
        let caps = Capabilities::floor(Target::Native);
        let made = SoftmaxCall { input: input(Element::F32, &[1, 3, 8], 0) }.judge().unwrap();
        assert_eq!(made.key.plan(&caps).unwrap().dispatches.len(), 1);
        assert_eq!((made.key.rows(), made.buffers[0], made.made), (3, Some(7), vec![Role::Output]));
        let half = SoftmaxCall { input: input(Element::F16, &[3, 7], 6) }.judge().unwrap();
        assert_eq!(
            half.places,
            Places::Softmax(RowPlace { rows: 3, input: 3, ..RowPlace::default() })
        );
    }

    #[test]
    fn gaps_and_odd_beginnings_are_refused() {
        let gaps = TensorView { strides: vec![9, 1], ..input(Element::F32, &[3, 8], 0) };
        for (wrong, unit) in
            [(gaps, 4), (input(Element::F32, &[3, 8], 2), 4), (input(Element::F16, &[3, 7], 3), 2)]
        {
            let error = SoftmaxCall { input: wrong }.judge().unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidOptions);
            assert!(error.message.contains(&format!("a multiple of {unit}")), "{error}");
        }
    }
}
