//! Unrolls loops of WGSL text whose bound is a constant of the kernel.
//!
//! An array that a loop indexes stays in registers only where the driver unrolls every such loop, and drivers give up
//! on nests of them: on one NVIDIA GPU the tiled attention kernels ran up to seven times slower with their register
//! tiles left in loops (`docs/decisions/005-register-tiles-are-unrolled.md`). The sources keep their loops, and mean
//! the same without this pass.

/// A loop's header taken apart: `for (var NAME = FIRST; NAME < BOUND; NAME++ or NAME += STEP) {`.
struct Header<'a> {
    name: &'a str,
    first: usize,
    bound: &'a str,
    step: usize,
    /// Bytes from the keyword to the opening brace, that one included.
    len: usize,
}

/// `text` with every loop up to one of `sizes` (by name) replaced by copies of its body.
pub(super) fn unroll(text: &str, sizes: &[(&'static str, usize)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("for (var ") {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let size = header(found)
            .and_then(|h| sizes.iter().find(|(name, _)| *name == h.bound).map(|s| (h, s.1)));
        let Some((header, bound)) = size else {
            let keyword = "for".len();
            out.push_str(&found[..keyword]);
            rest = &found[keyword..];
            continue;
        };
        let body_len = closing(&found[header.len..], ['{', '}']);
        let body = &found[header.len..header.len + body_len];
        debug_assert!(!body.contains("break") && !body.contains("continue"), "{body}");
        for value in (header.first..bound).step_by(header.step) {
            let copy = substitute(body, header.name, &format!("{value}u"));
            out.push('{');
            out.push_str(&unroll(&copy, sizes));
            out.push('}');
        }
        rest = &found[header.len + body_len + 1..];
    }
    out.push_str(rest);
    out
}

fn header(text: &str) -> Option<Header<'_>> {
    let end = text.find('{')?;
    let inside = text[..end].strip_prefix("for (var ")?.trim_end().strip_suffix(')')?;
    let (start, more) = inside.split_once(';')?;
    let (condition, advance) = more.split_once(';')?;
    let (name, first) = start.split_once(" = ")?;
    let bound = condition.trim().strip_prefix(name)?.strip_prefix(" < ")?;
    let advance = advance.trim().strip_prefix(name)?;
    let step = match advance {
        "++" => 1,
        other => literal(other.strip_prefix(" += ")?)?,
    };
    Some(Header { name, first: literal(first)?, bound, step, len: end + 1 })
}

fn literal(text: &str) -> Option<usize> {
    text.strip_suffix('u')?.parse().ok()
}

/// Bytes up to the bracket that closes what `text` begins inside of.
pub(super) fn closing(text: &str, [open, close]: [char; 2]) -> usize {
    let mut depth = 1;
    for (i, c) in text.char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return i;
        }
    }
    text.len()
}

/// Whether a character may be in an identifier.
pub(super) fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces an identifier, but not members of that name.
fn substitute(text: &str, name: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, found) = rest.split_at(at);
        let after = &found[name.len()..];
        let last = before.chars().next_back().or(out.chars().next_back());
        let whole = !last.is_some_and(|c| word(c) || c == '.') && !after.starts_with(word);
        out.push_str(before);
        out.push_str(if whole { value } else { name });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_become_copies() {
        let text = "for (var r = 0u; r < RQ; r++) {\n  for (var j = 1u; j < RK; j += 2u) { a[r][j] += x.r * row; }\n}\nend";
        let got = unroll(text, &[("RQ", 2), ("RK", 4)]);
        let flat: String = got.split_whitespace().collect();
        let each = |r: u32, j: u32| format!("{{a[{r}u][{j}u]+=x.r*row;}}");
        let row = |r: u32| format!("{{{}{}}}", each(r, 1), each(r, 3));
        assert_eq!(flat, format!("{}{}end", row(0), row(1)));
    }

    #[test]
    fn other_loops_stay() {
        let text = "for (var k = 0u; k < BK; k++) { s += t[k]; } for (var i = lane; i < RQ; i += W) { x(i); }";
        assert_eq!(unroll(text, &[("RQ", 2)]), text);
        assert_eq!(unroll("for (var r = 0u; r < RQ; r++) { x(); }", &[("RQ", 0)]), "");
    }
}
