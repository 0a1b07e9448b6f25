//! What a case has here: the device, the table of adapters, random data.

use super::gpu_adapters::{emulated, restrict, table};
use super::harness::{self, Device, Job, Outputs};
use super::ledger;
use super::results::Results;
use crate::caps::Capabilities;
use crate::error::{Error, ErrorCode, Result};
use crate::kernels::{Kernel, PartialSums, Spec};
use crate::random::{below, philox, split};
use crate::twins::add_assign;
use crate::twins::normal::fill_normal;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::str::FromStr;

/// Jobs of one submit: software adapters must not be kept busy for long, buffers stay small.
const JOBS: usize = 24;

/// A device under test with one case's random stream.
#[derive(Debug)]
pub struct Lane {
    pub(super) device: Rc<dyn Device>,
    pub seed: u64,
    stream: Cell<u64>,
    /// Distinct kernels that ran, and that the whole table asks for.
    tally: Cell<[usize; 2]>,
    /// Milliseconds in which kernels were compiled and bound, and in which they ran.
    pub times: Cell<[f64; 2]>,
    /// Jobs, and those among them that another device of the adapter had run.
    pub jobs: Cell<[usize; 2]>,
    pub(crate) mode: Mode,
    /// Names and variants of the kernels that the lane's core runs.
    pub own: RefCell<BTreeSet<String>>,
    /// Kernels that the lane's core does not run.
    unrun: RefCell<Vec<Kernel>>,
}

/// What a lane may leave out.
#[derive(Clone, Debug, Default)]
pub struct Mode {
    /// What other devices of the adapter have run of the case.
    pub results: Option<Results>,
    pub others: Others,
}

/// What a lane does with the kernels that a choice may return beside the device's own: those of other
/// adapters, and where a case lists every candidate (`Lane::kernels`: tiles of a product or of attention)
/// the candidates after the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    #[default]
    Run,
    /// Runs none, and has their texts checked by WebGPU's compiler: the core of a lane whose adapter's own compiler takes
    /// most of the time.
    Own,
}

impl FromStr for Others {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "run" => Ok(Self::Run),
            "own" => Ok(Self::Own),
            _ => Err(Error::options(format!("a lane does not {name:?} other adapters' kernels"))),
        }
    }
}

impl Lane {
    pub fn new(device: Rc<dyn Device>, seed: u64, mode: Mode) -> Self {
        Self {
            device,
            seed,
            stream: Cell::new(0),
            tally: Cell::default(),
            times: Cell::default(),
            jobs: Cell::default(),
            mode,
            own: RefCell::default(),
            unrun: RefCell::default(),
        }
    }

