//! `RawModel`, `RawLoader` and `RawGeneration`.

use super::looking::{RawInterventions, changed};
use super::runtime::RawRuntime;
use super::{JsResult, asking, json, seed, to_js};
use crate::arch::{Architecture, Stored};
use crate::caps::Capabilities;
use crate::config::ModelConfig;
use crate::error::{Error, ErrorCode, Result};
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::session::{
    Adapter, BatchGeneration, GenerateOptions, Generation, InferenceOptions, Inspection, Model,
    ModelLoader, Progress, ScoreOptions, Scores, estimate,
};
use js_sys::{Array, Float32Array, Function, Uint32Array};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::rc::Rc;
use tinyloom_numbers::BlockType;
use wasm_bindgen::prelude::*;

/// What to inspect, and how.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InspectOptions {
    look: Inspected,
    /// The first position whose logits are wanted.
    #[serde(default)]
    from: usize,
    layer: Option<usize>,
    head: Option<usize>,
    #[serde(default)]
    kv_cache: KvCacheFormat,
    #[serde(default)]
    weights: WeightFormat,
}

/// The options of a score.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoreText {
    temperature: Option<f64>,
    #[serde(default)]
    top: usize,
    #[serde(default)]
    entropy: bool,
    layer: Option<usize>,
    #[serde(default)]
    kv_cache: KvCacheFormat,
    #[serde(default)]
    weights: WeightFormat,
}

/// The page's method.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Inspected {
    Logits,
    HiddenStates,
    Attention,
}

impl InspectOptions {
    fn parts(self) -> Result<(Inspection, InferenceOptions)> {
        let Self { look, from, layer, head, kv_cache, weights } = self;
        let given = |call, name, value: Option<usize>| {
            value.ok_or_else(|| {
                let text = "is missing; give a whole number of at least 0";
                Error::options(format!("{call}: {name} {text}"))
            })
        };
        let inspection = match look {
            Inspected::Logits => Inspection::Logits { from },
            Inspected::HiddenStates => {
                Inspection::HiddenStates { layer: given("hiddenStates", "layer", layer)? }
            }
            Inspected::Attention => Inspection::Attention {
                layer: given("attention", "layer", layer)?,
                head: given("attention", "head", head)?,
            },
        };
        Ok((inspection, InferenceOptions { kv_cache, weights, ..Default::default() }))
    }
}

/// A model, or base and adapter.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawModel {
    pub(super) model: Rc<Model>,
    pub(super) adapter: Option<Rc<Adapter>>,
}

#[wasm_bindgen]
impl RawModel {
    pub async fn create(
        runtime: &RawRuntime,
        config: String,
        seed_value: f64,
        ask: Function,
    ) -> JsResult<RawModel> {
        let gpu = runtime.gpu()?;
        let seed = seed(seed_value)?;
        let config = ModelConfig::from_code(&config).map_err(to_js)?;
        let ask = asking(ask);
        let model = Model::create(&gpu, config, seed, Progress(&ask)).await.map_err(to_js)?;
        Ok(Self { model, adapter: None })
    }

    /// Weights of a model of this config, without making one.
    #[wasm_bindgen(js_name = countParameters)]
    pub fn count_parameters(config: &str) -> JsResult<f64> {
        let config = ModelConfig::from_json(config).map_err(to_js)?;
        Ok(Architecture::of(&config).parameter_count() as f64)
    }

    /// What a model will take, as JSON. Capabilities are a runtime's own.
    pub fn estimate(config: &str, options: &str, capabilities: Option<String>) -> JsResult<String> {
        let config = ModelConfig::from_json(config).map_err(to_js)?;
        let capabilities: Option<Capabilities> =
            capabilities.map(|text| read("capabilities", &text)).transpose()?;
        let options = read("estimate", options)?;
        json(&estimate(&config, &options, capabilities.as_ref()).map_err(to_js)?)
    }

    /// The text of `config.json`, or of an adapter's `adapter_config.json`.
    pub fn config(&self) -> String {
        match &self.adapter {
            Some(adapter) => adapter.config().to_peft(),
            None => self.model.config().to_json(),
        }
    }

    /// The format in which it holds its matrices.
    pub fn weights(&self) -> String {
        self.model.weights().name().into()
    }

