//! WGSL with named accumulators instead of arrays.
//!
//! Some compilers keep an array that is indexed in a loop in memory even when every index is known:
//! on SwiftShader a product with 4×4 results per invocation ran at 0.2 GFLOP/s with arrays and at
//! 1.7 with the same loop written out, 16×16 at 3 to 4 (two cores, 768×256×128).

use crate::products::{Form, LinearShape};
use std::fmt::Write;

/// Steps of K written out in one turn of the direct product's loop.
const DIRECT_STEPS: usize = 4;

fn sum_name(i: usize, j: usize) -> String {
    format!("sum_{i}_{j}")
}

/// What `03_matmul_direct.wgsl` leaves to its host: the binding of its sizes, and `block`, which has TM×TN results in
/// named vectors and DIRECT_STEPS of K a turn.
pub(super) fn direct_block(
    &LinearShape { form, n, k, .. }: &LinearShape,
    [tm, tn]: [usize; 2],
    sizes_binding: usize,
) -> String {
    let mut text = format!(
        "@group(0) @binding({sizes_binding}) var<uniform> sizes: vec4<u32>;\n\
         fn block(m0: u32, n0: u32, m_end: u32, k_end: u32, column: u32, target_column: u32) {{\n"
    );
    for i in 0..tm {
        for j in 0..tn / 4 {
            let _ = writeln!(text, "  var {} = vec4<f32>();", sum_name(i, j));
        }
    }
    let _ = writeln!(text, "  for (var k = 0u; k < k_end; k += {DIRECT_STEPS}u) {{");
    match form {
        Form::MatmulT => dot_steps(&mut text, tm, tn),
        Form::Matmul => row_steps(&mut text, tm, tn, !k.is_multiple_of(DIRECT_STEPS)),
        Form::MatmulAt => (0..DIRECT_STEPS).for_each(|step| outer_step(&mut text, tm, tn, step)),
    }
    text.push_str("  }\n");
    store_rows(&mut text, n, [tm, tn]);
    text.push_str("}\n");
    text
}

/// Stores what lies in C. Each turn stores the first row, and every other row moves up by one. Compilers for CPUs make
/// branches of each load and store in the text: with all rows written out they take two to three times as long, and
/// lavapipe ten times with an array that the loop indexes (`docs/decisions/033-compiling-on-swiftshader.md`). Vectors
/// are checked only where a block may end past the last column.
fn store_rows(text: &mut String, n: usize, [tm, tn]: [usize; 2]) {
    let _ = writeln!(text, "  for (var row = m0; row < min(m0 + {tm}u, m_end); row++) {{");
    for j in 0..tn / 4 {
        let (col, sum) = (j * 4, sum_name(0, j));
        let store = format!("store_c(row, n0 + {col}u, target_column, {sum});");
        let _ = if n.is_multiple_of(tn) {
            writeln!(text, "    {store}")
        } else {
            writeln!(text, "    if n0 + {col}u < N {{ {store} }}")
        };
    }
    for i in 1..tm {
        for j in 0..tn / 4 {
            let _ = writeln!(text, "    {} = {};", sum_name(i - 1, j), sum_name(i, j));
        }
    }
    text.push_str("  }\n");
}

fn fetch_left_rows(text: &mut String, tm: usize) {
    for i in 0..tm {
        let _ =
            writeln!(text, "    let left_{i} = fetch_a(min(m0 + {i}u, m_end - 1u), k, column);");
    }
}

/// Both operands run along K: each four results are sums of dot products, as a product with the
/// transposed four rows.
fn dot_steps(text: &mut String, tm: usize, tn: usize) {
    fetch_left_rows(text, tm);
    for j in 0..tn / 4 {
        for lane in 0..4 {
            let col = j * 4 + lane;
            let _ = writeln!(
                text,
                "    let right_{col} = elements_b(fetch_b(min(n0 + {col}u, N - 1u), k));"
            );
        }
        for i in 0..tm {
            let dots: Vec<_> =
                (0..4).map(|lane| format!("dot(left_{i}, right_{})", j * 4 + lane)).collect();
            let _ = writeln!(text, "    {} += vec4({});", sum_name(i, j), dots.join(", "));
        }
    }
}

