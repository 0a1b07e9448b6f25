//! Families 04 and 10: rotary position embedding of what is added up on the way.

use crate::arch::Rope;
use crate::kernels::attention::twin::causal::CausalAttention;
use crate::kernels::norm::cases::{EPSILON, norm_terms};
use crate::kernels::norm::twin::{head_norm_forward, norm_factors};
use crate::kernels::rope::twin::{rope_backward, rope_forward, rope_table};
use crate::kernels::{self as k, NormTerms};
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, narrow, of, text, wide};
use crate::testing::{Case, Outcome};
use crate::twins::add_assign;
use std::rc::Rc;

/// Query heads, key heads, elements of a head.
const HEADS: [(usize, usize, usize); 4] = [(2, 1, 8), (6, 2, 24), (4, 1, 64), (3, 3, 80)];
/// Tokens, and those before them.
const ROWS: [(usize, usize); 3] = [(1, 0), (19, 0), (19, 23)];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("rope of parts", of_parts),
        Case::new("rope appended to a cache", appended),
        Case::new("rope of normed heads", normed),
        Case::new("attention_group_sum rotated back", group_sum),
    ]
}

/// Rows of heads, and what turns them.
struct Turning<'a> {
    lane: &'a Lane,
    shape: CausalAttention,
    position: usize,
    angles: Rope,
    documents: Vec<u32>,
}

impl<'a> Turning<'a> {
    fn new(
        lane: &'a Lane,
        (heads, kv_heads, head_dim): (usize, usize, usize),
        (tokens, position): (usize, usize),
    ) -> Self {
        let documents = if position > 0 { vec![0; tokens] } else { lane.documents(tokens) };
        let shape = CausalAttention::new(heads, kv_heads, head_dim, tokens);
        Self { lane, shape, position, angles: Rope::plain(head_dim, 10_000.0), documents }
    }

    /// `rows` are what a kernel finds in their place.
    fn operands(&self, parts: &[f32], rows: Operand) -> Vec<Operand> {
        let table: Vec<f32> = rope_table(64, &self.angles).iter().flat_map(|x| narrow(x)).collect();
        let step = Step { position: self.position as u32, ..Step::of(self.shape.tokens) };
        vec![
            Operand::floats(parts),
            Operand::floats(&table),
            Operand::words(&self.documents),
            rows,
            Operand::uniform(&step),
        ]
    }

