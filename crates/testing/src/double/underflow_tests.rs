//! What f16 loses of the gradients of a small model shaped like seed: of those that products round on their way to
//! matrices, and of the weights inside attention's backward pass.

use super::session_tests::{options, steps};
use super::tests::{Pair, named};
use crate::format::Element;
use crate::kernels::{BatchAttention, Form, KernelSpec, LinearProduct};
use crate::session::{NO_PROGRESS, Trainer, TrainerOptions};
use crate::twins::{ForwardResults, Operands};
use half::f16;
use pollster::block_on;
use std::cell::RefCell;

/// Four layers of seed's shape, an eighth as wide.
const SMALL: &str = r#"{"model_type":"llama","vocab_size":61,"hidden_size":96,"intermediate_size":256,
    "num_hidden_layers":4,"num_attention_heads":12,"num_key_value_heads":4,"head_dim":8,
    "tie_word_embeddings":true,"max_position_embeddings":512}"#;
const LAYERS: usize = 4;
/// Tokens of a micro-step here, and of a step of seed with eight documents.
const TOKENS: usize = 32;
const MANY_TOKENS: f64 = 4096.0;
/// What attention's weights are multiplied by on their way to f16.
const WEIGHT_UNIT: f64 = 64.0;

/// Gradients by what they are of, in the order in which a backward pass meets them.
type Seen = Vec<(&'static str, Vec<f64>)>;

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Keeps the gradients that a dispatch reads and matrices would round.
pub(super) fn watch(spec: KernelSpec, on: &Operands<'_>) {
    SEEN.with_borrow_mut(|seen| {
        let Some(seen) = seen else { return };
        match spec {
            KernelSpec::LinearProduct(LinearProduct { shape, .. })
                if shape.form == Form::Matmul =>
            {
                let name = match (shape.n, shape.k) {
                    (96, 61 | 64) => "logits",
                    (256, 96) => "feed-forward output",
                    (96, 512) => "gate and up",
                    (96, 96) => "attention output",
                    (96, 160) => "queries, keys, values",
                    other => panic!("no product of {other:?} is expected"),
                };
                let values = on.read_as("a", Element::F32).unwrap();
                let used = &values[..TOKENS * shape.a_stride];
                seen.push((name, used.iter().map(|x| f64::from(*x)).collect()));
            }
            KernelSpec::AttentionBackwardQuery(query) => weights(seen, &query.batch, on),
            _ => {}
        }
    });
}

/// Probabilities and score gradients of all pairs.
fn weights(seen: &mut Seen, batch: &BatchAttention, on: &Operands<'_>) {
    let [qkv, d_out, lse, delta] = ["qkv", "d_output", "lse", "delta"]
        .map(|name| on.f32(name).unwrap().iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let documents = on.u32("documents").unwrap();
    let (twin, shape) = (batch.causal(on).unwrap(), batch.shape);
    let pass = ForwardResults {
        shape: twin,
        qkv: &qkv,
        documents,
        lse: &lse,
        delta: &delta,
        d_out: &d_out,
    };
    let [mut p, mut d_s] = [vec![], vec![]];
    for (head, s) in (0..shape.heads).flat_map(|head| (0..TOKENS).map(move |s| (head, s))) {
        for j in twin.keys(documents[s] as usize, s) {
            let (kept, whole, shared) = pass.weight_terms(head, s, j);
            p.push(kept);
            d_s.push((whole - shared) / batch.scores.factor(&shape));
        }
    }
    seen.push(("probabilities", p));
    seen.push(("scores", d_s));
}

/// What f16 does to numbers that are not zero.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Shares that become zero, or less than f16's normal numbers.
    zero: f64,
    subnormal: f64,
    /// The error of all, relative in L2.
    error: f64,
    largest: f64,
}

impl Lost {
    fn of(values: &[f64], unit: f64) -> Self {
        let [mut count, mut zero, mut subnormal, mut distance, mut square] = [0.0; 5];
        let mut largest = 0.0f64;
        for x in values.iter().map(|x| x * unit).filter(|x| *x != 0.0) {
            let rounded = f16::from_f32(x as f32).to_f64();
            count += 1.0;
            zero += f64::from(u8::from(rounded == 0.0));
            subnormal += f64::from(u8::from(x.abs() < 2f64.powi(-14)));
            distance += (rounded - x) * (rounded - x);
            square += x * x;
            largest = largest.max(x.abs());
        }
        let error = (distance / square).sqrt();
        Self { zero: zero / count, subnormal: subnormal / count, error, largest }
    }
}

/// The gradients of one step after `behind` others.
fn gradients(behind: usize) -> Seen {
    let pair = Pair::new(&named("NVIDIA"), SMALL);
    let options = TrainerOptions { gradient_accumulation: 1, learning_rate: 3e-3, ..options() };
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    steps(&trainer, behind);
    SEEN.set(Some(vec![]));
    steps(&trainer, 1);
    SEEN.take().unwrap()
}

/// The layer of each, and its rows of the table.
fn by_layer(seen: &Seen) -> Vec<(String, &[f64])> {
    let mut left: std::collections::HashMap<&str, usize> = Default::default();
    let mut rows = vec![];
    for (name, values) in seen {
        let met = left.entry(*name).or_default();
        let layer =
            if *name == "logits" { "head".into() } else { format!("layer {}", LAYERS - 1 - *met) };
        *met += 1;
        rows.push((format!("{layer}, {name}"), &values[..]));
    }
    rows
}

#[test]
fn what_f16_loses_of_gradients() {
    for behind in [0, 25] {
        let seen = gradients(behind);
        let rows = by_layer(&seen);
        assert_eq!(rows.len(), 1 + LAYERS * 6, "{rows:?}");
        println!(
            "behind {behind} steps: of means over {MANY_TOKENS} tokens | of sums over tokens: zero, subnormal, error, largest"
        );
        for (name, values) in rows {
            // A gradient here is of a mean over this step's tokens.
            let (mean, sum) = if name.ends_with("probabilities") {
                (1.0, WEIGHT_UNIT)
            } else {
                let inner = if name.ends_with("scores") { WEIGHT_UNIT } else { 1.0 };
                (TOKENS as f64 / MANY_TOKENS, TOKENS as f64 * inner)
            };
            let [unscaled, scaled] = [mean, sum].map(|unit| Lost::of(values, unit));
            let show = |lost: Lost| {
                let [zero, subnormal] = [lost.zero, lost.subnormal].map(|share| 100.0 * share);
                let Lost { error, largest, .. } = lost;
                format!("{zero:6.2} % {subnormal:6.2} % {error:.1e} {largest:.1e}")
            };
            println!("{name:36} {} | {}", show(unscaled), show(scaled));
            assert!(scaled.error < 1.0 / 2048.0 && scaled.zero < 0.01, "{name}: {scaled:?}");
            assert!(scaled.largest < 65_504.0 / 32.0, "{name}: {scaled:?}");
            assert!(scaled.zero <= unscaled.zero, "{name}: {scaled:?}, {unscaled:?}");
        }
    }
}
