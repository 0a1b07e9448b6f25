//! A tensor's elements in the shards of a set of buffers: written and read in pieces. A tensor that the
//! checkpoint has in another order, such as `[in, out]`, is reordered here, between the host's bytes and the shards.

use crate::arch::Swap;
use crate::checkpoint::write_header_of;
use crate::error::{Error, Result, room};
use crate::gpu::{BufferId, Gpu, LocalFuture, Region};
use crate::optim::{Content, Stored};
use crate::params::{Matrix, Params, Tensor};
use crate::plan::Buffer;
use std::ops::Range;
use std::rc::Rc;
use tinyloom_numbers::{GROUP, WeightFormat, holds_codes, pack, pack_codes, unpack};

/// Bytes brought back at a time: host memory holds them two more times meanwhile.
const READ_BYTES: usize = 64 << 20;

/// Elements of a reordered tensor that are written at a time.
const PART: usize = 1 << 20;

/// Where a tensor's shards are found: a session's own look-up of buffers.
pub(in crate::session) type FindBuffer<'a> = &'a dyn Fn(Buffer) -> Result<BufferId>;

/// A tensor in a set of shards.
pub(in crate::session) struct TensorStorage<'a> {
    pub layout: &'a Params,
    pub tensor: &'a Tensor,
    pub set: fn(usize) -> Buffer,
    pub find: FindBuffer<'a>,
}

