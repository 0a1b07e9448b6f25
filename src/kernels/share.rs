//! A kernel over bindings that it shares with other kernels: each of its operands is a view into one of them. So the
//! dispatches of a layer have one bind group, which is set once (`docs/decisions/059-one-bind-group-per-layer.md`).

use super::compose::{Access, Binding, Kernel, View, Wgsl};
use super::unroll::{closing, word};
use std::fmt::Write;

impl Kernel {
    /// The same kernel over these bindings, one view for each operand. None where a binding would need two types, where
    /// its name means something else in the text, and where a view begins inside an element.
    pub fn sharing(&self, bindings: &[Binding], views: &[View]) -> Option<Self> {
        let (mut text, own, types) = undeclared(&self.wgsl.composed, bindings, views)?;
        let taken = |(index, binding): (usize, &Binding)| {
            let own = |view: &View| view.binding == index && view.operand.name == binding.name;
            !views.iter().any(own) && named(&text, binding.name)
        };
        if bindings.iter().enumerate().any(taken) {
            return None;
        }
        for (view, own) in views.iter().zip(own) {
            let (operand, binding) = (view.operand.name, bindings[view.binding]);
            if binding.access == Access::Uniform {
                continue;
            }
            let of_vectors = Some(own) != types[view.binding];
            text = moved(&text, operand, (binding.name, of_vectors), elements(own, view.offset)?);
        }
        // Directives come first, and then constants, which declarations do not need.
        let end = text.find("\n\n")? + 1;
        text.insert_str(end, &declarations(bindings, &types));
        let wgsl = Wgsl { composed: text, unrolled: self.wgsl.unrolled.clone() };
        let variant = format!("{}, shared bindings", self.variant);
        Some(Self { wgsl, variant, bindings: bindings.to_vec(), ..self.clone() })
    }
}

const NUMBERS: &str = "array<f32>";
const VECTORS: &str = "array<vec4<f32>>";

/// A text without the lines that declare its operands; the types of these, and of each binding.
type Undeclared<'a> = (String, Vec<&'a str>, Vec<Option<&'a str>>);

fn undeclared<'a>(text: &'a str, bindings: &[Binding], views: &[View]) -> Option<Undeclared<'a>> {
    let mut types = vec![None; bindings.len()];
    let mut own = vec![""; views.len()];
    let mut rest = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let Some((name, of)) = declaration(line) else {
            rest.push_str(line);
            continue;
        };
        let index = views.iter().position(|view| view.operand.name == name)?;
        own[index] = of;
        let binding = views[index].binding;
        let reads = bindings[binding].access == Access::Read;
        types[binding] = match (types[binding], of) {
            (None, of) => Some(of),
            (Some(all), of) if all == of => Some(of),
            // Numbers that lie beside vectors are read out of these.
            (Some(VECTORS), NUMBERS) | (Some(NUMBERS), VECTORS) if reads => Some(VECTORS),
            _ => return None,
        };
    }
    Some((rest, own, types))
}

fn declarations(bindings: &[Binding], types: &[Option<&str>]) -> String {
    let mut text = String::new();
    for (index, (binding, of)) in bindings.iter().zip(types).enumerate() {
        let (space, of) = match binding.access {
            Access::Uniform => ("uniform", of.unwrap_or("vec4<u32>")),
            Access::Read => ("storage, read", of.unwrap_or(NUMBERS)),
            Access::ReadWrite => ("storage, read_write", of.unwrap_or(NUMBERS)),
        };
        let name = binding.name;
        let _ = writeln!(text, "@group(0) @binding({index}) var<{space}> {name}: {of};");
    }
    text
}

/// The variable that a line declares to be bound, and its type.
fn declaration(line: &str) -> Option<(&str, &str)> {
    let (_, variable) = line.strip_prefix("@group(0) @binding(")?.split_once("> ")?;
    variable.strip_suffix(";\n")?.split_once(": ")
}

/// Elements of a runtime-sized array in so many bytes, if these are whole ones.
fn elements(array: &str, bytes: u64) -> Option<u64> {
    let size = match array.strip_prefix("array<")? {
        "f32>" | "u32>" => 4,
        "vec2<f32>>" | "vec2<u32>>" => 8,
        "vec4<f32>>" | "vec4<u32>>" => 16,
        _ => return None,
    };
    bytes.is_multiple_of(size).then_some(bytes / size)
}

/// Whether a text has a name that is not a member's.
fn named(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + name.len()..]);
        !begun(before) && !behind.starts_with(word)
    })
}

/// Whether what comes behind a text is the end of a longer name, or a member.
fn begun(before: &str) -> bool {
    before.ends_with(|c| word(c) || c == '.')
}

