//! The preprocessor of WGSL: `docs/architecture.md`, "How a kernel's text is made", has its grammar.
//!
//! `#import` and the conditions are resolved when a kernel is composed. Operands and `#unroll` stay in the composed text,
//! by which kernels are compared, until [`super::operand`] and [`super::unroll`] write them out for a pipeline.

use super::operand::{Binding, OPERAND, declaration};
use super::unroll::{Header, word};
use crate::error::{Error, Result};

/// Every file below `shaders`: its path without the ending, and its text without comments.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// A text that is put together.
#[derive(Debug)]
pub(super) struct Preprocessor<'a> {
    /// What `#if` may ask.
    flags: Vec<(&'static str, bool)>,
    /// The kernel's constants, up to which loops may go.
    header: &'a str,
    /// Its operands.
    bindings: &'a [Binding],
    /// The files that are in the text, in order.
    pub imported: Vec<&'static str>,
    pub text: String,
}

/// An `#if` that is open.
struct Branch {
    /// Whether the lines at hand are in the text.
    taken: bool,
    /// Whether no later branch can be.
    settled: bool,
}

impl<'a> Preprocessor<'a> {
    pub const fn new(
        flags: Vec<(&'static str, bool)>,
        header: &'a str,
        bindings: &'a [Binding],
    ) -> Self {
        Self { flags, header, bindings, imported: Vec::new(), text: String::new() }
    }

    /// Adds a file, unless it is in the text already.
    ///
    /// # Errors
    /// `internal`, with file and line, for what the grammar does not have.
    pub fn import(&mut self, path: &str) -> Result<()> {
        let found = FILES.binary_search_by_key(&path, |(name, _)| name);
        let (name, text) = found
            .map(|at| FILES[at])
            .map_err(|_| Error::internal(format!("there is no shaders/{path}.wgsl")))?;
        if self.imported.contains(&name) {
            return Ok(());
        }
        self.imported.push(name);
        self.lines(name, text)
    }

    fn lines(&mut self, name: &str, text: &str) -> Result<()> {
        let mut branches = vec![];
        for (index, line) in text.lines().enumerate() {
            let at = |what: String| {
                Error::internal(format!("shaders/{name}.wgsl:{}: {what}", index + 1))
            };
            let included = branches.iter().all(|branch: &Branch| branch.taken);
            let element = |rest: &&str| rest.trim_start_matches(word).starts_with('[');
            let marked = line.trim_start().strip_prefix('#').filter(|rest| !element(rest));
            let Some(directive) = marked else {
                if included && !line.is_empty() {
                    self.text.push_str(line);
                    self.text.push('\n');
                }
                continue;
            };
            let (what, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            match (what, rest, branches.last_mut()) {
                ("import" | "unroll" | "operand" | "binding", ..) if !included => {}
                ("import", path, _) => self.import(path)?,
                ("unroll", header, _) => {
                    self.check_loop(header).map_err(at)?;
                    self.text.push_str(line);
                    self.text.push('\n');
                }
                ("operand", declared, _) => {
                    self.operand(declared).map_err(at)?;
                    self.text.extend([OPERAND, declared, "\n"]);
                }
                ("binding", declared, _) => {
                    let (index, of) = self.operand(declared).map_err(at)?;
                    self.text.push_str(&declaration(index, self.bindings[index], of));
                }
                ("if", flag, _) => {
                    let taken = included && self.flag(flag).map_err(at)?;
                    branches.push(Branch { taken, settled: taken || !included });
                }
                ("elif", flag, Some(branch)) => {
                    branch.taken = !branch.settled && self.flag(flag).map_err(at)?;
                    branch.settled |= branch.taken;
                }
                ("else", "", Some(branch)) => {
                    branch.taken = !branch.settled;
                    branch.settled = true;
                }
                ("endif", "", Some(_)) => {
                    branches.pop();
                }
                _ => return Err(at(format!("`{}` means nothing here", line.trim()))),
            }
        }
        match branches.as_slice() {
            [] => Ok(()),
            _ => Err(Error::internal(format!("shaders/{name}.wgsl: an #if has no #endif"))),
        }
    }

    /// The value of `NAME` or `!NAME`.
    fn flag(&self, condition: &str) -> Result<bool, String> {
        let name = condition.strip_prefix('!').unwrap_or(condition);
        let known = self.flags.iter().find(|(flag, _)| *flag == name);
        let (_, is) = known.ok_or_else(|| format!("the kernel has no flag `{name}`"))?;
        Ok(*is != condition.starts_with('!'))
    }

    /// Where the table of bindings has what is declared so, and its type.
    fn operand<'d>(&self, declared: &'d str) -> Result<(usize, &'d str), String> {
        let (name, of) = declared.split_once(": ").ok_or("not `NAME: TYPE`")?;
        let bound = self.bindings.iter().position(|binding| binding.name == name);
        bound.map(|at| (at, of)).ok_or_else(|| format!("the kernel has no operand `{name}`"))
    }

    fn check_loop(&self, header: &str) -> Result<(), String> {
        let form = "`for (var NAME = FIRST; NAME < BOUND; NAME++)`";
        let Header { bound, .. } = Header::of(header).ok_or_else(|| format!("not {form}"))?;
        // Bounds with a number of another loop in their names are known when that is written out.
        let known = bound.contains('#')
            || bound.starts_with(|c: char| c.is_ascii_digit())
            || self.header.contains(&format!("const {bound}: u32"));
        if known { Ok(()) } else { Err(format!("the kernel has no size `{bound}`")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<String, String> {
        let mut made =
            Preprocessor::new(vec![("YES", true), ("NO", false)], "const ROWS: u32 = 2u;", &[]);
        made.lines("a", text).map_err(|error| error.message)?;
        Ok(made.text.replace('\n', " "))
    }

    #[test]
    fn conditions_choose_lines() {
        assert_eq!(lines("a\n#if YES\nb\n#else\nc\n#endif\nd").unwrap(), "a b d ");
        assert_eq!(lines("#if NO\nb\n#else\nc\n#endif").unwrap(), "c ");
        assert_eq!(lines("#if !NO\nb\n  #if NO\nc\n  #endif\n#endif").unwrap(), "b ");
        let chain = |first: &str, second: &str| {
            lines(&format!("#if {first}\na\n#elif {second}\nb\n#elif YES\nc\n#else\nd\n#endif"))
        };
        assert_eq!(chain("YES", "YES").unwrap(), "a ");
        assert_eq!(chain("NO", "YES").unwrap(), "b ");
        assert_eq!(chain("NO", "NO").unwrap(), "c ");
        assert_eq!(lines("  #a[i] = 1u;\n#if NO\n#a[j]\n#endif").unwrap(), "  #a[i] = 1u; ");
        // What is left out names no flag and no file that the kernel lacks.
        let out = "#if NO\n#if OTHER\na\n#elif YES\nb\n#else\nc\n#endif\n#import none\n#endif";
        assert_eq!(lines(out).unwrap(), "");
    }

    #[test]
    fn files_are_imported_once() {
        let mut made = Preprocessor::new(vec![], "", &[]);
        made.lines("a", "#import lib/flat\n#import lib/flat\nend").unwrap();
        assert_eq!(made.imported, ["lib/flat"]);
        assert_eq!(made.text.matches("fn flat_id").count(), 1, "{}", made.text);
        assert!(made.text.ends_with("}\nend\n") && !made.text.contains("//"), "{}", made.text);
        assert!(FILES.is_sorted(), "a path is found by bisection");
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, what) in [
            ("a\n#if OTHER\n#endif", "shaders/a.wgsl:2: the kernel has no flag `OTHER`"),
            ("#if YES", "shaders/a.wgsl: an #if has no #endif"),
            ("#else", "shaders/a.wgsl:1: `#else` means nothing here"),
            ("\n#endif", "shaders/a.wgsl:2: `#endif` means nothing here"),
            ("#elif YES", "shaders/a.wgsl:1: `#elif YES` means nothing here"),
            ("  #define A", "shaders/a.wgsl:1: `#define A` means nothing here"),
            ("#import none", "there is no shaders/none.wgsl"),
            (
                "#unroll for (var i = 0u; i < OTHER; i++) {",
                "shaders/a.wgsl:1: the kernel has no size `OTHER`",
            ),
            ("#operand a: f32", "shaders/a.wgsl:1: the kernel has no operand `a`"),
            ("#operand a", "shaders/a.wgsl:1: not `NAME: TYPE`"),
            ("#binding a: f32", "shaders/a.wgsl:1: the kernel has no operand `a`"),
            ("#unroll while true {", "shaders/a.wgsl:1: not `for (var NAME = FIRST;"),
        ] {
            let message = lines(text).unwrap_err();
            assert!(message.starts_with(what), "{message}");
        }
        for bound in ["ROWS", "4u", "HALF_#j"] {
            let text = format!("#unroll for (var i = 0u; i < {bound}; i += 2u) {{");
            assert_eq!(lines(&text).unwrap(), format!("{text} "));
        }
    }
}
