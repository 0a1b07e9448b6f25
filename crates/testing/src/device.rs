//! The device by itself: numbers, memory and pipelines, whose errors belong to whom.

use super::harness;
use super::measure::text;
use super::{Case, Outcome, SessionLane};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, PlanId, Region, create_checked};
use crate::kernels::{self as k, Constant, Form, LinearShape, Spec, linear_candidates};
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, STEP_BYTES, product_plan};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("device: a number is given once", numbers),
        Case::new("device: a failed installation keeps nothing", failed_installation),
        Case::new("device: a refused read keeps no staging buffer", refused_read),
        Case::new("device: unused pipelines are kept up to a number", unused_pipelines),
        Case::new("device: a wrong text is found where it is only checked", wrong_text),
    ]
}

/// Cases of native devices alone. They come last of all: lanes share the cases by their places in the list.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn native_cases() -> Vec<Case> {
    vec![Case::new("device: an error of others is no call's own", errors_of_others)]
}

fn expect(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

/// A product of its own: no other plan has its kernel.
fn plan(lane: &SessionLane, columns: usize) -> Result<Plan> {
    let shape = LinearShape::new(Form::Matmul, columns, 20, 12);
    let pick = linear_candidates(lane.caps(), &shape).remove(0);
    product_plan(lane.caps(), &shape, pick, &[])
}

/// A plan with a text of its own: products of several shapes share theirs on a CPU.
fn capped(caps: &Capabilities, columns: usize) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Forward, 1, Buffer::Step);
    let logits = builder.tensor("logits", columns as u64)?;
    let launch = Launch::new("capped", k::SoftCap { columns, cap: Constant(30.0) }.kernel(caps)?);
    builder.dispatch(launch.bind("logits", logits))?;
    Ok(builder.finish(&[]))
}

/// Buffers for a plan.
async fn buffers(lane: &SessionLane, plan: &Plan) -> Result<Vec<(Buffer, BufferId)>> {
    let slots = plan.slots.iter().enumerate().map(|(i, bytes)| (Buffer::Slot(i), *bytes));
    let wanted: Vec<_> = slots.chain([(Buffer::Step, STEP_BYTES)]).collect();
    create_checked(&*lane.gpu, || {
        let make = |(name, bytes)| Ok((name, lane.gpu.create_buffer("operand", bytes)?));
        wanted.into_iter().map(make).collect()
    })
    .await
}

async fn install(
    lane: &SessionLane,
    plan: &Plan,
    buffers: &[(Buffer, BufferId)],
) -> Result<PlanId> {
    let resolve = |name| {
        let found = buffers.iter().find(|(known, _)| *known == name).map(|(_, id)| *id);
        found.ok_or_else(|| Error::internal(format!("no buffer {name:?}")))
    };
    create_checked(&*lane.gpu, || lane.gpu.install(plan, &resolve)).await
}

