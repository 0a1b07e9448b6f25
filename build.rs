//! Copies the shaders without comments, indentation and spaces around operators: what a browser has to download is
//! a fifth smaller, and the sources keep their words. Also tells the crate whether the folders of its tests are there.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("shaders");
    println!("cargo::rerun-if-changed=shaders");
    println!("cargo::rustc-check-cfg=cfg(unpublished)");
    let of_tests = ["src/testing/mod.rs", "src/twins/mod.rs"];
    if of_tests.iter().all(|file| Path::new(file).exists()) {
        of_tests.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
        println!("cargo::rustc-cfg=unpublished");
    }
    copy(Path::new("shaders"), &out)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().expect("a file has a name");
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else if path.extension().is_some_and(|extension| extension == "wgsl") {
            fs::write(to.join(name), strip(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}

/// WGSL has no string literals: `//` always begins a comment.
fn strip(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or("").trim().to_owned();
    let lines: Vec<_> =
        text.lines().map(code).filter(|line| !line.is_empty()).map(|line| tight(&line)).collect();
    lines.join("\n") + "\n"
}

/// Operators that mean the same without spaces: `-` could become `--`, and `&` could become `&&`.
const OPERATORS: [&str; 14] =
    ["+=", "*=", "==", "!=", "<=", ">=", "&&", "||", "+", "*", "/", "%", "<", ">"];

/// A line without the spaces that mean nothing. Loops keep those of their headers, which the crate reads.
fn tight(line: &str) -> String {
    let mut line = line.replace(", ", ",").replace(": ", ":").replace(" {", "{");
    line = line.replace(" -> ", "->");
    if line.contains("for (") {
        return line;
    }
    for operator in OPERATORS {
        line = line.replace(&format!(" {operator} "), operator);
    }
    // The end of a type before it could be read as another operator.
    if line.contains("> =") { line } else { line.replace(" = ", "=") }
}
