//! Tests that need a device or sessions, and what stands in for a GPU.
//!
//! The kernels' cases are those of [`tinyloom_kernels::testing`]; those here make sessions or buffers of their own. All
//! run on a real device, in every lane. [`double`] is a GPU on the CPU, made of the kernels' twins.

mod device;
pub mod double;
mod lora;
mod model;
mod model_text;
mod on_device;
mod pretend;
mod probe;
mod training;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use on_device::SessionLane;
pub use tinyloom_kernels::testing::{
    Level, Mode, Others, Results, candidates, candidates_linear, candidates_tensors, catalogue,
    gpu_adapters, matrix_texts,
};

// What is tested, and with what.
#[cfg(test)]
use tinyloom::schedule;
use tinyloom::{checkpoint, session};
use tinyloom_gpu as gpu;
#[cfg(test)]
use tinyloom_kernels::optim;
use tinyloom_kernels::testing::{harness, ledger, measure};
use tinyloom_kernels::{caps, kernels, lower, plan, twins};
use tinyloom_model::{arch, config, data, error, random};
#[cfg(test)]
use tinyloom_model::{format, params};

use crate::gpu::{Gpu, Installed, LocalFuture, WgpuDevice};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::rc::Rc;
use tinyloom_kernels::testing as of_kernels;
use tinyloom_kernels::testing::Outcome;

/// A test by name.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    /// The file that defines it.
    pub file: &'static str,
    level: Level,
    body: Body,
}

enum Body {
    /// Runs kernels by themselves.
    Kernels(of_kernels::Case),
    /// Makes sessions or buffers of its own.
    Sessions(Box<dyn Fn(Rc<SessionLane>) -> LocalFuture<Outcome>>),
}

impl Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Kernels(_)) { "Kernels" } else { "Sessions" })
    }
}

impl From<of_kernels::Case> for Case {
    fn from(case: of_kernels::Case) -> Self {
        let of_kernels::Case { file, level, .. } = case;
        Self { name: case.name.clone(), file, level, body: Body::Kernels(case) }
    }
}

impl Case {
    /// A case that makes sessions or buffers of its own.
    #[track_caller]
    fn new<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<SessionLane>) -> F + 'static,
    ) -> Self {
        let body = Box::new(move |lane| Box::pin(body(lane)) as LocalFuture<Outcome>);
        let file = Location::caller().file();
        Self { name: name.into(), file, level: Level::Everyday, body: Body::Sessions(body) }
    }

    /// A case of [`Level::Full`] alone.
    #[track_caller]
    fn full<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<SessionLane>) -> F + 'static,
    ) -> Self {
        Self { level: Level::Full, ..Self::new(name, body) }
    }

    fn run(&self, lane: &Rc<SessionLane>) -> LocalFuture<Outcome> {
        match &self.body {
            Body::Kernels(case) => case.run(lane.of_kernels()),
            Body::Sessions(body) => body(Rc::clone(lane)),
        }
    }
}

/// A case and what it depends on, on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    pub name: String,
    /// The file that defines it, from the repository's root.
    pub file: String,
    /// The hash of its jobs and of what it expects. None where the case makes sessions, or where its body needs what a
    /// kernel has left: then any source may change it.
    pub key: Option<String>,
    /// Why there is no key, where the case makes no sessions.
    pub unlisted: Option<String>,
    /// Jobs in the key: those of a run that leaves no kernel out.
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
    /// The part of `milliseconds` in which kernels were compiled and bound, and the part in which they ran.
    pub compiling: f64,
    pub running: f64,
    /// Runs of a kernel, and those that another device of the adapter had done before.
    pub jobs: usize,
    pub known: usize,
    /// Kernels that were compiled and not run, since another lane runs them.
    pub unrun: usize,
    /// The kernels that were installed on any device, by the names of their entry points.
    pub kernels: Vec<String>,
    /// The files below the repository's root that these kernels were joined from.
    pub shaders: Vec<String>,
}

/// The cases of a level.
pub fn cases(level: Level) -> Vec<Case> {
    let mut cases = every_case();
    cases.retain(|case| level == Level::Full || case.level == Level::Everyday);
    cases
}

fn every_case() -> Vec<Case> {
    let sessions = [
        device::cases(),
        model::cases(),
        model_text::cases(),
        lora::cases(),
        probe::cases(),
        training::cases(),
        #[cfg(not(target_arch = "wasm32"))]
        device::native_cases(),
    ];
    of_kernels::cases().into_iter().map(Case::from).chain(sessions.into_iter().flatten()).collect()
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
    if matches!(case.body, Body::Sessions(_)) {
        return Some(listed(None, None, 0, BTreeSet::new()));
    }
    let lane = SessionLane::new(device, seed, Mode::default());
    ledger::begin();
    let outcome = case.run(&lane).await;
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
    let lane = SessionLane::new(device, seed, mode);
    let outcome = match every_case().into_iter().find(|case| case.name == name) {
        Some(case) => case.run(&lane).await,
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
