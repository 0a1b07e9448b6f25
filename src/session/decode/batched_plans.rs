//! Plans of passes over batched rows. The next pass of the same form takes them as they are: to make them lasts as long
//! as some tokens do.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::gpu::PlanId;
use crate::lower::{BatchedPlans, BatchedRows, CacheShape, Inference, InferenceOptions};
use crate::params::Params;
use crate::plan::Plan;
use crate::session::cache::named_plans::NamedPlans;
use std::cell::RefCell;
use std::rc::Rc;

/// What plans are made of, besides the device, the model and the slots of a cache.
type BatchedForm = (CacheShape, InferenceOptions, BatchedRows);

/// The plans of [`BatchedPlans`], installed.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct BatchedPlanIds {
    pub pass: PlanId,
    pub texts: Option<PlanId>,
}

impl NamedPlans for BatchedPlans {
    type Ids = BatchedPlanIds;

    fn all(&self) -> Vec<&Plan> {
        self.all()
    }

    fn install(&self, install: &mut dyn FnMut(&Plan) -> Result<PlanId>) -> Result<BatchedPlanIds> {
        let pass = install(&self.pass)?;
        Ok(BatchedPlanIds { pass, texts: self.texts.as_ref().map(install).transpose()? })
    }
}

/// The plans of a model's last pass.
#[derive(Debug, Default)]
pub(in crate::session) struct LastBatchedPlans(RefCell<Option<LastPass>>);

#[derive(Debug)]
struct LastPass {
    form: BatchedForm,
    slots: Vec<u64>,
    plans: Rc<BatchedPlans>,
}

impl LastBatchedPlans {
    /// The plans of the last pass where they fit, or new ones, which are then the last.
    pub fn plans(
        &self,
        caps: &Capabilities,
        params: &Params,
        form: BatchedForm,
        slots: &[u64],
    ) -> Result<Rc<BatchedPlans>> {
        let mut last = self.0.borrow_mut();
        if let Some(last) = last.as_ref().filter(|last| last.form == form && last.slots == slots) {
            return Ok(Rc::clone(&last.plans));
        }
        let (shape, options, rows) = form;
        let inference = Inference::new(caps, params, shape, options);
        let plans = Rc::new(inference.batched_plans(rows, slots)?);
        *last = Some(LastPass { form, slots: slots.to_vec(), plans: Rc::clone(&plans) });
        Ok(plans)
    }

    pub fn free(&self) {
        self.0.take();
    }
}
