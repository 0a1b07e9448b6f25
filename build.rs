//! Embeds the shaders without comments, as a list of paths and texts that the crate's preprocessor reads. Sets
//! `testing` where the feature is on and the folders of the tests are there: the published crate has none.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=shaders");
    println!("cargo::rustc-check-cfg=cfg(testing)");
    let of_tests = ["src/testing/mod.rs", "src/twins/mod.rs"];
    if of_tests.iter().all(|file| Path::new(file).exists()) {
        of_tests.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
        if env::var_os("CARGO_FEATURE_TESTING").is_some() {
            println!("cargo::rustc-cfg=testing");
        }
    }
    let mut files = vec![];
    collect(Path::new("shaders"), "", &mut files)?;
    files.sort();
    fs::write(out.join("shaders.rs"), format!("&{files:#?}"))
}

/// The files of a folder with `path` in front of their names, without the ending.
fn collect(folder: &Path, path: &str, files: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (file, name) = {
            let entry = entry?;
            (entry.path(), format!("{path}{}", entry.file_name().to_string_lossy()))
        };
        if file.is_dir() {
            collect(&file, &format!("{name}/"), files)?;
        } else if let Some(name) = name.strip_suffix(".wgsl") {
            files.push((name.to_owned(), strip(&fs::read_to_string(&file)?)));
        }
    }
    Ok(())
}

/// WGSL has no string literals: `//` always begins a comment. Lines keep their numbers, for messages.
fn strip(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or("").trim_end().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}
