//! Every plan of some configurations over the table of adapters, held to committed listings.
//!
//! A listing changes only in a commit that does nothing else and says why. This writes them:
//! `TINYLOOM_GOLDEN=write cargo test --features testing --test golden`.
#![cfg(feature = "testing")]

use std::collections::HashMap;
use std::fmt::Write;

use tinyloom::arch::Architecture;
use tinyloom::caps::{Capabilities, Target};
use tinyloom::config::{ALL_LINEAR, LoraConfig, ModelConfig};
use tinyloom::error::Result;
use tinyloom::kernels::{Constant, DenseMask, Element, KvCache, Objective, WeightFormat};
use tinyloom::lower::{
    InferenceOptions, InferencePlans, Probe, SampleChoices, TrainChoices, inference_plans,
    initialize_plan, probe_plan, sample_plan, train_plans,
};
use tinyloom::ops::{AttentionKey, AttentionOperation, OperationKey, SoftmaxKey};
use tinyloom::optim::OptimizerKind;
use tinyloom::params::Params;
use tinyloom::plan::Plan;
use tinyloom::testing::adapters;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

struct Case {
    name: &'static str,
    config: &'static str,
    tokens: usize,
    capacity: usize,
}

impl Case {
    /// The parameters on a device, an adapter's of rank 8 behind the base's where there are `targets`.
    fn layout(&self, caps: &Capabilities, targets: &[&str]) -> Result<Params> {
        self.packed(caps, targets, WeightFormat::F32)
    }

    /// The same where the base holds its matrices in another format.
    fn packed(
        &self,
        caps: &Capabilities,
        targets: &[&str],
        weights: WeightFormat,
    ) -> Result<Params> {
        let architecture = Architecture::of(&ModelConfig::from_json(self.config).unwrap());
        let binding = caps.limits.binding_bytes().min(1 << 30);
        let params = Params::packed(architecture, binding, weights)?;
        if targets.is_empty() {
            return Ok(params);
        }
        let targets = targets.iter().map(|&name| name.to_owned()).collect();
        let lora = LoraConfig { rank: 8, alpha: 16.0, targets, ..LoraConfig::default() };
        params.adapted(params.architecture.adapted(&lora)?)
    }
}

/// Between them: tied and untied heads, grouped queries, every activation, odd sizes, a window, a
/// soft cap, long contexts, matrices cut into several bindings.
const CASES: [Case; 9] = [
    Case {
        name: "tied, two layers",
        config: r#"{"vocab_size":256,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
            "num_attention_heads":2,"num_key_value_heads":2,"head_dim":32,"tie_word_embeddings":true}"#,
        tokens: 96,
        capacity: 256,
    },
    Case {
        name: "tiny",
        config: r#"{"vocab_size":256,"hidden_size":128,"intermediate_size":384,"num_hidden_layers":3,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":32}"#,
        tokens: 768,
        capacity: 2048,
    },
    Case {
        name: "one token, odd sizes, one key-value head",
        config: r#"{"vocab_size":61,"hidden_size":40,"intermediate_size":37,"num_hidden_layers":1,
            "num_attention_heads":5,"num_key_value_heads":1,"head_dim":8,"tie_word_embeddings":true}"#,
        tokens: 1,
        capacity: 300,
    },
    Case {
        name: "odd sizes, untied",
        config: r#"{"vocab_size":61,"hidden_size":42,"intermediate_size":29,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":12,"hidden_act":"gelu_pytorch_tanh"}"#,
        tokens: 131,
        capacity: 256,
    },
    Case {
        name: "wide heads",
        config: r#"{"vocab_size":512,"hidden_size":512,"intermediate_size":1024,"num_hidden_layers":2,
            "num_attention_heads":2,"num_key_value_heads":1,"head_dim":256,"hidden_act":"gelu"}"#,
        tokens: 64,
        capacity: 512,
    },
    Case {
        name: "seed's sizes, two layers",
        config: r#"{"vocab_size":8192,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":2,
            "num_attention_heads":12,"num_key_value_heads":4,"head_dim":64,"max_position_embeddings":4096}"#,
        tokens: 4096,
        capacity: 4096,
    },
    Case {
        name: "a vocabulary cut into parts, tied",
        config: r#"{"vocab_size":150000,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":2,
            "num_attention_heads":14,"num_key_value_heads":2,"head_dim":64,"tie_word_embeddings":true}"#,
        tokens: 512,
        capacity: 2048,
    },
    Case {
        name: "a window and a soft cap",
        config: r#"{"model_type":"mistral","sliding_window":300,"vocab_size":256,"hidden_size":128,
            "intermediate_size":384,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
            "head_dim":32,"max_position_embeddings":4096,"attn_logit_softcapping":30.0}"#,
        tokens: 512,
        capacity: 4096,
    },
    Case {
        name: "heads wider than the hidden size, untied, cut",
        config: r#"{"vocab_size":50257,"hidden_size":192,"intermediate_size":512,"num_hidden_layers":2,
            "num_attention_heads":6,"num_key_value_heads":6,"head_dim":64}"#,
        tokens: 300,
        capacity: 1024,
    },
];

