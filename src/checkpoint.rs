//! Safetensors files, read and written without holding their data: a reader checks a header and
//! says which bytes to fetch, a writer makes the header alone.
//!
//! The header is parsed here and not by the `safetensors` crate because the crate counts bits and
//! offsets in `usize`, which in WebAssembly ends at tensors of 512 MB. The crate's `Dtype` is
//! used, and the tests hold both directions against the crate.

use crate::decimal::Decimal;
use crate::error::{Error, Result, room};
use safetensors::Dtype;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::{fmt, mem};

/// Length prefix of a safetensors file.
const PREFIX: u64 = 8;
/// Bytes of a header beside its tensors, such as metadata, and of each tensor: far more than any
/// needs. The format's own cap, 100 MB, would let a hostile file keep the page busy.
const HEADER_BYTES: [usize; 2] = [1 << 20, 4 << 10];
/// The entry of a header that is no tensor.
const METADATA: &str = "__metadata__";
/// What the names of a model's tensors may begin with, but for files of the model without its head.
const NAME_PREFIX: &str = "transformer.";
/// The weight that gives logits, in the checkpoints of some models, and as transformers 5 names it there too.
const HEAD: [&str; 2] = ["embed_out.weight", "lm_head.weight"];
/// How many names an error lists before it only counts.
const LISTED: usize = 8;

/// A tensor to read: bytes `begin..end` of the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wanted {
    pub name: String,
    pub begin: u64,
    pub end: u64,
    #[serde(skip)]
    pub dtype: Dtype,
}

/// One tensor of a header; offsets count from the end of the header.
#[derive(Serialize, Deserialize)]
struct Entry {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes that shape and dtype take, unless they overflow or end inside a byte.
    fn size(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))?;
        let bits = elements.checked_mul(self.dtype.bitsize() as u64)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// State of an expected tensor.
#[derive(Debug)]
struct Expected {
    shape: Vec<u64>,
    /// Its elements are codes in bytes.
    codes: bool,
    /// The file that has it, once there is one.
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    file: String,
    dtype: Dtype,
    /// Bytes that have been decoded, from the first on.
    decoded: u64,
}

impl Expected {
    fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes in its file.
    fn bytes(&self, found: &Found) -> u64 {
        self.elements() * found.dtype.bitsize() as u64 / 8
    }

    /// The index of an element along each axis.
    fn index(&self, mut element: u64) -> Vec<u64> {
        let mut index: Vec<u64> = self
            .shape
            .iter()
            .rev()
            .map(|&size| {
                let at = element % size.max(1);
                element /= size.max(1);
                at
            })
            .collect();
        index.reverse();
        index
    }
}

/// Checks the files of a checkpoint, one or sharded, against the tensors that are expected.
/// A call that fails leaves the reader as it was.
#[derive(Debug)]
pub struct CheckpointReader {
    expected: BTreeMap<String, Expected>,
}

impl CheckpointReader {
    pub fn new(expected: &[(String, Vec<usize>)]) -> Self {
        let entry = |(name, shape): &(String, Vec<usize>)| {
            let shape = shape.iter().map(|&n| n as u64).collect();
            (name.clone(), Expected { shape, codes: false, found: None })
        };
        Self { expected: expected.iter().map(entry).collect() }
    }

    /// Expects bytes of a tensor that is among the expected.
    pub fn expect_codes(&mut self, name: &str) {
        if let Some(expected) = self.expected.get_mut(name) {
            expected.codes = true;
        }
    }

    /// The longest header that a file of these tensors may have.
    pub fn header_limit(&self) -> usize {
        let [rest, tensor] = HEADER_BYTES;
        rest + tensor * self.expected.len()
    }

