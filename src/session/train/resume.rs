//! Continues a saved training run.

use crate::arch::Architecture;
use crate::checkpoint::{CheckpointReader, Wanted};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::gpu::{LocalFuture, Pending};
use crate::optim::{Content, Stored, Trained};
use crate::plan::Buffer;
use crate::session::model::Model;
use crate::session::progress::{Progress, ProgressCallback};
use crate::session::train::{Trainer, TrainerState, saved_sets};
use crate::session::weights::loader::ModelLoader;
use crate::session::weights::lora::Adapter;
use crate::session::weights::tensor_storage::write_stored;
use std::cell::OnceCell;
use std::rc::Rc;

/// Builds a trainer from a saved state: takes the header, then allocates, then takes the tensors in pieces.
#[derive(Debug)]
pub struct Resume {
    state: TrainerState,
    reader: CheckpointReader,
    /// The trainer, once there is memory for it.
    trainer: Rc<OnceCell<Rc<Trainer>>>,
    /// Where its tensors are.
    stored: OnceCell<Vec<Stored>>,
    /// The uploads.
    pending: Pending,
    /// The numbers of a piece, and those of a tensor that waits for its last one.
    values: Vec<f32>,
    held: Vec<f32>,
}

impl Resume {
    /// Reads the text of `trainer_state.json`, saved with a model of this config.
    ///
    /// # Errors
    /// `invalid-checkpoint` for a state that cannot be read.
    pub fn new(config: &ModelConfig, state: &str) -> Result<Self> {
        Self::of_architecture(&Architecture::of(config), state)
    }

    /// Reads the state of a run that trained a LoRA adapter with these tensors.
    ///
    /// # Errors
    /// As [`Resume::new`].
    pub fn of_adapter(adapter: &Adapter, state: &str) -> Result<Self> {
        Self::of_architecture(&adapter.model().layout().architecture, state)
    }

    /// Reads the state of a run whose model, or LoRA adapter, the loader loads. What cannot fit is refused here, before
    /// a tensor's file is asked for.
    ///
    /// # Errors
    /// As [`Resume::new`]; `limit-exceeded`, `out-of-memory`.
    pub fn of_loader(loader: &ModelLoader, state: &str) -> Result<Self> {
        let resume = Self::of_architecture(&loader.architecture(), state)?;
        loader.judge_trainer(&resume.state.options)?;
        Ok(resume)
    }

    fn of_architecture(architecture: &Architecture, state: &str) -> Result<Self> {
        let state = TrainerState::from_json(state)?;
        state.check()?;
        let first = architecture.first_trained(state.options.last_layers);
        let trained = &architecture.weights[first.map_err(TrainerState::wrong)?..];
        let (mut tensors, mut codes) = (vec![], vec![]);
        let ids = architecture.weights.len() - trained.len()..;
        let params = ids.zip(trained).flat_map(|(id, weight)| {
            weight.params.iter().map(move |param| (architecture.is_of_layer(id), param))
        });
        for (of_layer, param) in params {
            let known = Trained::new(&param.shape, param.stored, of_layer);
            for set in saved_sets(&state.options, state.progress, &known) {
                let name = format!("{}.{}", param.name, set.suffix);
                if set.content == Content::Codes {
                    codes.push(name.clone());
                }
                tensors.push((name, set.shape(&param.shape, param.stored)));
            }
        }
        let mut reader = CheckpointReader::new(&tensors);
        codes.iter().for_each(|name| reader.expect_codes(name));
        let (trainer, stored) = (Rc::default(), OnceCell::new());
        let pending = Pending::default();
        let (values, held) = (vec![], vec![]);
        Ok(Self { state, reader, trainer, stored, pending, values, held })
    }

    /// The longest header that a file of these tensors may have.
    pub fn header_limit(&self) -> usize {
        self.reader.header_limit()
    }

