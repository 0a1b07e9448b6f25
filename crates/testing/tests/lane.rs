//! What the kernel lanes do beside running cases: on this machine's adapter.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
use tinyloom_testing::{self as testing, Case, Level, Listing, Mode, Others, Report, Results};

fn device() -> Rc<WgpuDevice> {
    pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device")
}

/// What reports' paths begin at.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(device: &Rc<WgpuDevice>, name: &str, seed: u64, mode: Mode) -> Report {
    let report = pollster::block_on(testing::run(device, name, seed, mode));
    assert!(report.ok && report.jobs > 0, "{report:?}");
    report
}

/// What a lane with two devices of one adapter leaves out.
#[test]
fn a_second_device_repeats_only_what_differs() {
    let (first, second, results) = (device(), device(), Results::default());
    let run = |device, seed| {
        run(device, "loss_sum", seed, Mode { results: Some(results.clone()), others: Others::Run })
    };
    assert_eq!(run(&first, 7).known, 0, "nothing was there");
    assert_eq!(run(&first, 7).known, 0, "a device does not take its own results");
    results.next_device();
    let again = run(&second, 7);
    assert_eq!((again.known, again.pipelines), (again.jobs, 0), "all of it was there");
    let other = run(&second, 8);
    assert_eq!(other.known, 0, "other operands are another run");
    assert!(other.pipelines > 0, "and need the text compiled");
}

/// The core runs the device's own kernels, and proves the texts of the others.
#[test]
fn the_core_proves_every_text() {
    let run = |others| run(&device(), "loss_sum", 7, Mode { results: None, others });
    let (whole, own) = (run(Others::Run), run(Others::Own));
    assert_eq!(whole.unrun, 0);
    assert!(own.unrun > 0 && own.jobs < whole.jobs, "{own:?} of {whole:?}");
    assert!(own.pipelines < whole.pipelines, "{own:?} of {whole:?}");
}

/// The listing goes on to the end of a case: after checks that only outputs can pass, draws and jobs on other jobs'
/// outputs.
#[test]
fn a_listing_has_every_job() {
    let device = device();
    for name in [
        "cross_entropy_backward",
        "cross_entropy of large and broken logits",
        "sample all filters with penalty",
        "sample for several texts",
        "attention decode over tensors, 3/1 heads of 4, f16 tensors",
        "cache_append int8",
        "step_decision of a step that is not finite",
        "adamw8bit",
        "weights int4: packed",
    ] {
        let listed = pollster::block_on(testing::list(&device, name, 7)).expect("a case");
        assert!(listed.key.is_some(), "{listed:?}");
        let report = run(&device, name, 7, Mode { results: None, others: Others::Run });
        assert_eq!(listed.jobs, report.jobs, "{name}");
    }
}

/// A case that makes no sessions has a key: its body checks outputs through functions that a listing leaves out.
#[test]
fn every_case_without_sessions_has_a_key() {
    let device = device();
    let list =
        |case: Case| pollster::block_on(testing::list(&device, &case.name, 1)).expect("a case");
    let all: Vec<Listing> = testing::cases(Level::Everyday).into_iter().map(list).collect();
    let unlisted: Vec<_> = all.iter().filter(|listing| listing.unlisted.is_some()).collect();
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    let keys: HashSet<_> = all.iter().filter_map(|listing| listing.key.as_ref()).collect();
    let of_sessions = all.iter().filter(|listing| listing.key.is_none()).count();
    assert_eq!(keys.len() + of_sessions, all.len(), "two cases have one key");
    assert!(keys.len() > 300, "{} keys, {of_sessions} cases of sessions", keys.len());
}

/// A session's case tells which kernels were installed, and the files that these were joined from.
#[test]
fn a_report_names_the_kernels_that_were_installed() {
    let device = device();
    let case = |name| pollster::block_on(testing::run(&device, name, 7, Mode::default()));
    let [first, again] = [case("loss_sum"), case("loss_sum")];
    assert_eq!(first.kernels, ["loss_sum_forward"], "{first:?}");
    assert!(first.shaders.contains(&"shaders/07_loss_sum.wgsl".to_owned()), "{first:?}");
    assert!(first.shaders.iter().all(|file| repository().join(file).exists()), "{first:?}");
    assert_eq!(again.pipelines, 0, "the pipelines were there");
    assert_eq!((again.kernels, again.shaders), (first.kernels, first.shaders));
    let session = case("the loss falls");
    assert!(session.ok && session.kernels.len() > 10, "{session:?}");
    assert!(session.shaders.iter().all(|file| repository().join(file).exists()), "{session:?}");
    assert!(!session.kernels.contains(&"loss_sum_backward".to_owned()), "{session:?}");
}

/// A listing takes no kernel to the device, and depends on the data.
#[test]
fn a_listing_runs_nothing() {
    let device = device();
    let list = |name, seed| -> Listing {
        pollster::block_on(testing::list(&device, name, seed)).expect("a case")
    };
    let before = device.counters().pipelines;
    let listed = list("loss_sum", 7);
    assert_eq!(listed.key, list("loss_sum", 7).key, "it repeats");
    assert!(listed.key.is_some(), "{listed:?}");
    assert_ne!(listed.key, list("loss_sum", 8).key, "other operands, another key");
    assert_ne!(listed.key, list("rms_norm_forward", 7).key, "another case, another key");
    assert!(listed.file.ends_with("crates/kernels/src/kernels/loss/cases.rs"), "{}", listed.file);
    assert_eq!(device.counters().pipelines, before);
    assert_eq!(list("the loss falls", 7).key, None, "a session has no list");
}