/// Families and adapters, in a listing of their own: biases of queries, keys and values; norms of heads; an adapter
/// on some modules, and one on all modules of a model with biases.
const FAMILIES: [(Case, &[&str]); 4] = [
    (
        Case {
            name: "qwen2, tied",
            config: r#"{"model_type":"qwen2","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":true,
                "max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "qwen3, heads wider than the hidden size",
            config: r#"{"model_type":"qwen3","vocab_size":512,"hidden_size":96,"intermediate_size":256,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,
                "max_position_embeddings":2048}"#,
            tokens: 300,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on queries, values and down",
            config: r#"{"vocab_size":256,"hidden_size":128,"intermediate_size":384,"num_hidden_layers":2,
                "num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &["q_proj", "v_proj", "down_proj"],
    ),
    (
        Case {
            name: "an adapter on all modules of a qwen2",
            config: r#"{"model_type":"qwen2","vocab_size":256,"hidden_size":64,"intermediate_size":128,
                "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"tie_word_embeddings":true,
                "max_position_embeddings":2048}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
];

/// Adapters on models that hold their matrices packed, in a listing of their own: a vocabulary cut into parts, and
/// an odd one.
const PACKED: [(Case, &[&str]); 2] = [
    (
        Case {
            name: "a packed base, its vocabulary cut",
            config: r#"{"vocab_size":150000,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":1,
                "num_attention_heads":14,"num_key_value_heads":2,"head_dim":64,"tie_word_embeddings":true}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[ALL_LINEAR],
    ),
    (
        Case {
            name: "a packed base of odd vocabulary, untied",
            config: r#"{"model_type":"qwen2","vocab_size":4099,"hidden_size":64,"intermediate_size":100,
                "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1}"#,
            tokens: 96,
            capacity: 256,
        },
        &["q_proj", "down_proj"],
    ),
];

/// Families behind those: their rows leave the numbers of the others as they are.
const LATER: [(Case, &[&str]); 2] = [
    (
        Case {
            name: "gpt2, an odd vocabulary",
            config: r#"{"model_type":"gpt2","vocab_size":509,"n_embd":128,"n_layer":2,"n_head":4}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on all modules of a gpt2",
            config: r#"{"model_type":"gpt2","vocab_size":61,"n_embd":40,"n_layer":1,"n_head":2,"n_inner":58,
                "n_positions":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
];

/// Families with windows in some of their layers, behind all of those.
const ALTERNATING: [(Case, &[&str]); 2] = [
    (
        Case {
            name: "gemma2, both kinds of layers",
            config: r#"{"model_type":"gemma2","vocab_size":512,"hidden_size":128,"intermediate_size":320,
                "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
                "sliding_window":300,"max_position_embeddings":2048}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on some modules of a gemma3, both kinds of layers",
            config: r#"{"model_type":"gemma3_text","vocab_size":61,"hidden_size":40,"intermediate_size":58,
                "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":20,
                "sliding_window":70,"sliding_window_pattern":2,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &["q_proj", "o_proj", "down_proj"],
    ),
];

/// Families with layer norms, biases and no gate but GPT-2, behind all of those.
const PLAIN: [(Case, &[&str]); 4] = [
    (
        Case {
            name: "gpt_neo, both kinds of layers",
            config: r#"{"model_type":"gpt_neo","vocab_size":509,"hidden_size":128,"num_layers":2,"num_heads":4,
                "window_size":200,"max_position_embeddings":1024}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on all modules of a gpt_neo",
            config: r#"{"model_type":"gpt_neo","vocab_size":61,"hidden_size":40,"num_layers":2,"num_heads":2,
                "intermediate_size":58,"window_size":70,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &[ALL_LINEAR],
    ),
    (
        Case {
            name: "gpt_neox, blocks side by side",
            config: r#"{"model_type":"gpt_neox","vocab_size":509,"hidden_size":128,"intermediate_size":512,
                "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":1024}"#,
            tokens: 512,
            capacity: 1024,
        },
        &[],
    ),
    (
        Case {
            name: "an adapter on some modules of a gpt_neox, blocks in turn",
            config: r#"{"model_type":"gpt_neox","vocab_size":61,"hidden_size":40,"intermediate_size":58,
                "num_hidden_layers":1,"num_attention_heads":2,"rotary_pct":0.5,"attention_bias":false,
                "use_parallel_residual":false,"max_position_embeddings":256}"#,
            tokens: 96,
            capacity: 256,
        },
        &["query_key_value", "dense_4h_to_h"],
    ),
];

/// Calls of `tinyloom/ops`: each operation in both elements, with each kind of mask, at sizes of a layer and
/// at odd ones.
fn operations() -> Vec<OperationKey> {
    use AttentionOperation::{Backward, Decode, Forward};
    let mut keys = vec![];
    for element in [Element::F32, Element::F16] {
        for operation in [Forward, Backward, Decode] {
            for (heads, kv_heads, rows, head_dim) in
                [(8, 2, 512_usize, 64), (3, 1, 77, 20), (2, 2, 33, 256)]
            {
                let query_rows = if operation == Decode { 1 } else { rows };
                let key_rows = if operation == Decode { rows.next_power_of_two() } else { rows };
                let key = |dense, soft_cap| {
                    OperationKey::Attention(AttentionKey {
                        operation,
                        batch: 2,
                        heads,
                        kv_heads,
                        query_rows,
                        key_rows,
                        head_dim,
                        element,
                        soft_cap,
                        scale: None,
                        dense,
                    })
                };
                keys.extend([
                    key(DenseMask::None, None),
                    key(DenseMask::Bits, None),
                    key(DenseMask::Additive, Some(30.0)),
                ]);
            }
        }
        let softmax = [(1, 50_257), (300, 64), (77, 13)];
        keys.extend(
            softmax.map(|(rows, columns)| {
                OperationKey::Softmax(SoftmaxKey { rows, columns, element })
            }),
        );
    }
    keys
}

/// Numbers lines, so that what several plans share stands in the listing once.
#[derive(Default)]
struct Table {
    lines: Vec<String>,
    known: HashMap<String, usize>,
}

impl Table {
    fn number(&mut self, line: String) -> usize {
        let next = self.lines.len();
        *self.known.entry(line).or_insert_with_key(|line| {
            self.lines.push(line.clone());
            next
        })
    }
}

#[derive(Default)]
struct Listing {
    kernels: Table,
    dispatches: Table,
    plans: Table,
    cases: String,
}

/// The same for the same text on every platform and compiler.
fn fingerprint(text: &str) -> u64 {
    let offset = 0xcbf2_9ce4_8422_2325u64;
    text.bytes().fold(offset, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Listing {
    fn kernel(&mut self, kernel: &tinyloom::kernels::Kernel) -> usize {
        self.kernels.number(format!(
            "{} | {} | {} | {} | {:?} | {:?} | {:016x}",
            kernel.name,
            kernel.variant,
            kernel.reason,
            kernel.workgroup_size,
            kernel.grid,
            kernel.bindings.iter().map(|binding| binding.access).collect::<Vec<_>>(),
            fingerprint(&kernel.wgsl.text())
        ))
    }

    fn plan(&mut self, caps: &Capabilities, plan: &Plan) -> usize {
        for kernel in &plan.kernels {
            let again = kernel.spec.kernel(caps).unwrap();
            assert_eq!(again, *kernel, "{:?}", kernel.spec);
        }
        let kernels: Vec<usize> = plan.kernels.iter().map(|kernel| self.kernel(kernel)).collect();
        let mut body = format!("slots {:?}, {} bytes unshared;", plan.slots, plan.unshared_bytes);
        for dispatch in &plan.dispatches {
            let mut line = format!("{:?} | {}", dispatch.phase, dispatch.label);
            let range = dispatch.range;
            let _ = write!(line, " | {}+{} {}+{}", range.row0, range.rows, range.col0, range.cols);
            let _ = write!(line, " | {:.4e} {:.4e}", dispatch.cost.flops, dispatch.cost.bytes);
            for slice in &dispatch.slices {
                let _ = write!(line, " | {:?} {}+{}", slice.buffer, slice.offset, slice.bytes);
            }
            let number = self.dispatches.number(line);
            let _ = write!(body, " {number}k{}", kernels[dispatch.kernel]);
        }
        let ranges: Vec<_> = plan.ranges.iter().map(|r| (r.row0, r.rows, r.col0, r.cols)).collect();
        let _ = write!(body, "; {} products; ranges {ranges:?}", plan.products.len());
        self.plans.number(body)
    }

    fn note(&mut self, caps: &Capabilities, what: &str, plan: Result<&Plan>) {
        let line = match plan {
            Ok(plan) => format!("p{}", self.plan(caps, plan)),
            Err(error) => error.to_string(),
        };
        let _ = writeln!(self.cases, "  {what}: {line}");
    }

    fn case(&mut self, caps: &Capabilities, case: &Case, targets: &[&str]) {
        let layout = match case.layout(caps, targets) {
            Ok(layout) => layout,
            Err(error) => return writeln!(self.cases, "  {error}").unwrap(),
        };
        self.note(
            caps,
            "initialize",
            initialize_plan(caps, &layout).as_ref().map_err(Clone::clone),
        );
        for (name, recompute, mixed) in
            [("", false, false), (", recomputed", true, false), (", mixed", false, true)]
        {
            let choices =
                TrainChoices { tokens: case.tokens, recompute, mixed, ..TrainChoices::default() };
            match train_plans(caps, &layout, choices) {
                Ok(plans) => {
                    self.note(caps, &format!("micro-step{name}"), Ok(&plans.micro_step));
                    self.note(caps, &format!("evaluate{name}"), Ok(&plans.evaluate));
                    self.note(caps, &format!("optimizer{name}"), Ok(&plans.optimizer));
                }
                Err(error) => self.note(caps, &format!("train{name}"), Err(error)),
            }
        }
        let caches =
            KvCache::ALL.map(|kv_cache| InferenceOptions { kv_cache, ..Default::default() });
        let packed = [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4]
            .map(|weights| InferenceOptions { weights, ..Default::default() });
        for options in caches.into_iter().chain(packed) {
            let what = format!("{:?} cache, {:?} weights", options.kv_cache, options.weights);
            match inference_plans(caps, &layout, case.capacity, options) {
                Ok(plans) => {
                    let names =
                        ["prefill", "logits", "loss", "last row", "decode", "sample", "pack"];
                    for (name, plan) in names.into_iter().zip(plans.all()) {
                        self.note(caps, &format!("{what}, {name}"), Ok(plan));
                    }
                }
                Err(error) => self.note(caps, &what, Err(error)),
            }
        }
    }

    /// Training and inference over a packed base, in each of its formats.
    fn packed(&mut self, caps: &Capabilities, case: &Case, targets: &[&str]) {
        for weights in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
            let layout = case.packed(caps, targets, weights).unwrap();
            let name = weights.name();
            let choices = TrainChoices { tokens: case.tokens, ..TrainChoices::default() };
            match train_plans(caps, &layout, choices) {
                Ok(plans) => {
                    self.note(caps, &format!("{name}, micro-step"), Ok(&plans.micro_step));
                    self.note(caps, &format!("{name}, evaluate"), Ok(&plans.evaluate));
                }
                Err(error) => self.note(caps, &format!("{name}, train"), Err(error)),
            }
            let options = InferenceOptions { weights, ..Default::default() };
            match inference_plans(caps, &layout, case.capacity, options) {
                Ok(plans) => {
                    let names = ["prefill", "logits", "decode", "sample", "pack"];
                    let InferencePlans { prefill, logits, decode, sample, pack, .. } = &plans;
                    for (part, plan) in names.iter().zip([prefill, logits, decode, sample, pack]) {
                        self.note(caps, &format!("{name}, {part}"), Ok(plan));
                    }
                }
                Err(error) => self.note(caps, &format!("{name}, inference"), Err(error)),
            }
        }
    }

    /// The plans that draw a token with options of `generate` that need kernels of their own.
    fn sampling(&mut self, caps: &Capabilities, case: &Case, targets: &[&str]) {
        let Ok(layout) = case.layout(caps, targets) else { return };
        let options = InferenceOptions::default();
        let Ok(plans) = inference_plans(caps, &layout, case.capacity, options) else { return };
        for choices in [
            SampleChoices { biased: true, likeliest: 0 },
            SampleChoices { biased: false, likeliest: 5 },
            SampleChoices { biased: true, likeliest: 32 },
        ] {
            let (shape, slots) = (plans.shape, &plans.sample.slots);
            let plan = sample_plan(caps, &layout, shape, options, slots, choices);
            self.note(caps, &format!("{choices:?}"), plan.as_ref().map_err(Clone::clone));
        }
    }

    /// The plans that read a layer's hidden state or attention back.
    fn probing(&mut self, caps: &Capabilities, case: &Case, targets: &[&str]) {
        let Ok(layout) = case.layout(caps, targets) else { return };
        let last = layout.architecture.layers.len();
        for (kv_cache, probe) in [
            (KvCache::F32, Probe::HiddenState(0)),
            (KvCache::F32, Probe::HiddenState(last)),
            (KvCache::F32, Probe::Attention(0)),
            (KvCache::Int8, Probe::Attention(last - 1)),
        ] {
            let options = InferenceOptions { kv_cache, ..Default::default() };
            let Ok(plans) = inference_plans(caps, &layout, case.capacity, options) else { return };
            let (shape, slots) = (plans.shape, &plans.sample.slots);
            let plan = probe_plan(caps, &layout, shape, options, slots, probe);
            let what = format!("{kv_cache:?} cache, {probe:?}");
            self.note(caps, &what, plan.as_ref().map_err(Clone::clone));
        }
    }

    fn text(self) -> String {
        let mut text = String::from(
            "Every plan of tests/golden.rs. A kernel: name, variant, reason, workgroup size, grid, bindings,\n\
             hash of the composed text. A dispatch: phase, label, rows and columns, operations and bytes,\n\
             and each buffer bound with offset and bytes. A plan: slots, then dispatches with their kernels.\n",
        );
        for (title, prefix, table) in [
            ("kernels", "k", self.kernels),
            ("dispatches", "", self.dispatches),
            ("plans", "p", self.plans),
        ] {
            let _ = writeln!(text, "\n## {title}");
            for (index, line) in table.lines.iter().enumerate() {
                let _ = writeln!(text, "{prefix}{index}: {line}");
            }
        }
        text + "\n## cases\n" + &self.cases
    }
}

/// A listing with one way of writing cases down.
type Note = fn(&mut Listing, &Capabilities, &Case, &[&str]);

/// All cases on all adapters, a part of the listing at a time: behind all others, so that the numbers of what
/// stands before stay.
fn note_all(listing: &mut Listing, cases: &[(&Case, &[&str])]) {
    let parts: [(&str, Note); 3] =
        [("", Listing::case), (", sampling", Listing::sampling), (", probing", Listing::probing)];
    for (part, note) in parts {
        for &(case, targets) in cases {
            for caps in adapters::table(Target::Browser) {
                let adapter = &caps.adapter.description;
                let _ = writeln!(listing.cases, "{} on {adapter}{part}", case.name);
                note(listing, &caps, case, targets);
            }
        }
    }
}

/// Holds a listing to its file.
fn hold(listing: Listing, file: &str) {
    let text = listing.text();
    let file = format!("{FOLDER}/{file}");
    if std::env::var_os("TINYLOOM_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&file, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&file).unwrap();
    if let Some((line, (was, is))) =
        (1..).zip(wanted.lines().zip(text.lines())).find(|(_, (a, b))| a != b)
    {
        panic!("plans have moved, first at line {line} of {file}:\n  was {was}\n  is  {is}");
    }
    assert_eq!(wanted.len(), text.len(), "plans were added to, or are gone from, {file}");
}

/// The optimizers' own dispatches, AdamW's being in the other listings.
#[test]
fn optimizers_plans_are_as_they_were() {
    let mut listing = Listing::default();
    for case in [&CASES[1], &CASES[3]] {
        for caps in adapters::table(Target::Browser) {
            let _ = writeln!(listing.cases, "{} on {}", case.name, caps.adapter.description);
            let Ok(layout) = case.layout(&caps, &[]) else { continue };
            for (optimizer, given) in [
                (OptimizerKind::Lion, true),
                (OptimizerKind::Sgd, true),
                (OptimizerKind::Sgd, false),
            ] {
                let (tokens, momentum) = (case.tokens, Constant(f64::from(u8::from(given))));
                let choices = TrainChoices { tokens, optimizer, momentum, ..Default::default() };
                let plans = train_plans(&caps, &layout, choices);
                let what = format!("{}, momentum {given}", optimizer.name());
                let plan = plans.as_ref().map(|plans| &plans.optimizer);
                listing.note(&caps, &what, plan.map_err(Clone::clone));
            }
            let (label_smoothing, z_loss) = (Constant(0.1), Constant(1e-4));
            let objective = Objective { label_smoothing, z_loss };
            let choices = TrainChoices { tokens: case.tokens, objective, ..Default::default() };
            let plans = train_plans(&caps, &layout, choices);
            let plan = plans.as_ref().map(|plans| &plans.micro_step);
            listing.note(&caps, "smoothed micro-step", plan.map_err(Clone::clone));
        }
    }
    // Behind all others, so that the numbers of what stands before stay.
    for optimizer in [OptimizerKind::AdamW8Bit, OptimizerKind::Muon] {
        for case in [&CASES[1], &CASES[3]] {
            for caps in adapters::table(Target::Browser) {
                let _ = writeln!(listing.cases, "{} on {}", case.name, caps.adapter.description);
                let Ok(layout) = case.layout(&caps, &[]) else { continue };
                let momentum = Constant(0.95);
                let tokens = case.tokens;
                let choices = TrainChoices { tokens, optimizer, momentum, ..Default::default() };
                let plans = train_plans(&caps, &layout, choices);
                let plan = plans.as_ref().map(|plans| &plans.optimizer);
                listing.note(&caps, optimizer.name(), plan.map_err(Clone::clone));
            }
        }
    }
    hold(listing, "optimizers.txt");
}

#[test]
fn plans_are_as_they_were() {
    let mut listing = Listing::default();
    let cases: Vec<(&Case, &[&str])> = CASES.iter().map(|case| (case, &[][..])).collect();
    note_all(&mut listing, &cases);
    hold(listing, "plans.txt");
}

#[test]
fn plans_of_families_and_adapters_are_as_they_were() {
    let mut listing = Listing::default();
    for families in [&FAMILIES[..], &LATER, &ALTERNATING, &PLAIN] {
        let cases: Vec<_> = families.iter().map(|(case, targets)| (case, *targets)).collect();
        note_all(&mut listing, &cases);
    }
    hold(listing, "families.txt");
}

#[test]
fn plans_of_packed_models_are_as_they_were() {
    let mut listing = Listing::default();
    for (case, targets) in &PACKED {
        for caps in adapters::table(Target::Browser) {
            let _ = writeln!(listing.cases, "{} on {}", case.name, caps.adapter.description);
            listing.packed(&caps, case, targets);
        }
    }
    hold(listing, "packed.txt");
}

#[test]
fn plans_of_operations_are_as_they_were() {
    let mut listing = Listing::default();
    for caps in adapters::table(Target::Browser) {
        let _ = writeln!(listing.cases, "operations on {}", caps.adapter.description);
        for key in operations() {
            let plan = key.plan(&caps);
            listing.note(&caps, &format!("{key:?}"), plan.as_ref().map_err(Clone::clone));
        }
    }
    hold(listing, "ops.txt");
}
