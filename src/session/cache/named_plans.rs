//! The plans of a table, and the same names for what the device has of them.

use crate::error::Result;
use crate::gpu::PlanId;
use crate::plan::Plan;

/// Plans that are replayed under their names.
pub(in crate::session) trait NamedPlans {
    /// The same names, once the device has the plans.
    type Ids;

    fn all(&self) -> Vec<&Plan>;

    fn install(&self, install: &mut dyn FnMut(&Plan) -> Result<PlanId>) -> Result<Self::Ids>;
}

/// One plan needs no name.
impl NamedPlans for Plan {
    type Ids = PlanId;

    fn all(&self) -> Vec<&Plan> {
        vec![self]
    }

    fn install(&self, install: &mut dyn FnMut(&Plan) -> Result<PlanId>) -> Result<PlanId> {
        install(self)
    }
}
