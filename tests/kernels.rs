//! The lane of native wgpu: every case of `tinyloom::testing` on this machine's adapter. A missing
//! adapter fails. `TINYLOOM_CASE` selects cases by a part of their names, `TINYLOOM_SEED` repeats a
//! run, `TINYLOOM_LEVEL=full` adds the products that the everyday cases sample.
#![cfg(feature = "testing")]

use std::time::{SystemTime, UNIX_EPOCH};
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
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

#[test]
fn every_case_passes_on_this_adapter() {
    let wanted = std::env::var("TINYLOOM_CASE").unwrap_or_default();
    let device = pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device");
    let (started, mut failed, mut count) = (device.now(), Vec::new(), 0);
    let mut cases = testing::cases(level());
    cases.retain(|case| case.name.contains(&wanted));
    for case in &cases {
        let report = pollster::block_on(testing::run(&device, &case.name, seed()));
        println!(
            "{}/{} {} {}: {} [{} pipelines, {:.0} ms]",
            count + 1,
            cases.len(),
            if report.ok { "ok    " } else { "FAILED" },
            report.name,
            report.detail,
            report.pipelines,
            report.milliseconds
        );
        count += 1;
        if !report.ok {
            failed.push(format!("{}: {}", report.name, report.detail));
        }
    }
    eprintln!(
        "native: {count} cases, {} failed, {} pipelines compiled, {:.0} s, adapter {:?}",
        failed.len(),
        device.counters().pipelines,
        (device.now() - started) / 1e3,
        device.capabilities().adapter
    );
    assert!(count > 0, "no case has {wanted:?} in its name");
    assert!(failed.is_empty(), "{} of {count} cases failed:\n{}", failed.len(), failed.join("\n"));
}