    /// Takes the header of one file (the JSON after the length prefix) and the length of the whole
    /// file; returns what to read from it, in the order of the file.
    pub fn add_file(&mut self, file: &str, header: &[u8], file_length: u64) -> Result<Vec<Wanted>> {
        let data = PREFIX + header.len() as u64;
        let data_length = file_length.checked_sub(data).ok_or_else(|| {
            Error::checkpoint(format!(
                "{file} is truncated: its header ends at byte {data} and the file at {file_length}"
            ))
        })?;
        let most = self.header_limit();
        if header.len() > most {
            return Err(Error::checkpoint(format!(
                "the header of {file} has {} bytes; one of {} tensors may have {most}",
                header.len(),
                self.expected.len()
            )));
        }
        let entries = in_order(parse_header(file, header)?);
        check_layout(file, &entries, data_length)?;
        self.refuse_unexpected(file, &entries)?;
        let mut wanted = vec![];
        for (name, entry) in entries {
            let name = self.whole(&name);
            let Some(expected) = self.expected.get(&name) else { continue };
            if wanted.iter().any(|wanted: &Wanted| wanted.name == name) {
                return Err(Error::checkpoint(format!("tensor {name} is in {file} twice")));
            }
            if let Some(Found { file: other, .. }) = &expected.found {
                return Err(Error::checkpoint(format!(
                    "tensor {name} is in both {other} and {file}"
                )));
            }
            let (readable, dtypes) = if expected.codes {
                (entry.dtype == Dtype::U8, "U8")
            } else {
                (matches!(entry.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16), "F32, F16 or BF16")
            };
            if !readable {
                return Err(Error::checkpoint(format!(
                    "tensor {name} in {file} has dtype {}; it must be {dtypes}",
                    entry.dtype
                )));
            }
            if entry.shape != expected.shape {
                return Err(Error::checkpoint(format!(
                    "tensor {name} in {file} has shape {:?}; the config asks for {:?}",
                    entry.shape, expected.shape
                )));
            }
            let (begin, end) = entry.data_offsets;
            wanted.push(Wanted { name, begin: data + begin, end: data + end, dtype: entry.dtype });
        }
        for Wanted { name, dtype, .. } in &wanted {
            let expected = self.expected.get_mut(name).expect("taken from this map above");
            expected.found = Some(Found { file: file.to_owned(), dtype: *dtype, decoded: 0 });
        }
        Ok(wanted)
    }

    /// The name under which a file's tensor is expected, which [`NAME_PREFIX`] may have to complete, or which is
    /// [`HEAD`]'s other one.
    fn whole(&self, name: &str) -> String {
        let whole =
            if name == HEAD[1] { HEAD[0].to_owned() } else { format!("{NAME_PREFIX}{name}") };
        let lacks = !self.expected.contains_key(name) && self.expected.contains_key(&whole);
        if lacks { whole } else { name.to_owned() }
    }

