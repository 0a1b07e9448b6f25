//! `RawSnapshot`, and how models and trainers give one.

use super::model::RawModel;
use super::trainer::RawTrainer;
use super::{JsResult, to_js};
use crate::error::{Error, ErrorCode};
use crate::session::{Snapshot, Taken};
use js_sys::Promise;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

/// A copy of weights, or of a trainer's state, at one moment.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawSnapshot {
    snapshot: RefCell<Option<Rc<Snapshot>>>,
}

impl RawSnapshot {
    fn get(&self) -> JsResult<Rc<Snapshot>> {
        let freed = || to_js(Error::new(ErrorCode::Freed, "this snapshot has been freed"));
        self.snapshot.borrow().clone().ok_or_else(freed)
    }
}

#[wasm_bindgen]
impl RawSnapshot {
    #[wasm_bindgen(js_name = saveHeader)]
    pub fn save_header(&self) -> JsResult<Vec<u8>> {
        Ok(self.get()?.save_header())
    }

    /// Bytes of the data that follow the header.
    pub async fn read(&self, begin: f64, end: f64) -> JsResult<Vec<u8>> {
        let snapshot = self.get()?;
        snapshot.read(begin as u64..end as u64).await.map_err(to_js)
    }

    pub async fn state(&self) -> JsResult<String> {
        let snapshot = self.get()?;
        snapshot.state().await.map_err(to_js)
    }

    pub fn release(&self) {
        self.snapshot.replace(None);
    }
}

/// A promise of the snapshot, whose copies have been submitted.
fn promised(taken: Taken) -> Promise {
    future_to_promise(async move {
        let snapshot = RefCell::new(Some(Rc::new(taken.await.map_err(to_js)?)));
        Ok(RawSnapshot { snapshot }.into())
    })
}

#[wasm_bindgen]
impl RawModel {
    /// Copies the weights at once; a promise of the copy.
    pub fn snapshot(&self) -> JsResult<Promise> {
        Snapshot::of_model(&self.model).map(promised).map_err(to_js)
    }
}

#[wasm_bindgen]
impl RawTrainer {
    /// Copies moments and state at once; a promise of the copy, or nothing in the middle of an
    /// accumulation.
    pub fn snapshot(&self) -> JsResult<Option<Promise>> {
        Ok(Snapshot::of_trainer(&self.trainer).map_err(to_js)?.map(promised))
    }
}
