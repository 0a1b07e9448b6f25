//! `bindgen MODULE FOLDER NAME [expression]`: writes the module and its JavaScript, for the web, into the folder. The
//! JavaScript is an ES module, or with `expression` one that is bound to `wasm_bindgen`.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder, name, form @ ..] = &args[..] else {
        eprintln!("usage: bindgen MODULE FOLDER NAME [expression]");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(true).omit_default_module_path(true);
    let formed = if form == ["expression"] { bindgen.no_modules(true) } else { bindgen.web(true) };
    match formed.and_then(|formed| formed.generate(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
