//! Models that hold their matrices packed, and adapters on them: held to the twin in f64 over the numbers that the
//! packed ones stand for.

use super::Double;
use super::lora_tests::{ALL, Adapted, continued, lora, options, trains_on};
use super::tests::{Pair, integers, load_as, named, software};
use crate::arch::Architecture;
use crate::caps::{Capabilities, Target};
use crate::config::ModelConfig;
use crate::error::{Error, ErrorCode};
use crate::gpu::Gpu;
use crate::kernels::WeightFormat;
use crate::session::{
    Adapter, EstimateOptions, GenerateOptions, InferenceOptions, Model, NO_PROGRESS, Snapshot,
    TextOptions, Trainer, TrainerOptions, estimate,
};
use crate::twins::check::assert_close;
use crate::twins::model::{Network, Tensors, random_tensors};
use crate::twins::{pack_weights_forward, unpack_weights_forward};
use pollster::block_on;
use std::rc::Rc;

pub(super) const PACKED: [WeightFormat; 3] =
    [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4];

/// An odd vocabulary, tied.
const ODD: &str = r#"{"vocab_size":67,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
    "num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"tie_word_embeddings":true,
    "initializer_range":0.2,"max_position_embeddings":512}"#;
/// An untied head, biases, and a matrix whose rows are of no whole groups.
const MIXED: &str = r#"{"model_type":"qwen2","vocab_size":71,"hidden_size":32,"intermediate_size":56,
    "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,
    "initializer_range":0.2,"max_position_embeddings":512}"#;

/// A model that holds its matrices in a format, and the numbers that it stands for.
pub(super) fn packed(double: &Rc<Double>, config: &str, format: WeightFormat) -> Pair {
    let config = ModelConfig::from_json(config).unwrap();
    let narrow = random_tensors::<f32>(&config, 7);
    let model = load_as(double, &config, &narrow, format);
    let mut weights = Tensors::<f64>::new();
    let of = Architecture::of(&config);
    let all = of.weights.iter().enumerate();
    for (id, param) in all.flat_map(|(id, weight)| weight.params.iter().map(move |it| (id, it))) {
        let (name, x) = (param.name.clone(), &narrow[&param.name]);
        let packs = of.is_matrix(id) && format.packs(of.weights[id].columns);
        let kept = if packs {
            unpack_weights_forward(format, &pack_weights_forward(format, x), x.len())
        } else {
            x.iter().copied().map(f64::from).collect()
        };
        weights.insert(name, kept);
    }
    Pair { config, weights, model }
}

/// An f32 model of the same numbers.
fn unpacked(double: &Rc<Double>, pair: &Pair) -> Rc<Model> {
    let narrow = |x: &Vec<f64>| x.iter().map(|&x| x as f32).collect();
    let weights = pair.weights.iter().map(|(name, x)| (name.clone(), narrow(x))).collect();
    load_as(double, &pair.config, &weights, WeightFormat::F32)
}

pub(super) fn as_held(model: &Model) -> InferenceOptions {
    InferenceOptions { weights: model.weights(), ..InferenceOptions::default() }
}

#[test]
fn adapters_are_trained_on_packed_matrices() {
    for format in PACKED {
        trains_on(&packed(&Double::floor(), ODD, format), lora(&ALL, 3), false);
        trains_on(&packed(&software(), MIXED, format), lora(&ALL, 4), true);
    }
    trains_on(&packed(&named("NVIDIA"), ODD, WeightFormat::Int4), lora(&ALL, 4), false);
}

