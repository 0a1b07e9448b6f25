//! The preprocessor of WGSL: `docs/architecture.md`, "How a kernel's text is made", has its grammar.
//!
//! `#import` and the conditions are resolved when a kernel is composed. Operands and `#unroll` stay in the composed text,
//! by which kernels are compared, until [`super::operand`] and [`super::unroll`] write them out for a pipeline.

use super::operand::{Binding, DeclaredOperand, declaration};
use super::unroll::{Header, word};
use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Every file below `shaders`: its path without the ending, and its text without comments.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// What each file consists of, once a kernel has needed it: a plan composes hundreds of kernels of the same files.
static PIECES: [OnceLock<Result<Vec<Block>>>; FILES.len()] =
    [const { OnceLock::new() }; FILES.len()];

/// A directive, or the lines up to the next one.
#[derive(Debug)]
struct Block {
    /// Number of its first line.
    line: usize,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    Text(String),
    Import(&'static str),
    /// The line, and the bound of the loop.
    Unroll(&'static str, &'static str),
    Operand(DeclaredOperand),
    Binding(DeclaredOperand),
    If(Condition),
    Elif(Condition),
    Else,
    Endif,
}

/// `NAME` or `!NAME`.
#[derive(Debug)]
struct Condition {
    flag: &'static str,
    is: bool,
}

impl Condition {
    fn of(text: &'static str) -> Self {
        let negated = text.strip_prefix('!');
        Self { flag: negated.unwrap_or(text), is: negated.is_none() }
    }
}

fn error(name: &str, line: usize, what: &str) -> Error {
    Error::internal(format!("shaders/{name}.wgsl:{line}: {what}"))
}

/// Takes a file apart.
///
/// # Errors
/// `internal`, with file and line, for what the grammar does not have.
fn pieces(name: &str, text: &'static str) -> Result<Vec<Block>> {
    let mut pieces: Vec<Block> = vec![];
    let mut open = 0_usize;
    for (line, text) in (1..).zip(text.lines()) {
        let element = |rest: &&str| rest.trim_start_matches(word).starts_with('[');
        let marked = text.trim_start().strip_prefix('#').filter(|rest| !element(rest));
        let Some(marked) = marked else {
            if text.is_empty() {
                continue;
            }
            if let Some(Block { kind: BlockKind::Text(before), .. }) = pieces.last_mut() {
                before.extend([text, "\n"]);
            } else {
                pieces.push(Block { line, kind: BlockKind::Text(format!("{text}\n")) });
            }
            continue;
        };
        let kind = directive(text, marked).map_err(|what| error(name, line, &what))?;
        match kind {
            BlockKind::If(_) => open += 1,
            BlockKind::Elif(_) | BlockKind::Else | BlockKind::Endif if open == 0 => {
                return Err(error(name, line, &meaningless(text)));
            }
            BlockKind::Endif => open -= 1,
            _ => {}
        }
        pieces.push(Block { line, kind });
    }
    if open > 0 {
        return Err(Error::internal(format!("shaders/{name}.wgsl: an #if has no #endif")));
    }
    Ok(pieces)
}

fn meaningless(line: &str) -> String {
    format!("`{}` means nothing here", line.trim())
}

/// The directive of a line, by what follows its mark.
fn directive(line: &'static str, marked: &'static str) -> Result<BlockKind, String> {
    let operand = |declared: &'static str| {
        let (name, of) = declared.split_once(": ").ok_or("not `NAME: TYPE`")?;
        Ok::<_, String>(DeclaredOperand { name, of })
    };
    Ok(match marked.split_once(' ').unwrap_or((marked, "")) {
        ("import", path) => BlockKind::Import(path),
        ("unroll", header) => {
            let form = "`for (var NAME = FIRST; NAME < BOUND; NAME++)`";
            let header = Header::of(header).ok_or_else(|| format!("not {form}"))?;
            BlockKind::Unroll(line, header.bound)
        }
        ("operand", declared) => BlockKind::Operand(operand(declared)?),
        ("binding", declared) => BlockKind::Binding(operand(declared)?),
        ("if", condition) => BlockKind::If(Condition::of(condition)),
        ("elif", condition) => BlockKind::Elif(Condition::of(condition)),
        ("else", "") => BlockKind::Else,
        ("endif", "") => BlockKind::Endif,
        _ => return Err(meaningless(line)),
    })
}

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
    /// What `#operand` declares in the text, in order.
    pub operands: Vec<DeclaredOperand>,
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
        text: String,
    ) -> Self {
        Self { flags, header, bindings, imported: Vec::new(), operands: Vec::new(), text }
    }

    /// Adds a file, unless it is in the text already.
    ///
    /// # Errors
    /// `internal`, with file and line, for what the grammar does not have.
    pub fn import(&mut self, path: &str) -> Result<()> {
        let at = FILES
            .binary_search_by_key(&path, |(name, _)| name)
            .map_err(|_| Error::internal(format!("there is no shaders/{path}.wgsl")))?;
        let (name, text) = FILES[at];
        if self.imported.contains(&name) {
            return Ok(());
        }
        self.imported.push(name);
        match PIECES[at].get_or_init(|| pieces(name, text)) {
            Ok(pieces) => self.add(name, pieces),
            Err(error) => Err(error.clone()),
        }
    }

    fn add(&mut self, name: &str, pieces: &[Block]) -> Result<()> {
        let mut branches: Vec<Branch> = vec![];
        for Block { line, kind } in pieces {
            let at = |what: String| error(name, *line, &what);
            let included = branches.iter().all(|branch| branch.taken);
            match (kind, branches.last_mut()) {
                (BlockKind::If(condition), _) => {
                    let taken = included && self.holds(condition).map_err(at)?;
                    branches.push(Branch { taken, settled: taken || !included });
                }
                (BlockKind::Elif(condition), Some(branch)) => {
                    branch.taken = !branch.settled && self.holds(condition).map_err(at)?;
                    branch.settled |= branch.taken;
                }
                (BlockKind::Else, Some(branch)) => {
                    branch.taken = !branch.settled;
                    branch.settled = true;
                }
                (BlockKind::Endif, _) => {
                    branches.pop();
                }
                _ if !included => {}
                (BlockKind::Text(lines), _) => self.text.push_str(lines),
                (BlockKind::Import(path), _) => self.import(path)?,
                (BlockKind::Unroll(line, bound), _) => {
                    self.check_bound(bound).map_err(at)?;
                    self.text.extend([line, "\n"]);
                }
                (BlockKind::Operand(operand), _) => {
                    self.index(operand).map_err(at)?;
                    self.text.push_str(&operand.line());
                    self.operands.push(*operand);
                }
                (BlockKind::Binding(operand), _) => {
                    let index = self.index(operand).map_err(at)?;
                    self.text.push_str(&declaration(index, self.bindings[index], operand.of));
                }
                (BlockKind::Elif(_) | BlockKind::Else, None) => {}
            }
        }
        Ok(())
    }

    fn holds(&self, Condition { flag, is }: &Condition) -> Result<bool, String> {
        let known = self.flags.iter().find(|(name, _)| name == flag);
        let (_, value) = known.ok_or_else(|| format!("the kernel has no flag `{flag}`"))?;
        Ok(value == is)
    }

    /// Where the table of bindings has an operand.
    fn index(&self, DeclaredOperand { name, .. }: &DeclaredOperand) -> Result<usize, String> {
        let index = self.bindings.iter().position(|binding| binding.name == *name);
        index.ok_or_else(|| format!("the kernel has no operand `{name}`"))
    }

    fn check_bound(&self, bound: &str) -> Result<(), String> {
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
        let mut made = Preprocessor::new(
            vec![("YES", true), ("NO", false)],
            "const ROWS: u32 = 2u;",
            &[],
            String::new(),
        );
        let text = text.to_owned().leak();
        let added = pieces("a", text).and_then(|pieces| made.add("a", &pieces));
        added.map_err(|error| error.message)?;
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
        let mut made = Preprocessor::new(vec![], "", &[], String::new());
        let twice = pieces("a", "#import lib/flat\n#import lib/flat\nend").unwrap();
        made.add("a", &twice).unwrap();
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
