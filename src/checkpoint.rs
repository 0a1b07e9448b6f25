//! Safetensors files, read and written without holding their data: a reader checks a header and
//! says which bytes to fetch, a writer makes the header alone.
//!
//! The header is parsed here and not by the `safetensors` crate because the crate counts bits and
//! offsets in `usize`, which in WebAssembly ends at tensors of 512 MB. The crate's `Dtype` is
//! used, and the tests hold both directions against the crate.

mod header;
mod names;

pub use header::{write_header, write_header_of};

use crate::decimal::Decimal;
use crate::error::{Error, Result, room};
use header::{Entry, check_layout, in_order, parse_header};
use names::{HEAD, Names, bases, refuse_unexpected};
use safetensors::Dtype;
use serde::Serialize;
use std::collections::BTreeMap;
use tinyloom_numbers::{from_bf16, from_f16, from_f32};

/// Length prefix of a safetensors file.
const PREFIX: u64 = 8;
/// Bytes of a header beside its tensors, such as metadata, and of each tensor: far more than any
/// needs. The format's own cap, 100 MB, would let a hostile file keep the page busy.
const HEADER_BYTES: [usize; 2] = [1 << 20, 4 << 10];
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

/// State of an expected tensor.
#[derive(Debug)]
struct Expected {
    shape: Vec<u64>,
    /// Its elements are codes in bytes.
    codes: bool,
    /// The file that has it, once there is one.
    found: Option<Found>,
    /// The embedding that it has to be the same as; it need not be there.
    copy_of: Option<String>,
}

#[derive(Debug)]
struct Found {
    file: String,
    dtype: Dtype,
    /// Bytes that have been decoded, from the first on.
    decoded: u64,
    /// A sum of its values.
    sum: u64,
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
    /// The embedding that gives the logits too, where only names are looked at.
    tied: Option<String>,
}

impl CheckpointReader {
    pub fn new(expected: &[(String, Vec<usize>)]) -> Self {
        let entry = |(name, shape): &(String, Vec<usize>)| {
            let shape = shape.iter().map(|&n| n as u64).collect();
            (name.clone(), Expected { shape, codes: false, found: None, copy_of: None })
        };
        Self { expected: expected.iter().map(entry).collect(), tied: None }
    }

    /// Allows a copy of the embedding under the name of a head of its own. Where only the copy is there, it is the
    /// embedding; where both are, they have to be the same, if their values are looked at.
    pub fn tie(&mut self, embedding: &str, compared: bool) {
        let Some(Expected { shape, .. }) = self.expected.get(embedding) else { return };
        if !compared {
            self.tied = Some(embedding.to_owned());
            return;
        }
        let copy_of = Some(embedding.to_owned());
        let copy = Expected { shape: shape.clone(), codes: false, found: None, copy_of };
        self.expected.insert(HEAD[1].to_owned(), copy);
    }

    /// The tensor that a found one is; none for a copy of one that is there.
    pub fn target(&self, name: &str) -> Option<String> {
        let copied = self.expected.get(name).and_then(|expected| expected.copy_of.as_ref());
        let Some(embedding) = copied else { return Some(name.to_owned()) };
        let there = self.expected.get(embedding).is_some_and(|one| one.found.is_some());
        (!there).then(|| embedding.clone())
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
        let bases = bases(self.expected.keys());
        let known = Names { expected: &|name| self.expected.contains_key(name), bases: &bases };
        refuse_unexpected(file, &entries, &known)?;
        let names = self.names_of(&entries, &known);
        let mut wanted = vec![];
        for (name, (_, entry)) in names.into_iter().zip(entries) {
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
            if let Some(expected) = self.expected.get_mut(name) {
                let file = file.to_owned();
                expected.found = Some(Found { file, dtype: *dtype, decoded: 0, sum: 0 });
            }
        }
        Ok(wanted)
    }

