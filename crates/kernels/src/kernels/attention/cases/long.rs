//! The product that the everyday cases sample: what attention can do × head dimension × heads that
//! share keys × lengths, the forward pass and both gradients.

use super::backward::ENDS;
use super::batch::{Side, TwinBatch};
use super::bounds::{FORWARD, GRADIENTS};
use super::decode::{Query, decoders, forms, mergers};
use super::forward::{
    SOFTMAX, Setting, forward_of, group_sum_of, key_value_of, prefill_of, query_of,
};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::attention::twin::causal::attention_prefill;
use crate::kernels::{
    self as k, AttentionPass, AttentionTile, Kernel, KeyValueOwner, KvCacheFormat, Spec,
};
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

const HEAD_DIMS: [usize; 6] = [32, 64, 80, 96, 128, 256];
/// Head dimensions below the seeds': invocations outnumber the vectors of a row, and share them or idle.
const SMALLER: [usize; 3] = [8, 16, 24];
/// Query heads and key-value heads of multi-head, grouped-query and multi-query attention.
const SHARED: [(usize, usize); 3] = [(2, 2), (4, 2), (3, 1)];
/// Windows and caps: the first window begins inside batches of a tile, the second is longer than
/// tiles and shorter than long batches; the second cap squashes every score.
const MASKS: [(Option<usize>, Option<f32>); 4] =
    [(None, None), (Some(29), None), (None, Some(30.0)), (Some(100), Some(1.5))];
/// Lengths around the tiles, 64 the largest for small heads.
const SHORT: [usize; 8] = [1, 2, 31, 32, 33, 63, 64, 65];
const LENGTHS: [usize; 10] = [1, 2, 31, 32, 33, 63, 64, 65, 1000, LONGEST];
const LONGEST: usize = 2048;
/// [`ENDS`] beyond the longest batch.
const LONG_ENDS: usize = 2304;

/// Up to this [`TwinBatch::work`] a software adapter runs kernels that it would not pick.
const CHEAP: usize = 1 << 24;
/// Rows from which each job has a submit of its own: buffers stay small, submits short.
const MANY: usize = 128;

pub(crate) fn cases() -> Vec<Case> {
    let everyday = Setting::plain((4, 2, 32));
    let mut cases = vec![Case::new("attention of lengths around a tile", move |lane| {
        lengths(lane, everyday, &SHORT, ENDS)
    })];
    cases.push(Case::new("attention of many workgroups", many));
    for head_dim in SMALLER {
        let setting = Setting::plain((3, 1, head_dim));
        cases.push(Case::full(format!("attention product {}", setting.name()), move |lane| {
            lengths(lane, setting, &SHORT, ENDS)
        }));
    }
    for head_dim in HEAD_DIMS {
        for (heads, kv_heads) in SHARED {
            product(&mut cases, (heads, kv_heads, head_dim));
        }
    }
    cases
}

/// The cases of the full level for some heads.
fn product(cases: &mut Vec<Case>, heads: (usize, usize, usize)) {
    for (window, soft_cap) in MASKS {
        let setting = Setting { window, soft_cap, ..Setting::plain(heads) };
        cases.push(Case::full(format!("attention product {}", setting.name()), move |lane| {
            lengths(lane, setting, &LENGTHS, LONG_ENDS)
        }));
    }
    let name = |what: &str| format!("attention product {what} {}", Setting::plain(heads).name());
    cases.push(Case::full(name("prefill"), move |lane| prefill(lane, heads)));
    for cache in KvCacheFormat::ALL {
        let what = format!("decode, {} cache,", cache.name());
        cases.push(Case::full(name(&what), move |lane| decode(lane, heads, cache)));
    }
}

/// The document of that length alone, and between others where its borders are inside tiles.
fn batches(length: usize) -> Vec<Vec<u32>> {
    let alone = vec![0; length];
    if length == LONGEST {
        return vec![alone];
    }
    let mut between = vec![1; 1 + length];
    between[0] = 0;
    between.resize(length + 20, 1 + length as u32);
    vec![alone, between]
}

async fn lengths(
    lane: Rc<Lane>,
    setting: Setting,
    lengths: &'static [usize],
    ends: usize,
) -> Outcome {
    let kernels = Kernels::new(&lane, setting, ends)?;
    let mut worst = [0.0f64; 2];
    for documents in lengths.iter().flat_map(|&length| batches(length)) {
        let batch = TwinBatch::new(&lane, setting, documents, 1.0);
        let errors = kernels.check(&lane, &batch, [FORWARD, GRADIENTS]).await?;
        worst = [0, 1].map(|i| worst[i].max(errors[i]));
    }
    let [forward, gradients] = worst;
    let summary = lane.summary();
    Ok(format!("{summary}; errors up to {forward:.1e} forward, {gradients:.1e} of gradients"))
}

