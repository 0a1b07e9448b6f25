//! Every plan of some configurations over the table of adapters, held to committed hashes.
//!
//! `npm run plans -- diff` shows what differs from a revision. This writes the hashes, and the four plans that stay
//! readable: `TINYLOOM_GOLDEN=write cargo test --features testing --test golden`.
#![cfg(feature = "testing")]

use std::fmt::Write;
use std::thread;

use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_kernels::kernels::{
    Constant, DenseMask, Element, KvCacheFormat, Objective, WeightFormat,
};
use tinyloom_kernels::lower::{
    BatchedRows, CacheShape, Inference, InferenceOptions, InferencePlans, Probe, SampleChoices,
    TrainChoices, inference_plans, initialize_plan, train_plans,
};
use tinyloom_kernels::ops::{AttentionKey, AttentionOperation, OperationKey, SoftmaxKey};
use tinyloom_kernels::optim::{Numbers, Optimizer, RULES, Rule};
use tinyloom_kernels::plan::Plan;
use tinyloom_kernels::testing::gpu_adapters;
use tinyloom_model::error::Result;

#[path = "golden/cases.rs"]
mod cases;
#[path = "golden/listing.rs"]
mod listing;

use cases::{CASES, Case, MODELS, PACKED};
use listing::{Listing, hashes};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// Plans that stay readable, on the adapter with WebGPU's default limits, and their files.
const READABLE: [(&str, &str, &str); 4] = [
    ("tied, two layers: micro-step", "WebGPU floor", "micro-step.txt"),
    ("tied, two layers: optimizer", "WebGPU floor", "optimizer.txt"),
    ("tied, two layers: prefill", "WebGPU floor, F32 cache, F32 weights", "prefill.txt"),
    ("tied, two layers: decode", "WebGPU floor, F32 cache, F32 weights", "decode.txt"),
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

/// The plans of one case on one adapter.
struct Notes {
    listing: Listing,
    caps: Capabilities,
    case: &'static str,
}

impl Notes {
    /// Adds a plan under its name, made with these options.
    fn add(&mut self, name: &str, options: &str, plan: Result<&Plan>) {
        let adapter = &self.caps.adapter.description;
        let at = if options.is_empty() { adapter.clone() } else { format!("{adapter}, {options}") };
        self.listing.add(format!("{}: {name}", self.case), at, &self.caps, plan);
    }

    fn add_made(&mut self, name: &str, options: &str, plan: &Result<Plan>) {
        self.add(name, options, plan.as_ref().map_err(Clone::clone));
    }

    fn case(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        let layout = match case.layout(caps, targets) {
            Ok(layout) => layout,
            Err(error) => return self.add("parameters", "", Err(error)),
        };
        self.add_made("initialize", "", &initialize_plan(caps, &layout));
        for (options, recompute, mixed) in
            [("", false, false), ("recomputed", true, false), ("mixed", false, true)]
        {
            let choices =
                TrainChoices { tokens: case.tokens, recompute, mixed, ..TrainChoices::default() };
            match train_plans(caps, &layout, choices) {
                Ok(plans) => {
                    self.add("micro-step", options, Ok(&plans.micro_step));
                    self.add("evaluate", options, Ok(&plans.evaluate));
                    self.add("optimizer", options, Ok(&plans.optimizer));
                }
                Err(error) => self.add("train", options, Err(error)),
            }
        }
        let caches =
            KvCacheFormat::ALL.map(|kv_cache| InferenceOptions { kv_cache, ..Default::default() });
        let packed = [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4]
            .map(|weights| InferenceOptions { weights, ..Default::default() });
        for options in caches.into_iter().chain(packed) {
            let what = format!("{:?} cache, {:?} weights", options.kv_cache, options.weights);
            match inference_plans(caps, &layout, case.capacity, options) {
                Ok(plans) => {
                    let names =
                        ["prefill", "logits", "loss", "last row", "decode", "sample", "pack"];
                    for (name, plan) in names.into_iter().zip(plans.all()) {
                        self.add(name, &what, Ok(plan));
                    }
                    let further = [
                        ("decode a short text", &plans.short_context),
                        ("prefill of a long text", &plans.long_prefill),
                    ];
                    for (name, plan) in further {
                        if let Some(plan) = plan {
                            self.add(name, &what, Ok(plan));
                        }
                    }
                }
                Err(error) => self.add("inference", &what, Err(error)),
            }
        }
    }

    /// Training and inference over a packed base, in each of its formats.
    fn packed(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        for weights in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
            let layout = case.packed(caps, targets, weights).unwrap();
            let format = weights.name();
            let choices = TrainChoices { tokens: case.tokens, ..TrainChoices::default() };
            match train_plans(caps, &layout, choices) {
                Ok(plans) => {
                    self.add("micro-step", format, Ok(&plans.micro_step));
                    self.add("evaluate", format, Ok(&plans.evaluate));
                }
                Err(error) => self.add("train", format, Err(error)),
            }
            let options = InferenceOptions { weights, ..Default::default() };
            match inference_plans(caps, &layout, case.capacity, options) {
                Ok(plans) => {
                    let names = ["prefill", "logits", "decode", "sample", "pack"];
                    let InferencePlans { prefill, logits, decode, sample, pack, .. } = &plans;
                    for (name, plan) in names.iter().zip([prefill, logits, decode, sample, pack]) {
                        self.add(name, format, Ok(plan));
                    }
                }
                Err(error) => self.add("inference", format, Err(error)),
            }
        }
    }

    /// The plans that draw a token with options of `generate` that need kernels of their own.
    fn sampling(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        let Ok(layout) = case.layout(caps, targets) else { return };
        let options = InferenceOptions::default();
        let Ok(plans) = inference_plans(caps, &layout, case.capacity, options) else { return };
        for choices in [
            SampleChoices { biased: true, likeliest: 0 },
            SampleChoices { biased: false, likeliest: 5 },
            SampleChoices { biased: true, likeliest: 32 },
        ] {
            let (shape, slots) = (plans.shape, &plans.sample.slots);
            let plan = Inference::new(caps, &layout, shape, options).sample_plan(choices, slots);
            self.add_made("sample with choices", &format!("{choices:?}"), &plan);
        }
    }

    /// The plans that read a layer's hidden state or attention back.
    fn probing(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        let Ok(layout) = case.layout(caps, targets) else { return };
        let last = layout.architecture.layers.len();
        for (kv_cache, probe) in [
            (KvCacheFormat::F32, Probe::HiddenState(0)),
            (KvCacheFormat::F32, Probe::HiddenState(last)),
            (KvCacheFormat::F32, Probe::Attention(0)),
            (KvCacheFormat::Int8, Probe::Attention(last - 1)),
        ] {
            let options = InferenceOptions { kv_cache, ..Default::default() };
            let Ok(plans) = inference_plans(caps, &layout, case.capacity, options) else { return };
            let (shape, slots) = (plans.shape, &plans.sample.slots);
            let plan = Inference::new(caps, &layout, shape, options).probe_plan(probe, slots);
            self.add_made("probe", &format!("{kv_cache:?} cache, {probe:?}"), &plan);
        }
    }

    /// The plans of calls that change numbers on their way.
    fn intervened(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        let Ok(layout) = case.layout(caps, targets) else { return };
        let interventions = Some(std::num::NonZeroU32::MIN);
        let options = InferenceOptions { interventions, ..Default::default() };
        let Ok(plans) = inference_plans(caps, &layout, case.capacity, options) else { return };
        self.add("prefill with interventions", "", Ok(&plans.prefill));
        self.add("decode with interventions", "", Ok(&plans.decode));
        let rows = BatchedRows::OfTexts(3);
        let shape = CacheShape { sequences: 3, capacity: case.capacity };
        let several = Inference::new(caps, &layout, shape, options).batched_plans(rows, &[]);
        let pass = several.map(|plans| plans.pass);
        self.add_made("batched rows with interventions", "", &pass);
    }

    /// Rows that are decoded together, and whole texts that are read together.
    fn batched(&mut self, case: &Case, targets: &[&str]) {
        let caps = &self.caps.clone();
        let Ok(layout) = case.layout(caps, targets) else { return };
        let default = InferenceOptions::default();
        let packed = InferenceOptions { weights: WeightFormat::Int4, ..default };
        let caches = KvCacheFormat::ALL.map(|kv_cache| InferenceOptions { kv_cache, ..default });
        let texts = caches.map(|options| (options, BatchedRows::OfTexts(3)));
        let of_one = [(default, BatchedRows::OfOne(4)), (packed, BatchedRows::OfOne(4))];
        for (options, rows) in texts.into_iter().chain(of_one) {
            let sequences = if let BatchedRows::OfTexts(rows) = rows { rows } else { 1 };
            let shape = CacheShape { sequences, capacity: case.capacity };
            let InferenceOptions { kv_cache, weights, .. } = options;
            let what = format!(
                "InferenceOptions {{ kv_cache: {kv_cache:?}, weights: {weights:?} }}, {rows:?}"
            );
            match Inference::new(caps, &layout, shape, options).batched_plans(rows, &[]) {
                Ok(plans) => {
                    let names = ["batched rows", "whole texts"];
                    for (name, plan) in names.into_iter().zip(plans.all()) {
                        self.add(name, &what, Ok(plan));
                    }
                }
                Err(error) => self.add("batched rows", &what, Err(error)),
            }
        }
    }

    /// The optimizers' own dispatches, AdamW's being among those of [`Self::case`].
    fn optimizers(&mut self, case: &Case, _: &[&str]) {
        let caps = &self.caps.clone();
        let Ok(layout) = case.layout(caps, &[]) else { return };
        let listed =
            [("lion", 1.0), ("sgd", 1.0), ("sgd", 0.0), ("adamw8bit", 0.95), ("muon", 0.95)];
        let is_listed = |rule: &&&Rule| listed.iter().any(|(name, _)| *name == rule.name);
        let others = RULES[1..].iter().filter(|rule| !is_listed(rule)).map(|rule| (rule.name, 1.0));
        for (name, given) in listed.into_iter().chain(others) {
            let numbers = Numbers::from_iter([("momentum", given)]);
            let optimizer = Optimizer::new(Rule::named(name).unwrap(), &numbers);
            let choices = TrainChoices { tokens: case.tokens, optimizer, ..Default::default() };
            let plans = train_plans(caps, &layout, choices);
            let plan = plans.as_ref().map(|plans| &plans.optimizer);
            self.add(name, &format!("momentum {given}"), plan.map_err(Clone::clone));
        }
        let (label_smoothing, z_loss) = (Constant(0.1), Constant(1e-4));
        let objective = Objective { label_smoothing, z_loss, ..Objective::default() };
        let choices = TrainChoices { tokens: case.tokens, objective, ..Default::default() };
        let plans = train_plans(caps, &layout, choices);
        let plan = plans.as_ref().map(|plans| &plans.micro_step);
        self.add("smoothed micro-step", "", plan.map_err(Clone::clone));
    }

    /// AdamW that keeps an average of the weights.
    fn averages(&mut self, case: &Case, _: &[&str]) {
        let Ok(layout) = case.layout(&self.caps, &[]) else { return };
        let average = Some(Constant(0.875));
        let choices = TrainChoices { tokens: case.tokens, average, ..Default::default() };
        let plans = train_plans(&self.caps, &layout, choices).unwrap();
        self.add("optimizer with an average", "", Ok(&plans.optimizer));
        self.add("averages", "", Ok(plans.averages.as_ref().unwrap()));
    }

    fn operations(&mut self, _: &Case, _: &[&str]) {
        for key in operations() {
            let name = match &key {
                OperationKey::Attention(key) => format!("attention {:?}", key.operation),
                OperationKey::Softmax(_) => "softmax".to_owned(),
            };
            self.add_made(&name.to_lowercase(), &format!("{key:?}"), &key.plan(&self.caps));
        }
    }
}

