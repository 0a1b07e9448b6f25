//! The matrix-vector product: the linear layer of a single decoded token, with the norm before it
//! and the activation after it.

use super::Matvec;
use super::team::{by_teams, team};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::compose::{Composer, Grid, Kernel, Spec};
use crate::kernels::limits::{check_storage, workgroup_size};

/// Most invocations that share a row: the first, or the second where each would else load more than four vectors of a
/// matrix.
const LANES: usize = 64;
const LANES_OF_LONG_ROWS: usize = 128;
/// Most elements that an invocation loads at a time.
const IN_FLIGHT: usize = 32;
/// Fewest invocations of a row whose sums meet by subgroups: fewer would leave most of a subgroup idle.
const SUBGROUP_LANES: usize = 32;

/// Whether a matrix-vector product should also compute the norm before it, once per row of the matrix. A CPU, where a row
/// has one invocation, pays more for that than for a pass.
pub fn matvec_fuses(caps: &Capabilities) -> bool {
    !caps.software
}

/// Bindings: a, b, c, and as [`MatvecInput`](super::MatvecInput) and [`MatvecOutput`](super::MatvecOutput) say.
impl Spec for Matvec {
    fn name(&self) -> &'static str {
        "matvec_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        if let Some(team) = team(caps, self) {
            return by_teams(caps, *self, &team);
        }
        if self.input.merges() {
            return Err(Error::internal("teams alone put ranges together"));
        }
        let name = self.name();
        let Self { n, output, .. } = *self;
        let vectors = self.k.div_ceil(self.unit());
        let RowReader { lanes, size, meeting } = row(caps, vectors, n, name)?;
        let iterations = vectors / lanes;
        let unrolled = iterations.clamp(1, IN_FLIGHT / self.unit());
        let normed = self.input.is_normed();
        let products = output.products();
        let sums = products + usize::from(normed);
        check_storage(caps, [4 * size * sums as u32], name)?;
        let composer = Composer::new(*self, size)
            .size("LANES", lanes)
            .size("WHOLE", iterations / unrolled * unrolled)
            .unrolled("UNROLLED", unrolled)
            .unrolled("LAST", iterations % unrolled)
            .size("REST", vectors % lanes)
            .unrolled("PRODUCTS", products)
            .unrolled("SUMS", sums);
        let flat = Grid::Flat { rows: 1, per_block: n, per_group: size as usize / lanes };
        let (width, fused) = (self.width(), output.fused(normed));
        let (composer, meeting) = meeting.joined(composer, lanes);
        self.text(composer, 0, self.packed()).module("03_matvec").finish(
            caps,
            &self.operands(false)?,
            flat.fixed(caps, 1)?,
            format!("{lanes} lanes per row, {width}{fused}{meeting}"),
            "one row: each weight is read once, by neighbours",
        )
    }
}

/// Who reads a row of the matrix.
struct RowReader {
    lanes: usize,
    /// Invocations of a workgroup.
    size: u32,
    meeting: Meeting,
}

/// How the sums of a row's invocations meet.
enum Meeting {
    Tree,
    /// By subgroups, which the workgroup's one row has all of.
    Subgroups,
    /// By subgroups of `width` invocations. Each of the workgroup's rows has some whole subgroups.
    SubgroupsOfRows {
        rows: usize,
        width: usize,
    },
}

impl Meeting {
    /// Adds the flags and constants for rows of `lanes` invocations. Also gives what the variant is then called.
    fn joined(self, composer: Composer, lanes: usize) -> (Composer, String) {
        let rows = matches!(self, Self::SubgroupsOfRows { .. });
        let composer = composer.when("ROWS_OF_SUBGROUPS", rows);
        match self {
            Self::Tree => (composer, String::new()),
            Self::Subgroups => (composer.with_subgroups(), ", subgroup".into()),
            Self::SubgroupsOfRows { rows, width } => {
                let composer = composer.size("SUBGROUP", width).unrolled("SHARE", lanes / width);
                (composer.with_subgroups(), format!(", {rows} rows by subgroups"))
            }
        }
    }
}

/// As many neighbours read a row as it keeps busy. All of their loads are on their way before the first is needed. A
/// CPU gains nothing from neighbours and loses at barriers.
fn row(caps: &Capabilities, vectors: usize, n: usize, name: &str) -> Result<RowReader> {
    let most = if vectors > 4 * LANES { LANES_OF_LONG_ROWS } else { LANES };
    if caps.reduces_by_subgroup() && !caps.software && vectors >= SUBGROUP_LANES {
        let lanes = vectors.next_power_of_two().min(most);
        let lanes = workgroup_size(caps, lanes as u32, 1, name)?;
        let rows = caps.decoding().workgroup_rows.min(n).next_power_of_two() as u32;
        let [narrowest, width] = caps.subgroup_size;
        let whole = narrowest == width && lanes.is_multiple_of(width);
        let size = if whole { workgroup_size(caps, lanes * rows, 1, name)? } else { lanes };
        let (lanes, width) = (lanes as usize, width as usize);
        let meeting = match size as usize / lanes {
            1 => Meeting::Subgroups,
            rows => Meeting::SubgroupsOfRows { rows, width },
        };
        return Ok(RowReader { lanes, size, meeting });
    }
    let (most, wanted) = if caps.software { (1, 8) } else { (LANES, LANES as u32) };
    let size = workgroup_size(caps, wanted, 1, name)?;
    let lanes = vectors.next_power_of_two().clamp(1, most).min(size as usize);
    Ok(RowReader { lanes, size, meeting: Meeting::Tree })
}
