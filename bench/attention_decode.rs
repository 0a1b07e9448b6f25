//! Decode attention by itself on native wgpu: microseconds and bytes a second for each form of the
//! cache at several lengths.
//!
//!     cargo run --release --example attention_decode [-- SPLITS]
//!
//! SPLITS takes the place of the number of ranges that selection gives. Dispatches rotate over as
//! many caches as make 512 MB, so that none is found in the GPU's own caches.

use tinyloom::caps::Capabilities;
use tinyloom::error::Result;
use tinyloom::gpu::{
    BufferId, DeviceRequest, Gpu, LimitsRequest, Region, Replay, RequestedFeatures, WgpuDevice,
};
use tinyloom::kernels::{
    AttentionShape, DecodeSplits, Kernel, KvCache, attention_decode, attention_decode_merge,
    decode_splits,
};
use tinyloom::plan::{Buffer, Cost, Dispatch, Phase, Plan, Range, STEP_BYTES, Slice, cache_bytes};

/// Rounds of one submit, and submits of which the median counts.
const ROUNDS: usize = 40;
const SUBMITS: usize = 7;
const LONGEST: usize = 32_768;

const OUTPUT: Buffer = Buffer::Slot(0);
const PARTIALS: Buffer = Buffer::Slot(1);
const QUERY: Buffer = Buffer::Slot(2);

fn main() -> Result<()> {
    let splits = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let request = DeviceRequest {
        limits: LimitsRequest::Adapter,
        features: RequestedFeatures { subgroups: true, ..RequestedFeatures::default() },
        ..DeviceRequest::default()
    };
    let device = pollster::block_on(WgpuDevice::open(&request))?;
    println!("{:?}", device.capabilities().adapter);
    for (heads, kv_heads, head_dim) in [(12, 12, 64), (12, 4, 64), (32, 8, 128)] {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        for cache in KvCache::ALL {
            if let Err(error) = measure(&*device, shape, cache, splits) {
                println!("{heads}/{kv_heads} heads of {head_dim}, {}: {error}", cache.name());
            }
        }
    }
    Ok(())
}

fn measure(
    gpu: &dyn Gpu,
    shape: AttentionShape,
    cache: KvCache,
    count: Option<usize>,
) -> Result<()> {
    let caps = gpu.capabilities();
    let mut splits = decode_splits(caps, shape, LONGEST, None)?;
    if let Some(count) = count {
        splits = DecodeSplits { count, window: None, reason: format!("{count} ranges asked for") };
    }
    let bytes = cache_bytes(cache, &shape, LONGEST);
    let caches = (512 << 20) / bytes as usize + 1;
    gpu.watch();
    let mut names = vec![
        (OUTPUT, shape.width() as u64 * 4),
        (PARTIALS, splits.partials(&shape).max(4) as u64 * 4),
        (QUERY, shape.stride() as u64 * 4),
        (Buffer::Step, STEP_BYTES),
    ];
    names.extend((0..caches).map(|i| (Buffer::Cache(i), bytes)));
    let buffers = names
        .iter()
        .map(|(name, bytes)| Ok((*name, gpu.create_buffer(&format!("{name:?}"), *bytes)?)))
        .collect::<Result<Vec<(Buffer, BufferId)>>>()?;
    let find = |name: Buffer| Ok(buffers.iter().find(|(n, _)| *n == name).expect("made above").1);
    let plans = [1, ROUNDS + 1]
        .map(|rounds| plan(caps, shape, cache, &splits, &names, rounds))
        .map(|plan| gpu.install(&plan?, &find));
    let [short, long] = plans;
    let (short, long) = (short?, long?);
    pollster::block_on(gpu.checked())?;
    println!(
        "{}/{} heads of {}, {} cache, {}",
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        cache.name(),
        splits.reason
    );
    for keys in [64usize, 512, 4096, LONGEST] {
        let mut step = [0u32; STEP_BYTES as usize / 4];
        step[..2].copy_from_slice(&[1, keys as u32 - 1]);
        gpu.write(find(Buffer::Step)?, 0, bytemuck::cast_slice(&step))?;
        let time = |plan| -> Result<f64> {
            let mut times = vec![];
            for _ in 0..SUBMITS {
                let region = Region { buffer: find(OUTPUT)?, offset: 0, bytes: 16 };
                let before = gpu.now();
                pollster::block_on(gpu.submit(&[Replay { plan, rows: 1 }], 1, Some(region))?)?;
                times.push(gpu.now() - before);
            }
            times.sort_by(f64::total_cmp);
            Ok(times[SUBMITS / 2])
        };
        time(long)?;
        let microseconds = (time(long)? - time(short)?) * 1e3 / ROUNDS as f64;
        let read = cache_bytes(cache, &shape, keys) as f64;
        println!("  {keys:6} keys: {microseconds:8.1} us, {:7.1} GB/s", read / microseconds / 1e3);
    }
    gpu.uninstall(short);
    gpu.uninstall(long);
    buffers.iter().for_each(|(_, buffer)| gpu.destroy_buffer(*buffer));
    Ok(())
}

/// `rounds` times decode attention and its merge, each over the next cache.
fn plan(
    caps: &Capabilities,
    shape: AttentionShape,
    cache: KvCache,
    splits: &DecodeSplits,
    names: &[(Buffer, u64)],
    rounds: usize,
) -> Result<Plan> {
    let slice = |name: Buffer| {
        let (_, bytes) = names.iter().find(|(n, _)| *n == name).expect("made above");
        Slice::new(name, 0, *bytes)
    };
    let caches = names.iter().filter(|(name, _)| matches!(name, Buffer::Cache(_))).count();
    let mut kernels: Vec<Kernel> = vec![attention_decode(caps, shape, cache, splits)?];
    if splits.count > 1 {
        kernels.push(attention_decode_merge(caps, shape, splits)?);
    }
    let result = if splits.count > 1 { PARTIALS } else { OUTPUT };
    let dispatch = |kernel: usize, slices: &[Buffer]| Dispatch {
        kernel,
        slices: slices.iter().map(|&name| slice(name)).collect(),
        range: Range { rows: 1, ..Range::default() },
        phase: Phase::Decode,
        label: String::new(),
        cost: Cost::default(),
    };
    let mut dispatches = vec![];
    for round in 0..rounds {
        let cache = Buffer::Cache(round % caches);
        dispatches.push(dispatch(0, &[QUERY, cache, result, Buffer::Step]));
        if splits.count > 1 {
            dispatches.push(dispatch(1, &[PARTIALS, OUTPUT, Buffer::Step]));
        }
    }
    let (ranges, slots) = (vec![], vec![]);
    Ok(Plan { kernels, dispatches, ranges, slots, unshared_bytes: 0, tokens: 1 })
}
