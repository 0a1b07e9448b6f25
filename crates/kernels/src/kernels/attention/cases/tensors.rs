//! Families 05 and 10 over tensors: every mask, batches, strides, f16 storage.

use super::forward::{HEADS, SOFTMAX};
use super::tensor_problem::{AxisOrder, Mask, TensorProblem, TensorSetting};
use crate::error::Result;
use crate::kernels::attention::twin::masked::MaskedInputs;
use crate::kernels::{AttentionPass, Element, Kernel};
use crate::testing::harness::{Job, Operand, Outputs};
use crate::testing::lane::Lane;
use crate::testing::ledger::Bits;
use crate::testing::measure::{
    close_to_terms, directional_to_terms, dot, forbid, narrow, of, text,
};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

const PLAIN: TensorSetting = TensorSetting {
    name: "",
    heads: (4, 2, 8),
    batch: 2,
    rows: (37, 37),
    element: Element::F32,
    layouts: [AxisOrder::Heads, AxisOrder::Heads],
    soft_cap: None,
    scale: None,
    mask: Mask::Causal,
    all_kernels: true,
};

fn settings() -> Vec<TensorSetting> {
    use AxisOrder::*;
    let masks = [
        TensorSetting {
            name: "whole",
            mask: Mask::Whole,
            rows: (5, 70),
            layouts: [Rows, Cache],
            ..PLAIN
        },
        TensorSetting { name: "offset", mask: Mask::Offset, batch: 1, rows: (40, 33), ..PLAIN },
        TensorSetting { name: "window", mask: Mask::WindowAndLengths, rows: (33, 35), ..PLAIN },
        TensorSetting { name: "documents", mask: Mask::Documents, layouts: [Rows, Rows], ..PLAIN },
        TensorSetting {
            name: "tree",
            mask: Mask::Tree,
            rows: (34, 80),
            layouts: [Heads, Cache],
            ..PLAIN
        },
        TensorSetting { name: "boolean", mask: Mask::Boolean, rows: (33, 40), batch: 1, ..PLAIN },
        TensorSetting { name: "additive", mask: Mask::Additive, scale: Some(0.3), ..PLAIN },
        TensorSetting {
            name: "additive capped",
            mask: Mask::Additive,
            soft_cap: Some(2.0),
            ..PLAIN
        },
        TensorSetting { name: "f16", element: Element::F16, layouts: [Rows, Cache], ..PLAIN },
        TensorSetting {
            name: "f16 bits",
            element: Element::F16,
            mask: Mask::Tree,
            rows: (9, 70),
            ..PLAIN
        },
    ];
    let sizes = HEADS.map(|heads| TensorSetting {
        name: "causal",
        heads,
        rows: (33, 65),
        all_kernels: false,
        ..PLAIN
    });
    masks.into_iter().chain(sizes).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |setting: TensorSetting| {
        let (heads, kv_heads, head_dim) = setting.heads;
        let name =
            format!("attention tensors {}, {heads}/{kv_heads} heads of {head_dim}", setting.name);
        Case::new(name, move |lane| tensors(lane, setting))
    };
    settings().into_iter().map(case).collect()
}

async fn tensors(lane: Rc<Lane>, setting: TensorSetting) -> Outcome {
    let problem = TensorProblem::new(&lane, setting);
    let (out, lse) = problem.twin.forward(problem.inputs(), &problem.mask.bias);
    forward(&lane, &problem, &out, &lse).await?;
    let statistics = delta(&lane, &problem, &out, &lse).await?;
    gradients(&lane, &problem, &out, &lse, &statistics).await?;
    Ok(lane.summary())
}

async fn forward(
    lane: &Lane,
    problem: &TensorProblem,
    out: &[f64],
    lse: &[f64],
) -> Result<(), String> {
    let compiled = problem.compiled(lane.caps(), false).map_err(text)?;
    let [of_query, of_key] = &problem.placed;
    let [query, key, value, _] = &problem.data;
    let operands = [
        of_query.operand(query),
        of_key.operand(key),
        of_key.operand(value),
        Operand::words(&compiled.mask),
        of_query.poison(),
        Operand::poison(lse.len()),
        Operand::uniform(&compiled.geometry),
    ];
    let kernels = problem.kernels(lane, AttentionPass::Forward.kernel_name()).map_err(text)?;
    let job = |kernel: &Kernel| Job::new(kernel, compiled.rows, operands.to_vec());
    let jobs: Vec<_> = kernels.iter().map(job).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let output = of_query.read(got.words(0)).map_err(&named)?;
        close_to_terms("output", &output, out, &[], problem.tolerance()).map_err(&named)?;
        let (mut seen, mut expected) = (vec![], vec![]);
        for (&got, &exact) in got.floats(1).iter().zip(lse) {
            if exact < -1e29 {
                let wrong = || !(got < -1e29 && got.is_finite());
                let message = || format!("logsumexp {got} of a row that sees nothing");
                forbid("sees nothing", wrong, message).map_err(&named)?;
            } else {
                seen.push(got);
                expected.push(exact);
            }
        }
        let ones = vec![1.0; seen.len()];
        close_to_terms("lse", &seen, &expected, &ones, 2.0 * SOFTMAX).map_err(&named)?;
    }
    Ok(())
}