impl TensorStorage<'_> {
    /// Writes the tensor's elements from `start` on; those of a packed matrix are packed, in whole groups.
    pub fn write(&self, gpu: &Rc<dyn Gpu>, start: usize, values: &[f32]) -> Result<()> {
        let packed = self.is_packed();
        for (first, shard, offset, len) in pieces(self.layout, self.tensor, start, values.len()) {
            let part = &values[first - start..][..len];
            if packed {
                self.write_packed(gpu, shard, offset, part)?;
                continue;
            }
            let buffer = (self.find)((self.set)(shard))?;
            gpu.write(buffer, offset as u64 * 4, bytemuck::cast_slice(part))?;
        }
        Ok(())
    }

    fn is_packed(&self) -> bool {
        self.layout.matrices[self.tensor.matrix].format != WeightFormat::F32
    }

    /// Whether the tensor is held in codes, and these are such.
    pub fn holds_codes(&self, codes: &[i8]) -> bool {
        let format = self.layout.matrices[self.tensor.matrix].format;
        self.tensor.swap().is_none() && holds_codes(format, codes)
    }

    /// Writes codes that the tensor holds, and a factor for each group of them, from its element `start` on.
    pub fn write_codes(
        &self,
        gpu: &Rc<dyn Gpu>,
        start: usize,
        codes: &[i8],
        scales: &[f32],
    ) -> Result<()> {
        let format = self.layout.matrices[self.tensor.matrix].format;
        for (first, part, offset, len) in pieces(self.layout, self.tensor, start, codes.len()) {
            let own = first - start..first - start + len;
            let scales = &scales[own.start / GROUP..own.end / GROUP];
            let words = pack_codes(format, &codes[own]);
            self.write_words(gpu, part, offset, (len, bytemuck::cast_slice(&words), scales))?;
        }
        Ok(())
    }

    /// Whether the tensor is held in f16, in the order of its file.
    pub fn holds_halves(&self) -> bool {
        let format = self.layout.matrices[self.tensor.matrix].format;
        self.tensor.swap().is_none() && format == WeightFormat::F16
    }

    /// Writes the bytes of numbers of a tensor that is held in f16, from its element `start` on.
    pub fn write_halves(&self, gpu: &Rc<dyn Gpu>, start: usize, bytes: &[u8]) -> Result<()> {
        for (first, part, offset, len) in pieces(self.layout, self.tensor, start, bytes.len() / 2) {
            let own = &bytes[2 * (first - start)..][..2 * len];
            self.write_words(gpu, part, offset, (len, own, &[]))?;
        }
        Ok(())
    }

    /// Packs elements into a packed part, from its element `offset` on.
    fn write_packed(
        &self,
        gpu: &Rc<dyn Gpu>,
        part: usize,
        offset: usize,
        values: &[f32],
    ) -> Result<()> {
        let (words, scales) = pack(self.layout.matrices[self.tensor.matrix].format, values);
        self.write_words(gpu, part, offset, (values.len(), bytemuck::cast_slice(&words), &scales))
    }

    /// Writes the words of `len` packed elements, and their factors.
    fn write_words(
        &self,
        gpu: &Rc<dyn Gpu>,
        part: usize,
        offset: usize,
        (len, words, scales): (usize, &[u8], &[f32]),
    ) -> Result<()> {
        let Matrix { format, cols, parts, first_part, .. } =
            &self.layout.matrices[self.tensor.matrix];
        if !(offset.is_multiple_of(GROUP) && len.is_multiple_of(GROUP)) {
            let piece = format!("{len} elements from {offset} on");
            return Err(Error::internal(format!("a piece of no whole groups: {piece}")));
        }
        let buffer = (self.find)(Buffer::Packed(part))?;
        gpu.write(buffer, 16 * format.vectors(offset) as u64, words)?;
        if scales.is_empty() {
            return Ok(());
        }
        let rows = parts[part - first_part].rows;
        let behind = 16 * format.vectors(rows * cols) as u64;
        gpu.write(buffer, behind + 4 * (offset / GROUP) as u64, bytemuck::cast_slice(scales))
    }

    /// Reads all elements of a packed tensor.
    fn read_packed(&self, gpu: &Rc<dyn Gpu>) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let Matrix { format, cols, parts, first_part, .. } =
            self.layout.matrices[self.tensor.matrix].clone();
        let mut regions = vec![];
        for run in self.layout.runs(self.tensor) {
            let buffer = (self.find)(Buffer::Packed(run.shard))?;
            let words = 16 * format.vectors(run.offset) as u64;
            let bytes = 16 * format.vectors(run.len) as u64;
            regions.push(Region { buffer, offset: words, bytes });
            if matches!(format, WeightFormat::Int8 | WeightFormat::Int4) {
                let behind = 16 * format.vectors(parts[run.shard - first_part].rows * cols) as u64;
                let offset = behind + 4 * (run.offset / GROUP) as u64;
                regions.push(Region { buffer, offset, bytes: 4 * (run.len / GROUP) as u64 });
            }
        }
        let gpu = Rc::clone(gpu);
        let total = self.tensor.shape.iter().product::<usize>() as u64 * 4;
        let mut values: Vec<u8> = room(&format!("tensor {}", self.tensor.name), total)?;
        let with_scales = !matches!(format, WeightFormat::F32 | WeightFormat::F16);
        Ok(Box::pin(async move {
            for regions in regions.chunks(1 + usize::from(with_scales)) {
                let words = bytemuck::pod_collect_to_vec(&gpu.read(regions[0])?.await?);
                let scales = match regions.get(1) {
                    Some(region) => bytemuck::pod_collect_to_vec(&gpu.read(*region)?.await?),
                    None => vec![],
                };
                values.extend_from_slice(bytemuck::cast_slice(&unpack(format, &words, &scales)));
            }
            Ok(values)
        }))
    }

    /// Reads a range of the tensor's elements. All buffers are looked up before the first await.
    pub fn read(
        &self,
        gpu: &Rc<dyn Gpu>,
        range: Range<usize>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        if self.is_packed() {
            let whole = self.read_packed(gpu)?;
            return Ok(Box::pin(async move {
                Ok(whole.await?[range.start * 4..range.end * 4].to_vec())
            }));
        }
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

    /// Writes elements from `start` on of the tensor as a file has it. Where the tensor has another order here, pieces
    /// come in order and wait in `held` for the last one.
    ///
    /// # Errors
    /// `out-of-memory`, `device-lost`.
    pub fn write_stored(
        &self,
        gpu: &Rc<dyn Gpu>,
        start: usize,
        values: &[f32],
        held: &mut Vec<f32>,
    ) -> Result<()> {
        let Some(swap) = self.tensor.swap() else { return self.write(gpu, start, values) };
        let total = self.tensor.shape.iter().product();
        let write = |start: usize, part: &[f32]| self.write(gpu, start, part);
        write_swapped(&self.tensor.name, (swap, total), (start, values), held, &write)
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
        let range = (start / 4) as usize..(end / 4) as usize;
        let Some(swap) = self.tensor.swap() else { return self.read(gpu, range) };
        let whole = self.read(gpu, 0..(total / 4) as usize)?;
        Ok(read_swapped(whole, swap, range))
    }
}

