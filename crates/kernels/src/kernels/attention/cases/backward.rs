//! Family 10: the gradients of attention, each side by its own kernel.

use super::forward::{
    HEADS, SOFTMAX, Setting, batches, group_sum_of, key_value_of, query_of, with_tiles,
};
use super::matrix::{turn_bounds, turns};
use crate::arch::Rope;
use crate::caps::Capabilities;
use crate::data::document_ends;
use crate::error::Result;
use crate::kernels::attention::twin::causal::{
    CausalAttention, attention_backward, attention_forward,
};
use crate::kernels::rope::twin::{rope_backward, rope_forward, rope_table};
use crate::kernels::{self as k, Kernel, KeyValueOwner, Spec};
use crate::testing::harness::{Job, Operand, Outputs, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{
    ROUNDING, close, close_to_terms, directional_to_terms, dot, hold, narrow, of, text, wide,
};
use crate::testing::{Case, Outcome};
use std::ops::Range;
use std::rc::Rc;

/// Where the ends begin after the starts: beyond any batch here, as plans have it.
pub(crate) const ENDS: usize = 192;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for heads in HEADS {
        let setting = Setting::plain(heads);
        let name = format!("attention backward delta {}", setting.name());
        cases.push(Case::new(name, move |lane| delta(lane, setting)));
    }
    for setting in Setting::all().into_iter().chain(Setting::dropped()) {
        let name = |what: &str| format!("attention backward {what} {}", setting.name());
        cases.push(Case::new(name("query"), move |lane| query(lane, setting)));
        cases.push(Case::new(name("key, value"), move |lane| key_value(lane, setting)));
        let (heads, kv_heads, _) = setting.heads;
        if heads > kv_heads {
            cases.push(Case::new(name("by head"), move |lane| by_head(lane, setting)));
        }
    }
    cases
}

/// A batch with what the forward pass leaves.
pub(crate) struct BackwardBatch {
    setting: Setting,
    pub shape: CausalAttention,
    pub documents: Vec<u32>,
    pub qkv: Vec<f32>,
    out: Vec<f64>,
    lse: Vec<f64>,
    pub d_out: Vec<f32>,
    /// What the gradients are of: the rows, or those from which the rotation makes them.
    point: Vec<f64>,
    rope: Option<Rope>,
    expected: Vec<f64>,
    /// The gradient without its delta, a term that cancels wholly where a query sees one key; and where the sum
    /// over a head cancels that a slope is, as if that had the size of its terms.
    terms: Vec<f64>,
}

impl BackwardBatch {
    pub fn new(lane: &Lane, setting: Setting, documents: Vec<u32>) -> Self {
        let shape = setting.twin_on(lane, documents.len());
        let qkv = lane.normal(shape.tokens * shape.qkv_width());
        let d_out = lane.normal(shape.tokens * shape.out_width());
        let exact = wide(&qkv);
        let (out, lse) = attention_forward(shape, &exact, &documents);
        let expected = attention_backward(shape, &exact, &documents, &out, &lse, &wide(&d_out));
        let nothing = vec![0.0; out.len()];
        let terms = attention_backward(shape, &exact, &documents, &nothing, &lse, &wide(&d_out));
        // Σ |x| / √n over a head is at most √(Σ x²).
        let mut sized = exact.clone();
        for row in sized.chunks_exact_mut(shape.qkv_width()) {
            let values = (shape.n_heads + shape.n_kv_heads) * shape.head_dim;
            row[values..].iter_mut().for_each(|x| *x = x.abs());
        }
        let root = (shape.head_dim as f64).sqrt();
        let d_sized: Vec<f64> = d_out.iter().map(|&x| f64::from(x).abs() / root).collect();
        let sizes = attention_backward(shape, &sized, &documents, &nothing, &lse, &d_sized);
        let terms =
            terms.iter().zip(sizes).map(|(term, size)| term.abs().max(size.abs())).collect();
        let (point, rope) = (exact, None);
        Self { setting, shape, documents, qkv, out, lse, d_out, point, rope, expected, terms }
    }

