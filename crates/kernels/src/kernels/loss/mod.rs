//! Cross-entropy over the vocabulary, its sum, and the soft cap of logits.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::{check_storage, row_workgroup};
use super::shape::Constant;
use crate::caps::Capabilities;
use crate::error::Result;

/// A row of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogitRow {
    pub vocabulary: usize,
    /// Elements from one row to the next; those past the vocabulary are padding.
    pub stride: usize,
}

/// What training minimises besides the cross-entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Objective {
    /// The share of the target's probability that is spread over the vocabulary.
    pub label_smoothing: Constant,
    /// Factor on the square of the logits' logsumexp.
    pub z_loss: Constant,
    pub steering: Steering,
}

/// What is said of a loss while it is computed, not when its kernel is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Steering {
    #[default]
    Nothing,
    /// A weight for each target, and a temperature of the logits.
    Weights,
    /// [`Self::Weights`], and probabilities of up to [`SOFT_IDS`] tokens for each row.
    SoftTargets,
    /// A temperature; instead of its loss a row gives what [`RowScore`] says.
    Scores,
}

impl Steering {
    pub fn is_weighted(self) -> bool {
        matches!(self, Self::Weights | Self::SoftTargets)
    }
}

/// Most tokens of a row that have probabilities of their own.
pub const SOFT_IDS: usize = 64;

/// What [`Steering::Scores`] gives of a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RowScore {
    /// Minus the log-probability of the target, in nats; 0 for an ignored one.
    pub loss: f32,
    pub entropy: f32,
    /// The largest logit over the temperature, and the logarithm of the sum of exp(logit over the temperature − it).
    pub largest: f32,
    pub log_sum: f32,
}

/// The `Steering` of `lib/steering.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SteeringNumbers {
    pub temperature: f32,
    pub by_temperature: f32,
    pub soft_ratio: f32,
    pub soft_factor: f32,
    pub hard_share: f32,
    pub soft_count: u32,
    pub reverse: u32,
    pub rest: u32,
}

impl SteeringNumbers {
    /// The numbers for hard targets alone.
    pub fn of(temperature: f64) -> Self {
        Self {
            temperature: temperature as f32,
            by_temperature: (1.0 / temperature) as f32,
            hard_share: 1.0,
            ..Self::default()
        }
    }
}

impl Objective {
    /// Whether it is the cross-entropy and nothing else.
    pub fn is_plain(self) -> bool {
        self == Self::default()
    }
}

impl LogitRow {
    /// A kernel with a workgroup per row of logits.
    fn composer(self, caps: &Capabilities, spec: impl Spec) -> Result<Composer> {
        let size = row_workgroup(caps, self.vocabulary, spec.name())?;
        let composer = vocabulary_of(caps, Composer::new(spec, size), self.vocabulary);
        Ok(composer.size("STRIDE", self.stride))
    }
}

/// Losses, and with `gradient` the gradient of the logits in their place. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropy {
    pub row: LogitRow,
    pub gradient: bool,
}

impl Spec for CrossEntropy {
    fn name(&self) -> &'static str {
        if self.gradient { "cross_entropy_backward" } else { "cross_entropy_forward" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        self.row.composer(caps, *self)?.flag("GRADIENT", self.gradient).reduced(
            caps,
            "07_cross_entropy",
            &BINDINGS,
            BY_ROWS,
        )
    }
}

/// Losses of another objective, of logits that are squashed into ± `cap` first if there is one. With `gradient` each
/// logit is replaced by its gradient. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectiveCrossEntropy {
    pub row: LogitRow,
    pub gradient: bool,
    pub objective: Objective,
    pub cap: Option<Constant>,
}

impl Spec for ObjectiveCrossEntropy {
    fn name(&self) -> &'static str {
        if self.gradient {
            "objective_cross_entropy_backward"
        } else {
            "objective_cross_entropy_forward"
        }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { row, gradient, objective, cap } = *self;
        let composer = row
            .composer(caps, *self)?
            .flag("GRADIENT", gradient)
            .float("SMOOTHING", objective.label_smoothing.0 as f32)
            .float("Z_LOSS", objective.z_loss.0 as f32)
            .when("CAPPED", cap.is_some())
            .when("TEMPERED", objective.steering != Steering::Nothing)
            .when("WEIGHTED", objective.steering.is_weighted())
            .when("SCORED", objective.steering == Steering::Scores)
            .when("SOFT", objective.steering == Steering::SoftTargets);
        let composer = match objective.steering {
            Steering::SoftTargets => {
                // The reduction's scratch, and the logits that are kept.
                let scratch = [4 * composer.workgroup_size() as u32, 4 * SOFT_IDS as u32];
                check_storage(caps, scratch, self.name())?;
                composer.size("SOFT_IDS", SOFT_IDS)
            }
            _ => composer,
        };
        let composer = match cap {
            Some(cap) => composer.float("SOFT_CAP", cap.0 as f32),
            None => composer,
        };
        let mut bindings = BINDINGS.to_vec();
        match objective.steering {
            Steering::Nothing => {}
            Steering::Weights => bindings.extend([uniform("steering"), read("weights")]),
            Steering::SoftTargets => {
                bindings.extend([uniform("steering"), read("weights"), read("soft")]);
            }
            Steering::Scores => {
                bindings[2] = read_write("scores");
                bindings.push(uniform("steering"));
            }
        }
        composer.reduced(caps, "07_objective_cross_entropy", &bindings, BY_ROWS)
    }
}

/// What the losses bind.
const BINDINGS: [Binding; 5] = [
    read_write("logits"),
    read("targets"),
    read_write("losses"),
    uniform("step"),
    uniform("range"),
];

const BY_ROWS: Grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };

/// Most loads of logits that an invocation has in flight. A workgroup of 256 is too few invocations to
/// hide the wait for memory: on an H100, 64 rows of 151,936 took 540 µs with one and 135 with eight.
const LOADS: usize = 8;

/// Adds the constants of a row of logits.
pub(super) fn vocabulary_of(
    caps: &Capabilities,
    composer: Composer,
    vocabulary: usize,
) -> Composer {
    let most = if caps.software { 1 } else { LOADS };
    let loads = (vocabulary / composer.workgroup_size()).clamp(1, most);
    composer.size("VOCABULARY", vocabulary).unrolled("LOADS", loads)
}

/// Rows of `columns` logits, squashed into ± `cap` in place. Grid: `tokens · columns` invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftCap {
    pub columns: usize,
    pub cap: Constant,
}

impl Spec for SoftCap {
    fn name(&self) -> &'static str {
        "soft_cap_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        Composer::flat(caps, *self)?
            .size("COLUMNS", self.columns)
            .float("SOFT_CAP", self.cap.0 as f32)
            .when("CAPPED", true)
            .when("TEMPERED", false)
            .by_row(caps, "07_soft_cap", &[read_write("logits"), uniform("step")], self.columns)
    }
}

/// Grid: one workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LossSumForward;

impl Spec for LossSumForward {
    fn name(&self) -> &'static str {
        "loss_sum_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [read("losses"), read("targets"), read_write("metrics"), uniform("step")];
        Composer::new(*self, row_workgroup(caps, 1024, self.name())?).reduced(
            caps,
            "07_loss_sum",
            &bindings,
            Grid::Fixed { x: 1, y: 1 },
        )
    }
}
