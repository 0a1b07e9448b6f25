//! Continues a saved training run.

use super::model::{Model, write_tensor};
use super::trainer::{Trainer, TrainerState, saved_sets};
use crate::checkpoint::{CheckpointReader, Wanted};
use crate::error::{Error, Result};
use crate::plan::Buffer;
use std::rc::Rc;

/// Builds a trainer from a saved state, a tensor at a time.
#[derive(Debug)]
pub struct Resume {
    trainer: Rc<Trainer>,
    state: TrainerState,
    reader: CheckpointReader,
}

impl Resume {
    /// Makes a trainer with the saved options.
    ///
    /// # Errors
    /// `invalid-checkpoint` for a state that cannot be read; as [`Trainer::create`].
    pub async fn new(model: &Rc<Model>, state: &str) -> Result<Self> {
        let state = TrainerState::from_json(state)?;
        state.check()?;
        let trainer = Trainer::create(model, state.options.clone()).await?;
        trainer.set_progress(state.progress.kept());
        let reader = CheckpointReader::new(&trainer.optimizer_tensors());
        Ok(Self { trainer, state, reader })
    }

    /// The longest header that a file of these tensors may have.
    pub fn header_limit(&self) -> usize {
        self.reader.header_limit()
    }

    /// Takes a file's header and tells which byte ranges to hand in.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming the tensor.
    pub fn add_file(&mut self, name: &str, header: &[u8], file_length: u64) -> Result<Vec<Wanted>> {
        self.reader.add_file(name, header, file_length)
    }

    /// Uploads one tensor.
    ///
    /// # Errors
    /// `invalid-checkpoint` if the bytes are not those that the header announced.
    pub fn set_tensor(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let values = self.reader.decode(name, bytes)?;
        let layout = self.trainer.model.layout();
        for (suffix, set) in saved_sets(self.state.progress) {
            let own = |t: &&crate::layout::Tensor| {
                name.strip_prefix(t.name.as_str()).and_then(|rest| rest.strip_prefix('.'))
                    == Some(suffix)
            };
            if let Some(tensor) = layout.tensors.iter().find(own) {
                check_values(name, suffix, &values)?;
                let find = |name| self.trainer.buffer(name);
                return write_tensor(self.trainer.model.gpu(), layout, tensor, set, &find, &values);
            }
        }
        Err(Error::checkpoint(format!("{name} is not a tensor of this optimizer")))
    }

    /// The trainer, once every tensor has arrived.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming what is missing.
    pub fn finish(self) -> Result<Rc<Trainer>> {
        self.reader.finish()?;
        let gpu = self.trainer.model.gpu();
        gpu.write(
            self.trainer.buffer(Buffer::Optimizer)?,
            0,
            bytemuck::cast_slice(&self.state.optimizer),
        )?;
        gpu.write(
            self.trainer.buffer(Buffer::Metrics)?,
            0,
            bytemuck::cast_slice(&self.state.metrics),
        )?;
        Ok(self.trainer)
    }
}

/// Refuses moments that no training run can have. Gradients in the middle of an accumulation may
/// well not be finite: the update is then left out.
fn check_values(name: &str, suffix: &str, values: &[f32]) -> Result<()> {
    let possible = |x: f32| match suffix {
        "exp_avg" => x.is_finite(),
        "exp_avg_sq" => x.is_finite() && x >= 0.0,
        _ => true,
    };
    match values.iter().position(|&x| !possible(x)) {
        Some(i) => Err(Error::checkpoint(format!(
            "tensor {name} of optimizer.safetensors has {} at {i}, and no run can leave that there; \
             the file is damaged",
            values[i]
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check_values;

    #[test]
    fn moments_that_cannot_be_are_refused_by_name() {
        let refused = |suffix, x| check_values("a.x", suffix, &[0.0, x]).map_err(|e| e.message);
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(refused("exp_avg", x).unwrap_err().contains("tensor a.x"));
            assert!(refused("exp_avg_sq", x).unwrap_err().contains("at 1"));
            refused("gradient", x).unwrap();
        }
        assert!(refused("exp_avg_sq", -1e-9).unwrap_err().contains("-0.000000001"));
        refused("exp_avg", -1.0).unwrap();
        refused("exp_avg_sq", 1.0).unwrap();
    }
}