    /// This problem with the gradients of queries and keys before a rotation of whole heads.
    pub fn turned(mut self) -> Self {
        let rope = turns(self.setting);
        rope_backward(self.shape, &mut self.point, &self.documents, 0, &rope);
        rope_backward(self.shape, &mut self.expected, &self.documents, 0, &rope);
        turn_bounds(self.shape, &mut self.terms, &self.expected);
        Self { rope: Some(rope), ..self }
    }

    /// The table of angles of what is rotated back.
    pub fn table(&self) -> Option<Operand> {
        let table = rope_table(self.documents.len(), self.rope.as_ref()?);
        Some(Operand::floats(&table.iter().flat_map(|pair| narrow(pair)).collect::<Vec<_>>()))
    }

    /// Σ output · d_output of each row and head.
    fn delta(&self) -> Vec<f64> {
        let d_out = wide(&self.d_out);
        let rows = self.out.chunks_exact(self.shape.head_dim);
        rows.zip(d_out.chunks_exact(self.shape.head_dim)).map(|(o, d)| dot(o, d)).collect()
    }

    pub fn job(&self, lane: &Lane, kernel: &Kernel) -> Job {
        let mut documents = self.documents.clone();
        documents.resize(ENDS, u32::MAX);
        documents.extend(document_ends(&self.documents));
        let (step, place) = self.setting.step(lane, self.shape.tokens);
        let mut operands = vec![
            Operand::floats(&self.qkv),
            Operand::floats(&self.d_out),
            Operand::floats(&narrow(&self.lse)),
            Operand::floats(&narrow(&self.delta())),
            Operand::words(&documents),
            Operand::poison(self.qkv.len()),
            step,
        ];
        operands.extend(place);
        Job::new(kernel, self.shape.tokens, operands)
    }

    /// Compares the columns that a kernel owns; all others must not have been written.
    pub fn check(&self, lane: &Lane, got: &Outputs, columns: &Range<usize>) -> Result<(), String> {
        let width = self.shape.qkv_width();
        let owned = |i: &usize| columns.contains(&(i % width));
        let other = |i: &usize| !owned(i) && got.words(0)[*i] != POISON;
        hold(("other columns", columns, width), || match (0..self.qkv.len()).find(other) {
            Some(i) => Err(format!("column {} belongs to the other kernel", i % width)),
            None => Ok(()),
        })?;
        let got = got.floats(0);
        let own = |x: &[f64]| (0..x.len()).filter(owned).map(|i| x[i]).collect::<Vec<_>>();
        let got: Vec<f32> = (0..got.len()).filter(owned).map(|i| got[i]).collect();
        let what = format!("{} tokens", self.shape.tokens);
        let (expected, terms) = (own(&self.expected), own(&self.terms));
        close_to_terms(&what, &got, &expected, &terms, 2.0 * SOFTMAX)?;
        let exact = &self.point;
        let direction = lane.normal(got.len());
        directional_to_terms(&what, &got, &terms, &own(exact), &direction, |moved| {
            let mut point = exact.clone();
            (0..point.len()).filter(owned).zip(moved).for_each(|(i, &x)| point[i] = x);
            if let Some(rope) = &self.rope {
                rope_forward(self.shape, &mut point, &self.documents, 0, rope);
            }
            dot(&attention_forward(self.shape, &point, &self.documents).0, &wide(&self.d_out))
        })
    }
}

async fn delta(lane: Rc<Lane>, setting: Setting) -> Outcome {
    for count in [1, 3] {
        for documents in batches(&lane) {
            delta_of(&lane, &BackwardBatch::new(&lane, setting, documents), count).await?;
        }
    }
    Ok(lane.summary())
}

