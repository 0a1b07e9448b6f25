//! The longest that a config can take: what it allocates and compares is counted. Time has a bound that only a slip in
//! the order of growth exceeds. In the wasm module the slowest of these takes 54 ms on a busy machine.

use super::fields::MAX_BYTES;
use super::keys::COMPARED;
use super::{LoraConfig, ModelConfig};
use crate::counting::counted;
use std::time::{Duration, Instant};

/// For an unoptimised build beside all other tests, where the slowest took 0.1 s.
const GUARD: Duration = Duration::from_secs(2);

/// Fills a text to the most bytes that a config may have: `part` gives the field of a number.
fn filled(begin: &str, part: impl Fn(usize) -> String) -> String {
    let mut text = begin.to_owned();
    for field in 0.. {
        let next = part(field);
        if text.len() + next.len() + 2 > MAX_BYTES {
            break;
        }
        let comma = if text.ends_with('{') { "" } else { "," };
        text += comma;
        text += &next;
    }
    text + "}"
}

/// Every field that is read, with a value as long as one may be.
fn read_fields(value: &str) -> Vec<String> {
    let names = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads rms_norm_eps \
        num_key_value_heads head_dim max_position_embeddings rope_theta rope_scaling rope_parameters hidden_act \
        tie_word_embeddings initializer_range sliding_window attn_logit_softcapping model_type architectures \
        attention_bias no_rope_layers layer_types quantization_config logits_scaling";
    names.split_whitespace().map(|name| format!("{{\"{name}\":{value}}}")).collect()
}

/// What a hostile author would write, by name.
fn worst_cases() -> Vec<(&'static str, String)> {
    let word = |i: usize, length: usize| -> String {
        (0..length).map(|at| char::from(b'a' + ((i >> (at % 20)) % 26) as u8)).collect()
    };
    let slip = |field: &'static str, i: usize| {
        // Three letters of the field are others: too many for a slip, and as long.
        let mut name = field.as_bytes().to_vec();
        [i, i / 20, i / 400].iter().enumerate().for_each(|(at, i)| {
            let place = at * field.len() / 3;
            name[place] = b'0' + (i % 10) as u8;
        });
        String::from_utf8(name).unwrap()
    };
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let digits = |count: usize| format!("1.{}", "7".repeat(count));
    let mut cases = vec![
        ("foreign keys, each named again", filled("{", |i| format!("\"{}\":0", word(i, 4)))),
        (
            "foreign keys of a kilobyte",
            filled("{", |i| format!("\"k{i}\":\"{}\"", "x".repeat(1050))),
        ),
        ("one key of a mebibyte", format!("{{\"{}\":0}}", "a".repeat(MAX_BYTES - 8))),
        ("one key of escapes", format!("{{\"{}\":0}}", "\\u0041".repeat(MAX_BYTES / 6 - 2))),
        ("names with dashes", filled("{", |i| format!("\"{}{i}\":0", "-n".repeat(8)))),
        (
            "near misses",
            filled("{", |i| {
                let fields = ["intermediate_size", "num_hidden_layers", "num_key_value_heads"];
                format!("\"{}{i:04}\":\"{}\"", &slip(fields[i % 3], i)[4..], "y".repeat(1020))
            }),
        ),
        ("nested arrays", format!("{{\"deep\":{}}}", deep(MAX_BYTES / 2 - 8))),
        ("a list of objects", format!("{{\"list\":[{}0]}}", "{\"a\":{}},".repeat(100_000))),
        ("a long number", format!("{{\"number\":{}}}", digits(MAX_BYTES - 20))),
        ("half a list", format!("{{\"list\":[{}", "0,".repeat(MAX_BYTES / 2 - 8))),
        ("lines", "\n".repeat(MAX_BYTES)),
    ];
    let long =
        [digits(16_000), format!("1e-{}", "9".repeat(16_000)), deep(8000), "9".repeat(16_000)];
    let strings = [format!("\"{}\"", "z".repeat(16_000)), format!("[{}1]", "1,".repeat(8000))];
    let objects = [filled("{", |i| format!("\"o{i}\":{i}"))[..16_000].to_owned() + "0}"];
    for value in long.iter().chain(&strings).chain(&objects) {
        cases
            .extend(read_fields(value).into_iter().map(|text| ("a long value that is read", text)));
    }
    cases
}

#[test]
fn no_config_takes_long() {
    let (mut slowest, mut most) = ((Duration::ZERO, ""), (0, ""));
    for (name, text) in worst_cases() {
        assert!(text.len() <= MAX_BYTES, "{name}: {} bytes", text.len());
        for read in [
            |text: &str| drop(ModelConfig::from_json(text)),
            |text: &str| {
                drop(LoraConfig::from_peft(text));
            },
        ] {
            COMPARED.set(0);
            let began = Instant::now();
            let (calls, bytes) = counted(|| read(&text));
            let (took, compared) = (began.elapsed(), COMPARED.get());
            slowest = slowest.max((took, name));
            most = most.max((compared, name));
            assert!(bytes <= 8 * text.len() + (1 << 20), "{name}: {bytes} bytes allocated");
            assert!(calls <= 60_000, "{name}: {calls} allocations");
            assert!(compared <= 4_000_000, "{name}: {compared} pairs of letters");
            assert!(took < GUARD, "{name} took {took:?}");
        }
    }
    println!("slowest: {slowest:?}; most letters compared: {most:?}");
}
