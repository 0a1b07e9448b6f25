//! Family 10: the gradients of attention, each side by its own kernel.

use super::attention::{HEADS, SOFTMAX, Setting, batches, with_tiles};
use super::harness::{Job, Operand, Outputs, POISON, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close_to_terms, directional_to_terms, dot, narrow, of, text, wide};
use super::{Case, Outcome};
use crate::caps::Capabilities;
use crate::data::document_ends;
use crate::error::Result;
use crate::kernels::{self as k, AttentionProducts, Kernel, KeyValueOwner};
use crate::plan::count_tiles;
use crate::twins::attention::{AttentionShape, attention_backward, attention_forward};
use std::ops::Range;
use std::rc::Rc;

/// Where the ends begin behind the starts: beyond any batch here, as plans have it.
pub(super) const ENDS: usize = 192;

pub(super) fn cases() -> Vec<Case> {
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
        let (heads, kv_heads, head_dim) = setting.heads;
        if setting.dropout.is_none() && head_dim.is_multiple_of(64) {
            cases.push(Case::new(name("by products"), move |lane| by_products(lane, setting)));
        }
        if heads > kv_heads {
            cases.push(Case::new(name("by head"), move |lane| by_head(lane, setting)));
        }
    }
    cases
}

/// A batch with what the forward pass leaves.
struct Batch {
    setting: Setting,
    shape: AttentionShape,
    documents: Vec<u32>,
    qkv: Vec<f32>,
    out: Vec<f64>,
    lse: Vec<f64>,
    d_out: Vec<f32>,
    expected: Vec<f64>,
    /// The gradient without its delta, a term that cancels wholly where a query sees one key; and where the sum
    /// over a head cancels that a slope is, as if that had the size of its terms.
    terms: Vec<f64>,
}

impl Batch {
    fn new(lane: &Lane, setting: Setting, documents: Vec<u32>) -> Self {
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
        Self { setting, shape, documents, qkv, out, lse, d_out, expected, terms }
    }

    /// Σ output · d_output of each row and head.
    fn delta(&self) -> Vec<f64> {
        let d_out = wide(&self.d_out);
        let rows = self.out.chunks_exact(self.shape.head_dim);
        rows.zip(d_out.chunks_exact(self.shape.head_dim)).map(|(o, d)| dot(o, d)).collect()
    }