/// The gradient of the output is in `count` parts.
async fn delta_of(
    lane: &Lane,
    batch: &BackwardBatch,
    count: usize,
) -> std::result::Result<(), String> {
    let (tokens, head_dim) = (batch.shape.tokens, batch.shape.head_dim);
    let out = narrow(&batch.out);
    let (slopes, parts, d_out) = lane.parts(batch.d_out.clone(), count);
    let (exact_out, d_exact) = (wide(&out), wide(&d_out));
    let heads = || exact_out.chunks_exact(head_dim).zip(d_exact.chunks_exact(head_dim));
    let exact: Vec<f64> = heads().map(|(o, d)| dot(o, d)).collect();
    // The size of a product's sum unless its terms cancel.
    let terms: Vec<f64> = heads()
        .map(|(o, d)| o.iter().zip(d).map(|(o, d)| (o * d) * (o * d)).sum::<f64>().sqrt())
        .collect();
    let made =
        lane.variants_of(super::forward::delta_of(batch.setting.shape(), parts)).map_err(text)?;
    let mut operands = vec![
        Operand::floats(&out),
        Operand::floats(&slopes),
        Operand::poison(exact.len()),
        Operand::uniform(&Step::of(tokens)),
    ];
    operands.extend((count > 1).then(|| Operand::poison(d_out.len())));
    let jobs: Vec<_> =
        made.iter().map(|kernel| Job::new(kernel, tokens, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        close_to_terms("delta", &got.floats(0), &exact, &terms, ROUNDING).map_err(&named)?;
        if count > 1 {
            close("d_output", &got.floats(1), &d_exact, ROUNDING).map_err(named)?;
        }
    }
    Ok(())
}

async fn query(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let batch = setting.batch();
    side(lane, setting, 0..batch.shape.key_offset(), |caps| {
        let picked = query_of(batch, None).kernel(caps);
        with_tiles(caps, setting, k::AttentionPass::Query, picked, |tile| {
            query_of(batch, Some(tile)).kernel(caps)
        })
    })
    .await
}

async fn key_value(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let (batch, owner) = (setting.batch(), (KeyValueOwner::Group, ENDS));
    side(lane, setting, batch.shape.key_offset()..batch.shape.stride(), |caps| {
        let picked = key_value_of(batch, owner, None).kernel(caps);
        with_tiles(caps, setting, k::AttentionPass::KeyValue, picked, |tile| {
            key_value_of(batch, owner, Some(tile)).kernel(caps)
        })
    })
    .await
}

/// Each query head's part by one kernel, their sum by the next.
async fn by_head(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let shape = setting.shape();
    let by_head = key_value_of(setting.batch(), (KeyValueOwner::Head, ENDS), None);
    let made = lane.variants_of(by_head).map_err(text)?;
    let sums = lane.variants_of(group_sum_of(shape)).map_err(text)?;
    for documents in batches(&lane) {
        let batch = BackwardBatch::new(&lane, setting, documents);
        let tokens = batch.shape.tokens;
        let parts = |kernel| {
            let mut job = batch.job(&lane, kernel);
            job.operands[5] = Operand::poison(tokens * 2 * shape.width());
            job
        };
        let jobs: Vec<_> = made.iter().map(parts).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            summed(&lane, &batch, shape, &got, &sums).await.map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Sums the parts that a kernel left of each query head by every kernel of sums, and holds what they give.
pub(crate) async fn summed(
    lane: &Lane,
    batch: &BackwardBatch,
    shape: k::AttentionShape,
    parts: &Outputs,
    sums: &[Kernel],
) -> std::result::Result<(), String> {
    if sums.is_empty() {
        return Err("no kernel sums the parts of the heads: nothing holds them".into());
    }
    for sum in sums {
        let operands = vec![
            Operand::words(parts.words(0)),
            Operand::poison(batch.qkv.len()),
            Operand::uniform(&Step::of(batch.shape.tokens)),
        ];
        let job = Job::new(sum, batch.shape.tokens, operands);
        let got = lane.run(&[job]).await.map_err(text)?.remove(0);
        batch.check(lane, &got, &(shape.key_offset()..shape.stride())).map_err(of(sum))?;
    }
    Ok(())
}

async fn side(
    lane: Rc<Lane>,
    setting: Setting,
    columns: Range<usize>,
    make: impl Fn(&Capabilities) -> Result<Vec<Kernel>>,
) -> Outcome {
    let made = lane.kernels(make).map_err(text)?;
    for documents in batches(&lane) {
        let batch = BackwardBatch::new(&lane, setting, documents);
        let jobs: Vec<_> = made.iter().map(|kernel| batch.job(&lane, kernel)).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            batch.check(&lane, &got, &columns).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