    #[wasm_bindgen(js_name = isSaved)]
    pub fn is_saved(&self) -> bool {
        self.model.expect_saved().is_ok()
    }

    #[wasm_bindgen(js_name = hasInputsFirst)]
    pub fn has_inputs_first(&self) -> bool {
        self.model.layout().tensors.iter().any(|tensor| tensor.stored == Stored::Columns)
    }

    #[wasm_bindgen(js_name = parameterCount)]
    pub fn parameter_count(&self) -> f64 {
        self.model.parameter_count() as f64
    }

    #[wasm_bindgen(js_name = gpuBytes)]
    pub fn gpu_bytes(&self) -> f64 {
        self.model.gpu_bytes() as f64
    }

    /// Logits, hidden states or attention, as the options say.
    pub async fn inspect(
        &self,
        tokens: Vec<u32>,
        options: String,
        ask: Function,
        interventions: Option<RawInterventions>,
    ) -> JsResult<Vec<f32>> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let options: InspectOptions = read("inference", &options)?;
        let (inspection, inference) = options.parts().map_err(to_js)?;
        let inference = changed(inference, &interventions);
        model.inspect(&tokens, inspection, inference, Progress(&ask)).await.map_err(to_js)
    }

    /// The log-probability of each target; then as the options say entropies, and the likeliest tokens with their
    /// probabilities.
    pub async fn score(
        &self,
        tokens: Vec<u32>,
        targets: Option<Vec<u32>>,
        documents: Option<Vec<u32>>,
        options: String,
        ask: Function,
        interventions: Option<RawInterventions>,
    ) -> JsResult<Array> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let ScoreText { temperature, top, entropy, layer, kv_cache, weights } =
            read("score", &options)?;
        let inference = InferenceOptions { kv_cache, weights, ..Default::default() };
        let inference = changed(inference, &interventions);
        let temperature = temperature.unwrap_or(1.0);
        let options = ScoreOptions { temperature, top, entropy, layer, inference };
        let scores = model.score(tokens, targets, documents, options, Progress(&ask)).await;
        let Scores { logprobs, entropy, ids, probabilities } = scores.map_err(to_js)?;
        let floats = |values: &[f32]| JsValue::from(Float32Array::from(values));
        let ids = JsValue::from(Uint32Array::from(&ids[..]));
        Ok([floats(&logprobs), floats(&entropy), ids, floats(&probabilities)].iter().collect())
    }

    pub async fn loss(
        &self,
        tokens: Vec<u32>,
        targets: Option<Vec<u32>>,
        options: String,
        ask: Function,
        interventions: Option<RawInterventions>,
    ) -> JsResult<f64> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let options = changed(read("loss", &options)?, &interventions);
        model.loss(&tokens, targets.as_deref(), options, Progress(&ask)).await.map_err(to_js)
    }

    /// `bias` has a number for each token.
    pub async fn generate(
        &self,
        prompt: Vec<u32>,
        options: String,
        bias: Option<Vec<f32>>,
        interventions: Option<RawInterventions>,
    ) -> JsResult<RawGeneration> {
        let model = Rc::clone(&self.model);
        let mut options: GenerateOptions = read("generate", &options)?;
        options.bias = bias.unwrap_or_default();
        options.interventions = interventions.map(|by| by.held);
        let generation = Generation::start(&model, &prompt, options).await.map_err(to_js)?;
        Ok(RawGeneration { generation: Rc::new(RefCell::new(Some(generation))) })
    }

    /// Compiles what a generation will need.
    pub async fn prepare(
        &self,
        options: String,
        sequences: usize,
        tokens: usize,
        ask: Function,
        interventions: Option<RawInterventions>,
    ) -> JsResult<()> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let mut options: GenerateOptions = read("prepare", &options)?;
        options.interventions = interventions.map(|by| by.held);
        let texts = [sequences, tokens];
        model.prepare_generation(&options, texts, Progress(&ask)).await.map_err(to_js)
    }

    /// Generation of several prompts, one after the other in `tokens`, each with its own options in a JSON array.
    pub fn batch(
        &self,
        tokens: &[u32],
        lengths: &[u32],
        options: &str,
        interventions: Option<RawInterventions>,
    ) -> JsResult<RawBatchGeneration> {
        let options: Vec<GenerateOptions> = read("generateBatch", options)?;
        let mut rest = tokens;
        let mut prompts = vec![];
        for (&length, options) in lengths.iter().zip(options) {
            let (prompt, behind) = rest.split_at(rest.len().min(length as usize));
            let interventions = interventions.as_ref().map(|by| by.held.clone());
            prompts.push((prompt.to_vec(), GenerateOptions { interventions, ..options }));
            rest = behind;
        }
        let batch = BatchGeneration::start(&self.model, prompts).map_err(to_js)?;
        Ok(RawBatchGeneration { batch: Rc::new(RefCell::new(Some(batch))) })
    }

    #[wasm_bindgen(js_name = saveHeader)]
    pub fn save_header(&self) -> JsResult<Vec<u8>> {
        self.model.expect_saved().map_err(to_js)?;
        Ok(self.model.save_header())
    }

    #[wasm_bindgen(js_name = tensorCount)]
    pub fn tensor_count(&self) -> usize {
        self.model.layout().tensors.len()
    }

    #[wasm_bindgen(js_name = readPiece)]
    pub async fn read_piece(&self, index: usize, begin: f64, end: f64) -> JsResult<Vec<u8>> {
        let model = Rc::clone(&self.model);
        model.read_piece(index, begin as u64..end as u64).await.map_err(to_js)
    }

    /// Names and shapes of its tensors, as JSON.
    pub fn tensors(&self) -> JsResult<String> {
        json(&self.model.tensors())
    }

    #[wasm_bindgen(js_name = readNamed)]
    pub async fn read_named(&self, name: String) -> JsResult<Vec<f32>> {
        let model = Rc::clone(&self.model);
        model.read_named(&name).await.map_err(to_js)
    }

    #[wasm_bindgen(js_name = writeNamed)]
    pub async fn write_named(&self, name: String, values: Vec<f32>) -> JsResult<()> {
        let model = Rc::clone(&self.model);
        model.write_named(&name, &values).await.map_err(to_js)
    }

    pub fn release(&self) {
        self.model.free();
    }
}

