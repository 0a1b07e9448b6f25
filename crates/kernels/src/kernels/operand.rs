//! What stands in a text for a kernel's operands: `docs/architecture.md`, "How a kernel's text is made", has the grammar.
//!
//! `#operand a: array<f32>` declares one, and `#a[i]` is its element i. Where an operand is bound is no part of a
//! kernel's choice: each has a binding of its own, or the dispatches of a layer share theirs
//! (`docs/decisions/059-one-bind-group-per-layer.md`).

use super::unroll::{closing, word};
use serde::Serialize;

/// How a kernel uses what is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Read,
    ReadWrite,
    Uniform,
}

/// A row of a kernel's binding table. A test holds both columns against what naga reads from the WGSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Binding {
    /// The variable in WGSL.
    pub name: &'static str,
    pub access: Access,
}

pub(crate) const fn read(name: &'static str) -> Binding {
    Binding { name, access: Access::Read }
}

pub(crate) const fn read_write(name: &'static str) -> Binding {
    Binding { name, access: Access::ReadWrite }
}

pub(crate) const fn uniform(name: &'static str) -> Binding {
    Binding { name, access: Access::Uniform }
}

/// Where an operand is: in a binding, at an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub operand: &'static str,
    pub binding: usize,
    pub offset: u64,
}

/// What `#operand NAME: TYPE` declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DeclaredOperand {
    pub name: &'static str,
    pub of: &'static str,
}

impl DeclaredOperand {
    /// The line of a composed text, in whose place [`written`] puts a declaration.
    pub fn line(self) -> String {
        format!("#operand {}: {}\n", self.name, self.of)
    }
}

/// How a text declares, reads and writes an operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Accessor {
    operand: &'static str,
    /// The declaration of its binding, unless an operand before it has that.
    pub declaration: String,
    /// The variable of its binding.
    variable: &'static str,
    /// Elements in front of it.
    first: u64,
    /// Whether its binding is of vectors, and the operand of numbers.
    of_vectors: bool,
}

const NUMBERS: &str = "array<f32>";
const VECTORS: &str = "array<vec4<f32>>";

/// Bytes of an element of a runtime-sized array.
fn size(array: &str) -> Option<u64> {
    match array.strip_prefix("array<")? {
        "f32>" | "u32>" => Some(4),
        "vec2<f32>>" | "vec2<u32>>" => Some(8),
        "vec4<f32>>" | "vec4<u32>>" => Some(16),
        _ => None,
    }
}

/// The type of a binding that operands of these types share: numbers may be read out of vectors.
fn shared<'a>(access: Access, of: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut of: Vec<&str> = of.collect();
    of.sort_unstable();
    of.dedup();
    match (&of[..], access) {
        ([], Access::Uniform) => Some("vec4<u32>"),
        ([], _) => Some(NUMBERS),
        ([one], _) => Some(one),
        ([NUMBERS, VECTORS], Access::Read) => Some(VECTORS),
        _ => None,
    }
}

/// The line that declares what is bound at an index.
pub(super) fn declaration(index: usize, Binding { name, access }: Binding, of: &str) -> String {
    let space = match access {
        Access::Uniform => "uniform",
        Access::Read => "storage, read",
        Access::ReadWrite => "storage, read_write",
    };
    format!("@group(0) @binding({index}) var<{space}> {name}: {of};\n")
}

impl Accessor {
    /// The accessors of the operands that a text declares, and the declarations of bindings that have none of these
    /// operands. None where a binding would need two types, and where an operand begins inside an element.
    pub fn all(
        declared: &[DeclaredOperand],
        bindings: &[Binding],
        placements: &[Placement],
    ) -> Option<(Vec<Self>, String)> {
        let placed = |DeclaredOperand { name, of }: &DeclaredOperand| {
            Some((*placements.iter().find(|it| it.operand == *name)?, *of))
        };
        let operands: Vec<(Placement, &str)> =
            declared.iter().map(placed).collect::<Option<_>>()?;
        let mut types = vec![];
        let mut declarations = vec![];
        for (index, &Binding { name, access }) in bindings.iter().enumerate() {
            let inside = operands.iter().filter(|(it, _)| it.binding == index);
            let of = shared(access, inside.map(|(_, of)| *of))?;
            declarations.push(declaration(index, Binding { name, access }, of));
            types.push(of);
        }
        let accessor = |(Placement { operand, binding, offset }, of)| {
            let size = if offset == 0 { 1 } else { size(of)? };
            Some(Self {
                operand,
                declaration: std::mem::take(&mut declarations[binding]),
                variable: bindings[binding].name,
                first: offset.is_multiple_of(size).then_some(offset / size)?,
                of_vectors: of != types[binding],
            })
        };
        let accessors = operands.into_iter().map(accessor).collect::<Option<_>>()?;
        Some((accessors, declarations.concat()))
    }

    /// The accessors of operands that have a binding each, in this order. A text may declare some of them in WGSL.
    pub fn alone(declared: &[DeclaredOperand], bindings: &[Binding]) -> Option<Vec<Self>> {
        let placement =
            |(binding, of): (usize, &Binding)| Placement { operand: of.name, binding, offset: 0 };
        let placements: Vec<Placement> = bindings.iter().enumerate().map(placement).collect();
        Self::all(declared, bindings, &placements).map(|(accessors, _)| accessors)
    }

