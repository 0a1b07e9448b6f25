//! What the plans of inference cost: to predict how long a chunk or a token takes, and to cut it.

use crate::gpu::Replay;
use crate::lower::InferencePlans;
use crate::plan::Plan;
use crate::session::throughput::{SUBMIT_MILLISECONDS, Throughput, Work};

/// Most milliseconds that a chunk is predicted to take, in all its submits.
const CHUNK_MILLISECONDS: f64 = 3000.0;
/// A plan of fewer dispatches is sent at once.
const EARLY_FROM: usize = 32;
/// Dispatches that keep an idle GPU busy until the next ones are encoded. With three submits ahead, of 8, 32 and 112 dispatches,
/// a prompt of 512 took 3.8 ms instead of 4.9 (SmolLM2-135M in f16), and 6.4 instead of 7.8 (Qwen3-0.6B; H200, Chromium).
const FIRST_DISPATCHES: usize = 8;

/// What plans over a chunk of a text cost, or over the rows of it whose logits are computed.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct ChunkCosts {
    /// A whole chunk.
    whole: Work,
    /// The largest dispatches of that.
    largest: Work,
    /// Tokens of a whole chunk.
    rows: f64,
    /// Arithmetic of all layers' attention per query and key.
    attention: f64,
    /// `attention` of the dispatch that has most of it.
    largest_attention: f64,
    /// Dispatches of the first plan.
    dispatches: usize,
}

/// What the plans of a cache cost.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Costs {
    pub chunk: ChunkCosts,
    /// A chunk of a long text.
    pub long_chunk: ChunkCosts,
    /// Logits and loss of the most rows that have them at a time.
    pub logits: ChunkCosts,
    /// A token decoded, up to the last hidden state.
    pub decode: Work,
    /// A token drawn by the cache's own plan.
    pub sample: Work,
    pub largest_of_token: Work,
    pub pack: Work,
    pub largest_of_pack: Work,
}

impl ChunkCosts {
    /// The costs of plans for chunks of one size, one after the other.
    pub fn new(plans: &[&Plan]) -> Self {
        let dispatches = plans.iter().flat_map(|plan| &plan.dispatches);
        let per_key = dispatches.map(|dispatch| dispatch.cost.flops_per_earlier_key);
        Self {
            whole: plans.iter().map(|plan| Work::of(plan)).fold(Work::default(), Work::plus),
            largest: plans
                .iter()
                .map(|plan| Work::of_largest(plan))
                .fold(Work::default(), Work::max),
            rows: plans.first().map_or(1.0, |plan| plan.tokens as f64),
            attention: per_key.clone().sum(),
            largest_attention: per_key.fold(0.0, f64::max),
            dispatches: plans.first().map_or(0, |plan| plan.dispatches.len()),
        }
    }

    /// A replay of the first plan whose first half goes ahead: the GPU begins with it while the host encodes the rest.
    pub fn sent_early(&self, replay: Replay) -> Replay {
        if self.dispatches < EARLY_FROM {
            return replay;
        }
        replay.sent_early(self.dispatches / 2, FIRST_DISPATCHES)
    }

    /// Rows of the next chunk, at most `most`. The last row sees `keys` positions. No dispatch takes longer than half a
    /// submit, and the host does not wait long for the whole chunk.
    pub fn rows(
        &self,
        throughput: &Throughput,
        most: usize,
        keys: impl Fn(usize) -> usize,
    ) -> usize {
        let mut rows = most;
        while rows > 1 {
            let [whole, largest] = self.of_chunk(rows, keys(rows));
            if throughput.predict(largest) <= SUBMIT_MILLISECONDS / 2.0
                && throughput.predict(whole) <= CHUNK_MILLISECONDS
            {
                break;
            }
            rows = rows.div_ceil(2);
        }
        rows
    }

    /// A chunk of `rows` tokens whose last one sees `keys` positions, and its largest dispatch. Plans
    /// count the keys of a chunk alone; each byte is taken as moved however few the rows are.
    pub fn of_chunk(&self, rows: usize, keys: usize) -> [Work; 2] {
        let (rows, keys) = (rows as f64, keys as f64);
        let attention = self.largest_attention * rows * keys;
        let earlier = self.attention * rows * (keys - self.rows).max(0.0);
        let share = rows / self.rows;
        let flops = self.whole.flops * share + earlier;
        let largest = (self.largest.flops * share).max(attention);
        [Work { flops, ..self.whole }, Work { flops: largest, ..self.largest }]
    }
}

impl Costs {
    pub fn new(plans: &InferencePlans) -> Self {
        Self {
            chunk: ChunkCosts::new(&[&plans.prefill]),
            long_chunk: ChunkCosts::new(&[plans.long_prefill.as_ref().unwrap_or(&plans.prefill)]),
            logits: ChunkCosts::new(&[&plans.logits, &plans.loss]),
            decode: Work::of(&plans.decode),
            sample: Work::of(&plans.sample),
            largest_of_token: Work::of_largest(&plans.decode).max(Work::of_largest(&plans.sample)),
            pack: Work::of(&plans.pack),
            largest_of_pack: Work::of_largest(&plans.pack),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::PlanId;

    #[test]
    fn half_of_a_long_plan_goes_ahead() {
        let costs = |dispatches| ChunkCosts {
            whole: Work::default(),
            largest: Work::default(),
            rows: 512.0,
            attention: 0.0,
            largest_attention: 0.0,
            dispatches,
        };
        let replay = Replay { keys: 700, ..Replay::new(PlanId(3), 500) };
        let early = costs(242).sent_early(replay);
        assert_eq!((early.cuts, early.early_submits()), ([8, 30, 121], 3));
        assert_eq!((early.plan, early.rows, early.keys), (PlanId(3), 500, 700));
        assert_eq!(costs(EARLY_FROM).sent_early(replay).cuts, [8, 4, 16]);
        assert_eq!(costs(EARLY_FROM - 1).sent_early(replay).early_submits(), 0);
    }
}
