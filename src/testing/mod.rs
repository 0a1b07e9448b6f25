//! The kernels' tests: one body for every lane (native, and the browsers through wasm).
//!
//! A case builds each distinct kernel that selection returns over [`adapters::table`], as far as
//! the lane's device can compile it, runs it on fresh random data with poisoned outputs and holds
//! the result against the CPU twin in f64.

mod adapter;
pub mod adapters;
pub mod candidates;
pub mod candidates_linear;
pub mod candidates_tensors;
pub mod catalogue;
mod device;
pub(crate) mod harness;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod measure;
pub(crate) mod model;
mod model_text;
mod pretend;
mod probe;
pub(crate) mod results;
mod texts;
mod training;

pub(crate) use harness::Operand;
pub use lane::{Lane, Mode, Others};
pub use results::Results;
pub use texts::matrix_texts;

use crate::gpu::{Gpu, Installed, LocalFuture, WgpuDevice};
use crate::kernels::families;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::rc::Rc;

/// What a case says when it passes, or what went wrong.
pub(crate) type Outcome = Result<String, String>;

/// How much a run covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every change runs.
    Everyday,
    /// That and the products it samples, which take hours on software adapters.
    Full,
}

/// A test by name.
pub struct Case {
    pub name: String,
    /// The file that defines it.
    pub file: &'static str,
    level: Level,
    /// Whether it needs a device for more than [`Lane::run`]: it makes sessions or buffers of its own.
    sessions: bool,
    body: Box<dyn Fn(Rc<Lane>) -> LocalFuture<Outcome>>,
}

impl Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// A case that runs kernels by themselves, through [`Lane::run`].
    #[track_caller]
    pub(crate) fn new<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<Lane>) -> F + 'static,
    ) -> Self {
        let body = Box::new(move |lane| Box::pin(body(lane)) as LocalFuture<Outcome>);
        let file = Location::caller().file();
        Self { name: name.into(), file, level: Level::Everyday, sessions: false, body }
    }

    /// A case of [`Level::Full`] alone.
    #[track_caller]
    pub(crate) fn full<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<Lane>) -> F + 'static,
    ) -> Self {
        Self { level: Level::Full, ..Self::new(name, body) }
    }

    /// The same case, which makes sessions or buffers of its own.
    fn with_sessions(self) -> Self {
        Self { sessions: true, ..self }
    }
}

/// A case and what it depends on, on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    pub name: String,
    /// The file that defines it, from the crate's root.
    pub file: String,
    /// The hash of its jobs and of what it expects. None where the case makes sessions, or where its body needs what a
    /// kernel has left: then any source may change it.
    pub key: Option<String>,
    /// Why there is no key, where the case makes no sessions.
    pub unlisted: Option<String>,
    /// Jobs that the key is of: as many as a run has that leaves no kernel out.
    pub jobs: usize,
    /// Names and variants of the kernels that the core runs of it.
    pub kernels: BTreeSet<String>,
    pub milliseconds: f64,
}

/// What a case reports.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub name: String,
    pub ok: bool,
    pub detail: String,
    /// Pipelines compiled for it.
    pub pipelines: u64,
    pub milliseconds: f64,
    /// Of these, those in which kernels by themselves were compiled and bound, and in which they ran.
    pub compiling: f64,
    pub running: f64,
    /// Runs of a kernel, and those that another device of the adapter had done before.
    pub jobs: usize,
    pub known: usize,
    /// Kernels that were compiled and not run, since another lane runs them.
    pub unrun: usize,
    /// The kernels that were installed on any device, by the names of their entry points.
    pub kernels: Vec<String>,
    /// The files below the crate's root that these kernels were joined from.
    pub shaders: Vec<String>,
}

/// The cases of a level.
pub fn cases(level: Level) -> Vec<Case> {
    let mut cases = every_case();
    cases.retain(|case| level == Level::Full || case.level == Level::Everyday);
    cases
}

macro_rules! cases {
    ($($family:ident: $($kernel:ident),+;)+) => {
        /// Those of all families.
        fn kernel_cases() -> Vec<Case> {
            [$(crate::kernels::$family::cases::cases()),+].into_iter().flatten().collect()
        }
    };
}
families!(cases);

fn every_case() -> Vec<Case> {
    let sessions = [
        device::cases(),
        model::cases(),
        model_text::cases(),
        adapter::cases(),
        probe::cases(),
        training::cases(),
        #[cfg(not(target_arch = "wasm32"))]
        device::native_cases(),
    ];
    kernel_cases()
        .into_iter()
        .chain(texts::cases())
        .chain(sessions.into_iter().flatten().map(Case::with_sessions))
        .collect()
}

/// Lists the case called `name`: see [`ledger`].
pub async fn list(device: &Rc<WgpuDevice>, name: &str, seed: u64) -> Option<Listing> {
    let case = every_case().into_iter().find(|case| case.name == name)?;
    let started = device.now();
    let listed = |key, unlisted, jobs, kernels| Listing {
        name: name.into(),
        file: case.file.replace('\\', "/"),
        key,
        unlisted,
        jobs,
        kernels,
        milliseconds: device.now() - started,
    };
    if case.sessions {
        return Some(listed(None, None, 0, BTreeSet::new()));
    }
    let lane = Rc::new(Lane::new(device, seed, Mode::default()));
    ledger::begin();
    let outcome = (case.body)(Rc::clone(&lane)).await;
    let [jobs, _] = lane.jobs.get();
    let key = format!("{:016x}", ledger::end());
    let kernels = lane.own.take();
    Some(match outcome {
        Ok(_) => listed(Some(key), None, jobs, kernels),
        Err(message) => listed(None, Some(message), jobs, kernels),
    })
}

/// The file of a module, where it is none that the crate writes.
fn shader_file(module: &str) -> Option<String> {
    let has_one = module.starts_with("lib/") || module.starts_with(|c: char| c.is_ascii_digit());
    has_one.then(|| format!("shaders/{module}.wgsl"))
}

/// Runs the case called `name` with random data from `seed`.
pub async fn run(device: &Rc<WgpuDevice>, name: &str, seed: u64, mode: Mode) -> Report {
    let before = device.counters().pipelines;
    let started = device.now();
    WgpuDevice::take_installed();
    let lane = Rc::new(Lane::new(device, seed, mode));
    let outcome = match every_case().into_iter().find(|case| case.name == name) {
        Some(case) => (case.body)(Rc::clone(&lane)).await,
        None => Err("there is no such case".into()),
    };
    let left = lane.prove_unrun().await.map_err(measure::text);
    let (outcome, unrun) = match left {
        Ok(count) => (outcome, count),
        Err(error) => (outcome.and(Err(error)), 0),
    };
    let [compiling, running] = lane.times.get();
    let [jobs, known] = lane.jobs.get();
    let (ok, detail) = match outcome {
        Ok(detail) => (true, detail),
        Err(detail) => (false, format!("{detail} (seed {seed})")),
    };
    let Installed { names, modules } = WgpuDevice::take_installed();
    Report {
        name: name.into(),
        ok,
        detail,
        pipelines: device.counters().pipelines - before,
        milliseconds: device.now() - started,
        compiling,
        running,
        jobs,
        known,
        unrun,
        kernels: names.into_iter().map(String::from).collect(),
        shaders: modules.iter().filter_map(|module| shader_file(module)).collect(),
    }
}
