//! Every plan of some configurations over the table of adapters, held to committed listings.
//!
//! A listing changes only in a commit that does nothing else and says why. This writes them:
//! `TINYLOOM_GOLDEN=write cargo test --features testing --test golden`.
#![cfg(feature = "testing")]

use std::collections::HashMap;
use std::fmt::Write;

use tinyloom::caps::{Capabilities, Target};
use tinyloom::error::Result;
use tinyloom::kernels::{Constant, DenseMask, Element, Kernel, KvCache, Objective, WeightFormat};
use tinyloom::lower::{
    InferenceOptions, InferencePlans, Probe, SampleChoices, TrainChoices, inference_plans,
    initialize_plan, probe_plan, sample_plan, train_plans,
};
use tinyloom::ops::{AttentionKey, AttentionOperation, OperationKey, SoftmaxKey};
use tinyloom::optim::OptimizerKind;
use tinyloom::plan::{Buffer, Plan};
use tinyloom::testing::adapters;

#[path = "golden/cases.rs"]
mod cases;

use cases::{ALTERNATING, CASES, Case, FAMILIES, LATER, PACKED, PLAIN};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

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

/// A table of angles by the name that it had when there were at most two.
fn name(buffer: Buffer) -> String {
    match buffer {
        Buffer::RopeTable(0) => "RopeTable".into(),
        Buffer::RopeTable(1) => "WindowRopeTable".into(),
        other => format!("{other:?}"),
    }
}

impl Listing {
    fn kernel(&mut self, kernel: &Kernel) -> usize {
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
            let mut again = kernel.spec.kernel(caps).unwrap();
            if let Some(of) = kernel.variant.strip_suffix(", shared bindings") {
                // Its operands lie elsewhere, as the plan has them.
                assert_eq!(again.variant, of);
                let (variant, bindings) = (kernel.variant.clone(), kernel.bindings.clone());
                again = Kernel { variant, bindings, wgsl: kernel.wgsl.clone(), ..again };
            }
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
                let _ = write!(line, " | {} {}+{}", name(slice.buffer), slice.offset, slice.bytes);
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
                    let names = [
                        "prefill",
                        "logits",
                        "loss",
                        "last row",
                        "decode",
                        "sample",
                        "pack",
                        "decode a short text",
                    ];
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
    for caps in adapters::table(Target::Browser) {
        let _ = writeln!(listing.cases, "averages on {}", caps.adapter.description);
        let Ok(layout) = CASES[1].layout(&caps, &[]) else { continue };
        let (tokens, average) = (CASES[1].tokens, Some(Constant(0.875)));
        let choices = TrainChoices { tokens, average, ..Default::default() };
        let plans = train_plans(&caps, &layout, choices);
        let both = plans.as_ref().map(|plans| [Some(&plans.optimizer), plans.averages.as_ref()]);
        for plan in both.map_err(Clone::clone).unwrap().into_iter().flatten() {
            listing.note(&caps, "adamw with an average", Ok(plan));
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