async fn numbers(lane: Rc<SessionLane>) -> Outcome {
    let gpu = &lane.gpu;
    let mut seen = vec![];
    let plan = plan(&lane, 24).map_err(text)?;
    for _ in 0..3 {
        let buffers = buffers(&lane, &plan).await.map_err(text)?;
        let installed = install(&lane, &plan, &buffers).await.map_err(text)?;
        gpu.uninstall(installed);
        seen.push(installed.0);
        for (_, id) in buffers {
            gpu.destroy_buffer(id);
            seen.push(id.0);
        }
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    expect(seen.len() == count, || format!("{} numbers for {count} objects", seen.len()))?;
    let gone = Region { buffer: BufferId(seen[0]), offset: 0, bytes: 4 };
    expect(gpu.read(gone).is_err(), || "a destroyed buffer was read".into())?;
    Ok(format!("{count} objects"))
}

async fn failed_installation(lane: Rc<SessionLane>) -> Outcome {
    let plan = plan(&lane, 28).map_err(text)?;
    let mut buffers = buffers(&lane, &plan).await.map_err(text)?;
    let before = lane.gpu.counters().gpu_bytes;
    let missing = buffers.pop();
    let failed = install(&lane, &plan, &buffers).await;
    expect(failed.is_err(), || "a plan was installed without a buffer".into())?;
    let after = lane.gpu.counters().gpu_bytes;
    for (_, id) in buffers.into_iter().chain(missing) {
        lane.gpu.destroy_buffer(id);
    }
    expect(after == before, || format!("{} bytes are left of it", after - before))?;
    Ok("no byte left".into())
}

async fn refused_read(lane: Rc<SessionLane>) -> Outcome {
    let gpu = &lane.gpu;
    let id = create_checked(&**gpu, || gpu.create_buffer("own", 16)).await.map_err(text)?;
    let region = Region { buffer: id, offset: 0, bytes: 16 };
    let gone = Region { buffer: BufferId(u32::MAX), ..region };
    let mut counts = vec![];
    for _ in 0..2 {
        gpu.read(region).map_err(text)?.await.map_err(text)?;
        expect(gpu.read(gone).is_err(), || "a buffer that never was is read".into())?;
        counts.push(gpu.counters().buffers);
    }
    gpu.destroy_buffer(id);
    expect(counts[0] == counts[1], || format!("buffers made after each read: {counts:?}"))?;
    Ok("the second read made none".into())
}

async fn unused_pipelines(lane: Rc<SessionLane>) -> Outcome {
    let plans = [32, 36, 40, 44].map(|columns| capped(lane.caps(), columns));
    let plans = plans.into_iter().collect::<Result<Vec<_>>>().map_err(text)?;
    let compiled = || lane.gpu.counters().pipelines;
    let mut counts = vec![];
    lane.gpu.keep_unused(2);
    // All at once, one after the other, and the last two, which were used last.
    for round in [&plans[..], &plans[..], &plans[2..]] {
        let (before, mut installed) = (compiled(), vec![]);
        for plan in round {
            let buffers = buffers(&lane, plan).await.map_err(text)?;
            installed.push((install(&lane, plan, &buffers).await.map_err(text)?, buffers));
        }
        counts.push(compiled() - before);
        for (plan, buffers) in installed {
            lane.gpu.uninstall(plan);
            buffers.into_iter().for_each(|(_, id)| lane.gpu.destroy_buffer(id));
        }
    }
    lane.gpu.keep_unused(512);
    expect(counts[0] >= 4 && counts[1] >= 2 && counts[1] < counts[0] && counts[2] == 0, || {
        format!("compiled {counts:?} in three rounds")
    })?;
    Ok(format!("compiled {counts:?}"))
}

/// Someone else's mistake on the device fails none of the crate's calls.
#[cfg(not(target_arch = "wasm32"))]
async fn errors_of_others(lane: Rc<SessionLane>) -> Outcome {
    let _ = lane.gpu.raw().create_buffer(&wgpu::BufferDescriptor {
        label: Some("larger than any"),
        size: 1 << 60,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let id =
        create_checked(&*lane.gpu, || lane.gpu.create_buffer("own", 16)).await.map_err(text)?;
    let region = Region { buffer: id, offset: 0, bytes: 16 };
    let bytes = lane.gpu.read(region).map_err(text)?.await.map_err(text)?;
    lane.gpu.destroy_buffer(id);
    expect(bytes == [0; 16], || format!("{bytes:?}"))?;
    Ok("its own error alone".into())
}

/// What browsers log of a text with this label is no failure: the lanes' harness knows it.
const WRONG_ON_PURPOSE: &str = "wrong on purpose";

/// Lanes that check texts without making pipelines rely on it.
async fn wrong_text(lane: Rc<SessionLane>) -> Outcome {
    let kernel = plan(&lane, 24).map_err(text)?.kernels.remove(0);
    let good = kernel.wgsl.text();
    let wrong = format!("{good}\nfn wrong() -> u32 {{ return 1.5; }}\n");
    harness::check(&lane, [(kernel.name, good)]).await.map_err(text)?;
    match harness::check(&lane, [(WRONG_ON_PURPOSE, wrong)]).await {
        Err(error) => Ok(error.message),
        Ok(()) => Err("a text with an error was accepted".into()),
    }
}
