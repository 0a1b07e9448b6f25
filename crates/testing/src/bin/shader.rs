//! `npm run shader -- KERNEL [--adapter NAME]`: the composed WGSL of every variant of a kernel that
//! selection returns for an adapter of the tests' table, each with its variant, reason and bindings.

use std::collections::HashSet;
use std::process::ExitCode;
use tinyloom::caps::Target;
use tinyloom_testing::{catalogue, gpu_adapters};

const USAGE: &str = "usage: npm run shader -- KERNEL [--adapter NAME]";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// The texts, or what is wrong with the arguments.
fn run(arguments: Vec<String>) -> Result<String, String> {
    let (wanted, adapter) = match arguments.as_slice() {
        [kernel] => (kernel, "WebGPU floor"),
        [kernel, flag, adapter] if flag == "--adapter" => (kernel, adapter.as_str()),
        _ => return Err(USAGE.into()),
    };
    let table = gpu_adapters::table(Target::Browser);
    let names = || table.iter().map(|caps| caps.adapter.description.as_str()).collect::<Vec<_>>();
    let caps = table.iter().find(|caps| caps.adapter.description == adapter);
    let caps =
        caps.ok_or_else(|| format!("no adapter {adapter}; there are: {}", names().join(", ")))?;
    let entries = catalogue::kernels(caps);
    let (mut texts, mut kernels, mut seen) = (vec![], vec![], HashSet::new());
    for (shape, kernel) in entries {
        let Ok(kernel) = kernel else { continue };
        kernels.push(kernel.name);
        if kernel.name != *wanted || !seen.insert(kernel.variant.clone()) {
            continue;
        }
        let bindings = kernel.bindings.iter().map(|b| format!("{} {:?}", b.name, b.access));
        let bindings: Vec<_> = bindings.collect();
        texts.push(format!(
            "// {}: {shape}\n// variant {}: {}\n// modules: {}\n// bindings: {}\n// grid {:?}\n{}",
            kernel.name,
            kernel.variant,
            kernel.reason,
            kernel.modules.join(", "),
            bindings.join(", "),
            kernel.grid,
            kernel.wgsl.text()
        ));
    }
    if texts.is_empty() {
        kernels.sort_unstable();
        kernels.dedup();
        return Err(format!("no kernel {wanted}; there are: {}", kernels.join(", ")));
    }
    Ok(texts.join("\n"))
}
