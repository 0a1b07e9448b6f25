use super::*;
use crate::error::ErrorCode;
use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize};

fn expected() -> Vec<(String, Vec<usize>)> {
    vec![("a.weight".into(), vec![2, 3]), ("b.weight".into(), vec![4])]
}

/// Splits the bytes of a file into the header's JSON and the file's length.
fn header(file: &[u8]) -> (&[u8], u64) {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (&file[8..8 + length], file.len() as u64)
}

pub(super) fn message(result: Result<Vec<Wanted>>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidCheckpoint);
    error.message
}

#[test]
fn files_of_the_crate_are_read_in_all_three_dtypes() {
    let values = [0.5f32, -1.0, 2.0, 0.0, 1024.0, -0.25];
    let halves: Vec<u8> =
        values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
    let brains: Vec<u8> =
        values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect();
    let floats: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    for (dtype, bytes) in [(Dtype::F16, &halves), (Dtype::BF16, &brains), (Dtype::F32, &floats)] {
        let view = TensorView::new(dtype, vec![2, 3], bytes).unwrap();
        let other = TensorView::new(Dtype::F32, vec![4], &floats[..16]).unwrap();
        let file = serialize([("a.weight", view), ("b.weight", other)], None).unwrap();
        let mut reader = CheckpointReader::new(&expected());
        assert_eq!(reader.missing(), ["a.weight", "b.weight"]);
        let (json, length) = header(&file);
        let wanted = reader.add_file("model.safetensors", json, length).unwrap();
        assert_eq!(wanted.len(), 2);
        assert!(reader.missing().is_empty());
        let unread = reader.finish().unwrap_err().message;
        assert!(unread.contains("not read to their end: a.weight, b.weight"), "{unread}");
        let mut decoded = vec![7.0];
        for Wanted { name, begin, end, .. } in wanted {
            let bytes = &file[begin as usize..end as usize];
            assert_eq!(reader.decode(&name, 0, bytes, &mut decoded).unwrap(), 0);
            assert_eq!(decoded, if name == "a.weight" { &values[..] } else { &values[..4] });
        }
        reader.finish().unwrap();
    }
}

#[test]
fn written_headers_are_read_by_the_crate_in_the_order_given() {
    let tensors = vec![
        ("z".to_owned(), vec![2, 2]),
        ("a".to_owned(), vec![3]),
        ("scalar".to_owned(), vec![]),
    ];
    let mut file = write_header(&tensors, &[("format", "pt")]);
    assert!(file.len().is_multiple_of(8));
    file.extend((0..8).flat_map(|i| (i as f32).to_le_bytes()));
    let parsed = SafeTensors::deserialize(&file).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    assert_eq!(metadata.offset_keys(), ["z", "a", "scalar"]);
    let a = parsed.tensor("a").unwrap();
    assert_eq!((a.shape(), decoded(&a)), (&[3][..], vec![4.0, 5.0, 6.0]));
    assert_eq!(parsed.tensor("scalar").unwrap().data(), 7f32.to_le_bytes());
}

