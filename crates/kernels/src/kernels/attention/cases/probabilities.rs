//! Family 05: how much the queries of a chunk attend to each key of the cache.

use super::forward::{SOFTMAX, Setting};
use crate::kernels::attention::twin::causal::{
    CausalAttention, Head, attend, attention_probabilities_forward,
};
use crate::kernels::cache::cases::ring_of;
use crate::kernels::{self as k, Kernel, ring_rows};
use crate::testing::harness::{Job, Operand, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, hold, narrow, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let of_setting = |setting: Setting| {
        let name = format!("attention probabilities {}", setting.name());
        Case::new(name, move |lane| probabilities(lane, setting))
    };
    Setting::all().into_iter().map(of_setting).collect()
}

/// Words after the result that nobody may write.
const BEHIND: usize = 9;

/// A text's first rows, a single row, more rows than a workgroup has invocations; with a window also over a ring, at
/// its end, across it and far after it.
async fn probabilities(lane: Rc<Lane>, setting: Setting) -> Outcome {
    const CHUNK: usize = 70;
    for (position, tokens) in [(0, 5), (37, 1), (30, CHUNK)] {
        check(&lane, setting, None, position, tokens).await?;
    }
    if let Some(window) = setting.window {
        let ring = ring_rows(window, CHUNK);
        for (position, tokens) in [(ring, 1), (ring - 4, 33), (300, CHUNK)] {
            check(&lane, setting, Some(ring), position, tokens).await?;
        }
    }
    Ok(lane.summary())
}

/// One head's rows among those of all heads of a longer text: what is around them stays.
async fn shares(
    lane: &Lane,
    made: &[Kernel],
    (operands, expected): (&[Operand], &[f64]),
    [head, position, tokens]: [usize; 3],
) -> Result<(), String> {
    let (columns, text_tokens) = (position + tokens, position + tokens + 3);
    let (begin, all) = (head * text_tokens + position, (head + 1) * text_tokens * text_tokens);
    let mut operands = operands.to_vec();
    operands[4] = Operand::poison(all + BEHIND);
    operands[6] = Operand::uniform(&[head as u32, text_tokens as u32, 0, 0]);
    let jobs: Vec<_> =
        made.iter().map(|kernel| Job::new(kernel, tokens, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let own = begin * text_tokens..(begin + tokens) * text_tokens;
        let floats = got.floats(0);
        let rows = floats[own.clone()].chunks(text_tokens).zip(expected.chunks(columns));
        for (row, expected) in rows {
            close("shares", &row[..columns], expected, SOFTMAX).map_err(&named)?;
            hold("later keys have 0", || match row[columns..].iter().find(|x| **x != 0.0) {
                Some(x) => Err(format!("{x} for a later key")),
                None => Ok(()),
            })
            .map_err(&named)?;
        }
        for rest in [&got.words(0)[..own.start], &got.words(0)[own.end..]] {
            same("words around", rest, &vec![POISON; rest.len()]).map_err(&named)?;
        }
    }
    Ok(())
}

async fn check(
    lane: &Lane,
    setting: Setting,
    ring: Option<usize>,
    position: usize,
    tokens: usize,
) -> Result<(), String> {
    let attention = setting.cached(ring);
    let made = lane.variants_of(k::AttentionProbabilities { attention }).map_err(text)?;
    let placed = lane.variants_of(k::AttentionShares { attention }).map_err(text)?;
    let (shape, columns) = (setting.twin(tokens), position + tokens);
    let qkv = lane.normal(tokens * shape.qkv_width());
    let rows = lane.normal(columns * shape.cache_width());
    let cache = match ring {
        Some(ring) => {
            let first = (position + 1).saturating_sub(shape.window.unwrap_or(usize::MAX));
            ring_of(shape, &rows, first, ring)
        }
        None => [&rows[..], &vec![f32::NAN; 40 * shape.cache_width()]].concat(),
    };
    let lse = log_sums(shape, &wide(&qkv), &wide(&rows), position);
    for head in [0, shape.n_heads - 1] {
        let expected =
            attention_probabilities_forward(shape, &wide(&qkv), &wide(&rows), position, head);
        let operands = [
            Operand::floats(&qkv),
            Operand::floats(&cache),
            Operand::words(&vec![0; tokens]),
            Operand::floats(&narrow(&lse)),
            Operand::poison(expected.len() + BEHIND),
            Operand::uniform(&Step { position: position as u32, ..Step::of(tokens) }),
            Operand::uniform(&[head as u32, 0, 0, 0]),
        ];
        shares(lane, &placed, (&operands, &expected), [head, position, tokens]).await?;
        let job = |kernel: &Kernel| Job::new(kernel, tokens, operands.to_vec());
        let jobs: Vec<_> = made.iter().map(job).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let what = format!("head {head} of {tokens} rows behind {position}, ring {ring:?}");
            let named = of(&job.kernel);
            let floats = got.floats(0);
            close(&what, &floats[..expected.len()], &expected, SOFTMAX).map_err(&named)?;
            let seen = |(got, expected): &(&f32, &f64)| **expected == 0.0 && **got != 0.0;
            hold("unseen keys have 0", || match floats.iter().zip(&expected).find(seen) {
                Some((got, _)) => Err(format!("{what}: {got} for a key that is not seen")),
                None => Ok(()),
            })
            .map_err(&named)?;
            let rest = &got.words(0)[expected.len()..];
            same("words behind the result", rest, &[POISON; BEHIND]).map_err(&named)?;
        }
    }
    Ok(())
}

/// What the forward kernel leaves for this one: `[tokens, heads]`.
fn log_sums(shape: CausalAttention, qkv: &[f64], cache: &[f64], position: usize) -> Vec<f64> {
    let head_dim = shape.head_dim;
    let of = |offset| Head { data: cache, stride: shape.cache_width(), offset, head_dim };
    let rows = qkv.chunks_exact(shape.qkv_width()).enumerate();
    rows.flat_map(|(t, row)| {
        (0..shape.n_heads).map(move |head| {
            let keys = of(shape.kv_head(head) * head_dim);
            let query = &row[head * head_dim..][..head_dim];
            let range = shape.keys(0, position + t);
            attend(query, keys, keys, range, |x| shape.score(x).0, &mut vec![0.0; head_dim])
        })
    })
    .collect()
}
