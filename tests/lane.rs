//! What the kernel lanes do beside running cases: on this machine's adapter.
#![cfg(feature = "testing")]

use std::rc::Rc;
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
use tinyloom::testing::{self, Listing, Mode, Others, Report, Results};

fn device() -> Rc<WgpuDevice> {
    pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device")
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
    assert!(listed.file.ends_with("src/testing/loss.rs"), "{}", listed.file);
    assert_eq!(device.counters().pipelines, before);
    assert_eq!(list("the loss falls", 7).key, None, "a session has no list");
}
