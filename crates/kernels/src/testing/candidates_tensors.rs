//! Attention over tensors for the benchmark: what each storage and kind of mask costs.

use super::candidates::{AttentionWork, Candidate};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::attention::cases::tensor_problem::Compiled;
use crate::kernels::{DenseMask, Element, RowPlace};
use crate::ops::{
    AttentionKey, AttentionMask, AttentionOperation, DensePart, Role, SoftmaxKey, View,
};
use crate::plan::Buffer;
use serde::Serialize;

/// A call as a benchmark runs it: its kernels in order, over buffers that they name.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TensorCandidate {
    pub pass: &'static str,
    pub element: &'static str,
    pub mask: &'static str,
    pub stages: Vec<Stage>,
    pub mask_words: Vec<u32>,
    pub geometry_words: Vec<u32>,
}

/// A kernel, and the name and bytes of what it binds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    pub candidate: Candidate,
    pub operands: Vec<(String, u64)>,
}

/// The forward and backward pass over one item of `work.tokens` queries and keys, and a softmax.
///
/// # Errors
/// `limit-exceeded` when the device has no kernel for the shape.
pub fn tensors(caps: &Capabilities, work: AttentionWork) -> Result<Vec<TensorCandidate>> {
    let causal = AttentionMask { causal: true, ..AttentionMask::default() };
    let dense = |kind, row: usize| AttentionMask {
        dense: Some(DensePart {
            kind,
            strides: [0, 0, row],
            keys_from: 0,
            words: row * work.tokens,
        }),
        ..causal.clone()
    };
    let bits = work.tokens.div_ceil(32);
    let starts = (0..work.tokens as u32).map(|token| token / 512 * 512).collect();
    let masks = [
        ("causal", causal.clone(), 0),
        ("causal, capped at 30", causal.clone(), 0),
        ("whole", AttentionMask::default(), 0),
        ("window of 512", AttentionMask { window: Some(512), ..causal.clone() }, 0),
        ("documents of 512", AttentionMask { documents: Some(vec![starts]), ..causal.clone() }, 0),
        ("bits", dense(DenseMask::Bits, bits), bits * work.tokens),
        ("additive", dense(DenseMask::Additive, work.tokens), work.tokens * work.tokens),
    ];
    let mut candidates = vec![];
    for element in [Element::F32, Element::F16] {
        for (mask, rule, words) in &masks {
            if element == Element::F16 && *mask != "causal" {
                continue;
            }
            // All bits set, and biases of zero.
            let fill = if *mask == "bits" { u32::MAX } else { 0 };
            let words = vec![fill; *words];
            for operation in [AttentionOperation::Forward, AttentionOperation::Backward] {
                let soft_cap = mask.contains("capped").then_some(30.0);
                let key = AttentionKey {
                    soft_cap,
                    dense: rule.dense_kind(),
                    ..key(work, element, operation)
                };
                let AttentionWork { heads, head_dim, tokens, .. } = work;
                let view = |_| View::in_order([1, heads, tokens, head_dim]);
                let compiled = Compiled::new(caps, key, view, (rule, &words))?;
                // No binding holds every mask.
                if compiled.mask.len() as u64 * 4 <= caps.limits.binding_bytes() {
                    candidates.push(candidate(caps, work, key, mask, compiled)?);
                }
            }
        }
    }
    candidates.push(softmax(caps, work)?);
    Ok(candidates)
}

/// The softmax of tokens × tokens numbers by itself.
fn softmax(caps: &Capabilities, work: AttentionWork) -> Result<TensorCandidate> {
    let tokens = work.tokens;
    let element = Element::F32;
    let bytes = 4 * (tokens * tokens) as u64;
    let place = RowPlace { rows: tokens as u32, ..RowPlace::default() };
    let plan = SoftmaxKey { rows: tokens, columns: tokens, element }.plan(caps)?;
    let kernel = plan.kernels[0].clone();
    let operands = vec![
        ("input".to_string(), bytes),
        ("output".to_string(), bytes),
        ("geometry".to_string(), size_of_val(&place) as u64),
    ];
    let candidate = Candidate::new(caps, kernel, work.tokens, true)?;
    Ok(TensorCandidate {
        pass: "softmax",
        element: element.name(),
        mask: "alone",
        stages: vec![Stage { candidate, operands }],
        mask_words: vec![],
        geometry_words: bytemuck::pod_collect_to_vec(std::slice::from_ref(&place)),
    })
}

const NAMES: [&str; 9] =
    ["query", "key", "value", "output", "logsumexp", "dOutput", "dQuery", "dKey", "dValue"];

/// Bytes of the queries, and at least of keys and values.
fn tensor_bytes(work: AttentionWork, element: Element) -> u64 {
    (work.heads * work.tokens * work.head_dim * element.bytes()) as u64
}

fn key(work: AttentionWork, element: Element, operation: AttentionOperation) -> AttentionKey {
    let AttentionWork { heads, kv_heads, head_dim, tokens, .. } = work;
    AttentionKey {
        operation,
        batch: 1,
        heads,
        kv_heads,
        query_rows: tokens,
        key_rows: tokens,
        head_dim,
        element,
        soft_cap: None,
        scale: None,
        dense: DenseMask::None,
    }
}

fn candidate(
    caps: &Capabilities,
    work: AttentionWork,
    key: AttentionKey,
    mask: &'static str,
    plan: Compiled,
) -> Result<TensorCandidate> {
    let pass = if key.operation == AttentionOperation::Forward { "forward" } else { "backward" };
    let elements = tensor_bytes(work, key.element);
    let mask_bytes = plan.mask.len() as u64 * 4;
    let named = |buffer: Buffer, bytes: u64| match buffer {
        _ if buffer == Role::Logsumexp.buffer() => Ok(("logsumexp".into(), bytes)),
        _ if buffer == Role::Mask.buffer() => Ok(("mask".into(), mask_bytes)),
        _ if buffer == Role::Geometry.buffer() => Ok(("geometry".into(), bytes)),
        Buffer::Given(role) => Ok((NAMES[role as usize].to_string(), elements)),
        Buffer::Slot(_) => Ok(("statistics".into(), bytes)),
        other => Err(Error::internal(format!("a call binds {other:?}"))),
    };
    let mut stages = vec![];
    for dispatch in &plan.plan.dispatches {
        let kernel = plan.plan.kernels[dispatch.kernel].clone();
        let operands = dispatch
            .slices
            .iter()
            .map(|slice| named(slice.buffer, slice.bytes))
            .collect::<Result<_>>()?;
        stages
            .push(Stage { candidate: Candidate::new(caps, kernel, work.tokens, true)?, operands });
    }
    Ok(TensorCandidate {
        pass,
        element: key.element.name(),
        mask,
        stages,
        mask_words: plan.mask,
        geometry_words: bytemuck::pod_collect_to_vec(std::slice::from_ref(&plan.geometry)),
    })
}
