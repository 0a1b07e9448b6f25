//! A double's buffers, and what of them a dispatch binds.

use crate::caps::Limits;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, Region};
use crate::kernels::{Access, Binding};
use crate::plan::{Buffer, Slice};
use std::collections::HashMap;

/// WebGPU's least `minStorageBufferOffsetAlignment` that a device may insist on.
const OFFSET_ALIGN: u64 = 256;

/// A slice of a buffer of the double; none is the plan's own ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub buffer: Option<BufferId>,
    pub offset: u64,
    pub bytes: u64,
}

impl Bound {
    pub fn new(
        slice: Slice,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
        memory: &Memory,
    ) -> Result<Self> {
        let Slice { offset, mut bytes, .. } = slice;
        let own = slice.buffer == Buffer::Ranges;
        let buffer = if own { None } else { Some(resolve(slice.buffer)?) };
        if let (Buffer::Given(_), Some(buffer)) = (slice.buffer, buffer) {
            bytes = memory.words(buffer)?.len() as u64 * 4;
        }
        Ok(Self { buffer, offset, bytes })
    }

    /// Its words within its buffer.
    pub fn words(&self) -> std::ops::Range<usize> {
        (self.offset / 4) as usize..((self.offset + self.bytes) / 4) as usize
    }
}

/// What a kernel calls what it reads or writes, and where that is.
pub(super) type Operand = (Binding, Bound);

#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<BufferId, Vec<u32>>);

impl Memory {
    pub fn create(&mut self, id: BufferId, bytes: u64) {
        self.0.insert(id, vec![0; (bytes / 4) as usize]);
    }

    /// Bytes that are free by it.
    pub fn destroy(&mut self, id: BufferId) -> u64 {
        self.0.remove(&id).map_or(0, |words| words.len() as u64 * 4)
    }

    pub fn words(&self, id: BufferId) -> Result<&[u32]> {
        let missing = || Error::internal(format!("buffer {} does not exist", id.0));
        self.0.get(&id).map(Vec::as_slice).ok_or_else(missing)
    }

    pub fn words_mut(&mut self, id: BufferId) -> Result<&mut [u32]> {
        let missing = || Error::internal(format!("buffer {} does not exist", id.0));
        self.0.get_mut(&id).map(Vec::as_mut_slice).ok_or_else(missing)
    }

    pub fn write(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.words_mut(id)?);
        let end = offset as usize + data.len();
        if !offset.is_multiple_of(4) || !data.len().is_multiple_of(4) || end > bytes.len() {
            return Err(Error::internal("a write past the end of a buffer, or off its words"));
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    pub fn read(&self, Region { buffer, offset, bytes }: Region) -> Result<Vec<u8>> {
        let all: &[u8] = bytemuck::cast_slice(self.words(buffer)?);
        let read = all.get(offset as usize..(offset + bytes) as usize);
        read.map(<[u8]>::to_vec).ok_or_else(|| Error::internal("a read past the end of a buffer"))
    }

    /// What a device with these limits would refuse of a bind group and its layout.
    pub fn check(&self, bindings: &[Binding], bound: &[Bound], limits: &Limits) -> Result<()> {
        let storage = |binding: &&Binding| binding.access != Access::Uniform;
        let have = limits.max_storage_buffers_per_shader_stage as usize;
        let needed = bindings.iter().filter(storage).count();
        if needed > have {
            let message = format!("{needed} storage buffers are bound; the device allows {have}");
            return Err(Error::internal(message));
        }
        for (index, (binding, slice)) in bindings.iter().zip(bound).enumerate() {
            let Some(buffer) = slice.buffer else { continue };
            let have = self.words(buffer)?.len() as u64 * 4;
            let name = binding.name;
            let most = match binding.access {
                Access::Uniform => limits.max_uniform_buffer_binding_size,
                Access::Read | Access::ReadWrite => limits.max_storage_buffer_binding_size,
            };
            if slice.bytes > most {
                let message =
                    format!("{name} binds {} bytes; the device allows {most}", slice.bytes);
                return Err(Error::internal(message));
            }
            if slice.bytes == 0 || slice.offset + slice.bytes > have {
                let message = format!("{name} is bound past the end of {have} bytes: {slice:?}");
                return Err(Error::internal(message));
            }
            if slice.offset % OFFSET_ALIGN != 0 || slice.bytes % 4 != 0 {
                return Err(Error::internal(format!(
                    "{name} is bound off its alignment: {slice:?}"
                )));
            }
            let shared = |(other, b): (usize, &Bound)| other != index && b.buffer == slice.buffer;
            let writes = binding.access == Access::ReadWrite;
            if writes && bound.iter().enumerate().any(shared) {
                return Err(Error::internal(format!("{name} is written and bound twice")));
            }
        }
        Ok(())
    }
}
