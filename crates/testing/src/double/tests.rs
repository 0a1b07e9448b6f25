//! What the double's tests share: models, batches, devices.

use super::Double;
use super::layer_tests::OPTIONS;
use crate::arch::{Architecture, FAMILIES};
use crate::caps::Capabilities;
use crate::config::ModelConfig;
use crate::data::{Batch, IGNORE_INDEX};
use crate::gpu::Gpu;
use crate::gpu_adapters::table;
use crate::kernels::WeightFormat;
pub(super) use crate::model::{ALTERNATING, LEARNED, PARALLEL, TIED, WINDOWED};
use crate::random::philox;
use crate::session::{Model, ModelLoader};
use crate::twins::model::{Model as Reference, Tensors, random_tensors};
use pollster::block_on;
use std::rc::Rc;

/// Untied, all sizes multiples of 32.
pub(super) const UNTIED: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":64,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,
    "hidden_act":"gelu_pytorch_tanh","initializer_range":0.2,"max_position_embeddings":512}"#;
/// Norms of each head's queries and keys, heads wider together than the hidden rows.
pub(super) const NORMED: &str = r#"{"model_type":"qwen3","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512}"#;

/// As the alternating one, with norms of each head's queries and keys, and a table of angles for each kind of layer.
pub(super) const TWO_TABLES: &str = r#"{"model_type":"gemma3_text","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":32,"sliding_window":7,"sliding_window_pattern":2,"query_pre_attn_scalar":20,
    "rope_theta":5000.0,"rope_local_base_freq":50.0,"initializer_range":0.2,
    "max_position_embeddings":512}"#;

/// Biases of queries, keys and values.
pub(super) const BIASED: &str = r#"{"model_type":"qwen2","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512}"#;

/// As the learned one, with windows in one of two layers and scores as they are. The file has the matrices in the GPU's
/// order.
pub(super) const UNSCALED: &str = r#"{"model_type":"gpt_neo","vocab_size":61,"hidden_size":36,
    "intermediate_size":58,"num_layers":2,"num_heads":3,"window_size":7,"initializer_range":0.1,
    "max_position_embeddings":512}"#;

/// A double under the name of an adapter of the tests' table.
pub(super) fn named(description: &str) -> Rc<Double> {
    let table = table(crate::caps::Target::Native);
    let found = table.into_iter().find(|caps| caps.adapter.description == description);
    Double::new(found.unwrap_or_else(|| panic!("no adapter {description}")))
}

/// A CPU adapter at the default limits.
pub(super) fn software() -> Rc<Double> {
    let caps = Capabilities::floor(crate::caps::Target::Native);
    Double::new(Capabilities { software: true, ..caps })
}

pub(super) fn gpu(double: &Rc<Double>) -> Rc<dyn Gpu> {
    Rc::clone(double) as Rc<dyn Gpu>
}

pub(super) fn integers(seed: u32, count: usize, bound: u32) -> Vec<u32> {
    (0..count as u32).map(|i| philox([i, 0, 0, 0], [seed, 1])[0] % bound).collect()
}

/// Packed documents, a fifth of whose targets do not count.
pub(super) fn batch(config: &ModelConfig, seed: u32, tokens: usize) -> Batch {
    let words = config.vocab_size as u32;
    let mut targets = integers(seed, tokens, words);
    targets.iter_mut().step_by(5).for_each(|target| *target = IGNORE_INDEX);
    let mut documents = vec![0; tokens];
    for (start, length) in [(tokens / 5, tokens / 2), (tokens / 2 + 1, tokens)] {
        documents[start..length].fill(start as u32);
    }
    let mut start = 0;
    for (t, document) in documents.iter_mut().enumerate() {
        start = start.max(*document);
        *document = if t >= start as usize { start } else { 0 };
    }
    Batch::new(integers(seed + 1, tokens, words), targets, Some(documents))
}

/// A model on a double with the twin's weights.
pub(super) struct Pair {
    pub config: ModelConfig,
    pub weights: Tensors<f64>,
    pub model: Rc<Model>,
}

impl Pair {
    pub fn new(double: &Rc<Double>, config: &str) -> Self {
        let families = [FAMILIES, &[&OPTIONS]].concat();
        let config = ModelConfig::read(config, &families).unwrap();
        let narrow = random_tensors::<f32>(&config, 7);
        let model = load(double, &config, &narrow);
        let wide = |x: &Vec<f32>| x.iter().copied().map(f64::from).collect();
        let weights = narrow.iter().map(|(name, x)| (name.clone(), wide(x))).collect();
        Self { config, weights, model }
    }

    pub fn reference(&self) -> Reference<'_, f64> {
        Reference { config: &self.config, weights: &self.weights }
    }
}

/// The header of a file as a loader takes it, and the file's length.
pub(super) fn header_of(file: &[u8]) -> (Vec<u8>, u64) {
    let header: serde_json::Value = serde_json::from_slice(&file[8..]).unwrap();
    let ends = header
        .as_object()
        .unwrap()
        .values()
        .filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    (file[8..].to_vec(), file.len() as u64 + ends.max().unwrap_or(0))
}

fn load(double: &Rc<Double>, config: &ModelConfig, weights: &Tensors<f32>) -> Rc<Model> {
    load_as(double, config, weights, WeightFormat::F32)
}

/// In pieces of 96 elements, where they are packed.
pub(super) fn load_as(
    double: &Rc<Double>,
    config: &ModelConfig,
    weights: &Tensors<f32>,
    format: WeightFormat,
) -> Rc<Model> {
    let mut loader = ModelLoader::packed(&gpu(double), config.clone(), format).unwrap();
    let tensors = Architecture::of(config).tensors();
    let (header, length) = header_of(&crate::checkpoint::write_header(&tensors, &[]));
    loader.add_file("model.safetensors", &header, length).unwrap();
    block_on(async {
        loader.allocate().unwrap().await.unwrap();
        for (name, values) in weights {
            let piece = if format == WeightFormat::F32 { values.len() } else { 96 };
            for (index, part) in values.chunks(piece).enumerate() {
                let begin = 4 * (index * piece) as u64;
                loader.set_piece(name, begin, bytemuck::cast_slice(part)).unwrap();
            }
        }
        loader.finish().await.unwrap()
    })
}

/// All bytes of a model's weights.
pub(super) fn weights(model: &Model) -> Vec<u8> {
    let read = |index| block_on(model.read_tensor(index)).unwrap();
    (0..model.tensors().len()).flat_map(read).collect()
}
