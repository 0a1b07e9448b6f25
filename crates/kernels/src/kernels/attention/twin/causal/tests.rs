use super::*;
use crate::kernels::rope::twin::cache_append_forward;
use crate::twins::check::{assert_close, assert_gradient, noise};

fn head(data: &[f64], head_dim: usize) -> Head<'_, f64> {
    Head { data, stride: head_dim, offset: 0, head_dim }
}

/// Attention by the textbook: all scores, their maximum, their exponentials, their sum.
fn standard(shape: CausalAttention, qkv: &[f64], documents: &[u32]) -> (Vec<f64>, Vec<f64>) {
    let (d, group) = (shape.head_dim, shape.n_heads / shape.n_kv_heads);
    let (mut out, mut lse) = (vec![], vec![]);
    for (s, &start) in documents.iter().enumerate() {
        for h in 0..shape.n_heads {
            let at = |row: usize, first_head: usize, i: usize| {
                qkv[row * shape.qkv_width() + first_head * d + i]
            };
            let scores: Vec<f64> = (0..shape.tokens)
                .map(|k| match (start as usize..=s).contains(&k) {
                    true => {
                        (0..d)
                            .map(|i| at(s, h, i) * at(k, shape.n_heads + h / group, i))
                            .sum::<f64>()
                            / (d as f64).sqrt()
                    }
                    false => f64::NEG_INFINITY,
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|x| (x - largest).exp()).sum();
            lse.push(largest + sum.ln());
            out.extend((0..d).map(|i| {
                let value = |k: usize| at(k, shape.n_heads + shape.n_kv_heads + h / group, i);
                scores
                    .iter()
                    .enumerate()
                    .map(|(k, x)| (x - largest).exp() / sum * value(k))
                    .sum::<f64>()
            }));
        }
    }
    (out, lse)
}

const SHAPES: [(CausalAttention, &[u32]); 6] = [
    (CausalAttention::new(1, 1, 2, 1), &[0]),
    (CausalAttention::new(6, 2, 4, 7), &[0; 7]),
    (CausalAttention::new(4, 4, 6, 5), &[0, 1, 2, 3, 4]),
    (CausalAttention::new(2, 1, 8, 6), &[0, 0, 2, 2, 2, 5]),
    (CausalAttention::new(3, 1, 256, 3), &[0, 0, 2]),
    (CausalAttention::new(2, 2, 32, 1), &[0]),
];

fn input(shape: CausalAttention) -> Vec<f64> {
    noise(1, shape.tokens * shape.qkv_width())
}

#[test]
fn online_softmax_follows_the_worked_example() {
    // z = [2, 5, 1, 4]: the running maximum and sum after each value, then the softmax.
    let z = [2.0, 5.0, 1.0, 4.0];
    let mut state = OnlineSoftmax::default();
    for (score, max, sum) in
        [(2.0, 2.0, 1.0), (5.0, 5.0, 1.0498), (1.0, 5.0, 1.0681), (4.0, 5.0, 1.4360)]
    {
        state.push(score);
        assert_close("max, sum", &[state.max, state.sum], &[max, sum], 6e-5, 0.0);
    }
    let softmax = z.map(|x| (x - state.log_sum_exp()).exp());
    assert_close("softmax", &softmax, &[0.0347, 0.6964, 0.0128, 0.2562], 6e-5, 0.0);
}

#[test]
fn online_attention_follows_the_worked_example() {
    // One query over three keys, unscaled.
    let (keys, values) = ([0.5, 0.3, 0.8, -0.2, 0.1, 0.7], [1.0, 0.0, 0.0, 1.0, 0.5, 0.5]);
    let mut out = [0.0; 2];
    let lse = attend(&[1.0, 0.0], head(&keys, 2), head(&values, 2), 0..3, |x| x, &mut out);
    assert_close("out", &out, &[0.4421, 0.5579], 6e-5, 0.0);
    assert_close("lse", &[lse], &[0.8 + 2.2374f64.ln()], 6e-5, 0.0);
}

#[test]
fn tiled_attention_follows_the_worked_example() {
    // Six positions of two dimensions; the example works out queries 0 and 1.
    let q = [[1.0, 0.5], [0.8, -0.1], [0.2, 0.9], [-0.3, 0.4], [0.7, 0.6], [0.1, -0.5]];
    let k = [[0.3, 0.7], [0.6, 0.2], [-0.1, 0.8], [0.4, -0.3], [0.9, 0.1], [0.2, 0.5]];
    let v = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]];
    let shape = CausalAttention::new(1, 1, 2, 6);
    let qkv: Vec<f64> = (0..6).flat_map(|i| [q[i], k[i], v[i]].concat()).collect();
    let (out, lse) = attention_forward(shape, &qkv, &[0; 6]);
    assert_close("out", &out[..4], &[1.0, 0.0, 0.449, 0.551], 6e-4, 0.0);
    assert_close("lse", &lse[..2], &[0.460, 0.325 + 1.8146f64.ln()], 6e-4, 0.0);
    assert_close("whole", &out, &standard(shape, &qkv, &[0; 6]).0, 1e-15, 0.0);
}