    /// The names under which tensors are expected. A head alone is the embedding, where the two are tied.
    fn names_of(&self, entries: &[(String, Entry)], known: &Names<'_>) -> Vec<String> {
        let mut names: Vec<_> = entries.iter().map(|(name, _)| known.whole(name)).collect();
        let missing =
            |name: &&String| self.expected.get(*name).is_some_and(|one| one.found.is_none());
        let alone =
            self.tied.as_ref().filter(|embedding| !names.contains(embedding)).filter(missing);
        if let Some(embedding) = alone
            && let Some(head) = names.iter_mut().find(|name| HEAD.contains(&name.as_str()))
        {
            head.clone_from(embedding);
        }
        names
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
        if values.capacity() < bytes.len() / element {
            *values = room(&format!("a piece of tensor {name}"), (bytes.len() / element) as u64)?;
        }
        decode(dtype, bytes, values)?;
        if self.compares(name)
            && let Some(Found { sum, .. }) = self.found_mut(name)
        {
            *sum = values.iter().fold(*sum, |sum, value| {
                let mixed = sum.rotate_left(5) ^ u64::from(value.to_bits());
                mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
        }
        Ok(start)
    }

    /// The tensor that a file has in f16, where its numbers are not to be compared with another's.
    pub fn halves(&self, name: &str) -> Option<String> {
        let found = self.expected.get(name)?.found.as_ref()?;
        if found.dtype == Dtype::F16 && !self.compares(name) { self.target(name) } else { None }
    }

    /// Whether a tensor is the embedding or its copy, and both may be there.
    fn compares(&self, name: &str) -> bool {
        let copy = self.expected.get(HEAD[1]).filter(|copy| copy.found.is_some());
        let embedding = copy.and_then(|copy| copy.copy_of.as_deref());
        embedding.is_some_and(|embedding| [embedding, HEAD[1]].contains(&name))
    }

    fn found_mut(&mut self, name: &str) -> Option<&mut Found> {
        self.expected.get_mut(name)?.found.as_mut()
    }

    /// Notes that the next bytes of a tensor have come, of elements of a size, and returns the first one's place in the
    /// tensor.
    pub fn advance(&mut self, name: &str, begin: u64, length: u64, element: usize) -> Result<u64> {
        let wrong = |message: String| Err(Error::checkpoint(message));
        let unasked = || Error::checkpoint(format!("tensor {name} was not asked for"));
        let expected = self.expected.get_mut(name).ok_or_else(unasked)?;
        let found = expected.found.as_ref().ok_or_else(unasked)?;
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
        let copy = self.expected.values().find(|one| one.copy_of.is_some() && one.found.is_some());
        let copied = copy.and_then(|copy| copy.copy_of.as_ref());
        let mut names = self.names(|one| one.found.is_none() && one.copy_of.is_none());
        names.retain(|name| Some(name) != copied);
        names
    }

    /// Fails unless every expected tensor was found.
    pub fn expect_all(&self) -> Result<()> {
        let missing = self.missing();
        let head = missing.len() == 1 && HEAD.contains(&missing[0].as_str());
        let cure = if head {
            "; if the embedding gives the logits too, set tie_word_embeddings to true in config.json"
        } else {
            ""
        };
        none_of(&missing, "these tensors are missing from the checkpoint", cure)
    }

    /// Fails where a copy of the embedding has other values.
    fn expect_same(&self) -> Result<()> {
        for (name, copy) in &self.expected {
            let Some(embedding) = &copy.copy_of else { continue };
            let own = self.expected.get(embedding).and_then(|one| one.found.as_ref());
            if let (Some(own), Some(copy)) = (own, &copy.found)
                && own.sum != copy.sum
            {
                return Err(Error::checkpoint(format!(
                    "{name} of {} has other numbers than {embedding}, and tie_word_embeddings is true: set it to false in \
                     config.json to load both, as transformers does, or take {name} out",
                    copy.file
                )));
            }
        }
        Ok(())
    }

    /// Fails unless every expected tensor was found and decoded.
    pub fn finish(&self) -> Result<()> {
        self.expect_all()?;
        let short = |expected: &Expected| {
            expected.found.as_ref().is_some_and(|found| found.decoded != expected.bytes(found))
        };
        none_of(&self.names(short), "these tensors were not read to their end", "")?;
        self.expect_same()
    }

    fn names(&self, keep: impl Fn(&Expected) -> bool) -> Vec<String> {
        self.expected
            .iter()
            .filter(|(_, expected)| keep(expected))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Replaces the contents of `values` by little-endian elements. Of U8, four bytes are the bits of one f32.
///
/// # Errors
/// `invalid-checkpoint` for a type that is not read.
fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) -> Result<()> {
    match dtype {
        Dtype::F16 => from_f16(bytes, values),
        Dtype::BF16 => from_bf16(bytes, values),
        Dtype::F32 | Dtype::U8 => from_f32(bytes, values),
        other => {
            let message = format!("dtype {other} cannot be read; F32, F16 and BF16 can");
            return Err(Error::checkpoint(message));
        }
    }
    Ok(())
}

fn none_of(names: &[String], problem: &str, cure: &str) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::checkpoint(format!("{problem}: {}{cure}", list(names))))
}

fn list(names: &[impl AsRef<str>]) -> String {
    let mut text = names.iter().take(LISTED).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if names.len() > LISTED {
        text += &format!(" and {} more", names.len() - LISTED);
    }
    text
}

#[cfg(test)]
mod name_tests;
#[cfg(test)]
mod tests;
