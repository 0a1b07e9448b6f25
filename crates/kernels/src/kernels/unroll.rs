//! Writes out the loops that WGSL text marks with `#unroll`.
//!
//! An array that a loop indexes stays in registers only where the driver unrolls every such loop, and drivers give up
//! on nests of them: on one NVIDIA GPU the tiled attention kernels ran up to seven times slower with their register
//! tiles left in loops (`docs/decisions/005-register-tiles-are-unrolled.md`).

/// A loop's header taken apart: `for (var NAME = FIRST; NAME < BOUND; NAME++ or NAME += STEP) {`.
pub(super) struct Header<'a> {
    name: &'a str,
    first: usize,
    pub bound: &'a str,
    step: usize,
    /// Bytes from the keyword to the opening brace, that one included.
    len: usize,
}

impl<'a> Header<'a> {
    /// The header that `text` begins with.
    pub fn of(text: &'a str) -> Option<Self> {
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

    /// The values of its variable, unless its bound is none of `sizes`.
    fn values(&self, sizes: &[(&'static str, usize)]) -> Option<impl Iterator<Item = usize>> {
        let size = || sizes.iter().find(|(name, _)| *name == self.bound).map(|(_, size)| *size);
        Some((self.first..literal(self.bound).or_else(size)?).step_by(self.step))
    }
}

const UNROLL: &str = "#unroll ";

/// `text` with every marked loop up to a number or one of `sizes` (by name) replaced by copies of its body; other marks
/// go. A body that joins the variable's number to names (`#NAME`) is copied without braces: what it declares stays known.
pub(super) fn unroll(text: &str, sizes: &[(&'static str, usize)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found)) = rest.split_once(UNROLL) {
        out.push_str(before);
        rest = found;
        let Some(header) = Header::of(found) else { continue };
        let Some(values) = header.values(sizes) else { continue };
        let body = &found[header.len..];
        let body = &body[..closing(body, ['{', '}'])];
        debug_assert!(!body.contains("break") && !body.contains("continue"), "{body}");
        let joins = join(body, header.name, "") != body;
        let [open, close] = if joins { ["", ""] } else { ["{", "}"] };
        for value in values {
            let copy = join(body, header.name, &value.to_string());
            let copy = substitute(&copy, header.name, &format!("{value}u"));
            out.push_str(open);
            out.push_str(&unroll(&copy, sizes));
            out.push_str(close);
        }
        rest = &found[header.len + body.len() + 1..];
    }
    out.push_str(rest);
    out
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

/// Joins a number to the names that ask for it: `sum_#i_#j`.
fn join(text: &str, name: &str, number: &str) -> String {
    let mut parts = text.split('#');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.strip_prefix(name);
        match rest.filter(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric())) {
            Some(rest) => out.extend([number, rest]),
            None => out.extend(["#", part]),
        }
    }
    out
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
        let text = "#unroll for (var r = 0u; r < RQ; r++) {\n  #unroll for (var j = 1u; j < RK; j += 2u) { a[r][j] += x.r * row; }\n}\nend";
        let got = unroll(text, &[("RQ", 2), ("RK", 4)]);
        let flat: String = got.split_whitespace().collect();
        let each = |r: u32, j: u32| format!("{{a[{r}u][{j}u]+=x.r*row;}}");
        let row = |r: u32| format!("{{{}{}}}", each(r, 1), each(r, 3));
        assert_eq!(flat, format!("{}{}end", row(0), row(1)));
        assert_eq!(
            unroll("#unroll for (var r = 1u; r < 3u; r++) {x[r];}", &[]),
            "{x[1u];}{x[2u];}"
        );
    }

    #[test]
    fn numbers_are_joined_to_names() {
        let text = "#unroll for (var i = 0u; i < 2u; i++) {#unroll for (var j = 0u; j < N_#i; j++) {var s#i_#j = i + j;}}";
        let got = unroll(text, &[("N_0", 1), ("N_1", 2)]);
        assert_eq!(got, "var s0_0 = 0u + 0u;var s1_0 = 1u + 0u;var s1_1 = 1u + 1u;");
    }

    #[test]
    fn a_variable_may_be_named_as_a_directive_begins() {
        let text = "#unroll for (var u = 0u; u < 1u; u++) {#unroll for (var i = 0u; i < 1u; i++) {a[u] = s_#i_x;}}";
        assert_eq!(unroll(text, &[]), "{a[0u] = s_0_x;}");
    }

    #[test]
    fn other_loops_stay() {
        let text = "for (var k = 0u; k < BK; k++) { s += t[k]; } for (var i = lane; i < RQ; i += W) { x(i); }";
        assert_eq!(unroll(text, &[("RQ", 2), ("BK", 2)]), text);
        // A loop up to a size that is not written out loses its mark only.
        assert_eq!(unroll(&text.replacen("for", "#unroll for", 1), &[("RQ", 2)]), text);
        assert_eq!(unroll("#unroll for (var r = 0u; r < RQ; r++) { x(); }", &[("RQ", 0)]), "");
    }
}
