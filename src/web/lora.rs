//! Adapters: a `RawModel` that is base and adapter together.

use super::model::{RawLoader, RawModel, read};
use super::{JsResult, asking, json, to_js};
use crate::config::{LoraConfig, ModelConfig};
use crate::error::{Error, Result};
use crate::session::{Adapter, ModelLoader, NO_PROGRESS, Progress};
use js_sys::Function;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

impl RawModel {
    pub(super) fn of_adapter(adapter: &Rc<Adapter>) -> Self {
        Self { model: Rc::clone(adapter.model()), adapter: Some(Rc::clone(adapter)) }
    }

    fn expect_adapter(&self) -> Result<Rc<Adapter>> {
        self.adapter.clone().ok_or_else(|| Error::internal("this model has no adapter"))
    }
}

#[wasm_bindgen]
impl RawModel {
    /// A new adapter over this model.
    pub async fn adapt(&self, options: String, ask: Function) -> JsResult<RawModel> {
        let (base, ask) = (Rc::clone(&self.model), asking(ask));
        let lora: LoraConfig = read("Adapter.create", &options)?;
        let adapter = Adapter::create(&base, lora, Progress(&ask)).await.map_err(to_js)?;
        Ok(Self::of_adapter(&adapter))
    }

    /// A loader of the adapter that the text of an `adapter_config.json` describes, with another dropout
    /// where one is given.
    #[wasm_bindgen(js_name = adaptAs)]
    pub async fn adapt_as(&self, config: String, dropout: Option<f64>) -> JsResult<RawLoader> {
        let base = Rc::clone(&self.model);
        let mut lora = LoraConfig::from_peft(&config).map_err(to_js)?;
        lora.dropout = dropout.unwrap_or(lora.dropout);
        let adapter = Adapter::create(&base, lora, NO_PROGRESS).await.map_err(to_js)?;
        let loader = RefCell::new(Some(ModelLoader::of_adapter(&adapter)));
        Ok(RawLoader { loader, adapter: Some(adapter) })
    }

    /// What judges the files of a checkpoint of this model.
    pub fn checker(&self, config: &str) -> JsResult<RawLoader> {
        let config = ModelConfig::from_json(config).map_err(to_js)?;
        let loader = ModelLoader::checking(&self.model, config).map_err(to_js)?;
        Ok(RawLoader { loader: RefCell::new(Some(loader)), adapter: None })
    }

    /// How the adapter was made, as JSON.
    #[wasm_bindgen(js_name = adapterOptions)]
    pub fn adapter_options(&self) -> JsResult<String> {
        json(self.expect_adapter().map_err(to_js)?.config())
    }

    /// Adds the adapter to its base and frees it.
    pub async fn merge(&self, ask: Function) -> JsResult<()> {
        let (adapter, ask) = (self.expect_adapter().map_err(to_js)?, asking(ask));
        adapter.merge(Progress(&ask)).await.map_err(to_js)
    }
}
