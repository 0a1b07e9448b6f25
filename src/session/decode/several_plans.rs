//! Plans of passes over several rows, which the next pass of the same form does not make again: that takes as long as
//! some tokens do.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::lower::{CacheShape, InferenceOptions, SeveralRows, several_plans};
use crate::params::Params;
use crate::plan::Plan;
use std::cell::RefCell;
use std::rc::Rc;

/// What plans are made of, besides the device, the model and a room's slots.
type Form = (CacheShape, InferenceOptions, SeveralRows);

#[derive(Debug)]
struct Kept {
    form: Form,
    slots: Vec<u64>,
    cache_rows: usize,
    plans: Rc<Vec<Plan>>,
}

/// The plans of a model's last pass.
#[derive(Debug, Default)]
pub(in crate::session) struct SeveralKept(RefCell<Option<Kept>>);

impl SeveralKept {
    /// Rows of the cache of a text, and the plans: those that are kept, or new ones, which then are.
    pub fn plans(
        &self,
        caps: &Capabilities,
        params: &Params,
        form: Form,
        slots: &[u64],
    ) -> Result<(usize, Rc<Vec<Plan>>)> {
        let mut kept = self.0.borrow_mut();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.form == form && kept.slots == slots) {
            return Ok((kept.cache_rows, Rc::clone(&kept.plans)));
        }
        let (shape, options, rows) = form;
        let made = several_plans(caps, params, shape, options, slots, rows)?;
        let mut plans = vec![made.pass];
        plans.extend(made.texts);
        let (cache_rows, plans) = (made.cache_rows, Rc::new(plans));
        *kept = Some(Kept { form, slots: slots.to_vec(), cache_rows, plans: Rc::clone(&plans) });
        Ok((cache_rows, plans))
    }

    pub fn free(&self) {
        self.0.take();
    }
}