    /// Takes a file's header and returns which byte ranges to hand in.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming the tensor.
    pub fn add_file(&mut self, name: &str, header: &[u8], file_length: u64) -> Result<Vec<Wanted>> {
        let wanted = self.reader.add_file(name, header, file_length);
        wanted.map_err(|error| self.explained(error))
    }

    /// Makes a trainer of the model with the saved options, when the header is in. The model's
    /// weights may still be missing. The future owns what it uses.
    ///
    /// # Errors
    /// `invalid-checkpoint` if a tensor is not in the header; as [`Trainer::create`].
    pub fn allocate(
        &self,
        model: &Rc<Model>,
        ask: ProgressCallback,
    ) -> Result<LocalFuture<Result<()>>> {
        self.expect_all()?;
        let (model, slot) = (Rc::clone(model), Rc::clone(&self.trainer));
        let options = self.state.options.clone();
        let (progress, losses) = (self.state.progress.kept(), self.state.losses());
        Ok(Box::pin(async move {
            let trainer = Trainer::create(&model, options, Progress(&*ask)).await?;
            trainer.restore(progress, losses);
            // A second allocation leaves the first one's trainer.
            let _ = slot.set(trainer);
            Ok(())
        }))
    }

    fn expect_all(&self) -> Result<()> {
        self.reader.expect_all().map_err(|error| self.explained(error))
    }

    /// Says of which optimizer the state is, which the file must be of too.
    fn explained(&self, Error { code, message }: Error) -> Error {
        let optimizer = self.state.options.optimizer.name;
        let of = format!("trainer_state.json is of the optimizer \"{optimizer}\"");
        Error::new(code, format!("{message}; {of}"))
    }

    fn trainer(&self) -> Result<&Rc<Trainer>> {
        let trainer = self.trainer.get();
        trainer.ok_or_else(|| Error::internal("no trainer has been allocated yet"))
    }

    /// Uploads the next bytes of a tensor, from its byte `begin` on. Pieces come in order and hold whole elements.
    ///
    /// # Errors
    /// `invalid-checkpoint` if the bytes are not those that the header announced, or no run can have left them.
    pub fn set_piece(&mut self, name: &str, begin: u64, bytes: &[u8]) -> Result<()> {
        let trainer = Rc::clone(self.trainer()?);
        let start = self.reader.decode(name, begin, bytes, &mut self.values)?;
        let stored = self.stored.get_or_init(|| trainer.saved());
        let Some(stored) = stored.iter().find(|stored| stored.name == name) else {
            return Err(Error::checkpoint(format!("{name} is not a tensor of this optimizer")));
        };
        if let Some((i, why)) = impossible(stored.content, &self.values) {
            return Err(self.reader.refuse_value(name, start + i as u64, self.values[i], why));
        }
        let find = |name| trainer.buffer(name);
        let gpu = trainer.model.gpu();
        let (piece, held) = ((start as usize, &self.values[..]), &mut self.held);
        let upload = || write_stored(gpu, stored, piece, held, &find);
        self.pending.queue(&**gpu, upload)
    }

    /// The trainer, once every tensor has arrived.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming what is missing, and for an adapter's run on another base; what the
    /// device refused of the uploads.
    pub async fn finish(mut self) -> Result<Rc<Trainer>> {
        self.reader.finish()?;
        let trainer = Rc::clone(self.trainer()?);
        let base = self.state.base;
        if base.is_some() && base != trainer.model.weights.base_checksum().await? {
            return Err(Error::checkpoint(
                "this run trained an adapter on other weights than the base has now: resume it on \
                 the base as it was",
            ));
        }
        let gpu = trainer.model.gpu();
        let state = [
            (trainer.buffer(Buffer::Optimizer)?, &self.state.optimizer),
            (trainer.buffer(Buffer::Metrics)?, &self.state.metrics),
        ];
        self.pending.queue(&**gpu, || {
            state
                .into_iter()
                .try_for_each(|(buffer, words)| gpu.write(buffer, 0, bytemuck::cast_slice(words)))
        })?;
        self.pending.accepted().await?;
        Ok(trainer)
    }
}