#[test]
fn one_pass_equals_the_standard_softmax() {
    for (shape, documents) in SHAPES {
        let qkv = input(shape);
        let (out, lse) = attention_forward(shape, &qkv, documents);
        let (expected_out, expected_lse) = standard(shape, &qkv, documents);
        assert_close("out", &out, &expected_out, 1e-13, 0.0);
        assert_close("lse", &lse, &expected_lse, 1e-13, 0.0);
    }
}

#[test]
fn scores_of_any_size_are_safe_in_f32() {
    let shape = CausalAttention::new(1, 1, 2, 3);
    let qkv = [
        [100.0f32, 0.0, -100.0, 0.0, 1.0, 2.0],
        [100.0, 0.0, 100.0, 0.0, 3.0, 4.0],
        [100.0, 0.0, 0.0, 0.0, 5.0, 6.0],
    ];
    let (out, lse) = attention_forward(shape, &qkv.concat(), &[0; 3]);
    assert_close("out", &out, &[1.0, 2.0, 3.0, 4.0, 3.0, 4.0], 1e-6, 0.0);
    assert!(lse.iter().all(|x| x.is_finite()));
}

#[test]
fn the_first_position_of_a_document_sees_itself_alone() {
    for (shape, documents) in SHAPES {
        let qkv = input(shape);
        let (out, _) = attention_forward(shape, &qkv, documents);
        for s in (0..shape.tokens).filter(|&s| documents[s] as usize == s) {
            for h in 0..shape.n_heads {
                let value = s * shape.qkv_width()
                    + shape.value_offset()
                    + shape.kv_head(h) * shape.head_dim;
                let row = &out[(s * shape.n_heads + h) * shape.head_dim..][..shape.head_dim];
                assert_close("out", row, &qkv[value..value + shape.head_dim], 1e-15, 0.0);
            }
        }
    }
}

#[test]
fn packed_documents_do_not_see_each_other() {
    let shape = CausalAttention::new(2, 1, 4, 7);
    let qkv = input(shape);
    let (out, lse) = attention_forward(shape, &qkv, &[0, 0, 0, 3, 3, 3, 3]);
    let split = 3 * shape.qkv_width();
    for (part, range) in [(&qkv[..split], 0..3), (&qkv[split..], 3..7)] {
        let alone = attention_forward(
            CausalAttention { tokens: range.len(), ..shape },
            part,
            &vec![0; range.len()],
        );
        assert_eq!(alone.0, out[range.start * 8..range.end * 8]);
        assert_eq!(alone.1, lse[range.start * 2..range.end * 2]);
    }
}

#[test]
fn query_heads_share_key_heads_in_consecutive_groups() {
    let shape = CausalAttention::new(12, 4, 2, 1);
    assert_eq!(
        (0..12).map(|h| shape.kv_head(h)).collect::<Vec<_>>(),
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    );
    let mut qkv = vec![0.0; shape.qkv_width()];
    (0..8).for_each(|i| qkv[shape.value_offset() + i] = i as f64);
    let (out, _) = attention_forward(shape, &qkv, &[0]);
    assert!((0..24).all(|i| out[i] == ((i / 6) * 2 + i % 2) as f64));
}

#[test]
fn a_row_with_every_key_masked_is_zero() {
    let mut out = [7.0, 7.0];
    let lse = attend(&[1.0, 2.0], head(&[], 2), head(&[], 2), 0..0, |x| x, &mut out);
    assert_eq!((out, lse), ([0.0, 0.0], NEGATIVE_HUGE));
}

