//! `RawDataset`: tokens cut into batches.

use super::{JsResult, to_js};
use crate::data::{Dataset, DatasetOptions, IGNORE_INDEX, TokenSource};
use crate::error::{Error, ErrorCode};
use js_sys::Uint32Array;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// Tokens that JavaScript keeps.
    #[derive(Debug)]
    pub type RawTokens;

    #[wasm_bindgen(method, getter)]
    fn length(this: &RawTokens) -> f64;

    /// Whether only some of the tokens are learned.
    #[wasm_bindgen(method, getter)]
    fn masked(this: &RawTokens) -> bool;

    /// The tokens from `start` on; as targets, with those that are not to be learned left out.
    #[wasm_bindgen(method)]
    fn read(this: &RawTokens, start: f64, length: f64, targets: bool) -> Uint32Array;
}

impl RawTokens {
    fn append(&self, range: Range<usize>, targets: bool, into: &mut Vec<u32>) {
        let tokens = self.read(range.start as f64, range.len() as f64, targets);
        let begin = into.len();
        into.resize(begin + range.len(), 0);
        tokens.copy_to(&mut into[begin..]);
    }
}

impl TokenSource for RawTokens {
    fn len(&self) -> usize {
        self.length() as usize
    }

    fn read(&self, range: Range<usize>, into: &mut Vec<u32>) {
        self.append(range, false, into);
    }

    fn read_targets(&self, range: Range<usize>, into: &mut Vec<u32>) {
        self.append(range, true, into);
    }

    fn learns(&self, range: Range<usize>) -> bool {
        let target = |range: Range<usize>| {
            let mut targets = vec![];
            self.append(range, true, &mut targets);
            targets.iter().any(|&id| id != IGNORE_INDEX)
        };
        !range.is_empty() && (!self.masked() || target(range))
    }
}

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
    /// A dataset of one text or, with `starts`, of documents.
    #[wasm_bindgen(constructor)]
    pub fn new(tokens: RawTokens, starts: Option<Vec<u32>>, options: &str) -> JsResult<RawDataset> {
        let options = DatasetOptions::from_json(options).map_err(to_js)?;
        let tokens = Rc::new(tokens);
        let dataset = match starts {
            Some(starts) => Dataset::from_documents(tokens, starts, options),
            None => Dataset::from_source(tokens, options),
        };
        Ok(Self { dataset: RefCell::new(Some(Rc::new(dataset.map_err(to_js)?))) })
    }

    pub fn release(&self) {
        self.dataset.replace(None);
    }
}