/// The first value that no training run leaves in a tensor with this content, and why.
fn impossible(content: Content, values: &[f32]) -> Option<(usize, &'static str)> {
    values.iter().enumerate().find_map(|(i, &value)| Some((i, content.refusal(value)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_cannot_be_are_found() {
        use Content::{Means, Numbers, Scales, Squares};
        let found = |content, x| impossible(content, &[0.0, x]).map(|(i, _)| i);
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(found(Means, x), Some(1));
            assert_eq!(found(Scales, x), Some(1));
            assert_eq!(found(Squares, x), Some(1));
            assert_eq!(found(Numbers, x), None);
        }
        assert_eq!(found(Squares, -1e-9), Some(1));
        assert_eq!(found(Means, -1.0), None);
        assert_eq!(found(Squares, 1.0), None);
    }

    /// A file of another optimizer's state is refused by name, before anything is allocated.
    #[test]
    fn a_file_of_another_optimizer_is_refused() {
        let config = ModelConfig::from_json("{}").unwrap();
        let of = |optimizer: &str| {
            let state = format!(
                r#"{{"format":"tinyloom-trainer-1","options":{{"optimizer":"{optimizer}"}},
                "progress":{{"step":1,"microStep":0,"counted":0,"cursor":1}},
                "optimizer":[0,0,0,0],"metrics":[0,0,0,0,0,0,0,0]}}"#
            );
            Resume::new(&config, &state).unwrap()
        };
        let names = |suffixes: &[&str]| -> Vec<_> {
            let tensors = Architecture::of(&config).tensors();
            let named = |suffix: &&str| {
                let suffix = (*suffix).to_owned();
                tensors.iter().map(move |(name, shape)| (format!("{name}.{suffix}"), shape.clone()))
            };
            suffixes.iter().flat_map(named).collect()
        };
        for (state, suffixes, good) in [
            ("adamw", &["exp_avg", "exp_avg_sq"][..], true),
            ("adamw8bit", &["exp_avg", "exp_avg_sq"], false),
            ("sgd", &["momentum_buffer"], true),
            ("lion", &["exp_avg"], true),
            ("sgd", &["exp_avg", "exp_avg_sq"], false),
            ("lion", &["momentum_buffer"], false),
            ("lion", &["exp_avg", "exp_avg_sq"], false),
            ("adamw", &["exp_avg"], false),
        ] {
            let tensors = names(suffixes);
            let header = crate::checkpoint::write_header(&tensors, &[]);
            let bytes: usize =
                tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
            let length = (header.len() + 4 * bytes) as u64;
            let mut resume = of(state);
            let read = resume.add_file("optimizer.safetensors", &header[8..], length);
            let read = read.and_then(|_| resume.expect_all());
            assert_eq!(read.is_ok(), good, "{state} {suffixes:?}: {read:?}");
            if let Err(error) = read {
                let named = format!("trainer_state.json is of the optimizer \"{state}\"");
                assert!(error.message.contains(&named), "{error}");
            }
        }
    }

    /// Known from config and state alone, before there is a trainer.
    #[test]
    fn the_optimizers_tensors_follow_from_config_and_progress() {
        let config = ModelConfig::from_json("{}").unwrap();
        let state = |micro_step: u64| {
            format!(
                r#"{{"format":"tinyloom-trainer-1","options":{{"gradientAccumulation":2}},
                "progress":{{"step":1,"microStep":{micro_step},"counted":1,"cursor":1}},
                "optimizer":[0,0,0,0],"metrics":[0,0,0,0,0,0,0,0]}}"#
            )
        };
        let tensors = Architecture::of(&config).tensors().len();
        for (micro_step, sets) in [(0, 2), (1, 3)] {
            let resume = Resume::new(&config, &state(micro_step)).unwrap();
            let missing = resume.reader.missing();
            assert_eq!(missing.len(), sets * tensors);
            assert!(missing.contains(&"model.norm.weight.exp_avg_sq".to_owned()));
        }
    }
}