/// The statistics that the gradients read; checked.
async fn delta(
    lane: &Lane,
    problem: &TensorProblem,
    out: &[f64],
    lse: &[f64],
) -> Result<Vec<f32>, String> {
    let compiled = problem.compiled(lane.caps(), true).map_err(text)?;
    let of_query = &problem.placed[0];
    let operands = [
        of_query.operand(&narrow(out)),
        of_query.operand(&problem.data[3]),
        Operand::floats(&narrow(lse)),
        Operand::poison(2 * lse.len()),
        Operand::uniform(&compiled.geometry),
    ];
    let head_dim = problem.twin.head_dim;
    let products = |out: &[f64], d_out: &[f64]| -> Vec<f64> {
        out.chunks(head_dim).zip(d_out.chunks(head_dim)).map(|(o, d)| dot(o, d)).collect()
    };
    let exact = products(out, &problem.exact[3]);
    let terms: Vec<f64> = vec![1.0; exact.len()];
    let kernels = problem.kernels(lane, "attention_delta_backward").map_err(text)?;
    let job = |kernel: &Kernel| Job::new(kernel, compiled.rows, operands.to_vec());
    let jobs: Vec<_> = kernels.iter().map(job).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let got = got.floats(0);
        let deltas: Vec<f32> = got.iter().skip(1).step_by(2).copied().collect();
        close_to_terms("delta", &deltas, &exact, &terms, problem.tolerance()).map_err(&named)?;
        let other = || got.iter().step_by(2).zip(lse).any(|(&got, &exact)| got != exact as f32);
        let message = || "the logsumexp is not handed on".into();
        forbid(("handed on", Bits(lse)), other, message).map_err(&named)?;
    }
    let pairs = narrow(lse).into_iter().zip(narrow(&exact));
    Ok(pairs.flat_map(|(lse, delta)| [lse, delta]).collect())
}

async fn gradients(
    lane: &Lane,
    problem: &TensorProblem,
    out: &[f64],
    lse: &[f64],
    statistics: &[f32],
) -> Result<(), String> {
    let compiled = problem.compiled(lane.caps(), true).map_err(text)?;
    let [of_query, of_key] = &problem.placed;
    let [query, key, value, d_out] = &problem.data;
    let (twin, bias) = (&problem.twin, &problem.mask.bias);
    let backward = |out: &[f64]| twin.backward(problem.inputs(), bias, out, lse, &problem.exact[3]);
    // Without delta: a term that cancels wholly where a query sees one key.
    let (exact, terms) = (backward(out), backward(&vec![0.0; out.len()]));
    let shared = [
        of_query.operand(query),
        of_key.operand(key),
        of_key.operand(value),
        of_query.operand(d_out),
        Operand::floats(statistics),
        Operand::words(&compiled.mask),
    ];
    let geometry = Operand::uniform(&compiled.geometry);
    let loss = |inputs: MaskedInputs| dot(&twin.forward(inputs, bias).0, &problem.exact[3]);
    let finish =
        |outputs: &[Operand]| [&shared[..], outputs, std::slice::from_ref(&geometry)].concat();
    for kernel in problem.kernels(lane, AttentionPass::Query.kernel_name()).map_err(text)? {
        let operands = finish(&[of_query.poison()]);
        let got = one(lane, &kernel, compiled.rows, operands).await?;
        let named = of(&kernel);
        let got = of_query.read(got.words(0)).map_err(&named)?;
        check(
            lane,
            problem,
            "d_query",
            &got,
            [&exact.query, &terms.query, &problem.exact[0]],
            |x| loss(MaskedInputs { query: x, ..problem.inputs() }),
        )
        .map_err(&named)?;
    }
    for kernel in problem.kernels(lane, AttentionPass::KeyValue.kernel_name()).map_err(text)? {
        let operands = finish(&[of_key.poison(), of_key.poison()]);
        let got = one(lane, &kernel, compiled.rows, operands).await?;
        let named = of(&kernel);
        let d_key = of_key.read(got.words(0)).map_err(&named)?;
        check(lane, problem, "d_key", &d_key, [&exact.key, &terms.key, &problem.exact[1]], |x| {
            loss(MaskedInputs { key: x, ..problem.inputs() })
        })
        .map_err(&named)?;
        let d_value = of_key.read(got.words(1)).map_err(&named)?;
        let sides: [&[f64]; 3] = [&exact.value, &terms.value, &problem.exact[2]];
        check(lane, problem, "d_value", &d_value, sides, |x| {
            loss(MaskedInputs { value: x, ..problem.inputs() })
        })
        .map_err(&named)?;
    }
    Ok(())
}

async fn one(
    lane: &Lane,
    kernel: &Kernel,
    rows: usize,
    operands: Vec<Operand>,
) -> Result<Outputs, String> {
    let outputs = lane.run(&[Job::new(kernel, rows, operands)]).await.map_err(text)?;
    outputs.into_iter().next().ok_or_else(|| "no outputs".into())
}

/// Against the twin's gradient and, in f32, finite differences of its loss.
fn check(
    lane: &Lane,
    problem: &TensorProblem,
    what: &str,
    got: &[f32],
    [exact, terms, point]: [&[f64]; 3],
    loss: impl Fn(&[f64]) -> f64,
) -> Result<(), String> {
    close_to_terms(what, got, exact, terms, problem.tolerance())?;
    if problem.setting.element == Element::F16 {
        return Ok(());
    }
    let direction = lane.normal(got.len());
    directional_to_terms(what, got, terms, point, &direction, loss)
}
