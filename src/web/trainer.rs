//! `RawTrainer` and `RawResume`.

use super::dataset::RawDataset;
use super::model::{RawLoader, RawModel, finished as no_loader, read};
use super::runtime::RawRuntime;
use super::{JsResult, asking, json, to_js};
use crate::config::ModelConfig;
use crate::data::Batch;
use crate::error::{Error, ErrorCode};
use crate::gpu::LocalFuture;
use crate::session::{
    GivenGradient, GivenRows, GradientBy, GradientPlace, Metrics, Progress, Resume, StepObjective,
    Trainer, TrainerOptions,
};
use js_sys::{Array, Float32Array, Float64Array, Function, Promise};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

/// A trainer.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawTrainer {
    pub(super) trainer: Rc<Trainer>,
}

#[wasm_bindgen]
impl RawTrainer {
    pub async fn create(model: &RawModel, options: String, ask: Function) -> JsResult<RawTrainer> {
        let (model, ask) = (Rc::clone(&model.model), asking(ask));
        let options = TrainerOptions::from_json(&options).map_err(to_js)?;
        let trainer = Trainer::create(&model, options, Progress(&ask)).await.map_err(to_js)?;
        Ok(Self { trainer })
    }

    /// Compiles what a trainer of a model of this config will need.
    pub async fn prepare(
        runtime: &RawRuntime,
        config: String,
        options: String,
        ask: Function,
    ) -> JsResult<()> {
        let (gpu, ask) = (runtime.gpu()?, asking(ask));
        let config = ModelConfig::from_code(&config).map_err(to_js)?;
        let options = TrainerOptions::from_json(&options).map_err(to_js)?;
        Trainer::prepare(&gpu, &config, options, Progress(&ask)).await.map_err(to_js)
    }

    pub fn options(&self) -> JsResult<String> {
        json(&self.trainer.options())
    }

    /// The learning-rate schedule in force, as JSON.
    pub fn schedule(&self) -> JsResult<String> {
        json(&self.trainer.schedule())
    }

    /// Optimizer steps done, those on their way among them.
    pub fn steps(&self) -> f64 {
        self.trainer.steps() as f64
    }

    /// A step. With an objective of its own: its numbers as JSON, its weights, and of soft targets all ids, then the bits of
    /// their probabilities.
    pub async fn step(
        &self,
        tokens: Vec<u32>,
        targets: Vec<u32>,
        documents: Option<Vec<u32>>,
        objective: Option<String>,
        weights: Option<Vec<f32>>,
        soft: Option<Vec<u32>>,
    ) -> JsResult<Float64Array> {
        let trainer = Rc::clone(&self.trainer);
        let batch = Batch::new(tokens, targets, documents);
        let objective = objective.map(|text| read::<StepObjective>("step", &text)).transpose()?;
        let mut objective = objective.unwrap_or_default();
        objective.weights = weights;
        if let (Some(own), Some(mut words)) = (&mut objective.soft, soft) {
            own.probabilities =
                words.split_off(words.len() / 2).into_iter().map(f32::from_bits).collect();
            own.ids = words;
        }
        Ok(numbers(&trainer.step_by(&batch, &objective).await.map_err(to_js)?))
    }

    /// A step whose gradient `ask` gives, by logits or by states. `ask` gets the numbers, their first row, their rows,
    /// and the gradient's place: the number of a buffer, the offset and the bytes from row to row, or none where it
    /// cannot be written there. It returns a promise of the gradient, null where it has been written, and the loss.
    #[wasm_bindgen(js_name = stepGiven)]
    pub async fn step_given(
        &self,
        tokens: Vec<u32>,
        documents: Option<Vec<u32>>,
        divisor: f64,
        by_states: bool,
        ask: Function,
    ) -> JsResult<Float64Array> {
        let trainer = Rc::clone(&self.trainer);
        let gradient = |given: GivenRows| -> LocalFuture<_> {
            let GivenRows { first, columns, values, place } = given;
            let place = place.map(|GradientPlace { buffer, offset, row_bytes }| {
                Float64Array::from(&[f64::from(buffer.0), offset as f64, row_bytes as f64][..])
            });
            let rows = (values.len() / columns) as f64;
            let asked = Array::of4(
                &Float32Array::from(&values[..]),
                &(first as f64).into(),
                &rows.into(),
                &place.into(),
            );
            let asked = ask.apply(&JsValue::UNDEFINED, &asked);
            Box::pin(async move {
                let given = match asked {
                    Ok(asked) => JsFuture::from(Promise::resolve(&asked)).await,
                    Err(error) => Err(error),
                };
                // The caller has what was thrown.
                let given = given.map_err(|_| Error::options("the gradient function failed"))?;
                let given = Array::from(&given);
                let (own, loss) = (given.get(0), given.get(1).as_f64().unwrap_or(f64::NAN));
                let own = if own.is_null() {
                    GivenGradient::Written
                } else {
                    GivenGradient::Numbers(Float32Array::new(&own).to_vec())
                };
                Ok((own, loss))
            })
        };
        let by = if by_states { GradientBy::States } else { GradientBy::Logits };
        let metrics = trainer.step_given(tokens, documents, divisor, (by, &gradient)).await;
        Ok(numbers(&metrics.map_err(to_js)?))
    }