    fn job(&self, lane: &Lane, kernel: &Kernel) -> Job {
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
    fn check(&self, lane: &Lane, got: &Outputs, columns: &Range<usize>) -> Result<(), String> {
        let width = self.shape.qkv_width();
        let owned = |i: &usize| columns.contains(&(i % width));
        if let Some(i) = (0..self.qkv.len()).find(|i| !owned(i) && got.words(0)[*i] != POISON) {
            return Err(format!("column {} belongs to the other kernel", i % width));
        }
        let got = got.floats(0);
        let own = |x: &[f64]| (0..x.len()).filter(owned).map(|i| x[i]).collect::<Vec<_>>();
        let got: Vec<f32> = (0..got.len()).filter(owned).map(|i| got[i]).collect();
        let what = format!("{} tokens", self.shape.tokens);
        let (expected, terms) = (own(&self.expected), own(&self.terms));
        close_to_terms(&what, &got, &expected, &terms, 2.0 * SOFTMAX)?;
        let exact = wide(&self.qkv);
        let direction = lane.normal(got.len());
        directional_to_terms(&what, &got, &terms, &own(&exact), &direction, |moved| {
            let mut point = exact.clone();
            (0..point.len()).filter(owned).zip(moved).for_each(|(i, &x)| point[i] = x);
            dot(&attention_forward(self.shape, &point, &self.documents).0, &wide(&self.d_out))
        })
    }
}

async fn delta(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let made = lane.variants(|caps| k::attention_delta(caps, setting.kernel())).map_err(text)?;
    for documents in batches(&lane) {
        let batch = Batch::new(&lane, setting, documents);
        let tokens = batch.shape.tokens;
        let out = narrow(&batch.out);
        let exact: Vec<f64> = wide(&out)
            .chunks_exact(batch.shape.head_dim)
            .zip(wide(&batch.d_out).chunks_exact(batch.shape.head_dim))
            .map(|(o, d)| dot(o, d))
            .collect();
        // The size of a product's sum unless its terms cancel.
        let terms: Vec<f64> = wide(&out)
            .chunks_exact(batch.shape.head_dim)
            .zip(wide(&batch.d_out).chunks_exact(batch.shape.head_dim))
            .map(|(o, d)| o.iter().zip(d).map(|(o, d)| (o * d) * (o * d)).sum::<f64>().sqrt())
            .collect();
        let operands = [
            Operand::floats(&out),
            Operand::floats(&batch.d_out),
            Operand::poison(exact.len()),
            Operand::uniform(&Step::of(tokens)),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, tokens, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close_to_terms("delta", &got.floats(0), &exact, &terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn query(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let shape = setting.kernel();
    side(lane, setting, 0..shape.key_offset(), |caps| {
        let picked = k::attention_backward_query(caps, shape);
        with_tiles(caps, setting, k::AttentionPass::Query, picked, |tile| {
            k::attention_backward_query_with_tile(caps, shape, tile)
        })
    })
    .await
}

async fn key_value(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let shape = setting.kernel();
    side(lane, setting, shape.key_offset()..shape.stride(), |caps| {
        let owner = KeyValueOwner::Group;
        let picked = k::attention_backward_key_value(caps, shape, owner, ENDS);
        with_tiles(caps, setting, k::AttentionPass::KeyValue, picked, |tile| {
            k::attention_backward_key_value_with_tile(caps, shape, owner, ENDS, tile)
        })
    })
    .await
}

/// Each query head's part by one kernel, their sum by the next.
async fn by_head(lane: Rc<Lane>, setting: Setting) -> Outcome {
    let shape = setting.kernel();
    let owner = KeyValueOwner::Head;
    let made = lane
        .variants(|caps| k::attention_backward_key_value(caps, shape, owner, ENDS))
        .map_err(text)?;
    let sums = lane.variants(|caps| k::attention_group_sum(caps, shape)).map_err(text)?;
    for documents in batches(&lane) {
        let batch = Batch::new(&lane, setting, documents);
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

/// Batches of several strips of rows: documents that end in and between them, and one of all.
fn strips(lane: &Lane) -> Vec<Vec<u32>> {
    let start = |first: u32, len: u32| vec![first; len as usize];
    let middle = 1 + lane.normal(1)[0].to_bits() % 140;
    let later = middle + 1 + lane.normal(1)[0].to_bits() % 30;
    let last = 256 + lane.normal(1)[0].to_bits() % 60;
    let parts = [(0, middle), (middle, later), (later, last), (last, last + 40)];
    let several = parts.iter().flat_map(|&(from, to)| start(from, to - from)).collect();
    vec![vec![0], start(0, 131), several]
}

/// Scores by one kernel and their sums by one or two, with room for more tiles than there are.
async fn by_products(lane: Rc<Lane>, setting: Setting) -> Outcome {
    for documents in strips(&lane) {
        let batch = Batch::new(&lane, setting, documents);
        let strips = batch.shape.tokens.div_ceil(k::STRIP) + 1;
        let tiles = count_tiles(&batch.documents, &mut [], &mut []) + 1;
        let shape = k::AttentionShape { tokens: strips * k::STRIP, ..setting.kernel() };
        let mut tables = batch.documents.clone();
        tables.resize(TABLES, u32::MAX);
        tables.extend(document_ends(&batch.documents));
        tables.resize(2 * TABLES + strips + tiles, u32::MAX);
        let (before, strip_of) = tables[2 * TABLES..].split_at_mut(strips);
        count_tiles(&batch.documents, before, strip_of);
        Products { lane: &lane, batch: &batch, shape, tiles, tables }.check().await?;
    }
    Ok(lane.summary())
}

/// Where ends begin behind starts, and tables behind ends.
const TABLES: usize = 384;

struct Products<'a> {
    lane: &'a Lane,
    batch: &'a Batch,
    shape: k::AttentionShape,
    tiles: usize,
    tables: Vec<u32>,
}

impl Products<'_> {
    /// The kernels of a role on devices that have a backward pass by products, whatever the window.
    fn role(&self, products: AttentionProducts) -> std::result::Result<Vec<Kernel>, String> {
        let places = (self.tiles, TABLES);
        // Heads and tokens of a batch that is large enough.
        let whole =
            k::AttentionShape { window: None, heads: 32, kv_heads: 32, tokens: 512, ..self.shape };
        let made = |caps: &Capabilities| match k::attention_product_tiles(caps, whole) {
            Some(_) => {
                Ok(vec![k::attention_backward_products(caps, self.shape, places, products)?])
            }
            None => Ok(vec![]),
        };
        self.lane.chosen(made).map_err(text)
    }

    async fn check(&self) -> std::result::Result<(), String> {
        let (shape, batch) = (self.shape, self.batch);
        let elements = shape.heads * self.tiles * k::STRIP * k::STRIP;
        for of_scores in self.role(AttentionProducts::Scores)? {
            let mut job = batch.job(self.lane, &of_scores);
            job.operands[4] = Operand::words(&self.tables);
            job.operands[5] = Operand::poison(elements);
            job.operands.push(Operand::poison(elements));
            let left = self.lane.run(&[job]).await.map_err(text)?.remove(0);
            for of_all in self.role(AttentionProducts::Sums)? {
                let got = self.run(&of_all, &left, None).await?;
                self.hold(&got).await.map_err(of(&of_all))?;
            }
            for of_query in self.role(AttentionProducts::QuerySums)? {
                let got = self.run(&of_query, &left, None).await?;
                batch.check(self.lane, &got, &(0..shape.key_offset())).map_err(of(&of_query))?;
                for of_key in self.role(AttentionProducts::KeyValueSums)? {
                    let got = self.run(&of_key, &left, Some(&got)).await?;
                    self.hold(&got).await.map_err(of(&of_key))?;
                }
            }
        }
        Ok(())
    }

    /// Holds what the kernels of sums have left.
    async fn hold(&self, got: &Outputs) -> std::result::Result<(), String> {
        let (lane, shape, batch) = (self.lane, self.shape, self.batch);
        if shape.heads == shape.kv_heads {
            return batch.check(lane, got, &(0..shape.stride()));
        }
        batch.check(lane, got, &(0..shape.key_offset()))?;
        let sums = lane.variants(|caps| k::attention_group_sum(caps, shape)).map_err(text)?;
        summed(lane, batch, shape, &Outputs::of(got.words(1).to_vec()), &sums).await
    }

    /// What a kernel of sums leaves where `before` lies.
    async fn run(
        &self,
        kernel: &Kernel,
        left: &Outputs,
        before: Option<&Outputs>,
    ) -> std::result::Result<Outputs, String> {
        let batch = self.batch;
        let gradient = match before {
            Some(before) => Operand::words(before.words(0)),
            None => Operand::poison(batch.qkv.len()),
        };
        let mut operands = vec![
            Operand::floats(&batch.qkv),
            Operand::floats(&batch.d_out),
            Operand::words(&self.tables),
            Operand::words(left.words(0)),
            Operand::words(left.words(1)),
            gradient,
            Operand::uniform(&Step::of(batch.shape.tokens)),
        ];
        if self.shape.heads > self.shape.kv_heads {
            operands.push(Operand::poison(batch.shape.tokens * 2 * self.shape.width()));
        }
        let job = Job::new(kernel, batch.shape.tokens, operands);
        Ok(self.lane.run(&[job]).await.map_err(text)?.remove(0))
    }
}

/// Sums the parts that a kernel left of each query head by every kernel of sums, and holds what they give.
async fn summed(
    lane: &Lane,
    batch: &Batch,
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
        let batch = Batch::new(&lane, setting, documents);
        let jobs: Vec<_> = made.iter().map(|kernel| batch.job(&lane, kernel)).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            batch.check(&lane, &got, &columns).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