/// More workgroups than begin with the longest tiles of all owners: an owner's tiles stay together.
async fn many(lane: Rc<Lane>) -> Outcome {
    let setting = Setting { window: Some(5), ..Setting::plain((128, 32, 4)) };
    let (tile, caps) = (AttentionTile::new(8, 4, 2, 8), lane.caps());
    let (shape, of_batch) = (setting.shape(), setting.batch());
    let documents = lane.documents(33 * tile.rows - 1);
    let batch = TwinBatch::new(&lane, setting, documents, 1.0);
    let tiles = batch.shape.tokens.div_ceil(tile.rows);
    for (pass, owners) in [
        (AttentionPass::Forward, shape.heads),
        (AttentionPass::Query, shape.heads),
        (AttentionPass::KeyValue, shape.kv_heads),
    ] {
        if tiles * owners <= pass.interleaved() {
            return Err(format!("{tiles} × {owners} workgroups of {} are few", pass.kernel_name()));
        }
        let kernel = match pass {
            AttentionPass::Forward => forward_of(of_batch, Some(tile)).kernel(caps),
            AttentionPass::Query => query_of(of_batch, Some(tile)).kernel(caps),
            AttentionPass::KeyValue => {
                key_value_of(of_batch, (KeyValueOwner::Group, LONG_ENDS), Some(tile)).kernel(caps)
            }
        }
        .map_err(text)?;
        let job = match pass {
            AttentionPass::Forward => batch.forward(&kernel),
            _ => batch.backward(&kernel, LONG_ENDS, batch.words()),
        };
        let got = lane.run(&[job]).await.map_err(text)?.remove(0);
        match pass {
            AttentionPass::Forward => batch.check_forward(&got, FORWARD),
            AttentionPass::Query => batch.check_gradient(&got, Side::Query, GRADIENTS),
            AttentionPass::KeyValue => batch.check_gradient(&got, Side::KeyValue, GRADIENTS),
        }
        .map_err(of(&kernel))?;
    }
    Ok(lane.summary())
}

/// What a kernel computes of a batch.
#[derive(Clone, Copy)]
enum Computed {
    Forward,
    Gradient(Side),
    /// Gradients of keys and values, for each query head.
    ByHead,
}

/// The kernels of a setting; of each part the first is what selection picks on this device.
pub(crate) struct Kernels {
    pub forward: Vec<Kernel>,
    pub query: Vec<Kernel>,
    pub key_value: Vec<Kernel>,
    by_head: Vec<Kernel>,
    sums: Vec<Kernel>,
    ends: usize,
}

impl Kernels {
    /// Batches whose document ends follow `ends` after the starts.
    pub fn new(lane: &Lane, setting: Setting, ends: usize) -> std::result::Result<Self, String> {
        let (shape, batch) = (setting.shape(), setting.batch());
        let key_value = |owner| {
            choices(lane, setting, AttentionPass::KeyValue, move |caps, tile| {
                key_value_of(batch, (owner, ends), tile).kernel(caps)
            })
        };
        let (by_head, sums) = if shape.heads > shape.kv_heads {
            let sum = group_sum_of(shape).kernel(lane.caps()).map_err(text)?;
            (key_value(KeyValueOwner::Head)?, vec![sum])
        } else {
            (vec![], vec![])
        };
        let query = choices(lane, setting, AttentionPass::Query, |caps, tile| {
            query_of(batch, tile).kernel(caps)
        })?;
        let forward = choices(lane, setting, AttentionPass::Forward, |caps, tile| {
            forward_of(batch, tile).kernel(caps)
        })?;
        let key_value = key_value(KeyValueOwner::Group)?;
        Ok(Self { forward, query, key_value, by_head, sums, ends })
    }

    fn jobs(&self, lane: &Lane, batch: &TwinBatch) -> Vec<(Computed, Job)> {
        let parts = 2 * batch.shape.tokens * batch.shape.out_width();
        let gradient = |kernel, words| batch.backward(kernel, self.ends, words);
        let forward = affordable(lane, batch, &self.forward);
        let query = affordable(lane, batch, &self.query);
        let key_value = affordable(lane, batch, &self.key_value);
        let by_head = affordable(lane, batch, &self.by_head);
        let mut jobs = vec![];
        jobs.extend(forward.iter().map(|kernel| (Computed::Forward, batch.forward(kernel))));
        for (side, kernels) in [(Side::Query, query), (Side::KeyValue, key_value)] {
            let job = |kernel| (Computed::Gradient(side), gradient(kernel, batch.words()));
            jobs.extend(kernels.iter().map(job));
        }
        jobs.extend(by_head.iter().map(|kernel| (Computed::ByHead, gradient(kernel, parts))));
        jobs
    }