    /// A promise of a step's metrics, which borrows neither object: both may be freed meanwhile. `stop`
    /// is asked between micro-steps: a true answer ends the step.
    #[wasm_bindgen(js_name = stepDataset)]
    pub fn step_dataset(&self, dataset: &RawDataset, stop: Function) -> JsResult<Promise> {
        let (trainer, dataset) = (Rc::clone(&self.trainer), dataset.get()?);
        Ok(future_to_promise(async move {
            let stop = || stop.call0(&JsValue::UNDEFINED).is_ok_and(|answer| answer.is_truthy());
            let metrics = trainer.step_dataset(&dataset, &stop).await.map_err(to_js)?;
            Ok(numbers(&metrics).into())
        }))
    }

    /// Queues a step at once. The promise gives its metrics.
    #[wasm_bindgen(js_name = queueDataset)]
    pub fn queue_dataset(&self, dataset: &RawDataset) -> JsResult<Promise> {
        let queued = self.trainer.queue_dataset(&*dataset.get()?).map_err(to_js)?;
        Ok(future_to_promise(async move { Ok(numbers(&queued.await.map_err(to_js)?).into()) }))
    }

    /// Refuses what [`RawTrainer::queue_dataset`] would, before anything is changed for it.
    #[wasm_bindgen(js_name = expectWholeSteps)]
    pub fn expect_whole_steps(&self) -> JsResult<()> {
        self.trainer.expect_whole_steps().map_err(to_js)
    }

    #[wasm_bindgen(js_name = setLearningRate)]
    pub fn set_learning_rate(&self, learning_rate: f64) -> JsResult<()> {
        self.trainer.set_learning_rate(learning_rate).map_err(to_js)
    }

    #[wasm_bindgen(js_name = setTotalSteps)]
    pub fn set_total_steps(&self, total: Option<f64>) -> JsResult<()> {
        self.trainer.set_total_steps(total.map(|total| total as u64)).map_err(to_js)
    }

    /// Exchanges weights and their averages.
    #[wasm_bindgen(js_name = exchangeAverages)]
    pub async fn exchange_averages(&self) -> JsResult<()> {
        let trainer = Rc::clone(&self.trainer);
        trainer.exchange_averages().await.map_err(to_js)
    }

    #[wasm_bindgen(js_name = evaluationBatches)]
    pub fn evaluation_batches(&self, dataset: &RawDataset) -> JsResult<usize> {
        self.trainer.evaluation_batches(&*dataset.get()?).map_err(to_js)
    }

    /// A promise of the sum of the losses and the targets counted; it borrows neither object.
    #[wasm_bindgen(js_name = evaluateBatch)]
    pub fn evaluate_batch(&self, dataset: &RawDataset, index: usize) -> JsResult<Promise> {
        let (trainer, dataset) = (Rc::clone(&self.trainer), dataset.get()?);
        Ok(future_to_promise(async move {
            let sums = trainer.evaluate_batch(&dataset, index).await.map_err(to_js)?;
            Ok(Float64Array::from(&sums[..]).into())
        }))
    }

    /// Name and bytes of each gradient.
    #[wasm_bindgen(js_name = gradientSizes)]
    pub fn gradient_sizes(&self) -> JsResult<String> {
        let tensors = self.trainer.layout().tensors.iter();
        let sizes: Vec<_> =
            tensors.map(|t| (&t.name, 4 * t.shape.iter().product::<usize>())).collect();
        json(&sizes)
    }

    #[wasm_bindgen(js_name = readGradient)]
    pub async fn read_gradient(&self, index: usize) -> JsResult<Vec<f32>> {
        let trainer = Rc::clone(&self.trainer);
        trainer.read_gradient(index).await.map_err(to_js)
    }

    #[wasm_bindgen(js_name = saveHeader)]
    pub fn save_header(&self) -> Vec<u8> {
        self.trainer.save_header()
    }

    #[wasm_bindgen(js_name = tensorCount)]
    pub fn tensor_count(&self) -> usize {
        self.trainer.optimizer_tensors().len()
    }