/// One way of listing a case.
type Part = fn(&mut Notes, &Case, &[&str]);

/// A case on all adapters.
fn listed(name: &'static str, case: &Case, targets: &[&str], part: Part) -> Listing {
    let mut listing = Listing::default();
    for caps in gpu_adapters::table(Target::Browser) {
        let mut notes = Notes { listing, caps, case: name };
        part(&mut notes, case, targets);
        listing = notes.listing;
    }
    listing
}

fn listings() -> Vec<Listing> {
    let plain = CASES.iter().map(|case| (case, &[][..]));
    let cases: Vec<(&'static Case, &'static [&'static str])> =
        plain.chain(MODELS.iter().map(|(case, targets)| (case, *targets))).collect();
    thread::scope(|scope| {
        let mut running = vec![];
        let mut start =
            |name, case: &'static Case, targets: &'static [&'static str], part: Part| {
                running.push(scope.spawn(move || listed(name, case, targets, part)));
            };
        for part in [Notes::case as Part, Notes::sampling, Notes::probing, Notes::batched] {
            cases.iter().for_each(|&(case, targets)| start(case.name, case, targets, part));
        }
        for case in [&CASES[1], &CASES[3]] {
            start(case.name, case, &[], Notes::optimizers);
        }
        start(CASES[1].name, &CASES[1], &[], Notes::averages);
        for case in [&CASES[1], &MODELS[0].0] {
            start(case.name, case, &[], Notes::intervened);
        }
        for (case, targets) in &PACKED {
            start(case.name, case, targets, Notes::packed);
        }
        start("tinyloom/ops", &CASES[1], &[], Notes::operations);
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Lines that only one of two sorted files has: what is gone, and what is new.
fn differences(was: &str, is: &str) -> String {
    let lack = |lines: &str, all: &str, sign: char| -> String {
        let known: std::collections::HashSet<&str> = all.lines().collect();
        let gone = lines.lines().filter(|line| !known.contains(line));
        gone.map(|line| format!("  {sign} {line}\n")).collect()
    };
    lack(was, is, '-') + &lack(is, was, '+')
}

#[test]
fn plans_and_kernels_are_as_they_were() {
    let listings = listings();
    if let Some(path) = std::env::var_os("TINYLOOM_PLANS") {
        let all: Vec<_> = listings.iter().map(Listing::json).collect();
        return std::fs::write(path, serde_json::to_vec(&all).unwrap()).unwrap();
    }
    let [plans, kernels] = hashes(&listings);
    let mut files = vec![("plans.txt", plans), ("kernels.txt", kernels)];
    for (plan, at, file) in READABLE {
        let entries =
            listings.iter().flat_map(|it| it.entries.iter().map(move |entry| (it, entry)));
        let mut found = entries.filter(|(_, entry)| entry.plan == plan && entry.at == at);
        let (listing, entry) = found.next().unwrap();
        files.push((file, listing.readable(entry)));
    }
    let mut differ = String::new();
    for (file, text) in files {
        let path = format!("{FOLDER}/{file}");
        if std::env::var_os("TINYLOOM_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        if committed != text {
            let _ = writeln!(differ, "{file}:\n{}", differences(&committed, &text));
        }
    }
    assert!(
        differ.is_empty(),
        "plans or kernels have changed; `npm run plans -- diff` shows how:\n{differ}"
    );
}