#[test]
fn offsets_past_32_bits_survive() {
    let tensors = vec![("a".to_owned(), vec![1 << 16, 1 << 15]), ("b".to_owned(), vec![1])];
    let bytes = write_header(&tensors, &[]);
    let mut reader = CheckpointReader::new(&tensors);
    let length = bytes.len() as u64 + (1 << 33) + 4;
    let wanted = reader.add_file("f", &bytes[8..], length).unwrap();
    assert_eq!(wanted[1].begin, bytes.len() as u64 + (1 << 33));
    assert_eq!(wanted[1].end, length);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of headers")]
fn hostile_headers_are_refused() {
    let entry = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let a = entry("F32", "[2,3]", 0, 24);
    for (json, data, needles) in [
        ("{".to_owned(), 40, ["not a JSON object", "f.st"]),
        ("[]".to_owned(), 40, ["not a JSON object", "f.st"]),
        ("\u{feff}".to_owned(), 40, ["not a JSON object", "f.st"]),
        ("[".repeat(10_000), 40, ["not a JSON object", "f.st"]),
        (
            format!(r#"{{"a.weight":{a},"b.weight":{}}}"#, entry("F32", "[4]", 24, 40)),
            36,
            ["b.weight", "past the end"],
        ),
        (
            format!(r#"{{"a.weight":{a},"b.weight":{}}}"#, entry("F32", "[4]", 20, 36)),
            40,
            ["b.weight", "overlap"],
        ),
        (
            format!(r#"{{"a.weight":{a},"b.weight":{}}}"#, entry("F32", "[4]", 28, 44)),
            44,
            ["b.weight", "hole"],
        ),
        (
            format!(r#"{{"a.weight":{a},"b.weight":{}}}"#, entry("F32", "[4]", 24, 40)),
            48,
            ["48 bytes", "end at 40"],
        ),
        (
            format!(r#"{{"a.weight":{}}}"#, entry("F32", "[2,3]", 0, 20)),
            20,
            ["a.weight", "do not fit"],
        ),
        (format!(r#"{{"a.weight":{}}}"#, entry("F32", "[2,3]", 24, 0)), 24, ["a.weight", "hole"]),
        (
            format!(r#"{{"a.weight":{}}}"#, entry("F32", "[4294967296,4294967296]", 0, 0)),
            0,
            ["a.weight", "do not fit"],
        ),
        (format!(r#"{{"a.weight":{}}}"#, entry("F4", "[1]", 0, 0)), 0, ["a.weight", "do not fit"]),
        (format!(r#"{{"a.weight":{}}}"#, entry("F33", "[2,3]", 0, 24)), 24, ["a.weight", "F33"]),
        (format!(r#"{{"a.weight":{}}}"#, entry("I32", "[2,3]", 0, 24)), 24, ["a.weight", "I32"]),
        (format!(r#"{{"a.weight":{}}}"#, entry("F32", "[3,2]", 0, 24)), 24, ["[3, 2]", "[2, 3]"]),
        (format!(r#"{{"a.weight":{}}}"#, entry("F32", "[-1]", 0, 24)), 24, ["a.weight", "-1"]),
        (r#"{"a.weight":{"dtype":"F32"}}"#.to_owned(), 0, ["a.weight", "shape"]),
        (r#"{"a.weight":null}"#.to_owned(), 0, ["a.weight", "f.st"]),
        (
            format!(r#"{{"c.bias":{}}}"#, entry("F32", "[4]", 0, 16)),
            16,
            ["c.bias", "no such biases"],
        ),
        (
            format!(r#"{{"c.weight":{}}}"#, entry("F32", "[4]", 0, 16)),
            16,
            ["c.weight", "no such tensors"],
        ),
    ] {
        let mut reader = CheckpointReader::new(&expected());
        let length = 8 + json.len() as u64 + data;
        let text = message(reader.add_file("f.st", json.as_bytes(), length));
        assert!(needles.iter().all(|n| text.contains(n)), "{json:.80} -> {text}");
        // A refused file leaves the reader as it was.
        assert_eq!(reader.missing().len(), 2);
    }
    let mut reader = CheckpointReader::new(&expected());
    assert!(message(reader.add_file("f.st", b"{\xff}", 20)).contains("not a JSON object"));
    assert!(message(reader.add_file("f.st", b"{}", 9)).contains("truncated"));
}

#[test]
fn shards_add_up_and_duplicates_are_named() {
    let [a, b] = expected().try_into().unwrap();
    let both = expected();
    let shard = |tensor: &(String, Vec<usize>)| write_header(std::slice::from_ref(tensor), &[]);
    let mut reader = CheckpointReader::new(&both);
    let (first, second) = (shard(&a), shard(&b));
    reader.add_file("1.st", &first[8..], first.len() as u64 + 24).unwrap();
    assert_eq!(reader.missing(), ["b.weight"]);
    assert!(reader.finish().unwrap_err().message.contains("missing from the checkpoint: b.weight"));
    let text = message(reader.add_file("2.st", &first[8..], first.len() as u64 + 24));
    assert!(text.contains("a.weight is in both 1.st and 2.st"), "{text}");
    let wanted = reader.add_file("2.st", &second[8..], second.len() as u64 + 16).unwrap();
    assert_eq!(wanted[0].name, "b.weight");
    assert!(reader.missing().is_empty());
    for (name, bytes) in [("c.weight", 4), ("b.weight", 15)] {
        let error = reader.decode(name, 0, &vec![0; bytes], &mut vec![]).unwrap_err();
        assert!(error.code == ErrorCode::InvalidCheckpoint && error.message.contains(name));
    }
}

#[test]
fn a_tensor_may_come_in_pieces_in_order() {
    let mut reader = CheckpointReader::new(&expected());
    let file = write_header(&expected(), &[]);
    reader.add_file("f.st", &file[8..], file.len() as u64 + 40).unwrap();
    let bytes: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut values = vec![];
    assert_eq!(reader.decode("a.weight", 0, &bytes[..8], &mut values).unwrap(), 0);
    assert_eq!(values, [0.0, 1.0]);
    let mut refused = |begin: u64, bytes: &[u8], needle: &str| {
        let error = reader.decode("a.weight", begin, bytes, &mut values).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidCheckpoint);
        assert!(error.message.contains(needle), "{}", error.message);
    };
    refused(0, &bytes[..8], "byte 0 came after byte 8");
    refused(12, &bytes[12..], "byte 12 came after byte 8");
    refused(8, &bytes[..7], "bytes up to 15; it has 24");
    refused(8, &bytes[..20], "bytes up to 28; it has 24");
    assert!(reader.finish().unwrap_err().message.contains("a.weight, b.weight"));
    assert_eq!(reader.decode("a.weight", 8, &bytes[8..], &mut values).unwrap(), 2);
    assert_eq!(values, [2.0, 3.0, 4.0, 5.0]);
    reader.decode("b.weight", 0, &bytes[..16], &mut values).unwrap();
    reader.finish().unwrap();
}

#[test]
fn a_value_is_refused_by_tensor_file_and_index() {
    let mut reader = CheckpointReader::new(&expected());
    let file = write_header(&expected(), &[]);
    reader.add_file("f.st", &file[8..], file.len() as u64 + 40).unwrap();
    let error = reader.refuse_value("a.weight", 5, f32::NAN, "weights are numbers");
    assert_eq!(error.code, ErrorCode::InvalidCheckpoint);
    assert!(error.message.contains("a.weight of f.st has NaN at [1, 2]"), "{}", error.message);
}

#[test]
fn harmless_extras_are_skipped() {
    let file = write_header(
        &[
            ("lm_head.weight".to_owned(), vec![2]),
            ("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), vec![8]),
            ("a.weight".to_owned(), vec![2, 3]),
        ],
        &[],
    );
    let mut reader = CheckpointReader::new(&expected());
    let wanted = reader.add_file("f", &file[8..], file.len() as u64 + 64).unwrap();
    assert_eq!(wanted.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["a.weight"]);
    assert_eq!(wanted[0].begin, file.len() as u64 + 40);
}

#[test]
fn long_lists_are_cut() {
    let names: Vec<String> = (0..20).map(|i| format!("t{i}")).collect();
    assert!(list(&names).ends_with("t7 and 12 more"));
}

fn decoded(view: &TensorView) -> Vec<f32> {
    let mut values = vec![];
    decode(view.dtype(), view.data(), &mut values).unwrap();
    values
}

/// A hostile header is refused at its first wrong entry, or by its length alone.
#[test]
fn headers_that_only_keep_busy_are_refused() {
    let expected = [("a".to_owned(), vec![1])];
    let refused = |header: &str| {
        let mut reader = CheckpointReader::new(&expected);
        let length = header.len() as u64 + 12;
        reader.add_file("f.st", header.as_bytes(), length).unwrap_err().message
    };
    let a = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    for (header, needle) in [
        (format!("{{{a},{a}}}"), "twice"),
        (format!(r#"{{"__metadata__":[{}]}}"#, vec![r#"{"":0}"#; 100].join(",")), "__metadata__"),
        (format!(r#"{{"__metadata__":{{"x":{{"":0}}}},{a}}}"#), "__metadata__"),
        (format!(r#"{{"__metadata__":3,{a}}}"#), "__metadata__"),
        (format!("{{{a}{}}}", " ".repeat((1 << 20) + 4096)), "1 tensors may have"),
    ] {
        let message = refused(&header);
        assert!(message.contains(needle) && message.contains("f.st"), "{message}");
    }
}

/// Files of GPT-2 without its head lack the prefix, and old ones hold masks.
#[test]
fn names_may_lack_the_prefix_of_the_whole_model() {
    let expected = [("transformer.h.0.ln_1.weight".to_owned(), vec![3])];
    let file = |names: &[&str]| {
        let tensors: Vec<_> = names.iter().map(|name| ((*name).to_owned(), vec![3])).collect();
        write_header(&tensors, &[])
    };
    let add = |names: &[&str]| {
        let file = file(names);
        let length = (file.len() + 12 * names.len()) as u64;
        CheckpointReader::new(&expected).add_file("f", &file[8..], length)
    };
    let masks = ["h.0.attn.bias", "transformer.h.0.attn.masked_bias"];
    for name in ["h.0.ln_1.weight", "transformer.h.0.ln_1.weight"] {
        let wanted = add(&[masks[0], name, masks[1]]).unwrap();
        assert_eq!(wanted.len(), 1);
        assert_eq!(wanted[0].name, expected[0].0);
    }
    let twice = message(add(&["h.0.ln_1.weight", "transformer.h.0.ln_1.weight"]));
    assert!(twice.contains("transformer.h.0.ln_1.weight is in f twice"), "{twice}");
    let other = message(add(&["h.0.ln_1.weight", "h.0.attn.c_attn.bias"]));
    assert!(other.contains("c_attn.bias"), "{other}");
}

#[test]
fn a_head_may_have_its_name_of_transformers_5() {
    let add = |expected: &str, names: &[&str]| {
        let tensors: Vec<_> = names.iter().map(|name| ((*name).to_owned(), vec![3])).collect();
        let file = write_header(&tensors, &[]);
        let mut reader = CheckpointReader::new(&[(expected.to_owned(), vec![3])]);
        reader.add_file("f", &file[8..], (file.len() + 12 * names.len()) as u64)
    };
    for name in HEAD {
        assert_eq!(add(HEAD[0], &[name]).unwrap()[0].name, HEAD[0]);
    }
    let buffers = ["attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"]
        .map(|buffer| format!("gpt_neox.layers.0.{buffer}"));
    let all = [HEAD[0], &buffers[0], &buffers[1], &buffers[2]];
    assert_eq!(add(HEAD[0], &all).unwrap().len(), 1);
    assert!(message(add(HEAD[0], &HEAD)).contains("twice"));
}
