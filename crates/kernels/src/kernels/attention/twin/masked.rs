//! Attention of `[batch, heads, rows, head_dim]` tensors under any mask, from the definition: the
//! twin of the kernels over tensors. Shares nothing with the twins over fused rows.

use crate::twins::{NEGATIVE_HUGE, dot};

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub struct MaskedAttention {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub query_rows: usize,
    pub key_rows: usize,
    pub head_dim: usize,
    pub scale: f64,
    pub soft_cap: Option<f64>,
}

/// What is added to a score, or `None` where the key is hidden, by item, head, query and key.
pub type Bias<'a> = &'a dyn Fn(usize, usize, usize, usize) -> Option<f64>;

/// Contiguous tensors.
#[derive(Clone, Copy, Debug)]
pub struct MaskedInputs<'a> {
    pub query: &'a [f64],
    pub key: &'a [f64],
    pub value: &'a [f64],
}

/// Gradients, as contiguous as what they belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    pub query: Vec<f64>,
    pub key: Vec<f64>,
    pub value: Vec<f64>,
}

impl MaskedAttention {
    /// Elements of the queries, and of the keys.
    pub fn elements(&self) -> [usize; 2] {
        let row = self.batch * self.head_dim;
        [row * self.heads * self.query_rows, row * self.kv_heads * self.key_rows]
    }

    fn score(&self, product: f64) -> (f64, f64) {
        let scaled = product * self.scale;
        match self.soft_cap {
            None => (scaled, self.scale),
            Some(cap) => {
                let t = (scaled / cap).tanh();
                (cap * t, self.scale * (1.0 - t * t))
            }
        }
    }

    /// Where a row of the queries begins, and of the keys that its head uses.
    fn query_at(&self, item: usize, head: usize, row: usize) -> usize {
        ((item * self.heads + head) * self.query_rows + row) * self.head_dim
    }

    fn key_at(&self, item: usize, head: usize, row: usize) -> usize {
        let kv_head = head * self.kv_heads / self.heads;
        ((item * self.kv_heads + kv_head) * self.key_rows + row) * self.head_dim
    }

    /// Each row by item, head and number.
    fn rows(&self) -> impl Iterator<Item = [usize; 3]> {
        let Self { batch, heads, query_rows, .. } = *self;
        (0..batch * heads * query_rows)
            .map(move |i| [i / query_rows / heads, i / query_rows % heads, i % query_rows])
    }

    /// The scores of a row with their derivatives, `None` where the key is hidden.
    fn scores(
        &self,
        inputs: MaskedInputs,
        bias: Bias,
        place: [usize; 3],
    ) -> Vec<Option<(f64, f64)>> {
        let [item, head, row] = place;
        let query = &inputs.query[self.query_at(item, head, row)..][..self.head_dim];
        (0..self.key_rows)
            .map(|key| {
                let added = bias(item, head, row, key)?;
                let of = &inputs.key[self.key_at(item, head, key)..][..self.head_dim];
                let (score, slope) = self.score(dot(query, of));
                Some((score + added, slope))
            })
            .collect()
    }

    /// (output, natural-log LSE). A row without keys gives zeros and [`NEGATIVE_HUGE`].
    pub fn forward(&self, inputs: MaskedInputs, bias: Bias) -> (Vec<f64>, Vec<f64>) {
        let mut output = vec![0.0; self.elements()[0]];
        let mut lse = vec![];
        for place in self.rows() {
            let [item, head, row] = place;
            let scores = self.scores(inputs, bias, place);
            let largest = scores.iter().flatten().fold(NEGATIVE_HUGE, |m, (s, _)| m.max(*s));
            let total: f64 = scores.iter().flatten().map(|(s, _)| (s - largest).exp()).sum();
            let out = &mut output[self.query_at(item, head, row)..][..self.head_dim];
            for (key, score) in scores.iter().enumerate() {
                let Some((score, _)) = score else { continue };
                let weight = (score - largest).exp() / total;
                let value = &inputs.value[self.key_at(item, head, key)..][..self.head_dim];
                out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
            }
            lse.push(if total > 0.0 { largest + total.ln() } else { NEGATIVE_HUGE });
        }
        (output, lse)
    }

    /// The gradients of Σ output · d_output, with the forward's results given.
    pub fn backward(
        &self,
        inputs: MaskedInputs,
        bias: Bias,
        output: &[f64],
        lse: &[f64],
        d_output: &[f64],
    ) -> Gradients {
        let [queries, keys] = self.elements();
        let mut gradients =
            Gradients { query: vec![0.0; queries], key: vec![0.0; keys], value: vec![0.0; keys] };
        let add = |to: &mut [f64], factor: f64, x: &[f64]| {
            to.iter_mut().zip(x).for_each(|(t, x)| *t += factor * x);
        };
        for (index, place) in self.rows().enumerate() {
            let [item, head, row] = place;
            let at = self.query_at(item, head, row);
            let d_out = &d_output[at..][..self.head_dim];
            let delta = dot(d_out, &output[at..][..self.head_dim]);
            for (key, score) in self.scores(inputs, bias, place).into_iter().enumerate() {
                let Some((score, slope)) = score else { continue };
                let of_key = self.key_at(item, head, key);
                let weight = (score - lse[index]).exp();
                let value = &inputs.value[of_key..][..self.head_dim];
                let d_score = slope * weight * (dot(d_out, value) - delta);
                add(&mut gradients.value[of_key..], weight, d_out);
                let (query, key) = (&inputs.query[at..], &inputs.key[of_key..]);
                add(&mut gradients.query[at..][..self.head_dim], d_score, key);
                add(&mut gradients.key[of_key..][..self.head_dim], d_score, query);
            }
        }
        gradients
    }
}