    /// A tensor that nothing will read means that file and config disagree about the model.
    fn refuse_unexpected(&self, file: &str, entries: &[(String, Entry)]) -> Result<()> {
        let unexpected: Vec<&str> = entries
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !self.expected.contains_key(&self.whole(name)) && !is_harmless(name))
            .collect();
        if unexpected.is_empty() {
            return Ok(());
        }
        let why = if unexpected.iter().any(|name| name.ends_with(".bias")) {
            "models of the config's model_type have no such biases"
        } else {
            "the config has no such tensors"
        };
        Err(Error::checkpoint(format!(
            "{file} has unexpected tensors, and {why}: {}",
            list(&unexpected)
        )))
    }

    /// Converts the next bytes of a tensor that `add_file` asked for into `values`, replacing what
    /// was there, and returns the first one's place in the tensor. `begin` counts the tensor's bytes;
    /// pieces come in order and hold whole elements.
    pub fn decode(
        &mut self,
        name: &str,
        begin: u64,
        bytes: &[u8],
        values: &mut Vec<f32>,
    ) -> Result<u64> {
        let (element, dtype) = match self.expected.get(name) {
            Some(Expected { codes: true, .. }) => (4, Dtype::U8), // four to a word
            Some(Expected { found: Some(found), .. }) => (found.dtype.bitsize() / 8, found.dtype),
            _ => (1, Dtype::F32),
        };
        let start = self.advance(name, begin, bytes.len() as u64, element)?;
        values.clear();
        if values.capacity() < bytes.len() / element {
            *values = room(&format!("a piece of tensor {name}"), (bytes.len() / element) as u64)?;
        }
        decode(dtype, bytes, values)?;
        Ok(start)
    }

    /// Notes that the next bytes of a tensor have come, of elements of a size, and returns the first one's place in the
    /// tensor.
    pub fn advance(&mut self, name: &str, begin: u64, length: u64, element: usize) -> Result<u64> {
        let wrong = |message: String| Err(Error::checkpoint(message));
        let expected = self.expected.get_mut(name);
        let Some(expected @ Expected { found: Some(_), .. }) = expected else {
            return wrong(format!("tensor {name} was not asked for"));
        };
        let found = expected.found.as_ref().expect("matched above");
        let (file, need) = (&found.file, expected.bytes(found));
        let end = begin + length;
        if begin != found.decoded {
            let next = found.decoded;
            return wrong(format!("tensor {name} of {file}: byte {begin} came after byte {next}"));
        }
        if end > need || !length.is_multiple_of(element as u64) {
            return wrong(format!(
                "tensor {name} of {file} came with bytes up to {end}; it has {need}"
            ));
        }
        if let Some(found) = &mut expected.found {
            found.decoded = end;
        }
        Ok(begin / element as u64)
    }

    /// Refuses a tensor for the value of its element `at`, which no run writes.
    pub fn refuse_value(&self, name: &str, at: u64, value: f32, why: &str) -> Error {
        let expected = self.expected.get(name);
        let file = expected.and_then(|e| e.found.as_ref()).map_or("no file", |found| &found.file);
        let index = expected.map_or(vec![at], |expected| expected.index(at));
        Error::checkpoint(format!(
            "tensor {name} of {file} has {} at {index:?}, and {why}; the file is damaged, or from \
             a run that diverged: use another",
            Decimal(value)
        ))
    }

    /// Expected tensors that no file has had so far.
    pub fn missing(&self) -> Vec<String> {
        self.names(|expected| expected.found.is_none())
    }

    /// Fails unless every expected tensor was found.
    pub fn expect_all(&self) -> Result<()> {
        none_of(&self.missing(), "these tensors are missing from the checkpoint")
    }

    /// Fails unless every expected tensor was found and decoded.
    pub fn finish(&self) -> Result<()> {
        self.expect_all()?;
        let short = |expected: &Expected| {
            expected.found.as_ref().is_some_and(|found| found.decoded != expected.bytes(found))
        };
        none_of(&self.names(short), "these tensors were not read to their end")
    }

    fn names(&self, keep: impl Fn(&Expected) -> bool) -> Vec<String> {
        self.expected
            .iter()
            .filter(|(_, expected)| keep(expected))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Tensors that old checkpoints carry and that hold no weights of their own: the rotary table, masks, and
/// the copy of a tied embedding (an untied head's weight is always expected).
fn is_harmless(name: &str) -> bool {
    const BUFFERS: [&str; 5] = [
        "rotary_emb.inv_freq",
        ".attn.bias",
        ".attn.masked_bias",
        ".attention.bias",
        ".attention.masked_bias",
    ];
    BUFFERS.iter().any(|buffer| name.ends_with(buffer)) || HEAD.contains(&name)
}

fn none_of(names: &[String], problem: &str) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::checkpoint(format!("{problem}: {}", list(names))))
}

fn list(names: &[impl AsRef<str>]) -> String {
    let mut text = names.iter().take(LISTED).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if names.len() > LISTED {
        text += &format!(" and {} more", names.len() - LISTED);
    }
    text
}

fn parse_header(file: &str, header: &[u8]) -> Result<Vec<(String, Entry)>> {
    let Header(entries) = serde_json::from_slice(header).map_err(|e| {
        Error::checkpoint(format!("the header of {file} is not a JSON object of tensors: {e}"))
    })?;
    Ok(entries)
}

/// The tensors of a header, read without building what is not one: a hostile header ends at its
/// first wrong entry.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
        let (mut entries, mut metadata) = (vec![], false);
        while let Some(name) = map.next_key::<String>()? {
            let wrong = |e: A::Error| A::Error::custom(format!("entry {name}: {e}"));
            if name == METADATA {
                if mem::replace(&mut metadata, true) {
                    return Err(twice(&name));
                }
                map.next_value::<Texts>().map_err(wrong)?;
            } else {
                let entry = map.next_value().map_err(wrong)?;
                entries.push((name, entry));
            }
        }
        let mut names: Vec<&String> = entries.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(twice(pair[0])),
            None => Ok(Header(entries)),
        }
    }
}

