//! What the published crate carries.

use crate::sources::of_family_tests;
use std::process::Command;

/// What tests alone need.
const OF_TESTS: [&str; 3] = ["src/testing/", "src/twins/", "src/web/testing.rs"];

#[test]
fn the_published_crate_has_no_tests_of_kernels() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--allow-dirty", "--offline"]);
    let listed = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let files = String::from_utf8(listed.stdout).unwrap().replace('\\', "/");
    let files: Vec<&str> = files.lines().collect();
    for needed in ["build.rs", "src/lib.rs", "src/web/mod.rs", "shaders/lib/", "README.md"] {
        assert!(files.iter().any(|file| file.starts_with(needed)), "no {needed} in {files:?}");
    }
    let of_tests =
        |file: &&&str| OF_TESTS.iter().any(|name| file.starts_with(name)) || of_family_tests(file);
    let found: Vec<_> = files.iter().filter(of_tests).collect();
    println!("{} files", files.len());
    assert!(found.is_empty(), "the published crate has what tests alone need: {found:?}");
}
