//! Dropout of rows, and where masks belong.

use super::{Lowering, label};
use crate::error::Result;
use crate::graph::{Dropout, Node};
use crate::kernels::{self as k, Constant, WriteMode};
use crate::plan::{Launch, Range, Slice};

impl Lowering<'_> {
    /// `y (+)= x`, of which the step's masks leave a share out; plus a second read if there is one.
    pub(super) fn dropout(
        &mut self,
        node: &Node,
        Dropout { rate, place }: Dropout,
        write: WriteMode,
    ) -> Result<()> {
        let (x, y) = (self.read(node, 0)?, self.written(node, 0)?);
        let columns = self.columns(node.reads[0]);
        let residual = self.second(node)?;
        let kernel = self.builder.kernel(k::DropoutForward {
            columns,
            rate: Constant(rate),
            mode: write,
            residual: residual.is_some(),
        })?;
        let launch = Launch::new(label(node.site, "dropout"), kernel)
            .bind("input", x)
            .bind("output", y)
            .bind("range", self.mask_range(place))
            .bind_some("residual", residual);
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }

    /// The uniform that tells a kernel whose masks to draw: those of this place.
    pub(super) fn mask_range(&mut self, place: usize) -> Slice {
        self.builder.range(Range { col0: place as u32, ..self.builder.all_rows() })
    }
}