    #[wasm_bindgen(js_name = readPiece)]
    pub async fn read_piece(&self, index: usize, begin: f64, end: f64) -> JsResult<Vec<u8>> {
        let trainer = Rc::clone(&self.trainer);
        trainer.read_optimizer_tensor(index, Some(begin as u64..end as u64)).await.map_err(to_js)
    }

    pub async fn state(&self) -> JsResult<String> {
        let trainer = Rc::clone(&self.trainer);
        trainer.state().await.map_err(to_js)
    }

    /// The plan as JSON, or the WGSL of a row.
    pub fn plan(&self, row: Option<f64>) -> JsResult<String> {
        match row {
            Some(row) => self.trainer.wgsl(row).map_err(to_js),
            None => json(&self.trainer.plan().map_err(to_js)?),
        }
    }

    pub async fn profile(&self, ask: Function) -> JsResult<String> {
        let (trainer, ask) = (Rc::clone(&self.trainer), asking(ask));
        json(&trainer.profile(Progress(&ask)).await.map_err(to_js)?)
    }

    /// Bytes of the activation slots, and what they would be without sharing.
    #[wasm_bindgen(js_name = activationBytes)]
    pub fn activation_bytes(&self) -> Vec<f64> {
        let (shared, unshared) = self.trainer.activation_bytes();
        vec![shared as f64, unshared as f64]
    }

    pub fn release(&self) {
        self.trainer.free();
    }
}

/// The metrics of a step as `RawMetrics` in `raw.ts` has them. Each step would take 10 µs longer with JSON.
fn numbers(metrics: &Metrics) -> Float64Array {
    let Metrics { step, loss, grad_norm, learning_rate, tokens, unfilled, milliseconds, skipped } =
        *metrics;
    let norm = grad_norm.unwrap_or(f64::NAN);
    let (step, tokens, skipped) = (step as f64, tokens as f64, f64::from(u8::from(skipped)));
    let numbers = [step, loss, norm, learning_rate, tokens, unfilled, milliseconds, skipped];
    Float64Array::from(&numbers[..])
}

/// A training run being resumed.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawResume {
    resume: RefCell<Option<Resume>>,
}

fn finished() -> JsValue {
    to_js(Error::new(ErrorCode::Freed, "this run has already been resumed"))
}

#[wasm_bindgen]
impl RawResume {
    /// Reads the state of a run whose model the loader loads.
    #[wasm_bindgen(constructor)]
    pub fn new(loader: &RawLoader, state: &str) -> JsResult<RawResume> {
        let loader = loader.loader.borrow();
        let loader = loader.as_ref().ok_or_else(no_loader)?;
        let resume = Resume::of_loader(loader, state).map_err(to_js)?;
        Ok(Self { resume: RefCell::new(Some(resume)) })
    }

    #[wasm_bindgen(js_name = headerLimit)]
    pub fn header_limit(&self) -> JsResult<usize> {
        Ok(self.resume.borrow().as_ref().ok_or_else(finished)?.header_limit())
    }

    #[wasm_bindgen(js_name = addFile)]
    pub fn add_file(&self, name: &str, header: &[u8], file_length: f64) -> JsResult<String> {
        let mut resume = self.resume.borrow_mut();
        json(
            &resume
                .as_mut()
                .ok_or_else(finished)?
                .add_file(name, header, file_length as u64)
                .map_err(to_js)?,
        )
    }

    /// Makes a trainer of the loader's model, which is allocated.
    pub async fn allocate(&self, loader: &RawLoader, ask: Function) -> JsResult<()> {
        let allocated = {
            let (resume, loader) = (self.resume.borrow(), loader.loader.borrow());
            let model = loader.as_ref().ok_or_else(no_loader)?.model().map_err(to_js)?;
            resume.as_ref().ok_or_else(finished)?.allocate(model, Box::new(asking(ask)))
        };
        allocated.map_err(to_js)?.await.map_err(to_js)
    }

    #[wasm_bindgen(js_name = setPiece)]
    pub fn set_piece(&self, name: &str, begin: f64, bytes: &[u8]) -> JsResult<()> {
        let mut resume = self.resume.borrow_mut();
        let resume = resume.as_mut().ok_or_else(finished)?;
        resume.set_piece(name, begin as u64, bytes).map_err(to_js)
    }

    pub async fn finish(&self) -> JsResult<RawTrainer> {
        let resume = self.resume.replace(None).ok_or_else(finished)?;
        Ok(RawTrainer { trainer: resume.finish().await.map_err(to_js)? })
    }

    /// Gives back what an unfinished resume holds; after `finish` it does nothing.
    pub fn release(&self) {
        self.resume.replace(None);
    }
}
