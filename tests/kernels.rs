//! The lane of native wgpu: every case of `tinyloom::testing` on this machine's adapter. A missing
//! adapter fails. `TINYLOOM_CASE` selects cases by a part of their names, `TINYLOOM_SEED` repeats a
//! run, `TINYLOOM_LEVEL=full` adds the products that the everyday cases sample, `TINYLOOM_SHARD=2/8`
//! takes every eighth case from the second.
#![cfg(feature = "testing")]

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
use tinyloom::testing::Others::{Check, Own, Run};
use tinyloom::testing::{self, Level};

fn seed() -> u64 {
    match std::env::var("TINYLOOM_SEED") {
        Ok(text) => text.parse().expect("TINYLOOM_SEED is an integer"),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970");
            now.as_nanos() as u64 >> 8
        }
    }
}

fn level() -> Level {
    match std::env::var("TINYLOOM_LEVEL").as_deref() {
        Ok("full") => Level::Full,
        Err(_) | Ok("") | Ok("everyday") => Level::Everyday,
        Ok(other) => panic!("TINYLOOM_LEVEL is {other:?}, not everyday or full"),
    }
}

/// The part of the cases that is asked for: which, and of how many.
fn shard() -> (usize, usize) {
    let Ok(text) = std::env::var("TINYLOOM_SHARD") else { return (1, 1) };
    let part = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    let (mine, count): (usize, usize) = part.expect("TINYLOOM_SHARD is a part like 2/8");
    assert!((1..=count).contains(&mine), "TINYLOOM_SHARD is {text}, not a part like 2/8");
    (mine, count)
}

/// Cases to name with their times.
const SLOWEST: usize = 20;

/// A case's seconds: the whole, and what its kernels by themselves took, lavapipe's compiler included.
fn account(report: &testing::Report) -> String {
    let [whole, running] = [report.milliseconds, report.running].map(|x| x / 1e3);
    format!("{whole:6.1} {running:6.1} {:4} {}", report.pipelines, report.name)
}

#[test]
fn every_case_passes_on_this_adapter() {
    let wanted = std::env::var("TINYLOOM_CASE").unwrap_or_default();
    let device = pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device");
    let (started, mut failed, mut count) = (device.now(), Vec::new(), 0);
    let mut reports = Vec::new();
    let mut cases = testing::cases(level());
    cases.retain(|case| case.name.contains(&wanted));
    let (mine, shards) = shard();
    let cases = cases.into_iter().skip(mine - 1).step_by(shards);
    // lavapipe's compiler takes three quarters of the time, unless its results are kept from an earlier run.
    let sampled = device.capabilities().software && level() == Level::Everyday;
    // `tests/selection.rs` has naga read texts of the table; browsers compile them in their lanes.
    let elsewhere = |name: &str| sampled && wanted.is_empty() && name.starts_with("texts: ");
    let cases: Vec<_> = cases.filter(|case| !elsewhere(&case.name)).collect();
    // One seed for all cases: a text that several of them list is then drawn in all or in none, and compiled once.
    let seed = seed();
    for case in &cases {
        // The seed's remainder may have drawn the shard: `leftToAnother` in tests/lanes/lane.mjs.
        let drawn = (count as u64 + seed / shards as u64).is_multiple_of(2);
        let others = if !sampled {
            Run
        } else if drawn {
            Check
        } else {
            Own
        };
        let mode = testing::Mode { results: None, others };
        let report = pollster::block_on(testing::run(&device, &case.name, seed, mode));
        println!(
            "{}/{} {} {}: {} [{} pipelines, {:.0} ms, compiling {:.0}, running {:.0}]",
            count + 1,
            cases.len(),
            if report.ok { "ok    " } else { "FAILED" },
            report.name,
            report.detail,
            report.pipelines,
            report.milliseconds,
            report.compiling,
            report.running
        );
        count += 1;
        if !report.ok {
            failed.push(format!("{}: {}", report.name, report.detail));
        }
        reports.push(report);
    }
    reports.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    let slowest: Vec<_> = reports.iter().take(SLOWEST).map(account).collect();
    // Not eprintln, which the test runner keeps to itself where all is well.
    let mut stderr = std::io::stderr();
    writeln!(
        stderr,
        "native: {count} cases, {} failed, {} pipelines compiled, {:.0} s, adapter {:?}\n\
         slowest cases (seconds, running, pipelines):\n{}",
        failed.len(),
        device.counters().pipelines,
        (device.now() - started) / 1e3,
        device.capabilities().adapter,
        slowest.join("\n")
    )
    .expect("stderr");
    assert!(count > 0, "no case has {wanted:?} in its name");
    assert!(failed.is_empty(), "{} of {count} cases failed:\n{}", failed.len(), failed.join("\n"));
}

/// What a lane with two devices of one adapter leaves out.
#[test]
fn a_second_device_repeats_only_what_differs() {
    let open =
        || pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device");
    let (first, second, results) = (open(), open(), testing::Results::default());
    let run = |device, seed| {
        let mode = testing::Mode { results: Some(results.clone()), others: Run };
        let report = pollster::block_on(testing::run(device, "loss_sum", seed, mode));
        assert!(report.ok && report.jobs > 0, "{report:?}");
        report
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

/// A lane that samples proves what it does not run, and draws by the seed.
#[test]
fn a_sampling_lane_proves_every_text() {
    let run = |others, seed| {
        let device =
            pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device");
        let mode = testing::Mode { results: None, others };
        let report = pollster::block_on(testing::run(&device, "loss_sum", seed, mode));
        assert!(report.ok, "{report:?}");
        report
    };
    let (whole, checked) = (run(Run, 7), run(Check, 7));
    assert_eq!(whole.unrun, 0);
    assert!(checked.unrun > 0 && checked.jobs < whole.jobs, "{checked:?} of {whole:?}");
    assert!(checked.pipelines < whole.pipelines, "{checked:?} of {whole:?}");
}

/// Kernels with different tasks are no alternatives: of the backward pass by products a sampling lane runs the
/// scores', the sums' and the group sum's kernels, on each of three batches.
#[test]
fn a_sampling_lane_runs_a_kernel_of_each_task() {
    let name = testing::cases(Level::Everyday)
        .into_iter()
        .map(|case| case.name)
        .find(|name| name.starts_with("attention backward by products 4/2 heads of 128"));
    let device = pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device");
    for seed in 0..4 {
        let mode = testing::Mode { results: None, others: Check };
        let name = name.as_deref().expect("heads that share keys");
        let report = pollster::block_on(testing::run(&device, name, seed, mode));
        assert!(report.ok && report.jobs >= 3 * 6, "{report:?}");
    }
}
