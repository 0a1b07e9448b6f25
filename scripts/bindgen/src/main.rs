//! `bindgen MODULE FOLDER NAME`: writes the module and its JavaScript, for the web, into the folder.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder, name] = &args[..] else {
        eprintln!("usage: bindgen MODULE FOLDER NAME");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(true).omit_default_module_path(true);
    match bindgen.web(true).and_then(|web| web.generate(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