/// Embedding, head and the matrices of layers in several buffers each.
#[test]
fn matrices_cut_into_several_buffers_give_the_same() {
    let mut caps = Capabilities::floor(Target::Native);
    caps.limits.max_storage_buffer_binding_size = 65_536;
    caps.limits.max_buffer_size = 65_536;
    let config = ODD.replace(r#""vocab_size":67"#, r#""vocab_size":1027"#);
    let pair = packed(&Double::new(caps), &config, WeightFormat::Int8);
    let parts = pair.model.layout().matrices.iter().map(|matrix| matrix.parts.len());
    assert!(parts.max() > Some(1));
    trains_on(&pair, lora(&ALL, 3), false);
}

#[test]
fn base_and_adapter_decode_from_packed_matrices() {
    for format in PACKED {
        for (double, config) in
            [(Double::floor(), ODD), (software(), MIXED), (without_matrices("NVIDIA"), ODD)]
        {
            let pair = packed(&double, config, format);
            let adapted = Adapted::new(&pair, lora(&ALL, 3), 5);
            let base = Architecture::of(&pair.config);
            let base = Network { architecture: &base, weights: &pair.weights };
            let options = || GenerateOptions { weights: format, ..GenerateOptions::default() };
            for (model, network) in
                [(&pair.model, &base), (adapted.adapter.model(), &adapted.network())]
            {
                let off = continued(model, network, options());
                assert!(off <= 1e-4, "{off} nats in {}", format.name());
            }
        }
    }
}

/// A device of this name whose products round nothing.
fn without_matrices(description: &str) -> Rc<Double> {
    let mut caps = Gpu::capabilities(&*named(description)).clone();
    caps.features.subgroup_matrix = false;
    Double::new(caps)
}

/// Prompts on matrices that a subgroup holds: what they multiply packed matrices with is rounded to f16, and nothing else
/// is less exact.
#[test]
fn prompts_by_matrices_round_to_f16() {
    for format in PACKED {
        let pair = packed(&named("NVIDIA"), ODD, format);
        let base = Architecture::of(&pair.config);
        let base = Network { architecture: &base, weights: &pair.weights };
        let options = GenerateOptions { weights: format, ..GenerateOptions::default() };
        let off = continued(&pair.model, &base, options);
        assert!((1e-5..4e-3).contains(&off), "{off} nats in {}", format.name());
    }
}

/// Prompts and tokens of an f32 model are read through packed copies of its matrices.
#[test]
fn a_packed_model_gives_what_an_unpacked_one_gives_in_its_format() {
    for format in PACKED {
        let double = Double::floor();
        let pair = packed(&double, ODD, format);
        let whole = unpacked(&double, &pair);
        let tokens = integers(5, 33, 67);
        let logits = |model: &Model| {
            let options = as_held(&pair.model);
            block_on(model.logits(&tokens, options, NO_PROGRESS)).unwrap()
        };
        let expected: Vec<f64> = logits(&whole).into_iter().map(f64::from).collect();
        assert_close(format.name(), &logits(&pair.model), &expected, 1e-5, 1e-5);
    }
}

#[test]
fn an_estimate_is_what_a_packed_model_allocates() {
    for weights in PACKED {
        estimates(ODD, weights);
    }
}

/// A model, an adapter, its trainer and a text take as many bytes as is estimated.
pub(super) fn estimates(config: &str, weights: WeightFormat) {
    let double = Double::floor();
    let lora = lora(&ALL, 4);
    let options = EstimateOptions {
        weights,
        adapter: Some(lora.clone()),
        trainer: Some(options()),
        generate: Some(TextOptions { tokens: 40, ..TextOptions::default() }),
    };
    let pair = packed(&double, config, weights);
    let caps = Gpu::capabilities(&*double);
    let estimated = estimate(&pair.config, &options, Some(caps)).unwrap();
    assert_eq!(pair.model.gpu_bytes(), pair.model.layout().bytes());
    let adapter = block_on(Adapter::create(&pair.model, lora, NO_PROGRESS)).unwrap();
    let model = adapter.model();
    let _trainer = block_on(Trainer::create(model, options.trainer.unwrap(), NO_PROGRESS)).unwrap();
    block_on(model.logits(&[1; 40], as_held(model), NO_PROGRESS)).unwrap();
    assert_eq!(pair.model.gpu_bytes() + model.gpu_bytes(), estimated.bytes.total());
}

/// What a packed model cannot do is refused, and everything is as it was.
#[test]
fn what_needs_the_checkpoints_numbers_is_refused() {
    let double = Double::floor();
    let pair = packed(&double, ODD, WeightFormat::Int4);
    let model = &pair.model;
    let adapted = Adapted::new(&pair, lora(&ALL, 3), 5);
    let tokens = integers(5, 20, 67);
    let loss = || block_on(model.loss(&tokens, None, as_held(model), NO_PROGRESS)).unwrap();
    let (before, bytes) = (loss(), double.counters().gpu_bytes);
    let refused = |what: Option<Error>, cure: &str| {
        let error = what.expect("refused");
        assert_eq!(error.code, ErrorCode::InvalidOptions);
        assert!(error.message.contains("int4") && error.message.contains(cure), "{error}");
    };
    for weights in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Int8] {
        let options = InferenceOptions { weights, ..InferenceOptions::default() };
        refused(
            block_on(model.loss(&tokens, None, options, NO_PROGRESS)).err(),
            "leave weights out",
        );
        refused(block_on(model.logits(&tokens, options, NO_PROGRESS)).err(), "leave weights out");
        let options = TextOptions { weights: Some(weights), ..TextOptions::default() };
        let generate = Some(options);
        let options =
            EstimateOptions { weights: WeightFormat::Int4, generate, ..Default::default() };
        refused(estimate(&pair.config, &options, None).err(), "leave weights out");
    }
    let trainer = Trainer::create(model, TrainerOptions::default(), NO_PROGRESS);
    refused(block_on(trainer).err(), "adapter");
    let last = TrainerOptions { last_layers: Some(1), ..TrainerOptions::default() };
    refused(block_on(Trainer::create(model, last, NO_PROGRESS)).err(), "adapter");
    refused(block_on(model.read_tensor(0)).err(), "saveMerged");
    refused(model.expect_saved().err(), "saveMerged");
    refused(block_on(adapted.adapter.merge(NO_PROGRESS)).err(), "saveMerged");
    refused(Snapshot::of_model(model).err(), "saveMerged");
    assert_eq!(loss(), before);
    assert_eq!(double.counters().gpu_bytes, bytes);
    block_on(adapted.adapter.model().read_tensor(0)).unwrap();
}

/// The checksum that a resume asks for is of the packed words.
#[test]
fn another_packed_base_has_another_checksum() {
    let double = Double::floor();
    let sum = |pair: &Pair| {
        let adapter = block_on(Adapter::create(&pair.model, lora(&ALL, 2), NO_PROGRESS)).unwrap();
        let trainer = Trainer::create(adapter.model(), options(), NO_PROGRESS);
        let state = block_on(block_on(trainer).unwrap().state()).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["base"].clone()
    };
    let [first, again] =
        [packed(&double, ODD, WeightFormat::Int8), packed(&double, ODD, WeightFormat::Int8)];
    assert_eq!(sum(&first), sum(&again));
    assert_ne!(sum(&first), sum(&packed(&double, ODD, WeightFormat::Int4)));
    let mut other = random_tensors::<f32>(&first.config, 7);
    other.get_mut("model.layers.1.mlp.up_proj.weight").unwrap()[200] += 0.25;
    let model = load_as(&double, &first.config, &other, WeightFormat::Int8);
    assert_ne!(sum(&first), sum(&Pair { model, ..packed(&double, ODD, WeightFormat::Int8) }));
}