    /// Runs every kernel on the batch; returns the largest errors of outputs and of gradients.
    pub async fn check(
        &self,
        lane: &Lane,
        batch: &TwinBatch,
        [forward, gradients]: [f64; 2],
    ) -> std::result::Result<[f64; 2], String> {
        let (parts, jobs): (Vec<_>, Vec<_>) = self.jobs(lane, batch).into_iter().unzip();
        let mut worst = [0.0f64; 2];
        let mut sums = vec![];
        for ((part, job), got) in parts.iter().zip(&jobs).zip(run(lane, batch, &jobs).await?) {
            let named = of(&job.kernel);
            match *part {
                Computed::Forward => {
                    let error = batch.check_forward(&got, forward).map_err(named)?;
                    worst[0] = worst[0].max(error);
                }
                Computed::Gradient(side) => {
                    let error = batch.check_gradient(&got, side, gradients).map_err(named)?;
                    worst[1] = worst[1].max(error);
                }
                Computed::ByHead => sums.extend(self.sums.iter().map(|sum| batch.sum(sum, &got))),
            }
        }
        for got in run(lane, batch, &sums).await? {
            let error = batch.check_gradient(&got, Side::KeyValue, gradients);
            worst[1] = worst[1].max(error.map_err(|message| format!("by head: {message}"))?);
        }
        Ok(worst)
    }
}

/// What selection picks on this device, what it picks over the table of adapters, and on a GPU every
/// tile that it may pick.
fn choices(
    lane: &Lane,
    setting: Setting,
    pass: AttentionPass,
    make: impl Fn(&Capabilities, Option<AttentionTile>) -> Result<Kernel>,
) -> std::result::Result<Vec<Kernel>, String> {
    let every = |caps: &Capabilities| {
        let mut kernels = vec![make(caps, None)?];
        if caps == lane.caps() && !caps.software {
            for tile in k::attention_tiles(caps, setting.shape(), pass) {
                kernels.push(make(caps, Some(tile))?);
            }
        }
        Ok(kernels)
    };
    lane.kernels(every).map_err(text)
}

fn prefills(lane: &Lane, setting: Setting) -> std::result::Result<Vec<Kernel>, String> {
    choices(lane, setting, AttentionPass::Forward, |caps, tile| {
        k::AttentionForwardCached { tile, ..prefill_of(setting.cached(None)) }.kernel(caps)
    })
}

/// The kernels that a device runs on a batch: a software adapter only its own where work is much.
fn affordable<'a>(lane: &Lane, batch: &TwinBatch, kernels: &'a [Kernel]) -> &'a [Kernel] {
    let own = lane.caps().software && batch.work() > CHEAP;
    if own { &kernels[..kernels.len().min(1)] } else { kernels }
}

/// Runs jobs on a batch, those of a long one each in a submit of its own.
pub(crate) async fn run(
    lane: &Lane,
    batch: &TwinBatch,
    jobs: &[Job],
) -> std::result::Result<Vec<Outputs>, String> {
    let turn = if batch.shape.tokens > MANY { 1 } else { jobs.len().max(1) };
    let mut outputs = vec![];
    for some in jobs.chunks(turn) {
        outputs.extend(lane.run(some).await.map_err(text)?);
    }
    Ok(outputs)
}

/// New rows after a cache whose length is no multiple of a tile.
async fn prefill(lane: Rc<Lane>, heads: (usize, usize, usize)) -> Outcome {
    const POSITION: usize = 37;
    let setting = Setting::plain(heads);
    let made = prefills(&lane, setting)?;
    for tokens in LENGTHS {
        let shape = setting.twin(tokens);
        let qkv = lane.normal(tokens * shape.qkv_width());
        let mut cache = lane.normal((POSITION + tokens) * shape.cache_width());
        let expected = attention_prefill(shape, &wide(&qkv), &wide(&cache), POSITION);
        cache.resize(cache.len() + 40 * shape.cache_width(), f32::NAN);
        let operands = [
            Operand::floats(&qkv),
            Operand::floats(&cache),
            Operand::words(&vec![0; tokens]),
            Operand::poison(expected.len()),
            Operand::poison(tokens * shape.n_heads),
            Operand::uniform(&Step { position: POSITION as u32, ..Step::of(tokens) }),
        ];
        let own = lane.caps().software && tokens > MANY;
        for kernel in made.iter().take(if own { 1 } else { made.len() }) {
            let job = Job::new(kernel, tokens, operands.to_vec());
            let got = lane.run(&[job]).await.map_err(text)?;
            let what = format!("{tokens} rows behind {POSITION}");
            close(&what, &got[0].floats(0), &expected, FORWARD).map_err(of(kernel))?;
        }
    }
    Ok(lane.summary())
}

/// One query over caches of every length, in one range and in several.
async fn decode(lane: Rc<Lane>, heads: (usize, usize, usize), cache: KvCacheFormat) -> Outcome {
    const COUNT: usize = 5;
    let whole = forms(decoders(&lane, heads, cache, 1)?);
    let split = forms(decoders(&lane, heads, cache, COUNT)?);
    let merges = forms(mergers(&lane, heads, COUNT)?);
    for keys in LENGTHS {
        let query = Query::new(&lane, heads, cache, keys, 1.0);
        query.whole(&lane, &whole, cache, SOFTMAX).await?;
        query.split(&lane, [&split, &merges], COUNT, cache, SOFTMAX).await?;
    }
    Ok(lane.summary())
}