    /// Holds what kernels leave of `sums`, rows that `rotate` has turned or not.
    async fn holds(
        &self,
        made: &[k::Kernel],
        operands: Vec<Operand>,
        sums: &[f32],
        rotate: fn(CausalAttention, &mut [f64], &[u32], usize, &Rope),
    ) -> Result<(), String> {
        let (tokens, mut expected) = (self.shape.tokens, wide(sums));
        rotate(self.shape, &mut expected, &self.documents, self.position, &self.angles);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, tokens, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(self.lane.run(&jobs).await.map_err(text)?) {
            close("rows", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
        }
        Ok(())
    }
}

/// Partial sums have numbers between them that are not to be read.
async fn of_parts(lane: Rc<Lane>) -> Outcome {
    for (heads, count) in HEADS.into_iter().zip([2, 8, 3, 5]) {
        for rows in ROWS {
            let of = Turning::new(&lane, heads, rows);
            let (turned, head_dim, stride) = (heads.0 + heads.1, heads.2, of.shape.qkv_width());
            let shape = k::RopeShape { heads: turned, head_dim, dims: head_dim, stride };
            let (all, apart) = (rows.0 * stride, ROWS[1].0 * stride + 4);
            let parts = lane.normal((count - 1) * apart + all);
            let mut sums = parts[..all].to_vec();
            for part in 1..count {
                add_assign(&mut sums, &parts[part * apart..][..all]);
            }
            let form = k::PartialSums { count, apart };
            let made = lane
                .variants_of(k::RopeRows { sums: form, ..k::RopeRows::new(shape, true) })
                .map_err(text)?;
            of.holds(&made, of.operands(&parts, Operand::poison(all)), &sums, rope_forward).await?;
        }
    }
    Ok(lane.summary())
}

/// Rows after those that a cache holds, whole or of parts. A ring begins again among them.
async fn appended(lane: Rc<Lane>) -> Outcome {
    for (heads, count) in HEADS.into_iter().zip([1, 3, 1, 2]) {
        for (rows, ring) in ROWS.into_iter().zip([None, None, Some(29)]) {
            append(&lane, (heads, count), (rows, ring), None).await?;
        }
    }
    Ok(lane.summary())
}

/// The same with norms before the rotation: one invocation a head, eight, all that a narrow subgroup has, and as many as
/// the widest head has.
async fn normed(lane: Rc<Lane>) -> Outcome {
    let heads = [(2, 1, 8), (4, 1, 64), (3, 3, 128), (2, 1, 256)];
    for (heads, (count, shifted)) in
        heads.into_iter().zip([(1, false), (3, true), (1, true), (2, false)])
    {
        for (rows, ring) in ROWS.into_iter().zip([None, None, Some(29)]) {
            append(&lane, (heads, count), (rows, ring), Some(norm_terms(shifted))).await?;
        }
    }
    Ok(lane.summary())
}

/// Holds what kernels leave of `count` parts of rows, and in the cache.
async fn append(
    lane: &Lane,
    (heads, count): ((usize, usize, usize), usize),
    (rows, ring): ((usize, usize), Option<usize>),
    norms: Option<NormTerms>,
) -> Result<(), String> {
    let turning = Turning { documents: vec![0; rows.0], ..Turning::new(lane, heads, rows) };
    let (turned, head_dim, stride) = (heads.0 + heads.1, heads.2, turning.shape.qkv_width());
    let shape = k::RopeShape { heads: turned, head_dim, dims: head_dim, stride };
    let (all, apart) = (rows.0 * stride, ROWS[1].0 * stride + 4);
    let sums = lane.normal(all);
    let whole = count == 1;
    let parts = lane.normal((count - 1) * apart + all);
    let mut sums = if whole { sums } else { parts[..all].to_vec() };
    for part in 1..count {
        add_assign(&mut sums, &parts[part * apart..][..all]);
    }
    let weight = lane.normal(2 * head_dim);
    let mut expected = wide(&sums);
    if let Some(terms) = norms {
        let factors = norm_factors(&wide(&weight), terms.shifted);
        expected = head_norm_forward(turning.shape, &expected, &factors, EPSILON);
    }
    rope_forward(
        turning.shape,
        &mut expected,
        &turning.documents,
        turning.position,
        &turning.angles,
    );
    let attention = k::AttentionShape { heads: heads.0, kv_heads: heads.1, head_dim };
    let (width, held) = (attention.cache_stride(), 48);
    let mut cache = wide(&lane.normal(held * width));
    let before = narrow(&cache);
    for (t, row) in expected.chunks_exact(stride).enumerate() {
        let place = turning.position + t;
        let place = ring.map_or(place, |ring| place % ring);
        cache[place * width..][..width].copy_from_slice(&row[attention.key_offset()..]);
    }
    let form = if whole { k::PartialSums::WHOLE } else { k::PartialSums { count, apart } };
    let cached = k::CacheRows { shape: attention, ring };
    let made = lane
        .variants_of(k::RopeAppend { shape, sums: form, cache: cached, norms })
        .map_err(text)?;
    let place = if whole { Operand::floats(&sums) } else { Operand::poison(all) };
    let mut operands = turning.operands(&parts, place);
    if whole {
        operands.remove(0);
    }
    operands.extend(norms.map(|_| Operand::floats(&weight)));
    operands.push(Operand::floats(&before));
    let job = |kernel: &k::Kernel| Job::new(kernel, rows.0, operands.clone());
    let jobs: Vec<Job> = made.iter().map(job).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close("rows", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
        close("cache", &got.floats(1), &cache, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}

async fn group_sum(lane: Rc<Lane>) -> Outcome {
    for heads in HEADS {
        for rows in ROWS {
            let of = Turning::new(&lane, heads, rows);
            let (heads, kv_heads, head_dim) = heads;
            let shape = k::AttentionShape { heads, kv_heads, head_dim };
            let parts = lane.normal(rows.0 * 2 * shape.width());
            let mut sums = lane.normal(rows.0 * shape.stride());
            let mut before = sums.clone();
            let by_row = parts.chunks_exact(2 * shape.width());
            for ((sum, before), parts) in sums
                .chunks_exact_mut(shape.stride())
                .zip(before.chunks_exact_mut(shape.stride()))
                .zip(by_row)
            {
                before[shape.key_offset()..].fill(f32::NAN);
                let groups = parts.chunks_exact(heads / kv_heads * head_dim);
                for (sum, group) in sum[shape.key_offset()..].chunks_exact_mut(head_dim).zip(groups)
                {
                    sum.fill(0.0);
                    group.chunks_exact(head_dim).for_each(|part| add_assign(sum, part));
                }
            }
            let made = lane
                .variants_of(k::AttentionGroupSum { shape, d_qkv_f16: false, rotated: true })
                .map_err(text)?;
            let operands = of.operands(&parts, Operand::floats(&before));
            of.holds(&made, operands, &sums, rope_backward).await?;
        }
    }
    Ok(lane.summary())
}
