//! Embeds the shaders without comments, as a list of paths and texts that the crate's preprocessor reads.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let shaders = folder()?;
    println!("cargo::rerun-if-changed={}", shaders.display());
    // cargo compares times of files, and a `target` that was copied is newer than every shader. `npm run build` gives the
    // hash of their contents.
    println!("cargo::rerun-if-env-changed=TINYLOOM_SHADERS");
    let mut files = vec![];
    collect(&shaders, "", &mut files)?;
    files.sort();
    fs::write(out.join("shaders.rs"), format!("&{files:#?}"))
}

/// The folder of the shaders. In the repository `shaders` is a symbolic link, and in a checkout without links a file with
/// the path that it leads to.
fn folder() -> io::Result<PathBuf> {
    let link = Path::new("shaders");
    Ok(if link.is_dir() { link.into() } else { fs::read_to_string(link)?.trim().into() })
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
