//! Every kernel text that selection returns over the table, as far as the device can have it, before WebGPU's
//! compiler of WGSL. That takes a twentieth of a second per text where a driver's compiler takes a second.

use super::gpu_adapters::{emulated, restrict, table};
use super::lane::Lane;
use super::measure::text;
use super::{Case, Outcome, catalogue, harness};
use crate::caps::{Capabilities, MATRIX_DIRECTIVES, Target};
use std::collections::HashSet;
use std::rc::Rc;

/// Texts that are checked at once.
const AT_ONCE: usize = 64;
/// The table gives some 900 of them, and about half on a device without features.
const LEAST: usize = 300;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("texts: every kernel over the table compiles", every_text)]
}

/// Every text with matrices of subgroups that selection returns over the table, with its kernel's name. No software
/// adapter has the feature, and naga does not know it.
pub fn matrix_texts() -> Vec<(&'static str, String)> {
    let has = |caps: &Capabilities| caps.features.subgroup_matrix && caps.half_matrix().is_some();
    let adapters = table(Target::Browser).into_iter().filter(has);
    distinct(adapters, |text| text.contains(MATRIX_DIRECTIVES))
}

/// The texts that selection returns for adapters, each once, with its kernel's name, in the adapters' order.
fn distinct(
    adapters: impl Iterator<Item = Capabilities>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let (mut known, mut texts) = (HashSet::new(), Vec::new());
    for caps in adapters {
        // A limit may forbid some: `tests/selection.rs` says when.
        for kernel in catalogue::kernels(&caps).into_iter().filter_map(|(_, kernel)| kernel.ok()) {
            let text = kernel.wgsl.text();
            if wanted(&text) && known.insert(text.clone()) {
                texts.push((kernel.name, text));
            }
        }
    }
    texts
}

async fn every_text(lane: Rc<Lane>) -> Outcome {
    let device = lane.caps();
    let whole = table(device.target).into_iter().chain(emulated(device.target));
    let lowered = whole.map(|adapter| restrict(&adapter, device));
    let texts = distinct(lowered.chain([device.clone()]), |_| true);
    if texts.len() < LEAST {
        return Err(format!("only {} texts were there to check", texts.len()));
    }
    for some in texts.chunks(AT_ONCE) {
        harness::check(&lane, some.iter().cloned()).await.map_err(text)?;
    }
    Ok(format!("{} texts", texts.len()))
}
