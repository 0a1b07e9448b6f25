//! The paths that code names.

use crate::sources::{bare, code};
use std::path::Path;

/// [`paths`] of the module `name`, from the crate's root on.
pub(crate) fn absolute(name: &str, text: &str) -> Vec<Vec<String>> {
    let own: Vec<String> = name.split("::").map(str::to_owned).collect();
    let whole = |path: Vec<String>| {
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path[0].as_str() {
            "crate" => path[1..].to_vec(),
            "super" => [&own[..own.len().saturating_sub(ups)], &path[ups..]].concat(),
            "self" => [&own[..], &path[1..]].concat(),
            _ => [&own[..], &path[..]].concat(),
        }
    };
    paths(text).into_iter().map(whole).filter(|path| !path.is_empty()).collect()
}

/// `kernels::norm` of `kernels/norm.rs`, `kernels` of `kernels/mod.rs`.
pub(crate) fn module(path: &Path) -> String {
    let text = path.with_extension("").to_str().unwrap().replace(['/', '\\'], "::");
    text.trim_end_matches("::mod").to_owned()
}

/// Every path that code names from `crate`, `self`, `super` or a child on, and every path of a `use`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = code(text).map(|(_, line)| line).collect();
    let text = bare(&lines.join("\n"));
    let mut found = used(&text);
    let children = lines.iter().filter_map(|line| {
        let (visible, name) = line.trim().split_once("mod ")?;
        (visible.is_empty() || visible.starts_with("pub")).then_some(name.strip_suffix(';')?)
    });
    let children = children.map(|name| format!("{name}::"));
    let starts = ["crate::", "super::", "self::"].map(str::to_owned);
    for start in starts.into_iter().chain(children) {
        for (at, _) in text.match_indices(&start) {
            // A path's middle, or the room of a `pub(in …)`.
            let inside = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c))
                || text[..at].ends_with("(in ");
            let path: String = text[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || "_:".contains(*c))
                .collect();
            if !inside {
                found.push(split(&path));
            }
        }
    }
    found.retain(|path| path.len() > 1);
    found
}

/// Every path of a `use`.
pub(crate) fn used(text: &str) -> Vec<Vec<String>> {
    let (mut found, mut rest) = (vec![], text);
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].ends_with(['\n', ' ', ')']) || at == 0;
        rest = &rest[at + "use ".len()..];
        let Some(end) = rest.find(';').filter(|_| begins) else { continue };
        expand(&unnamed(&rest[..end]), &mut found);
    }
    found
}

/// A `use` without white space and without the names that it gives.
fn unnamed(tree: &str) -> String {
    let mut parts: Vec<&str> = tree.split(" as ").collect();
    for part in &mut parts[1..] {
        let name = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        *part = &part[name..];
    }
    parts.concat().split_whitespace().collect()
}

/// The paths of a `use`, braces opened.
fn expand(tree: &str, found: &mut Vec<Vec<String>>) {
    let Some(open) = tree.find('{') else { return found.push(split(tree)) };
    let (first, inside) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(open + 1)]);
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            expand(&format!("{first}{}", &inside[from..at]), found);
            from = at + 1;
        }
    }
}

fn split(path: &str) -> Vec<String> {
    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