fn twice<E: serde::de::Error>(name: &str) -> E {
    E::custom(format!("entry {name} appears twice"))
}

/// An object of strings, which are checked and not kept.
struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self, A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(self)
    }
}

/// The tensors by their offsets.
fn in_order(mut entries: Vec<(String, Entry)>) -> Vec<(String, Entry)> {
    entries.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
    entries
}

/// Checks that tensors in their order are, end to end, exactly the data of the file.
fn check_layout(file: &str, entries: &[(String, Entry)], data_length: u64) -> Result<()> {
    let mut covered = 0;
    for (name, entry) in entries {
        let (begin, end) = entry.data_offsets;
        let problem = if end > data_length {
            format!("run past the end of the file, which has {data_length} bytes of data")
        } else if begin < covered {
            format!("overlap another tensor, which ends at {covered}")
        } else if begin > covered {
            format!("leave a hole from {covered}")
        } else if end < begin || entry.size() != Some(end - begin) {
            format!("do not fit its shape {:?} of {}", entry.shape, entry.dtype)
        } else {
            covered = end;
            continue;
        };
        return Err(Error::checkpoint(format!(
            "the offsets [{begin}, {end}] of tensor {name} in {file} {problem}"
        )));
    }
    if covered != data_length {
        return Err(Error::checkpoint(format!(
            "{file} has {data_length} bytes of data and its tensors end at {covered}"
        )));
    }
    Ok(())
}

/// Little-endian F32, F16 or BF16 to f32, appended to `values`; four U8 as the bits of one.
pub fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) -> Result<()> {
    let mut halves = |convert: fn([u8; 2]) -> f32| {
        values.extend(bytes.as_chunks().0.iter().map(|&b| convert(b)))
    };
    match dtype {
        Dtype::F16 => halves(|b| half::f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => halves(|b| half::bf16::from_le_bytes(b).to_f32()),
        Dtype::F32 | Dtype::U8 => {
            values.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)))
        }
        other => {
            let message = format!("dtype {other} cannot be read; F32, F16 and BF16 can");
            return Err(Error::checkpoint(message));
        }
    }
    Ok(())
}

/// The first bytes of a file of F32 tensors that follow in the order given: the length prefix and
/// the header, padded so that the data is aligned to 8 bytes. `metadata` holds strings by name;
/// transformers wants `("format", "pt")`.
pub fn write_header(tensors: &[(String, Vec<usize>)], metadata: &[(&str, &str)]) -> Vec<u8> {
    write_header_of(tensors, &|_| false, metadata)
}

/// The same where tensors, by their place, may be of U8.
pub fn write_header_of(
    tensors: &[(String, Vec<usize>)],
    codes: &dyn Fn(usize) -> bool,
    metadata: &[(&str, &str)],
) -> Vec<u8> {
    let mut json = vec![];
    write_json(&mut json, tensors, codes, metadata)
        .expect("strings and integers written to memory serialise");
    json.resize(json.len().next_multiple_of(PREFIX as usize), b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    bytes
}

fn write_json(
    json: &mut Vec<u8>,
    tensors: &[(String, Vec<usize>)],
    codes: &dyn Fn(usize) -> bool,
    metadata: &[(&str, &str)],
) -> serde_json::Result<()> {
    let mut serializer = serde_json::Serializer::new(json);
    let mut map = serializer.serialize_map(None)?;
    if !metadata.is_empty() {
        let texts: BTreeMap<_, _> = metadata.iter().copied().collect();
        map.serialize_entry(METADATA, &texts)?;
    }
    let mut begin = 0;
    for (place, (name, shape)) in tensors.iter().enumerate() {
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        let (dtype, each) = if codes(place) { (Dtype::U8, 1) } else { (Dtype::F32, 4) };
        let end = begin + each * shape.iter().product::<u64>();
        map.serialize_entry(name, &Entry { dtype, shape, data_offsets: (begin, end) })?;
        begin = end;
    }
    map.end()
}

#[cfg(test)]
mod tests;