    pub fn caps(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn next_stream(&self) -> u64 {
        self.stream.set(self.stream.get() + 1);
        self.stream.get()
    }

    /// Standard normal data, another each time.
    pub fn normal(&self, len: usize) -> Vec<f32> {
        let mut values = vec![0.0; len];
        fill_normal(self.seed, self.next_stream(), 0, 1.0, &mut values);
        values
    }

    /// `count` parts of a sum, the first of them given, with numbers between them that are not to be read; and the sum.
    pub(crate) fn parts(&self, first: Vec<f32>, count: usize) -> (Vec<f32>, PartialSums, Vec<f32>) {
        let (len, mut all, mut sum) = (first.len(), first.clone(), first);
        if count == 1 {
            return (all, PartialSums::WHOLE, sum);
        }
        let apart = len.next_multiple_of(4) + 4;
        all.extend(self.normal(count * apart - len));
        (1..count).for_each(|part| add_assign(&mut sum, &all[part * apart..][..len]));
        (all, PartialSums { count, apart }, sum)
    }

    /// Integers below `bound`, others each time.
    pub fn integers(&self, len: usize, bound: usize) -> Vec<u32> {
        let stream = split(self.next_stream());
        let draw = |i: u32| {
            let words = philox([i, 0, stream[0], stream[1] ^ 0x1717], split(self.seed));
            below(words[0], words[1], bound as u64) as u32
        };
        (0..len as u32).map(draw).collect()
    }

    /// Starts of packed documents of random lengths, the first of a single position.
    pub fn documents(&self, tokens: usize) -> Vec<u32> {
        let cuts = self.integers(tokens, 12);
        let mut start = 0;
        let begins = |t: u32| t == 1 || (t > 1 && cuts[t as usize] == 0);
        (0..tokens as u32)
            .map(|t| {
                if begins(t) {
                    start = t;
                }
                start
            })
            .collect()
    }

    /// The distinct kernels that `make` gives over the table, lowered to this device, and for the
    /// device itself. A limit that forbids a kernel is the answer `limit-exceeded` and none else.
    ///
    /// The kernels of a list are alternatives, of which the first is the device's own choice. Kernels with
    /// different tasks are asked for by a call each, or the core runs some of the tasks alone.
    pub(crate) fn kernels(
        &self,
        make: impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
    ) -> Result<Vec<Kernel>> {
        self.choose(table(self.caps().target), make, |own| own.min(1))
    }

    /// [`Lane::kernels`] for products by matrices: by plain WGSL too, which all devices can run.
    pub(crate) fn kernels_by_matrices(
        &self,
        make: impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
    ) -> Result<Vec<Kernel>> {
        let target = self.caps().target;
        let whole = table(target).into_iter().chain(emulated(target)).collect();
        self.choose(whole, make, |own| own.min(1))
    }

    /// [`Lane::kernels`] where each kernel of the device's list is its own choice: all of them run.
    pub(crate) fn chosen(
        &self,
        make: impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
    ) -> Result<Vec<Kernel>> {
        self.choose(table(self.caps().target), make, |own| own)
    }

    /// `own` says how many of the device's list its own choice is.
    fn choose(
        &self,
        whole: Vec<Capabilities>,
        make: impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
        own: impl Fn(usize) -> usize,
    ) -> Result<Vec<Kernel>> {
        let device = self.caps();
        let lowered: Vec<_> = whole.iter().map(|adapter| restrict(adapter, device)).collect();
        let all = distinct(&whole, &make)?;
        let mut possible = distinct(std::slice::from_ref(device), &make)?;
        let own = own(possible.len());
        for kernel in distinct(&lowered, &make)? {
            if !possible.contains(&kernel) {
                possible.push(kernel);
            }
        }
        let chosen = possible.iter().take(own.max(1));
        self.own.borrow_mut().extend(chosen.map(|k| format!("{}: {}", k.name, k.variant)));
        if self.mode.others == Others::Own {
            // Where the device itself has none, one has to run.
            let unrun = possible.split_off(own.max(1).min(possible.len()));
            unrun.into_iter().for_each(|kernel| self.leave(kernel));
        }
        let [ran, asked] = self.tally.get();
        self.tally.set([ran + possible.len(), asked + all.len()]);
        Ok(possible)
    }

    fn leave(&self, kernel: Kernel) {
        let mut unrun = self.unrun.borrow_mut();
        if unrun.iter().all(|known| known.wgsl != kernel.wgsl) {
            unrun.push(kernel);
        }
    }

    /// Checks the texts of the kernels that did not run, and gives their number.
    pub async fn prove_unrun(&self) -> Result<usize> {
        let unrun = self.unrun.take();
        for some in unrun.chunks(JOBS) {
            let texts = some.iter().map(|kernel| (kernel.name, kernel.wgsl.text()));
            harness::check(self, texts).await?;
        }
        Ok(unrun.len())
    }

    /// [`Lane::chosen`] of a selection that gives one.
    pub(crate) fn variants(
        &self,
        make: impl Fn(&Capabilities) -> Result<Kernel>,
    ) -> Result<Vec<Kernel>> {
        self.chosen(|caps| make(caps).map(|kernel| vec![kernel]))
    }

    /// The distinct kernels of a spec over the table, lowered to this device.
    pub(crate) fn variants_of(&self, spec: impl Spec) -> Result<Vec<Kernel>> {
        self.variants(|caps| spec.kernel(caps))
    }

    /// Runs jobs, several per submit, and gives what each wrote. What another device of the adapter
    /// has left of an equal job is not computed again.
    pub(crate) async fn run(&self, jobs: &[Job]) -> Result<Vec<Outputs>> {
        if ledger::listing() {
            return Ok(jobs.iter().map(|job| self.list(job)).collect());
        }
        let known = |job| self.mode.results.as_ref().and_then(|results| results.of(job));
        let mut outputs: Vec<Option<Outputs>> = jobs.iter().map(known).collect();
        let missing: Vec<usize> = (0..jobs.len()).filter(|&i| outputs[i].is_none()).collect();
        for some in missing.chunks(JOBS) {
            let some_jobs: Vec<&Job> = some.iter().map(|&i| &jobs[i]).collect();
            for (&i, got) in some.iter().zip(harness::run(self, &some_jobs).await?) {
                self.mode.results.iter().for_each(|results| results.record(&jobs[i], &got));
                outputs[i] = Some(got);
            }
        }
        let [all, repeated] = self.jobs.get();
        self.jobs.set([all + jobs.len(), repeated + jobs.len() - missing.len()]);
        Ok(outputs.into_iter().flatten().collect())
    }

    fn list(&self, job: &Job) -> Outputs {
        let [all, repeated] = self.jobs.get();
        self.jobs.set([all + 1, repeated]);
        let key = ledger::key(job);
        ledger::listed(key);
        ledger::stand_in(job, key)
    }

    /// What a case that passed reports.
    pub(crate) fn summary(&self) -> String {
        let [ran, asked] = self.tally.get();
        format!("{ran} distinct kernels; the table asks for {asked}")
    }
}

fn distinct(
    adapters: &[Capabilities],
    make: &impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
) -> Result<Vec<Kernel>> {
    let mut kernels: Vec<Kernel> = Vec::new();
    for caps in adapters {
        let made = match make(caps) {
            Err(Error { code: ErrorCode::LimitExceeded, .. }) => continue,
            made => made?,
        };
        for kernel in made {
            if !kernels.iter().any(|k| k.wgsl == kernel.wgsl && k.grid == kernel.grid) {
                kernels.push(kernel);
            }
        }
    }
    Ok(kernels)
}
