//! A tensor's elements in the shards of a set of buffers: written and read in pieces.

use crate::checkpoint::write_header_of;
use crate::error::{Error, Result, room};
use crate::gpu::{BufferId, Gpu, LocalFuture, Region};
use crate::optim::{Content, Stored};
use crate::params::{Params, Tensor};
use crate::plan::Buffer;
use std::ops::Range;
use std::rc::Rc;

/// Bytes brought back at a time: host memory holds them two more times meanwhile.
const READ_BYTES: usize = 64 << 20;

/// Where a tensor's shards are found: a session's own look-up of buffers.
type Find<'a> = &'a dyn Fn(Buffer) -> Result<BufferId>;

/// A tensor in a set of shards.
pub(super) struct Place<'a> {
    pub layout: &'a Params,
    pub tensor: &'a Tensor,
    pub set: fn(usize) -> Buffer,
    pub find: Find<'a>,
}

impl Place<'_> {
    /// Writes the tensor's elements from `start` on.
    pub fn write(&self, gpu: &Rc<dyn Gpu>, start: usize, values: &[f32]) -> Result<()> {
        for (first, shard, offset, len) in pieces(self.layout, self.tensor, start, values.len()) {
            let part = &values[first - start..][..len];
            let buffer = (self.find)((self.set)(shard))?;
            gpu.write(buffer, offset as u64 * 4, bytemuck::cast_slice(part))?;
        }
        Ok(())
    }

    /// Reads a range of the tensor's elements. All buffers are looked up before the first await.
    pub fn read(
        &self,
        gpu: &Rc<dyn Gpu>,
        range: Range<usize>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let mut regions = Vec::new();
        for (_, shard, offset, len) in pieces(self.layout, self.tensor, range.start, range.len()) {
            let buffer = (self.find)((self.set)(shard))?;
            let (begin, end) = (offset as u64 * 4, (offset + len) as u64 * 4);
            for offset in (begin..end).step_by(READ_BYTES) {
                let bytes = (end - offset).min(READ_BYTES as u64);
                regions.push(Region { buffer, offset, bytes });
            }
        }
        read_regions(gpu, &self.tensor.name, regions)
    }

    /// Reads the tensor's bytes from `begin` to `end` of its bytes in a file, f32 little endian.
    pub fn read_bytes(
        &self,
        gpu: &Rc<dyn Gpu>,
        bytes: Range<u64>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let total = self.tensor.shape.iter().product::<usize>() as u64 * 4;
        let Range { start, end } = bytes;
        if start > end || end > total || start % 4 != 0 || end % 4 != 0 {
            return Err(Error::internal(format!("bytes {start} to {end} of a tensor of {total}")));
        }
        self.read(gpu, (start / 4) as usize..(end / 4) as usize)
    }
}

/// The bytes of regions, one after the other.
fn read_regions(
    gpu: &Rc<dyn Gpu>,
    name: &str,
    regions: Vec<Region>,
) -> Result<LocalFuture<Result<Vec<u8>>>> {
    if let [region] = regions[..] {
        return gpu.read(region);
    }
    let total = regions.iter().map(|r| r.bytes).sum();
    let mut bytes: Vec<u8> = room(&format!("tensor {name}"), total)?;
    let gpu = Rc::clone(gpu);
    Ok(Box::pin(async move {
        for region in regions {
            bytes.extend(gpu.read(region)?.await?);
        }
        Ok(bytes)
    }))
}

/// Reads some of the bytes that a file has of a stored tensor.
pub(super) fn read_stored(
    gpu: &Rc<dyn Gpu>,
    stored: &Stored,
    bytes: &Range<u64>,
    find: Find<'_>,
) -> Result<LocalFuture<Result<Vec<u8>>>> {
    let (Range { start, end }, total) = (bytes, stored.bytes());
    if start > end || *end > total || start % 4 != 0 || end % 4 != 0 {
        return Err(Error::internal(format!("bytes {start} to {end} of a tensor of {total}")));
    }
    let mut regions = vec![];
    for slice in stored.cut(bytes) {
        let (buffer, end) = (find(slice.buffer)?, slice.offset + slice.bytes);
        for offset in (slice.offset..end).step_by(READ_BYTES) {
            let bytes = (end - offset).min(READ_BYTES as u64);
            regions.push(Region { buffer, offset, bytes });
        }
    }
    read_regions(gpu, &stored.name, regions)
}

/// Writes words of a stored tensor, from its word `start` on.
pub(super) fn write_stored(
    gpu: &Rc<dyn Gpu>,
    stored: &Stored,
    start: usize,
    values: &[f32],
    find: Find<'_>,
) -> Result<()> {
    let mut rest = values;
    for slice in stored.cut(&(start as u64 * 4..(start + values.len()) as u64 * 4)) {
        let (part, more) = rest.split_at(slice.bytes as usize / 4);
        gpu.write(find(slice.buffer)?, slice.offset, bytemuck::cast_slice(part))?;
        rest = more;
    }
    Ok(())
}

/// The first bytes of a file of these tensors.
pub(super) fn header_of(stored: &[Stored]) -> Vec<u8> {
    let tensors: Vec<_> = stored.iter().map(|one| (one.name.clone(), one.shape.clone())).collect();
    let codes = |place: usize| stored[place].content == Content::Codes;
    write_header_of(&tensors, &codes, &[("format", "pt")])
}

/// Where `len` elements of a tensor lie, from `start` on: the first element of each stretch, its
/// shard, its offset there and its length.
fn pieces(
    layout: &Params,
    tensor: &Tensor,
    start: usize,
    len: usize,
) -> Vec<(usize, usize, usize, usize)> {
    let mut found = vec![];
    let mut begin = 0;
    for run in layout.runs(tensor) {
        let first = begin.max(start);
        let last = (begin + run.len).min(start + len);
        if first < last {
            found.push((first, run.shard, run.offset + first - begin, last - first));
        }
        begin += run.len;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    /// Pieces of every length cover a tensor that lies in several shards, each element once.
    #[test]
    fn pieces_cover_a_tensor_in_several_shards() {
        let config = r#"{"vocab_size":1000,"hidden_size":64,"intermediate_size":64,
            "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2}"#;
        let config = ModelConfig::from_json(config).unwrap();
        let layout = Params::new(crate::arch::Architecture::of(&config), 64 * 64 * 4 * 3).unwrap();
        let tensor = &layout.tensors[0];
        let runs = layout.runs(tensor);
        assert!(runs.len() > 3, "{} runs", runs.len());
        let place = |element: usize| {
            let mut begin = 0;
            for run in &runs {
                if element < begin + run.len {
                    return (run.shard, run.offset + element - begin);
                }
                begin += run.len;
            }
            panic!("no element {element}");
        };
        for size in [1000, 12_288, 13_001, 64_000] {
            let mut next = 0;
            for start in (0..64_000).step_by(size) {
                for (first, shard, offset, len) in
                    pieces(&layout, tensor, start, size.min(64_000 - start))
                {
                    assert_eq!((first, (shard, offset)), (next, place(first)));
                    assert_eq!((shard, offset + len - 1), place(first + len - 1));
                    next = first + len;
                }
            }
            assert_eq!(next, 64_000);
        }
    }
}
