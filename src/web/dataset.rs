//! `RawDataset`: tokens cut into batches.

use super::{JsResult, to_js};
use crate::data::{Dataset, DatasetOptions};
use crate::error::{Error, ErrorCode};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// A dataset.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawDataset {
    dataset: RefCell<Option<Rc<Dataset>>>,
}

impl RawDataset {
    pub(super) fn get(&self) -> JsResult<Rc<Dataset>> {
        let freed =
            || to_js(Error::new(ErrorCode::Freed, "this dataset has been freed; create it again"));
        self.dataset.borrow().clone().ok_or_else(freed)
    }
}

#[wasm_bindgen]
impl RawDataset {
    #[wasm_bindgen(constructor)]
    pub fn new(tokens: Vec<u32>, options: &str) -> JsResult<RawDataset> {
        let options = DatasetOptions::from_json(options).map_err(to_js)?;
        let dataset = Dataset::from_tokens(tokens, options).map_err(to_js)?;
        Ok(Self { dataset: RefCell::new(Some(Rc::new(dataset))) })
    }

    pub fn release(&self) {
        self.dataset.replace(None);
    }
}
