//! Runs kernels, one dispatch each, on a device: operands in, what they wrote out.

use super::lane::Lane;
use super::ledger;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{Access, Kernel};
use crate::plan::{Buffer, Cost, Dispatch, Phase, Plan, Range, Slice};
use half::f16;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

pub(crate) use crate::plan::Step;

pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a lane needs of a device.
pub trait Device: Debug {
    fn capabilities(&self) -> &Capabilities;

    /// Milliseconds since some fixed moment.
    fn now(&self) -> f64;

    /// Runs a plan once for `rows` rows. The slots of the plan hold these words: inputs, outputs, uniforms.
    fn run<'a>(
        &'a self,
        plan: &'a Plan,
        slots: [&'a [u32]; 3],
        rows: usize,
    ) -> LocalFuture<'a, Result<Ran>>;

    /// Has the device's compiler of WGSL check texts, each with the name of its kernel.
    fn check<'a>(&'a self, texts: &'a [(&'static str, String)]) -> LocalFuture<'a, Result<()>>;
}

/// What a plan left.
#[derive(Debug)]
pub struct Ran {
    /// The words of the outputs.
    pub outputs: Vec<u32>,
    /// Milliseconds in which kernels were compiled and bound, and in which they ran.
    pub compiling: f64,
    pub running: f64,
}

/// A quiet NaN that no kernel computes: what outputs hold before a kernel, and guards around them.
pub(crate) const POISON: u32 = 0x7fc0_dead;

/// What is bound, in 32-bit words.
#[derive(Clone, Debug)]
pub struct Operand(Vec<u32>);

impl Operand {
    pub fn floats(values: &[f32]) -> Self {
        Self(values.iter().map(|x| x.to_bits()).collect())
    }

    pub fn words(values: &[u32]) -> Self {
        Self(values.to_vec())
    }

    /// An output that nobody has written yet.
    pub fn poison(len: usize) -> Self {
        Self(vec![POISON; len])
    }

    pub fn uniform<T: bytemuck::Pod>(value: &T) -> Self {
        Self(bytemuck::pod_collect_to_vec(std::slice::from_ref(value)))
    }

    pub fn contents(&self) -> &[u32] {
        &self.0
    }

    pub fn range(row0: usize, rows: usize, col0: usize, cols: usize) -> Self {
        let [row0, rows, col0, cols] = [row0, rows, col0, cols].map(|x| x as u32);
        Self::uniform(&Range { row0, rows, col0, cols })
    }
}

/// Numbers in f16, two to a word; the last word may end with nothing.
pub(crate) fn in_halves(values: &[f32]) -> Vec<u32> {
    let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
    values.chunks(2).map(|two| bits(two[0]) | two.get(1).map_or(0, |x| bits(*x)) << 16).collect()
}

/// One kernel with its operands.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub kernel: Kernel,
    /// Token rows that the grid is for.
    pub rows: usize,
    pub operands: Vec<Operand>,
    /// Dispatches of it, one after the other.
    pub repeat: usize,
}

impl Job {
    /// The kernel's sizes, where it has any, are no operand of the caller's.
    pub fn new(kernel: &Kernel, rows: usize, mut operands: Vec<Operand>) -> Self {
        operands.extend(kernel.sizes.map(|sizes| Operand::words(&sizes)));
        Self { kernel: kernel.clone(), rows, operands, repeat: 1 }
    }
}

/// A job for each of some kernels, over the same operands.
pub(crate) fn jobs(kernels: &[Kernel], rows: usize, operands: &[Operand]) -> Vec<Job> {
    kernels.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect()
}

/// What a job left in its writable operands, in the order of their bindings.
#[derive(Clone, Debug)]
pub(crate) struct Outputs(Vec<Vec<u32>>);

impl Outputs {
    /// One output.
    pub fn of(words: Vec<u32>) -> Self {
        Self(vec![words])
    }

    /// Several, in the order of their bindings.
    pub fn all(outputs: impl IntoIterator<Item = Vec<u32>>) -> Self {
        Self(outputs.into_iter().collect())
    }

    pub fn words(&self, index: usize) -> &[u32] {
        &self.0[index]
    }

    /// The elements of an output in f16, two to a word.
    pub fn halves(&self, index: usize) -> Vec<f32> {
        let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
        self.0[index].iter().flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).collect()
    }

    pub fn floats(&self, index: usize) -> Vec<f32> {
        self.0[index].iter().map(|&bits| f32::from_bits(bits)).collect()
    }
}

/// Words between operands: offsets are multiples of 256 bytes, and outputs have guards.
const ALIGN: usize = 64;

/// Operands of one kind of all jobs, laid out in one buffer.
#[derive(Default)]
struct Arena {
    words: Vec<u32>,
}