    fn element(&self, index: &str) -> String {
        let &Self { variable, first, of_vectors, .. } = self;
        let place = if first == 0 { index.to_owned() } else { format!("{first}u+({index})") };
        if of_vectors {
            format!("{variable}[({place})/4u][({place})%4u]")
        } else {
            format!("{variable}[{place}]")
        }
    }
}

/// A text with what stands for its operands.
pub(super) fn written(text: &str, accessors: &[Accessor]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found)) = rest.split_once('#') {
        out.push_str(before);
        let (found, declares) = match found.strip_prefix("operand ") {
            Some(declared) => (declared, true),
            None => (found, false),
        };
        let (name, behind) = found.split_at(found.find(|c| !word(c)).unwrap_or(found.len()));
        let accessor = accessors.iter().find(|it| it.operand == name);
        match (accessor, behind.strip_prefix('[')) {
            (Some(accessor), _) if declares => {
                out.push_str(&accessor.declaration);
                rest = behind.split_once('\n').map_or("", |(_, behind)| behind);
            }
            (Some(accessor), Some(inside)) => {
                let index = &inside[..closing(inside, [b'[', b']'])];
                // An index may have elements in it.
                out.push_str(&accessor.element(&written(index, accessors)));
                rest = &inside[index.len() + 1..];
            }
            // A number that `#unroll` joins to a name.
            _ => {
                out.push('#');
                rest = found;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERANDS: [&str; 4] = ["a", "b", "c", "step"];

    fn declared(a: &'static str) -> Vec<DeclaredOperand> {
        let types = [a, "array<vec4<f32>>", "array<f32>", "Step"];
        OPERANDS.into_iter().zip(types).map(|(name, of)| DeclaredOperand { name, of }).collect()
    }

    fn text(a: &'static str) -> String {
        let lines: String = declared(a).into_iter().map(DeclaredOperand::line).collect();
        lines + "#c[u32(#a[i])+1u]=a+x.a[0]+#b[s_#i].x;\n"
    }

    /// The text with operands at these bindings and byte offsets.
    fn shared(a: &'static str, places: [(usize, u64); 4]) -> Option<String> {
        let placement = |(operand, (binding, offset))| Placement { operand, binding, offset };
        let placements: Vec<_> = OPERANDS.into_iter().zip(places).map(placement).collect();
        let bindings = [read_write("own"), read("other"), uniform("step"), read("more")];
        let (accessors, rest) = Accessor::all(&declared(a), &bindings, &placements)?;
        Some(written(&text(a), &accessors) + &rest)
    }

    #[test]
    fn operands_have_bindings_of_their_own() {
        let bindings = [read("a"), read_write("c"), read("b"), uniform("step")];
        let text = text("array<Quad>");
        let got = written(&text, &Accessor::alone(&declared("array<Quad>"), &bindings).unwrap());
        let expected = "@group(0) @binding(0) var<storage, read> a: array<Quad>;\n\
            @group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;\n\
            @group(0) @binding(1) var<storage, read_write> c: array<f32>;\n\
            @group(0) @binding(3) var<uniform> step: Step;\n\
            c[u32(a[i])+1u]=a+x.a[0]+b[s_#i].x;\n";
        assert_eq!(got, expected);
    }

    #[test]
    fn operands_share_a_binding_where_their_types_agree() {
        let got = shared("array<f32>", [(0, 64), (1, 0), (0, 128), (2, 0)]).unwrap();
        let expected = "@group(0) @binding(0) var<storage, read_write> own: array<f32>;\n\
            @group(0) @binding(1) var<storage, read> other: array<vec4<f32>>;\n\
            @group(0) @binding(2) var<uniform> step: Step;\n\
            own[32u+(u32(own[16u+(i)])+1u)]=a+x.a[0]+other[s_#i].x;\n\
            @group(0) @binding(3) var<storage, read> more: array<f32>;\n";
        assert_eq!(got, expected);
        let out_of_vectors = shared("array<f32>", [(1, 8), (1, 32), (0, 0), (2, 0)]).unwrap();
        let line = "c[u32(other[(2u+(i))/4u][(2u+(i))%4u])+1u]=a+x.a[0]+other[2u+(s_#i)].x;";
        assert!(out_of_vectors.contains(&line.replace("c[", "own[")), "{out_of_vectors}");
        assert_eq!(shared("array<vec4<f32>>", [(0, 64), (1, 0), (0, 128), (2, 0)]), None);
        assert_eq!(shared("array<u32>", [(1, 64), (1, 0), (0, 128), (2, 0)]), None);
    }

    #[test]
    fn operands_begin_with_a_whole_element() {
        for (of, bytes, may) in [
            ("array<vec4<f32>>", 32, true),
            ("array<vec2<u32>>", 24, true),
            ("array<u32>", 4, true),
            ("array<Quad>", 0, true),
            ("array<Quad>", 16, false),
            ("array<atomic<u32>>", 16, false),
            ("array<vec4<u32>>", 8, false),
            ("array<u32>", 2, false),
        ] {
            let placed = shared(of, [(3, bytes), (1, 0), (0, 0), (2, 0)]);
            assert_eq!(placed.is_some(), may, "{of} behind {bytes} bytes");
        }
    }
}