/// Four columns of `b` in one step of K; past the end of K those of its last row, where `ends` says that there may be
/// such steps.
fn fetch_right(text: &mut String, step: usize, j: usize, ends: bool) {
    let row = if ends { format!("min(k + {step}u, k_end - 1u)") } else { format!("k + {step}u") };
    let _ = writeln!(
        text,
        "    let right_{step}_{j} = elements_b(fetch_b({row}, min(n0 + {}u, (N - 1u) / 4u * 4u)));",
        j * 4
    );
}

/// Rows of `b` scaled by the elements of `a`'s rows, which are zero past the end of K.
fn row_steps(text: &mut String, tm: usize, tn: usize, ends: bool) {
    fetch_left_rows(text, tm);
    let mut left = "left";
    if ends {
        left = "within";
        for i in 0..tm {
            let _ = writeln!(
                text,
                "    let within_{i} = select(vec4<f32>(), left_{i}, k + vec4(0u, 1u, 2u, 3u) < vec4(k_end));"
            );
        }
    }
    for step in 0..DIRECT_STEPS {
        for j in 0..tn / 4 {
            fetch_right(text, step, j, ends);
            for i in 0..tm {
                add_scaled(text, [i, j], &format!("{left}_{i}"), step, step);
            }
        }
    }
}

/// Adds four columns of `b` in a step of K, scaled by an element of four.
fn add_scaled(text: &mut String, [i, j]: [usize; 2], left: &str, lane: usize, step: usize) {
    let lane = ["x", "y", "z", "w"][lane];
    let _ = writeln!(text, "    {} += {left}.{lane} * right_{step}_{j};", sum_name(i, j));
}

/// One outer product of a row of `a`, which is zero past the end of K, with a row of `b`.
fn outer_step(text: &mut String, tm: usize, tn: usize, step: usize) {
    for i in 0..tm / 4 {
        let fetch = format!(
            "fetch_a(min(k + {step}u, k_end - 1u), min(m0 + {}u, (m_end - 1u) / 4u * 4u), column)",
            i * 4
        );
        let _ = writeln!(
            text,
            "    let left_{step}_{i} = select(vec4<f32>(), {fetch}, k + {step}u < k_end);"
        );
    }
    for j in 0..tn / 4 {
        fetch_right(text, step, j, true);
        for i in 0..tm {
            add_scaled(text, [i, j], &format!("left_{step}_{}", i / 4), i % 4, step);
        }
    }
}

/// A head's vector as a struct of named members, with the operations that attention needs:
/// `head_dot`, `head_axpy` (y + s · x), `head_scale`.
pub(super) fn head_module(vectors: usize) -> String {
    let each = |separator: &str, item: &dyn Fn(usize) -> String| {
        (0..vectors).map(item).collect::<Vec<_>>().join(separator)
    };
    let mut text = format!("struct Head {{ {} }}\n", each(", ", &|i| format!("v{i}: vec4<f32>")));
    let _ = writeln!(
        text,
        "fn head_dot(a: Head, b: Head) -> f32 {{\n  return {};\n}}",
        each(" + ", &|i| format!("dot(a.v{i}, b.v{i})"))
    );
    let _ = writeln!(
        text,
        "fn head_axpy(y: Head, s: f32, x: Head) -> Head {{\n  return Head({});\n}}",
        each(", ", &|i| format!("y.v{i} + s * x.v{i}"))
    );
    let _ = writeln!(
        text,
        "fn head_scale(s: f32, x: Head) -> Head {{\n  return Head({});\n}}",
        each(", ", &|i| format!("s * x.v{i}"))
    );
    text
}

/// Whole heads through functions of one vector: `loads` and `stores` are (function, vector function)
/// pairs, all of which take a batch item, a row and a head first.
pub(super) fn head_access(
    vectors: usize,
    loads: &[(&str, &str)],
    stores: &[(&str, &str)],
) -> String {
    let each = |separator: &str, item: &dyn Fn(usize) -> String| {
        (0..vectors).map(item).collect::<Vec<_>>().join(separator)
    };
    let mut text = String::new();
    for (function, vector) in loads {
        let items = each(", ", &|i| format!("{vector}(item, row, head, {i}u)"));
        let _ = writeln!(
            text,
            "fn {function}(item: u32, row: u32, head: u32) -> Head {{\n  return Head({items});\n}}"
        );
    }
    for (function, vector) in stores {
        let items = each("\n  ", &|i| format!("{vector}(item, row, head, {i}u, x.v{i});"));
        let _ = writeln!(
            text,
            "fn {function}(item: u32, row: u32, head: u32, x: Head) {{\n  {items}\n}}"
        );
    }
    text
}