#[test]
fn a_cached_sequence_gives_the_rows_of_the_whole_one() {
    let shape = CausalAttention::new(6, 2, 4, 7);
    let qkv = input(shape);
    let (whole, _) = attention_forward(shape, &qkv, &[0; 7]);
    let mut cache = vec![f64::NAN; 9 * shape.cache_width()];
    let mut got = vec![];
    for range in [0..3, 3..5] {
        let shape = CausalAttention { tokens: range.len(), ..shape };
        let rows = &qkv[range.start * shape.qkv_width()..range.end * shape.qkv_width()];
        cache_append_forward(shape, rows, &mut cache, range.start);
        got.extend(attention_prefill(shape, rows, &cache, range.start));
    }
    for (t, row) in qkv.chunks_exact(shape.qkv_width()).enumerate().skip(5) {
        cache_append_forward(CausalAttention { tokens: 1, ..shape }, row, &mut cache, t);
        got.extend(attention_decode(shape, row, &cache, t + 1));
    }
    assert_eq!(got, whole);
}

#[test]
fn backward_matches_finite_differences() {
    for (shape, documents) in SHAPES {
        let qkv = input(shape);
        let d_out = noise(2, shape.tokens * shape.out_width());
        let (out, lse) = attention_forward(shape, &qkv, documents);
        let gradient = attention_backward(shape, &qkv, documents, &out, &lse, &d_out);
        assert_gradient("d_qkv", &gradient, &qkv, &d_out, |x| {
            attention_forward(shape, x, documents).0
        });
    }
}

#[test]
fn the_lse_gives_back_the_probabilities_and_both_forms_of_d() {
    let (shape, documents) = SHAPES[3];
    let qkv = input(shape);
    let d_out = noise::<f64>(2, shape.tokens * shape.out_width());
    let (out, lse) = attention_forward(shape, &qkv, documents);
    for (i, lse) in lse.iter().enumerate() {
        let (s, h) = (i / shape.n_heads, i % shape.n_heads);
        let [q, k, v] = heads(shape, &qkv, h);
        let d_row = &d_out[i * shape.head_dim..][..shape.head_dim];
        let p: Vec<f64> = (documents[s] as usize..s + 1)
            .map(|j| (dot(q.row(s), k.row(j)) / (shape.head_dim as f64).sqrt() - lse).exp())
            .collect();
        let by_probability: f64 =
            p.iter().zip(documents[s] as usize..).map(|(p, j)| p * dot(d_row, v.row(j))).sum();
        assert_close("Σ P", &[p.iter().sum::<f64>()], &[1.0], 1e-14, 0.0);
        assert_close(
            "D",
            &[by_probability],
            &[dot(d_row, &out[i * shape.head_dim..][..shape.head_dim])],
            1e-13,
            0.0,
        );
    }
}

#[test]
fn probabilities_of_a_cached_sequence_are_those_of_the_lse_and_give_the_output() {
    let shape = CausalAttention { window: Some(4), ..CausalAttention::new(6, 2, 4, 7) };
    let qkv = input(shape);
    let (out, lse) = attention_forward(shape, &qkv, &[0; 7]);
    let mut cache = vec![f64::NAN; 9 * shape.cache_width()];
    cache_append_forward(shape, &qkv, &mut cache, 0);
    for head in 0..shape.n_heads {
        let [q, k, v] = heads(shape, &qkv, head);
        let all = attention_probabilities_forward(shape, &qkv, &cache, 0, head);
        for (s, row) in all.chunks_exact(7).enumerate() {
            let scale = (shape.head_dim as f64).sqrt();
            for (j, p) in row.iter().enumerate() {
                let by_lse = (dot(q.row(s), k.row(j)) / scale - lse[s * 6 + head]).exp();
                let expected = if shape.keys(0, s).contains(&j) { by_lse } else { 0.0 };
                assert_close("probability", &[*p], &[expected], 1e-15, 1e-13);
            }
            let mut sum = vec![0.0; shape.head_dim];
            for (j, p) in row.iter().enumerate() {
                sum.iter_mut().zip(v.row(j)).for_each(|(sum, v)| *sum += p * v);
            }
            let at = s * shape.out_width() + head * shape.head_dim;
            assert_close("output", &sum, &out[at..][..shape.head_dim], 1e-14, 0.0);
        }
        // The rows from the third on, after those before.
        let rest = CausalAttention { tokens: 4, ..shape };
        let rows = &qkv[3 * shape.qkv_width()..];
        let got = attention_probabilities_forward(rest, rows, &cache, 3, head);
        assert_eq!(got, all[3 * 7..]);
    }
}