/// The text with each element of `from` taken from `to`, so many elements behind; perhaps out of vectors.
fn moved(text: &str, from: &str, (to, of_vectors): (&str, bool), by: u64) -> String {
    if from == to && by == 0 && !of_vectors {
        return text.to_owned();
    }
    let indexed = format!("{from}[");
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(&indexed) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        rest = &found[indexed.len()..];
        if begun(before) {
            out.push_str(&indexed);
            continue;
        }
        let index = &rest[..closing(rest, ['[', ']'])];
        rest = &rest[index.len()..];
        // An index may have elements of its own operand in it.
        let index = moved(index, from, (to, of_vectors), by);
        let _ = match of_vectors {
            false => write!(out, "{to}[{by}u+({index})"),
            true => write!(out, "{to}[({by}u+({index}))/4u][({by}u+({index}))%4u"),
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::compose::Spec;
    use crate::kernels::compose::{read, read_write, uniform};

    #[test]
    fn elements_are_found_behind_those_of_others() {
        let text = "fn f(a:u32){c[i+1u]=a+ a[c[i]];}\nlet b=x.a[1];let d=va[2];";
        let once = moved(text, "a", ("own", false), 3);
        assert_eq!(once, text.replace("a+ a[c[i]]", "a+ own[3u+(c[i])]"));
        let both = moved(&once, "c", ("own", false), 1);
        assert!(
            both.starts_with("fn f(a:u32){own[1u+(i+1u)]=a+ own[3u+(own[1u+(i)])];}"),
            "{both}"
        );
        assert_eq!(moved("a[a[i]]", "a", ("a", false), 2), "a[2u+(a[2u+(i)])]");
        assert_eq!(moved("a[a[i]]", "a", ("a", false), 0), "a[a[i]]");
        assert_eq!(moved("a[i]", "a", ("own", true), 8), "own[(8u+(i))/4u][(8u+(i))%4u]");
    }

    #[test]
    fn only_whole_elements_are_moved() {
        assert_eq!(elements("array<vec4<f32>>", 32), Some(2));
        assert_eq!(elements("array<vec2<u32>>", 24), Some(3));
        assert_eq!(elements("array<f32>", 4), Some(1));
        for (other, bytes) in [
            ("Step", 16),
            ("array<Quad>", 16),
            ("array<atomic<u32>>", 16),
            ("array<f32,4>", 16),
            ("array<vec4<f32>>", 8),
            ("array<f32>", 2),
        ] {
            assert_eq!(elements(other, bytes), None, "{other}");
        }
    }

    /// A kernel over `a`, `c` and `step` of which bindings are shared.
    fn shared(a: &str, views: [(usize, u64); 3]) -> Option<String> {
        let caps = crate::caps::Capabilities::floor(crate::caps::Target::Native);
        let mut kernel = crate::kernels::Zero { count: 8 }.kernel(&caps).unwrap();
        kernel.wgsl.composed = format!(
            "const N:u32=1u;\n\n@group(0) @binding(0) var<storage, read> a: {a};\n\
             @group(0) @binding(1) var<storage, read_write> c: array<f32>;\n\
             @group(0) @binding(2) var<uniform> step: Step;\nfn run(){{c[N]=f32(a[step.position]);}}\n"
        );
        let operands = [read("a"), read_write("c"), uniform("step")];
        let view = |(operand, (binding, offset))| View { operand, binding, offset };
        let views: Vec<View> = operands.into_iter().zip(views).map(view).collect();
        let bindings = [read_write("own"), read("other"), uniform("step")];
        Some(kernel.sharing(&bindings, &views)?.wgsl.text())
    }

    #[test]
    fn operands_share_a_binding_where_their_types_agree() {
        let text = shared("array<f32>", [(0, 64), (0, 128), (2, 0)]).unwrap();
        assert!(text.contains("own[32u+(N)]=f32(own[16u+(step.position)]);"), "{text}");
        assert!(text.contains("@binding(0) var<storage, read_write> own: array<f32>;"), "{text}");
        assert!(text.contains("@binding(1) var<storage, read> other: array<f32>;"), "{text}");
        assert!(text.contains("@binding(2) var<uniform> step: Step;"), "{text}");
        assert_eq!(text.matches("@binding").count(), 3, "{text}");
        assert_eq!(shared("array<vec4<f32>>", [(0, 64), (0, 128), (2, 0)]), None);
        assert_eq!(shared("array<f32>", [(0, 66), (0, 128), (2, 0)]), None);
        assert!(shared("array<vec4<f32>>", [(1, 64), (0, 128), (2, 0)]).is_some());
        let vectors = "array<f32>;\nfn other(){}\n//";
        assert_eq!(shared(vectors, [(1, 64), (0, 128), (2, 0)]), None, "a name that is taken");
    }
}
