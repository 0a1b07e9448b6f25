//! Writes out the loops that WGSL text marks with `#unroll`.
//!
//! An array that a loop indexes stays in registers only where the driver unrolls every such loop, and drivers give up
//! on nests of them: on one NVIDIA GPU the tiled attention kernels ran up to seven times slower with their register
//! tiles left in loops (`docs/decisions/005-register-tiles-are-unrolled.md`).

use std::fmt::Write;

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

    /// The values of its variable, unless its bound is unknown.
    fn values(&self, scope: &Scope<'_>) -> Option<impl Iterator<Item = usize>> {
        Some((self.first..scope.bound(self.bound)?).step_by(self.step))
    }
}

const UNROLL: &str = "unroll ";

/// `text` with every marked loop up to a number or one of `sizes` (by name) replaced by copies of its body; other marks
/// go. A body that joins the variable's number to names (`#NAME`) is copied without braces: what it declares stays known.
pub(super) fn unroll(text: &str, sizes: &[(&'static str, usize)]) -> String {
    let mut out = String::with_capacity(2 * text.len());
    Scope { sizes, variables: vec![] }.write(text, &mut out);
    out
}

/// What is known at a place in the text.
struct Scope<'a> {
    sizes: &'a [(&'static str, usize)],
    /// The variables of the loops around it, the innermost last.
    variables: Vec<(&'a str, usize)>,
}

impl<'a> Scope<'a> {
    /// The value of an identifier, unless it is none of a variable.
    fn value(&self, name: &str) -> Option<usize> {
        let known = self.variables.iter().rev().find(|(variable, _)| *variable == name);
        known.map(|(_, value)| *value)
    }

    /// The variable whose number `text`, which follows a `#`, joins to a name.
    fn joined(&self, text: &str) -> Option<(&'a str, usize)> {
        self.variables.iter().rev().find(|(variable, _)| joins(text, variable)).copied()
    }

    fn bound(&self, bound: &str) -> Option<usize> {
        let mut name = String::new();
        self.write(bound, &mut name);
        let size = || self.sizes.iter().find(|(size, _)| *size == name).map(|(_, size)| *size);
        literal(&name).or_else(size)
    }

    /// Writes text whose variables have these values.
    fn write(&self, text: &'a str, out: &mut String) {
        let bytes = text.as_bytes();
        // What is written, and what is read.
        let (mut done, mut at) = (0, 0);
        while at < bytes.len() {
            if self.variables.is_empty() && bytes[at] != b'#' {
                at += text[at..].find('#').unwrap_or(text.len() - at);
            } else if word(bytes[at].into()) {
                let length = bytes[at..].iter().take_while(|&&byte| word(byte.into())).count();
                let name = &text[at..at + length];
                let member = at > 0 && bytes[at - 1] == b'.';
                if let Some(value) = self.value(name).filter(|_| !member) {
                    let _ = write!(out, "{}{value}u", &text[done..at]);
                    done = at + name.len();
                }
                at += name.len();
            } else if bytes[at] == b'#' {
                let marked = &text[at + 1..];
                if let Some(found) = marked.strip_prefix(UNROLL) {
                    out.push_str(&text[done..at]);
                    done = text.len() - found.len() + self.copies(found, out);
                    at = done;
                } else if let Some((name, number)) = self.joined(marked) {
                    let _ = write!(out, "{}{number}", &text[done..at]);
                    done = at + 1 + name.len();
                    at = done;
                } else {
                    at += 1;
                }
            } else {
                at += 1;
            }
        }
        out.push_str(&text[done..]);
    }

    /// Writes the copies of the loop that `text` begins with: its length, or 0 where it stays a loop.
    fn copies(&self, text: &'a str, out: &mut String) -> usize {
        let Some(header) = Header::of(text) else { return 0 };
        let Some(values) = header.values(self) else { return 0 };
        let body = &text[header.len..];
        let body = &body[..closing(body, [b'{', b'}'])];
        debug_assert!(!body.contains("break") && !body.contains("continue"), "{body}");
        let joins = body.split('#').skip(1).any(|behind| joins(behind, header.name));
        let [open, close] = if joins { ["", ""] } else { ["{", "}"] };
        for value in values {
            let mut variables = self.variables.clone();
            variables.push((header.name, value));
            out.push_str(open);
            Self { variables, ..*self }.write(body, out);
            out.push_str(close);
        }
        header.len + body.len() + 1
    }
}

/// Whether text that follows a `#` stands for the number of a variable: `sum_#i_#j`.
fn joins(text: &str, variable: &str) -> bool {
    let rest = text.strip_prefix(variable);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

fn literal(text: &str) -> Option<usize> {
    text.strip_suffix('u')?.parse().ok()
}

/// Bytes up to the bracket that closes what `text` begins inside of.
pub(super) fn closing(text: &str, [open, close]: [u8; 2]) -> usize {
    let mut depth = 1;
    let closes = |byte: u8| {
        depth += i32::from(byte == open) - i32::from(byte == close);
        depth == 0
    };
    text.bytes().position(closes).unwrap_or(text.len())
}

/// Whether a character may be in an identifier.
pub(super) fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
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
