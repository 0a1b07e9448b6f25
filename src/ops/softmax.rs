//! Softmax of a tensor by itself: a call checked and compiled into one dispatch.

use super::attention::BufferBytes;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{Element, RowPlace, softmax, softmax_unit};
use crate::plan::{Buffer, Builder, Phase, Plan, Range, Slice};
use serde::Deserialize;

/// Where rows without gaps begin in a buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RowsAt {
    /// The buffer, as [`Buffer::Given`] names it.
    pub id: u32,
    pub offset: u64,
}

/// Softmax of `rows` rows of `columns` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SoftmaxCall {
    pub input: RowsAt,
    pub output: RowsAt,
    pub rows: u64,
    pub columns: u64,
    pub element: Element,
}

/// A call ready to run: the plan, and what the host writes before it.
#[derive(Clone, Debug)]
pub struct SoftmaxPlan {
    pub plan: Plan,
    /// Contents of [`Buffer::Step`].
    pub place: RowPlace,
    /// Rows to replay the plan for.
    pub rows: usize,
}

impl SoftmaxCall {
    /// The plan.
    ///
    /// # Errors
    /// `invalid-options` for rows that do not lie in their buffers; `limit-exceeded`.
    pub fn compile(&self, caps: &Capabilities, bytes: BufferBytes) -> Result<SoftmaxPlan> {
        let input = self.slice("input", self.input, bytes)?;
        let output = self.slice("output", self.output, bytes)?;
        if input.buffer == output.buffer {
            return Err(Error::options("input and output share a buffer"));
        }
        // Within buffers, so within 32 bits.
        let [rows, columns] = [self.rows, self.columns].map(|size| size as usize);
        let unit = softmax_unit(columns, self.element) as u64;
        let place = RowPlace {
            rows: rows as u32,
            input: (self.input.offset / unit) as u32,
            output: (self.output.offset / unit) as u32,
            reserved: 0,
        };
        let kernel = softmax(caps, columns, self.element)?;
        let uniform = Slice::new(Buffer::Step, 0, size_of::<RowPlace>() as u64);
        let range = Range { row0: 0, rows: rows as u32, col0: 0, cols: 0 };
        let mut builder = Builder::new(caps, Phase::Forward, rows, Buffer::Step);
        let flops = 5.0 * rows as f64 * columns as f64;
        builder.dispatch_rows(kernel.name, kernel, vec![input, output, uniform], range, flops)?;
        Ok(SoftmaxPlan { plan: builder.finish(&[]), place, rows })
    }

    /// A buffer, once its rows lie in it and begin where the kernel can read.
    fn slice(&self, name: &str, at: RowsAt, bytes: BufferBytes) -> Result<Slice> {
        let have = bytes(at.id)
            .ok_or_else(|| Error::options(format!("{name} is no tensor of this runtime")))?;
        let size = self.element.bytes() as u64;
        let end = self
            .rows
            .checked_mul(self.columns)
            .and_then(|elements| elements.checked_add(at.offset)?.checked_mul(size));
        if self.rows == 0 || self.columns == 0 || end.is_none_or(|end| end > have) {
            return Err(Error::options(format!(
                "{name} has {} rows of {} from element {}, in a buffer of {have} bytes",
                self.rows, self.columns, at.offset
            )));
        }
        let unit = softmax_unit(self.columns as usize, self.element) as u64;
        if !at.offset.is_multiple_of(unit) {
            let offset = at.offset;
            return Err(Error::options(format!(
                "{name} begins at element {offset}; it must be a multiple of {unit}"
            )));
        }
        Ok(Slice::new(Buffer::Given(at.id), 0, have))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Target;
    use crate::error::ErrorCode;

    const BYTES: BufferBytes = &|id| (id < 2).then_some(96);

    fn call() -> SoftmaxCall {
        let at = |id| RowsAt { id, offset: 0 };
        SoftmaxCall { input: at(0), output: at(1), rows: 3, columns: 8, element: Element::F32 }
    }

    #[test]
    fn rows_that_fit_make_one_dispatch() {
        let caps = Capabilities::floor(Target::Native);
        let made = call().compile(&caps, BYTES).unwrap();
        assert_eq!(made.plan.dispatches.len(), 1);
        assert_eq!((made.rows, made.place.rows), (3, 3));
        let half = SoftmaxCall { element: Element::F16, columns: 7, ..call() };
        let input = RowsAt { id: 0, offset: 6 };
        assert_eq!(SoftmaxCall { input, ..half }.compile(&caps, BYTES).unwrap().place.input, 3);
    }

    #[test]
    fn nonsense_is_refused() {
        let caps = Capabilities::floor(Target::Native);
        for wrong in [
            SoftmaxCall { rows: 0, ..call() },
            SoftmaxCall { columns: 0, ..call() },
            SoftmaxCall { rows: 4, ..call() },
            SoftmaxCall { rows: u64::MAX, ..call() },
            SoftmaxCall { input: RowsAt { id: 2, offset: 0 }, ..call() },
            SoftmaxCall { input: RowsAt { id: 0, offset: 4 }, ..call() },
            SoftmaxCall { input: RowsAt { id: 0, offset: 2 }, rows: 2, ..call() },
            SoftmaxCall { input: RowsAt { id: 1, offset: 0 }, ..call() },
        ] {
            let error = wrong.compile(&caps, BYTES).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidOptions, "{wrong:?}");
        }
    }
}
