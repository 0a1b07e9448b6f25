//! What is read back of a whole model on its way to the logits, against the reference network in f64.

use super::measure::{close, text};
use super::model::{LanePair, NORMED, TIED, UNTIED, device, hardware};
use super::model_text::long_windowed;
use super::{Case, Outcome, SessionLane};
use crate::gpu::Gpu;
use crate::kernels::KvCacheFormat;
use crate::session::{InferenceOptions, Inspection, NO_PROGRESS};
use std::rc::Rc;

/// How far a cache of bytes may move a probability.
const INT8_SHARE: f64 = 0.05;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let windowed = long_windowed();
    // Within one chunk and across two; with a window three chunks, over a cache that begins again.
    for (name, config, lengths) in [
        ("tied", TIED.to_owned(), vec![1, 33, 300]),
        ("windowed", windowed, vec![5, 600]),
        ("normed", NORMED.to_owned(), vec![300]),
    ] {
        let case = format!("model {name}: hidden states and attention");
        cases.push(Case::new(case, move |lane| {
            let (config, lengths) = (config.clone(), lengths.clone());
            async move { looks(&lane, &device(&lane), &config, &lengths).await }
        }));
    }
    let case = "model normed: hidden states and attention with kernels for hardware";
    cases.push(Case::full(case, |lane| async move {
        looks(&lane, &hardware(&lane)?, NORMED, &[70]).await
    }));
    let case = "model untied: hidden states and attention";
    cases.push(Case::full(case, |lane| async move {
        looks(&lane, &device(&lane), UNTIED, &[33]).await
    }));
    cases.push(Case::new("model untied: attention over a cache of bytes", packed));
    cases
}

async fn looks(lane: &SessionLane, gpu: &Rc<dyn Gpu>, config: &str, lengths: &[usize]) -> Outcome {
    let pair = LanePair::new(lane, gpu, config).await?;
    let (layers, heads) = (pair.config.num_hidden_layers, pair.config.num_attention_heads);
    let options = InferenceOptions::default();
    let mut compiled = None;
    for &count in lengths {
        let tokens = lane.integers(count, pair.config.vocab_size);
        let expected = pair.reference().look(&tokens);
        for (layer, expected) in expected.states.iter().enumerate() {
            let got = pair
                .model
                .inspect(&tokens, Inspection::HiddenStates { layer }, options, NO_PROGRESS)
                .await;
            let what = format!("hidden state {layer} of {count} tokens");
            close(&what, &got.map_err(text)?, expected, 1e-5)?;
        }
        for layer in 0..layers {
            for head in 0..heads {
                let got = pair
                    .model
                    .inspect(&tokens, Inspection::Attention { layer, head }, options, NO_PROGRESS)
                    .await;
                let what = format!("attention of {count} tokens, layer {layer}, head {head}");
                close(&what, &got.map_err(text)?, &expected.attention[layer][head], 2e-5)?;
            }
        }
        let pipelines = lane.gpu.counters().pipelines;
        if compiled.replace(pipelines).is_some_and(|before| before != pipelines) {
            return Err(format!("a text of {count} tokens compiled a kernel"));
        }
    }
    Ok(format!("{} hidden states, {layers} × {heads} heads", layers + 1))
}

/// Keys are read as the cache keeps them.
async fn packed(lane: Rc<SessionLane>) -> Outcome {
    let pair = LanePair::new(&lane, &device(&lane), UNTIED).await?;
    let tokens = lane.integers(40, pair.config.vocab_size);
    let expected = pair.reference().look(&tokens);
    let mut worst = [0.0f64; 2];
    for (kv_cache, worst) in [KvCacheFormat::F32, KvCacheFormat::Int8].into_iter().zip(&mut worst) {
        let options = InferenceOptions { kv_cache, ..InferenceOptions::default() };
        let got = pair
            .model
            .inspect(&tokens, Inspection::Attention { layer: 1, head: 1 }, options, NO_PROGRESS)
            .await
            .map_err(text)?;
        for (got, expected) in got.iter().zip(&expected.attention[1][1]) {
            *worst = worst.max((f64::from(*got) - expected).abs());
        }
    }
    let [whole, bytes] = worst;
    if whole <= 1e-5 && bytes <= INT8_SHARE && bytes > 10.0 * whole {
        return Ok(format!("probabilities within {whole:.1e}, of bytes within {bytes:.1e}"));
    }
    Err(format!("probabilities {whole:.1e} off, over a cache of bytes {bytes:.1e}"))
}
