//! The files of `src`, and what of their text is code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The Rust files of `src`.
pub(crate) fn all_files() -> Vec<PathBuf> {
    let mut files = vec![];
    sources(&root(), &mut files);
    files
}

/// Whether a path is of the tests in a folder of a family of kernels, or of an optimizer.
pub(crate) fn of_family_tests(path: &str) -> bool {
    ["/twin.rs", "/twin/", "/cases.rs", "/cases/"].iter().any(|name| path.contains(name))
}

/// The Rust files of `src` that are no tests, with their first folder or file: `kernels` of
/// `kernels/norm.rs`.
pub(crate) fn rooms() -> Vec<(String, PathBuf, String)> {
    let root = root();
    let mut files = all_files();
    let tests: BTreeSet<PathBuf> = files.iter().flat_map(|path| test_files(path)).collect();
    assert!(tests.iter().all(|path| files.contains(path)), "{tests:?}");
    files.retain(|path| !tests.contains(path) && !of_family_tests(path.to_str().unwrap()));
    assert!(files.len() > 100 && tests.len() > 5, "{} and {} files", files.len(), tests.len());
    files
        .into_iter()
        .map(|path| {
            let inside = path.strip_prefix(&root).unwrap();
            let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            (first.trim_end_matches(".rs").to_owned(), path, text)
        })
        .collect()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// What marks code of tests.
const MARKS: [&str; 3] = ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(testing)]"];

/// What these mark: where each begins in the text, and the line after it.
fn marked(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let marks = MARKS.map(|mark| text.match_indices(mark));
    let line = |at: usize| text[at..].lines().nth(1).unwrap_or("").trim();
    marks.into_iter().flatten().map(move |(at, _)| (at, line(at)))
}

/// A line without what says who may see its item.
fn item(line: &str) -> &str {
    line.strip_prefix("pub(crate) ").unwrap_or(line)
}

/// The files that a file has as modules for tests alone: `#[cfg(test)] mod tests;`.
fn test_files(path: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(path).unwrap();
    let owner = path.file_stem().is_some_and(|stem| stem == "mod" || stem == "lib");
    let folder = if owner { path.parent().unwrap().to_owned() } else { path.with_extension("") };
    let name = |(_, line): (usize, &str)| {
        Some(item(line).strip_prefix("mod ")?.strip_suffix(';')?.to_owned() + ".rs")
    };
    marked(&text).filter_map(name).map(|name| folder.join(name)).collect()
}

/// Lines of code: no comments, and nothing from a module of tests on that the file has in itself.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let inline = |(_, line): &(usize, &str)| item(line).starts_with("mod ") && line.ends_with('{');
    let end = marked(text).filter(inline).map(|(at, _)| at).min().unwrap_or(text.len());
    let fields: Vec<_> = marked(text).map(|(_, line)| line).filter(|l| l.ends_with(',')).collect();
    let lines = (1..).zip(text[..end].lines());
    lines.filter(move |(_, line)| {
        !line.trim_start().starts_with("//") && !fields.contains(&line.trim())
    })
}

/// The text without comments, and with every string empty: words in them name nothing.
pub(crate) fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let string = |open: &str, close: &str| rest.strip_prefix(open)?.split_once(close);
        let in_word = bare.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let raw = || string("r#\"", "\"#").or_else(|| string("r\"", "\"")).filter(|_| !in_word);
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some((_, after)) = raw() {
            bare += "\"\"";
            rest = after;
        } else if c == '"' {
            bare += "\"\"";
            rest = behind_string(&rest[1..]);
        } else if let Some(after) = ["'\"'", "'\\\"'"].iter().find_map(|c| rest.strip_prefix(c)) {
            bare += "' '";
            rest = after;
        } else {
            bare.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    bare
}

/// What follows a string that has begun.
fn behind_string(text: &str) -> &str {
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or("", |end| &text[end + 1..])
}

#[test]
fn strings_and_comments_name_nothing() {
    let text = "use a; // use b;\nlet c = \"use d; \\\" use e;\"; r#\"use \" f;\"# '\"' use g;";
    assert_eq!(bare(text), "use a; \nlet c = \"\"; \"\" ' ' use g;");
}

#[test]
fn only_modules_of_tests_are_cut() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\nuse crate::c;\n#[cfg(test)]\nfn d() {}\nfn e() {}\n\
                #[cfg(all(test, feature = \"testing\"))]\nmod tests {\nuse crate::f;\n}\n";
    assert_eq!(code(text).last(), Some((7, "fn e() {}")));
    let tests = test_files(&root().join("session/mod.rs"));
    assert!(tests.contains(&root().join("session/fake.rs")), "{tests:?}");
    let of_config =
        ["family_tests.rs", "form_tests.rs", "tests.rs", "typescript_tests.rs", "worst_tests.rs"];
    let of_config = of_config.map(|file| root().join("config").join(file));
    assert_eq!(test_files(&root().join("config.rs")), of_config);
}