/// The options of a call, from JSON.
pub(super) fn read<T: DeserializeOwned>(call: &str, options: &str) -> JsResult<T> {
    serde_json::from_str(options).map_err(|e| to_js(Error::options(format!("{call} options: {e}"))))
}

/// A model being loaded.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawLoader {
    pub(super) loader: RefCell<Option<ModelLoader>>,
    pub(super) adapter: Option<Rc<Adapter>>,
}

pub(super) fn finished() -> JsValue {
    to_js(Error::new(ErrorCode::Freed, "this loader has already finished"))
}

#[wasm_bindgen]
impl RawLoader {
    #[wasm_bindgen(constructor)]
    pub fn new(runtime: &RawRuntime, config: &str, weights: Option<String>) -> JsResult<RawLoader> {
        let config = ModelConfig::from_json(config).map_err(to_js)?;
        let known = |name: String| WeightFormat::ALL.into_iter().find(|one| one.name() == name);
        let weights = weights.and_then(known).unwrap_or_default();
        let loader = ModelLoader::packed(&runtime.gpu()?, config, weights).map_err(to_js)?;
        Ok(Self { loader: RefCell::new(Some(loader)), adapter: None })
    }

    #[wasm_bindgen(js_name = headerLimit)]
    pub fn header_limit(&self) -> JsResult<usize> {
        Ok(self.loader.borrow().as_ref().ok_or_else(finished)?.header_limit())
    }

    #[wasm_bindgen(js_name = addFile)]
    pub fn add_file(&self, name: &str, header: &[u8], file_length: f64) -> JsResult<String> {
        let mut loader = self.loader.borrow_mut();
        let loader = loader.as_mut().ok_or_else(finished)?;
        json(&loader.add_file(name, header, file_length as u64).map_err(to_js)?)
    }

    /// Makes the model's buffers, once all headers are in.
    pub async fn allocate(&self) -> JsResult<()> {
        let allocated = self.loader.borrow().as_ref().ok_or_else(finished)?.allocate();
        allocated.map_err(to_js)?.await.map_err(to_js)
    }