impl Arena {
    fn push(&mut self, operand: &Operand) -> usize {
        let offset = self.words.len();
        self.words.extend(&operand.0);
        let padded = (self.words.len() + 1).next_multiple_of(ALIGN);
        self.words.resize(padded, POISON);
        offset
    }
}

const INPUTS: Buffer = Buffer::Slot(0);
const OUTPUTS: Buffer = Buffer::Slot(1);
const UNIFORMS: Buffer = Buffer::Slot(2);

/// The jobs as a plan over three buffers, and where each job's outputs are.
struct JobLayout {
    plan: Plan,
    arenas: [Arena; 3],
    outputs: Vec<Vec<(usize, usize)>>,
}

fn lay_out(jobs: &[&Job]) -> Result<JobLayout> {
    let mut layout = JobLayout {
        plan: Plan {
            kernels: Vec::new(),
            dispatches: Vec::new(),
            ranges: Vec::new(),
            slots: Vec::new(),
            unshared_bytes: 0,
            tokens: 0,
            products: Vec::new(),
            head: None,
        },
        arenas: Default::default(),
        outputs: Vec::new(),
    };
    for (index, job) in jobs.iter().enumerate() {
        let (have, need) = (job.operands.len(), job.kernel.bindings.len());
        if have != need {
            let name = job.kernel.name;
            return Err(Error::internal(format!("{have} operands for the {need} of {name}")));
        }
        let mut outputs = Vec::new();
        let mut slices = Vec::new();
        for (binding, operand) in job.kernel.bindings.iter().zip(&job.operands) {
            let (arena, buffer) = match binding.access {
                Access::Read => (0, INPUTS),
                Access::ReadWrite => (1, OUTPUTS),
                Access::Uniform => (2, UNIFORMS),
            };
            let offset = layout.arenas[arena].push(operand);
            slices.push(Slice::new(buffer, offset as u64 * 4, operand.0.len() as u64 * 4));
            if binding.access == Access::ReadWrite {
                outputs.push((offset, operand.0.len()));
            }
        }
        layout.outputs.push(outputs);
        layout.plan.kernels.push(job.kernel.clone());
        let dispatch = Dispatch {
            kernel: index,
            slices,
            operands: vec![],
            range: Range { row0: 0, rows: job.rows as u32, col0: 0, cols: 0 },
            phase: Phase::Forward,
            label: job.kernel.name.into(),
            cost: Cost::default(),
        };
        for _ in 0..job.repeat {
            layout.plan.dispatches.push(dispatch.clone());
        }
    }
    Ok(layout)
}

/// Fails when a word outside the outputs was written.
fn check_guards(layout: &JobLayout, words: &[u32], jobs: &[&Job]) -> Result<()> {
    let mut free = vec![true; words.len()];
    for (offset, len) in layout.outputs.iter().flatten() {
        free[*offset..offset + len].fill(false);
    }
    match (0..words.len()).find(|&i| free[i] && words[i] != POISON) {
        None => Ok(()),
        Some(at) => {
            let before =
                |outputs: &&Vec<(usize, usize)>| outputs.iter().any(|(offset, _)| *offset <= at);
            let job = layout.outputs.iter().rposition(|outputs| before(&outputs)).unwrap_or(0);
            Err(Error::internal(format!("{} wrote past its output", jobs[job].kernel.name)))
        }
    }
}

/// Has the texts of kernels checked, each with its name, without the adapter's part of compiling them.
pub async fn check(
    lane: &Lane,
    texts: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<()> {
    if ledger::listing() {
        texts.into_iter().for_each(|text| _ = ledger::listed(text));
        return Ok(());
    }
    let texts: Vec<_> = texts.into_iter().collect();
    let began = lane.device.now();
    lane.device.check(&texts).await?;
    let [compiling, running] = lane.times.get();
    lane.times.set([compiling + lane.device.now() - began, running]);
    Ok(())
}

/// Runs the jobs in order in one submit.
pub(crate) async fn run(lane: &Lane, jobs: &[&Job]) -> Result<Vec<Outputs>> {
    let layout = lay_out(jobs)?;
    let rows = jobs.iter().map(|job| job.rows).max().unwrap_or(0);
    let slots = layout.arenas.each_ref().map(|arena| arena.words.as_slice());
    let ran = lane.device.run(&layout.plan, slots, rows).await?;
    let [compiling, running] = lane.times.get();
    lane.times.set([compiling + ran.compiling, running + ran.running]);
    let words = ran.outputs;
    check_guards(&layout, &words, jobs)?;
    let cut = |&(offset, len): &(usize, usize)| words[offset..offset + len].to_vec();
    Ok(layout.outputs.iter().map(|outputs| Outputs(outputs.iter().map(cut).collect())).collect())
}