/// Writes elements from `start` on of a tensor that a file has in the order that `swap` gives. Pieces come in order and
/// wait in `held` for the last one.
fn write_swapped(
    name: &str,
    (swap, total): (Swap, usize),
    (start, values): (usize, &[f32]),
    held: &mut Vec<f32>,
    write: &dyn Fn(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    if start == 0 {
        *held = room(&format!("tensor {name}"), total as u64)?;
    }
    if held.len() != start {
        return Err(Error::internal("the pieces of two tensors came among each other"));
    }
    held.extend_from_slice(values);
    if held.len() < total {
        return Ok(());
    }
    let stored = std::mem::take(held);
    // Parts of a few megabytes: the host holds the tensor once, not twice.
    let mut part = vec![];
    for i in 0..total {
        part.push(stored[swap.place(i)]);
        if part.len() == PART || i + 1 == total {
            write(i + 1 - part.len(), &part)?;
            part.clear();
        }
    }
    Ok(())
}

/// A range of the elements of a tensor in a file's order, from all of its bytes in the order that they have here.
fn read_swapped(
    whole: LocalFuture<Result<Vec<u8>>>,
    swap: Swap,
    range: Range<usize>,
) -> LocalFuture<Result<Vec<u8>>> {
    Box::pin(async move {
        let whole = whole.await?;
        let mut bytes = room("a piece of a tensor", range.len() as u64 * 4)?;
        for i in range {
            bytes.extend_from_slice(&whole[swap.back().place(i) * 4..][..4]);
        }
        Ok(bytes)
    })
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
pub(in crate::session) fn read_stored(
    gpu: &Rc<dyn Gpu>,
    stored: &Stored,
    bytes: &Range<u64>,
    find: FindBuffer<'_>,
) -> Result<LocalFuture<Result<Vec<u8>>>> {
    let (Range { start, end }, total) = (bytes, stored.bytes());
    if start > end || *end > total || start % 4 != 0 || end % 4 != 0 {
        return Err(Error::internal(format!("bytes {start} to {end} of a tensor of {total}")));
    }
    let mut regions = vec![];
    let lying = if stored.swap.is_some() { 0..total } else { bytes.clone() };
    for slice in stored.cut(&lying) {
        let (buffer, end) = (find(slice.buffer)?, slice.offset + slice.bytes);
        for offset in (slice.offset..end).step_by(READ_BYTES) {
            let bytes = (end - offset).min(READ_BYTES as u64);
            regions.push(Region { buffer, offset, bytes });
        }
    }
    let read = read_regions(gpu, &stored.name, regions)?;
    Ok(match stored.swap {
        None => read,
        Some(swap) => read_swapped(read, swap, *start as usize / 4..*end as usize / 4),
    })
}

/// Writes words of a stored tensor as a file has it, from its word `start` on. Where the tensor has another order here,
/// words wait in `held` for the last one.
pub(in crate::session) fn write_stored(
    gpu: &Rc<dyn Gpu>,
    stored: &Stored,
    (start, values): (usize, &[f32]),
    held: &mut Vec<f32>,
    find: FindBuffer<'_>,
) -> Result<()> {
    let write = |start: usize, values: &[f32]| -> Result<()> {
        let mut rest = values;
        for slice in stored.cut(&(start as u64 * 4..(start + values.len()) as u64 * 4)) {
            let (part, more) = rest.split_at(slice.bytes as usize / 4);
            gpu.write(find(slice.buffer)?, slice.offset, bytemuck::cast_slice(part))?;
            rest = more;
        }
        Ok(())
    };
    match stored.swap {
        None => write(start, values),
        Some(swap) => {
            let total = stored.bytes() as usize / 4;
            write_swapped(&stored.name, (swap, total), (start, values), held, &write)
        }
    }
}

/// The first bytes of a file of these tensors.
pub(in crate::session) fn header_of(stored: &[Stored]) -> Vec<u8> {
    let tensors: Vec<_> = stored.iter().map(|one| (one.name.clone(), one.shape.clone())).collect();
    let codes = |place: usize| stored[place].content == Content::Codes;
    write_header_of(&tensors, &codes, &[("format", "pt")])
}

/// Where `len` elements of a tensor are, from `start` on: the first element of each stretch, its shard, its offset
/// there and its length.
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

    /// Pieces of every length cover a tensor in several shards, each element once.
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