    #[wasm_bindgen(js_name = setPiece)]
    pub fn set_piece(&self, name: &str, begin: f64, bytes: &[u8]) -> JsResult<()> {
        let mut loader = self.loader.borrow_mut();
        let loader = loader.as_mut().ok_or_else(finished)?;
        loader.set_piece(name, begin as u64, bytes).map_err(to_js)
    }

    /// Takes blocks whose type has the number `of` in ggml, from the tensor's element `start` on.
    #[wasm_bindgen(js_name = setBlocks)]
    pub fn set_blocks(&self, name: &str, start: f64, of: u32, bytes: &[u8]) -> JsResult<()> {
        let mut loader = self.loader.borrow_mut();
        let loader = loader.as_mut().ok_or_else(finished)?;
        let of = BlockType::numbered(of)
            .ok_or_else(|| to_js(Error::internal("blocks of more than one factor")))?;
        loader.set_blocks(name, start as u64, of, bytes).map_err(to_js)
    }

    pub async fn finish(&self) -> JsResult<RawModel> {
        let loader = self.loader.replace(None).ok_or_else(finished)?;
        let adapter = self.adapter.clone();
        Ok(RawModel { model: loader.finish().await.map_err(to_js)?, adapter })
    }

    pub fn release(&self) {
        self.loader.replace(None);
    }
}

/// A running generation.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawGeneration {
    generation: Rc<RefCell<Option<Generation>>>,
}

#[wasm_bindgen]
impl RawGeneration {
    /// Pairs of a token and its log-probability, of each draw and then of the alternatives to it; empty
    /// when finished. `bias` is that of the next token.
    pub async fn next(&self, bias: Option<Vec<f32>>) -> JsResult<Vec<f64>> {
        let slot = Rc::clone(&self.generation);
        // Taken out for the await: a second call meanwhile fails instead of meeting a live borrow.
        let taken = slot.replace(None);
        let mut generation = taken.ok_or_else(|| busy("generation"))?;
        let drawn = match bias.map(|bias| generation.set_bias(bias)) {
            Some(Err(error)) => Err(error),
            _ => generation.next().await,
        };
        slot.replace(Some(generation));
        let mut numbers = vec![];
        for drawn in drawn.map_err(to_js)? {
            let own = (drawn.token, drawn.logprob);
            for (token, logprob) in std::iter::once(own).chain(drawn.alternatives) {
                numbers.extend([f64::from(token), f64::from(logprob)]);
            }
        }
        Ok(numbers)
    }

    pub fn release(&self) {
        self.generation.replace(None);
    }
}

/// A running generation of several texts.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawBatchGeneration {
    batch: Rc<RefCell<Option<BatchGeneration>>>,
}

#[wasm_bindgen]
impl RawBatchGeneration {
    /// For each draw the text's number, the token and its log-probability. For each text that has ended its number, -1
    /// and 0. Empty when all have ended.
    pub async fn next(&self, ask: Function) -> JsResult<Vec<f64>> {
        let (slot, ask) = (Rc::clone(&self.batch), asking(ask));
        let mut batch = slot.replace(None).ok_or_else(|| busy("batch"))?;
        let drawn = batch.next(Progress(&ask)).await;
        let ended = batch.take_ended();
        slot.replace(Some(batch));
        let mut numbers = vec![];
        // A pass may end one text and fail for another. This call returns the ends. The next call returns the error.
        let waits = |error: &Error| error.code == ErrorCode::NonFinite && !ended.is_empty();
        let drawn = if drawn.as_ref().is_err_and(waits) { vec![] } else { drawn.map_err(to_js)? };
        for (index, drawn) in drawn {
            numbers.extend([index as f64, f64::from(drawn.token), f64::from(drawn.logprob)]);
        }
        numbers.extend(ended.into_iter().flat_map(|index| [index as f64, -1.0, 0.0]));
        Ok(numbers)
    }

    /// Ends a text.
    pub fn end(&self, index: usize) {
        if let Some(batch) = self.batch.borrow_mut().as_mut() {
            batch.end(index);
        }
    }

    pub fn release(&self) {
        self.batch.replace(None);
    }
}

fn busy(what: &str) -> JsValue {
    let message = format!("this {what} is finished, or already producing tokens");
    to_js(Error::new(ErrorCode::Freed, message))
}
