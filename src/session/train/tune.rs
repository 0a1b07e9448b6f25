//! Measures which tile and split a model's products are fastest by.

use crate::error::{ErrorCode, Result};
use crate::gpu::{Gpu, PlanId, Region, Replay, create_checked};
use crate::kernels::{LinearShape, TunedProduct, linear_candidates};
use crate::plan::{Buffer, STEP_BYTES, product_plan};
use crate::session::resources::Resources;
use crate::session::step::Step;
use std::cmp::Reverse;
use std::rc::Rc;

/// Milliseconds after which no other product is begun.
const BUDGET: f64 = 1800.0;
/// Milliseconds that one measurement should take: much longer than its end takes to be noticed.
const LENGTH: f64 = 8.0;
const MOST_REPEATS: usize = 1024;
/// Milliseconds of one run beyond which a product is left to the estimate: submits must stay short.
const LONG: f64 = 50.0;
/// Milliseconds of work that raise the clock of a GPU that has idled.
const WAKING: f64 = 300.0;
const ROUNDS: usize = 3;
/// What a candidate must gain on the estimate's pick to replace it: run to run, times differ so much.
const MARGIN: f64 = 0.97;

/// Measures the products that have not been measured on this device, those with most work first, and
/// gives all that is known. Where tuning is off, nothing.
///
/// # Errors
/// `device-lost`.
pub(super) async fn tune(gpu: &Rc<dyn Gpu>, shapes: &[LinearShape]) -> Result<Vec<TunedProduct>> {
    let Some(mut known) = gpu.tuned() else { return Ok(vec![]) };
    let began = gpu.now();
    for shape in by_work(shapes) {
        if known.iter().any(|tuned| tuned.shape == shape) {
            continue;
        }
        if gpu.now() > began + BUDGET {
            break;
        }
        match measure(gpu, &shape, began + WAKING).await {
            Ok(tuned) => known.extend(tuned),
            // Operands beside a large model: the estimate decides.
            Err(error)
                if matches!(error.code, ErrorCode::OutOfMemory | ErrorCode::LimitExceeded) => {}
            Err(error) => return Err(error),
        }
        gpu.set_tuned(Some(known.clone()));
    }
    Ok(known)
}

/// Each shape once, that with most multiply-adds in all first.
fn by_work(products: &[LinearShape]) -> Vec<LinearShape> {
    let mut shapes: Vec<(LinearShape, u64)> = vec![];
    for shape in products {
        let work = (shape.n * shape.k) as u64 * shape.tokens as u64;
        match shapes.iter_mut().find(|(known, _)| known == shape) {
            Some((_, sum)) => *sum += work,
            None => shapes.push((*shape, work)),
        }
    }
    shapes.sort_by_key(|&(_, work)| Reverse(work));
    shapes.into_iter().map(|(shape, _)| shape).collect()
}

/// The fastest of a product's candidates, before `awake` after some work; none where they take too long.
async fn measure(
    gpu: &Rc<dyn Gpu>,
    shape: &LinearShape,
    awake: f64,
) -> Result<Option<TunedProduct>> {
    let picks = linear_candidates(gpu.capabilities(), shape);
    let mut plans: Vec<crate::plan::Plan> = vec![];
    for pick in &picks {
        let slots = plans.last().map_or(&[][..], |plan| &plan.slots);
        plans.push(product_plan(gpu.capabilities(), shape, pick.clone(), slots)?);
    }
    gpu.prepare(&plans.iter().collect::<Vec<_>>()).await;
    let mut resources = Resources::new(gpu);
    let slots = plans.last().map_or(&[][..], |plan| &plan.slots);
    let installed = create_checked(&**gpu, || {
        operands(gpu, &mut resources, slots, shape.tokens)?;
        plans.iter().map(|plan| resources.install(plan, &[])).collect::<Result<Vec<_>>>()
    });
    let installed = installed.await?;
    let end = Region { buffer: resources.get(Buffer::Step)?, offset: 0, bytes: 4 };
    let Some(times) = times(gpu, &installed, shape.tokens, end, awake).await? else {
        return Ok(None);
    };
    let fastest = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
    let chosen = if times[fastest] < MARGIN * times[0] { fastest } else { 0 };
    let nanoseconds = |milliseconds: f64| (milliseconds * 1e6).max(1.0) as u64;
    Ok(Some(TunedProduct {
        shape: *shape,
        tile: picks[chosen].tile,
        splits: picks[chosen].splits,
        nanoseconds: nanoseconds(times[chosen]),
        estimated_nanoseconds: nanoseconds(times[0]),
    }))
}

/// Makes the slots, with numbers in them: a GPU's clock may depend on what it computes.
fn operands(
    gpu: &Rc<dyn Gpu>,
    resources: &mut Resources,
    slots: &[u64],
    tokens: usize,
) -> Result<()> {
    let step = resources.add(Buffer::Step, STEP_BYTES)?;
    gpu.write(step, 0, bytemuck::bytes_of(&Step::of(tokens)))?;
    let mut state = 1u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let noise: Vec<f32> = (0..1 << 18).map(|_| number()).collect();
    for (index, &bytes) in slots.iter().enumerate() {
        let buffer = resources.add(Buffer::Slot(index), bytes)?;
        for offset in (0..bytes).step_by(4 * noise.len()) {
            let count = noise.len().min(((bytes - offset) / 4) as usize);
            gpu.write(buffer, offset, bytemuck::cast_slice(&noise[..count]))?;
        }
    }
    Ok(())
}

/// Milliseconds of each plan: the least of a few measurements of many runs each. By the host's clock,
/// since timestamps are optional, and in browsers coarse. None where a run of one is too long.
async fn times(
    gpu: &Rc<dyn Gpu>,
    plans: &[PlanId],
    tokens: usize,
    end: Region,
    awake: f64,
) -> Result<Option<Vec<f64>>> {
    let run = async |plan: PlanId, runs: usize| {
        let replays = vec![Replay::new(plan, tokens); runs];
        let began = gpu.now();
        gpu.submit(&replays, 1, Some(end))?.await?;
        Ok::<_, crate::error::Error>(gpu.now() - began)
    };
    let mut runs = vec![];
    for &plan in plans {
        // A first run may still be compiling.
        run(plan, 1).await?;
        let mut count = 1;
        loop {
            let took = run(plan, count).await?;
            if count == 1 && took > LONG {
                return Ok(None);
            }
            if gpu.now() >= awake && (took >= LENGTH || count >= MOST_REPEATS) {
                break;
            }
            // The first runs are mostly the wait for their end. So the count at most doubles each time.
            count = if took >= LENGTH { count } else { (2 * count).min(MOST_REPEATS) };
        }
        runs.push(count);
    }
    let mut least = vec![f64::INFINITY; plans.len()];
    for _ in 0..ROUNDS {
        for (index, &plan) in plans.iter().enumerate() {
            let took = run(plan, runs[index]).await?;
            least[index] = least[index].min(took / runs[index] as f64);
        }
    }
    Ok(Some(least))
}
