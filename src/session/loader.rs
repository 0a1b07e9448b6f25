//! Builds a model from the files of a checkpoint, a piece at a time.

use super::model::{Find, Model};
use crate::checkpoint::{CheckpointReader, Wanted};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, LocalFuture};
use crate::params::{Params, Tensor};
use crate::plan::Buffer;
use std::cell::OnceCell;
use std::rc::Rc;

/// Takes headers, then allocates, then takes the tensors in pieces: a wrong file is refused before
/// anything is allocated, and a GPU that is too small shows before a tensor is read.
pub struct ModelLoader {
    gpu: Rc<dyn Gpu>,
    config: ModelConfig,
    reader: CheckpointReader,
    /// The model, once there is memory for it.
    model: Rc<OnceCell<Rc<Model>>>,
    /// The numbers of a piece.
    values: Vec<f32>,
}

impl std::fmt::Debug for ModelLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelLoader").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ModelLoader {
    pub fn new(gpu: &Rc<dyn Gpu>, config: ModelConfig) -> Self {
        let reader = CheckpointReader::new(&config.tensors());
        Self { gpu: Rc::clone(gpu), config, reader, model: Rc::default(), values: vec![] }
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
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

    /// Makes the model's buffers, when all headers are in. The future owns what it uses; dropped, it
    /// leaves the loader without a model.
    ///
    /// # Errors
    /// `invalid-checkpoint` if a tensor is in no header; `limit-exceeded`, `out-of-memory`,
    /// `device-lost`.
    pub fn allocate(&self) -> Result<LocalFuture<Result<()>>> {
        self.reader.expect_all()?;
        self.gpu.watch();
        let made = Model::allocate(&self.gpu, self.config.clone());
        let checked = self.gpu.checked();
        let slot = Rc::clone(&self.model);
        Ok(Box::pin(async move {
            let checked = checked.await;
            let model = made?;
            checked?;
            // A second allocation leaves the first one's model.
            let _ = slot.set(Rc::new(model));
            Ok(())
        }))
    }

    /// The model, whose weights may still be missing.
    pub(crate) fn model(&self) -> Result<&Rc<Model>> {
        let model = self.model.get();
        model.ok_or_else(|| Error::internal("the loader has allocated no model yet"))
    }

    /// Converts and uploads the next bytes of a tensor, from its byte `begin` on, when the model is
    /// allocated. Pieces come in order and hold whole elements.
    ///
    /// # Errors
    /// `invalid-checkpoint` if the bytes are not those that the header announced, or a number among
    /// them is not finite; `device-lost`.
    pub fn set_piece(&mut self, name: &str, begin: u64, bytes: &[u8]) -> Result<()> {
        let model = Rc::clone(self.model()?);
        let start = self.reader.decode(name, begin, bytes, &mut self.values)?;
        if let Some(i) = self.values.iter().position(|x| !x.is_finite()) {
            let why = "a weight has to be finite";
            return Err(self.reader.refuse_value(name, start + i as u64, self.values[i], why));
        }
        let tensor = model.layout.tensors.iter().find(|t| t.name == name);
        let tensor = tensor
            .ok_or_else(|| Error::checkpoint(format!("{name} is not a tensor of this model")))?;
        let weights = model.weights()?;
        let find = |name| weights.get(name);
        let place = Place { layout: &model.layout, tensor, set: Buffer::Weights, find: &find };
        place.write(&self.gpu, start as usize, &self.values)
    }

    /// The model, once every tensor has arrived.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming what is missing.
    pub fn finish(&self) -> Result<Rc<Model>> {
        self.reader.finish()?;
        self.model().cloned()
    }
}

/// A tensor in a set of shards.
pub(super) struct Place<'a> {
    pub layout: &'a Params,
    pub tensor: &'a Tensor,
    pub set: fn(usize) -> Buffer,
    pub find: Find<'a>,
}

impl Place<'_> {
    /// Writes the tensor's elements from `start` on.
    pub fn write(&self, gpu: &Rc<dyn Gpu>, start: usize, values: &[f32]) -> Result<()> {
        for (first, shard, offset, len) in pieces(self.layout, self.tensor, start, values.len()) {
            let part = &values[first - start..][..len];
            let buffer = (self.find)((self.set)(shard))?;
            gpu.write(buffer, offset as u64 * 4, bytemuck::cast_slice(part))?;
        }
        Ok(())
    }
}

/// Where `len` elements of a tensor lie, from `start` on: the first element of each stretch, its
/// shard, its offset there and its length.
fn pieces(
    layout: &Params,
    tensor: &Tensor,
    start: usize,
    len: usize,
) -> Vec<(usize, usize, usize, usize)> {
    let mut found = vec![];
    let mut begin = 0;
    for run in layout.runs(tensor) {
        let first = begin.max(start);
        let last = (begin + run.len).min(start + len);
        if first < last {
            found.push((first, run.shard, run.offset + first - begin, last - first));
        }
        begin += run.len;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of every length cover a tensor that lies in several shards, each element once.
    #[test]
    fn pieces_cover_a_tensor_in_several_shards() {
        let config = r#"{"vocab_size":1000,"hidden_size":64,"intermediate_size":64,
            "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2}"#;
        let config = ModelConfig::from_json(config).unwrap();
        let layout = Params::new(crate::arch::Architecture::of(&config), 64 * 64 * 4 * 3).unwrap();
        let tensor = &layout.tensors[0];
        let runs = layout.runs(tensor);
        assert!(runs.len() > 3, "{} runs", runs.len());
        let place = |element: usize| {
            let mut begin = 0;
            for run in &runs {
                if element < begin + run.len {
                    return (run.shard, run.offset + element - begin);
                }
                begin += run.len;
            }
            panic!("no element {element}");
        };
        for size in [1000, 12_288, 13_001, 64_000] {
            let mut next = 0;
            for start in (0..64_000).step_by(size) {
                for (first, shard, offset, len) in
                    pieces(&layout, tensor, start, size.min(64_000 - start))
                {
                    assert_eq!((first, (shard, offset)), (next, place(first)));
                    assert_eq!((shard, offset + len - 1), place(first + len - 1));
                    next = first + len;
                }
            }
            assert_eq!(next, 64_000);
        }
    }
}
