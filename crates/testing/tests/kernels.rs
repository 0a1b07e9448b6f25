//! The lane of native wgpu: the cases of `tinyloom_testing` on this machine's adapter. A missing adapter fails.
//!
//! - `kernels`: runs every case; `TINYLOOM_CASE` selects cases by a part of their names, `TINYLOOM_SEED` has other random
//!   data, `TINYLOOM_LEVEL=full` adds the products that the everyday cases sample.
//! - `kernels list FILE`: writes what each case depends on, a line of JSON each.
//! - `kernels run FILE`: runs the cases of a file, which has `own` or `run`, a tab and a name in each line.
//!
//! A line of the output begins with `case ` where JSON of a report follows: tests/lanes/native.test.mjs reads these.

use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
use tinyloom_testing::{self as testing, Level, Listing, Others, Report};

/// Without another one every run has the same random data, so that equal cases have equal keys.
fn seed() -> u64 {
    match std::env::var("TINYLOOM_SEED") {
        Ok(text) => text.parse().expect("TINYLOOM_SEED is an integer"),
        Err(_) => 1,
    }
}

fn level() -> Level {
    match std::env::var("TINYLOOM_LEVEL").as_deref() {
        Ok("full") => Level::Full,
        Err(_) | Ok("") | Ok("everyday") => Level::Everyday,
        Ok(other) => panic!("TINYLOOM_LEVEL is {other:?}, not everyday or full"),
    }
}

/// The names of the cases of the level that are wanted.
fn wanted() -> Vec<String> {
    let part = std::env::var("TINYLOOM_CASE").unwrap_or_default();
    testing::cases(level())
        .into_iter()
        .map(|case| case.name)
        .filter(|n| n.contains(&part))
        .collect()
}

fn device() -> Rc<WgpuDevice> {
    pollster::block_on(WgpuDevice::open(&DeviceRequest::default())).expect("a device")
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(wanted().into_iter().map(|name| (Others::Run, name)).collect()),
        ["list", file] => list(file),
        ["run", file] => {
            let text = std::fs::read_to_string(file).expect("the file of cases");
            run(text.lines().map(chosen).collect())
        }
        _ => panic!("{args:?} is neither `list FILE` nor `run FILE`"),
    }
}

fn chosen(line: &str) -> (Others, String) {
    let (others, name) = line.split_once('\t').expect("a tab in each line");
    (others.parse().expect("own or run"), name.to_owned())
}

fn list(file: &str) -> ExitCode {
    let device = device();
    let mut out = std::fs::File::create(file).expect("a file to write");
    let adapter = serde_json::to_string(&device.capabilities().adapter).expect("JSON");
    writeln!(out, "{adapter}").expect("a line");
    for name in wanted() {
        let listing = pollster::block_on(testing::list(&device, &name, seed()));
        writeln!(out, "{}", serde_json::to_string(&listing).expect("JSON")).expect("a line");
    }
    ExitCode::SUCCESS
}

/// A key stands for a case only where it covers all that the case runs. Fails a case whose listing has other jobs. A
/// run that left kernels out, or ended early, has fewer.
fn compare_with_listing(device: &Rc<WgpuDevice>, report: &mut Report) {
    if !report.ok || report.unrun > 0 {
        return;
    }
    let listing = pollster::block_on(testing::list(device, &report.name, seed()));
    let Some(Listing { key: Some(_), jobs, .. }) = listing else { return };
    if jobs != report.jobs {
        report.ok = false;
        report.detail = format!("{jobs} jobs are listed, and {} were run", report.jobs);
    }
}

fn run(cases: Vec<(Others, String)>) -> ExitCode {
    let device = device();
    let (mut failed, count) = (0, cases.len());
    for (others, name) in cases {
        let mode = testing::Mode { results: None, others };
        let mut report = pollster::block_on(testing::run(&device, &name, seed(), mode));
        compare_with_listing(&device, &mut report);
        failed += usize::from(!report.ok);
        println!("case {}", serde_json::to_string(&report).expect("JSON"));
    }
    println!(
        "native: {count} cases, {failed} failed, {} pipelines compiled, adapter {:?}",
        device.counters().pipelines,
        device.capabilities().adapter
    );
    if failed == 0 && count > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
