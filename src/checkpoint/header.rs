//! The header of a safetensors file: its JSON read and written, and where its tensors are.

use super::PREFIX;
use crate::error::{Error, Result};
use safetensors::Dtype;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::{fmt, mem};

/// The entry of a header that is no tensor.
const METADATA: &str = "__metadata__";

/// One tensor of a header; offsets count from the end of the header.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes that shape and dtype take, unless they overflow or end inside a byte.
    fn size(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))?;
        let bits = elements.checked_mul(self.dtype.bitsize() as u64)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

pub(super) fn parse_header(file: &str, header: &[u8]) -> Result<Vec<(String, Entry)>> {
    let Header(entries) = serde_json::from_slice(header).map_err(|e| {
        Error::checkpoint(format!("the header of {file} is not a JSON object of tensors: {e}"))
    })?;
    Ok(entries)
}

/// The tensors of a header, read without building what is not one: a hostile header ends at its first wrong entry.
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

/// An object of strings, which are checked and not kept, or null.
struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Self;

    fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self, A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(self)
    }
}

/// The tensors by their offsets.
pub(super) fn in_order(mut entries: Vec<(String, Entry)>) -> Vec<(String, Entry)> {
    entries.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
    entries
}

/// Checks that tensors in their order are, end to end, exactly the data of the file.
pub(super) fn check_layout(
    file: &str,
    entries: &[(String, Entry)],
    data_length: u64,
) -> Result<()> {
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

/// The first bytes of a file of F32 tensors that follow in the order given: the length prefix and the header, padded so
/// that the data is aligned to 8 bytes. `metadata` holds strings by name; transformers wants `("format", "pt")`.
pub fn write_header(tensors: &[(String, Vec<usize>)], metadata: &[(&str, &str)]) -> Vec<u8> {
    write_header_of(tensors, &|_| false, metadata)
}

/// As [`write_header`], where `codes` says by index which tensors are U8.
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
