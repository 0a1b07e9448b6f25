//! What a dispatch binds, by name.

use crate::error::{Error, Result};
use crate::format::{Element, WriteMode};
use crate::kernels::{Access, Binding, Kernel, PartialSums};
use crate::plan::{Range, Step};
use crate::twins::add_assign;
use half::f16;

/// The operands of one dispatch.
#[derive(Debug)]
pub struct Operands<'a> {
    kernel: &'a Kernel,
    bound: Vec<Binding>,
    words: Vec<Vec<u32>>,
}

impl<'a> Operands<'a> {
    /// What is bound to a kernel, and the words of each binding.
    pub fn new(kernel: &'a Kernel, bound: Vec<Binding>, words: Vec<Vec<u32>>) -> Self {
        Self { kernel, bound, words }
    }

    /// The words of each, as the twin left them.
    pub fn into_words(self) -> Vec<Vec<u32>> {
        self.words
    }

    /// The words of each binding.
    pub fn all_words(&self) -> Vec<(Binding, Vec<u32>)> {
        self.bound.iter().copied().zip(self.words.iter().cloned()).collect()
    }

    pub fn workgroup_size(&self) -> u32 {
        self.kernel.workgroup_size
    }

    fn index(&self, name: &str) -> Result<usize> {
        let missing = || Error::internal(format!("{} has no binding {name}", self.kernel.name));
        self.bound.iter().position(|binding| binding.name == name).ok_or_else(missing)
    }

    pub fn u32(&self, name: &str) -> Result<&[u32]> {
        Ok(&self.words[self.index(name)?])
    }

    pub fn f32(&self, name: &str) -> Result<&[f32]> {
        Ok(bytemuck::cast_slice(self.u32(name)?))
    }

    /// The first `count` numbers.
    pub fn first(&self, name: &str, count: usize) -> Result<&[f32]> {
        let short = || Error::internal(format!("{name} is shorter than {count} elements"));
        self.f32(name)?.get(..count).ok_or_else(short)
    }

    /// The first elements of a value, which may be in parts.
    pub fn sum_of(&self, name: &str, elements: usize, parts: PartialSums) -> Result<Vec<f32>> {
        let mut sum = self.first(name, elements)?.to_vec();
        for part in 1..parts.count {
            let at = part * parts.apart;
            add_assign(&mut sum, &self.first(name, at + elements)?[at..]);
        }
        Ok(sum)
    }

    pub fn u32_mut(&mut self, name: &str) -> Result<&mut [u32]> {
        let index = self.index(name)?;
        if self.bound[index].access != Access::ReadWrite {
            return Err(Error::internal(format!("{name} is only read")));
        }
        Ok(&mut self.words[index])
    }

    pub fn f32_mut(&mut self, name: &str) -> Result<&mut [f32]> {
        Ok(bytemuck::cast_slice_mut(self.u32_mut(name)?))
    }

    /// Overwrites elements from `at` on.
    pub fn write(&mut self, name: &str, at: usize, data: &[f32]) -> Result<()> {
        let target = self.f32_mut(name)?.get_mut(at..at + data.len());
        let short = || Error::internal(format!("{name} is shorter than {}", at + data.len()));
        target.ok_or_else(short)?.copy_from_slice(data);
        Ok(())
    }

    /// Overwrites the first elements, in f16 two to a word or not.
    pub fn write_as(&mut self, name: &str, data: &[f32], half: bool) -> Result<()> {
        if !half {
            return self.write(name, 0, data);
        }
        let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
        let words: Vec<u32> = data.chunks(2).map(|two| bits(two[0]) | bits(two[1]) << 16).collect();
        let target = self.u32_mut(name)?.get_mut(..words.len());
        let short = || Error::internal(format!("{name} is shorter than {} words", words.len()));
        target.ok_or_else(short)?.copy_from_slice(&words);
        Ok(())
    }

    /// Overwrites elements from `at` on of an operand in f16 or in f32.
    pub fn write_at(
        &mut self,
        name: &str,
        at: usize,
        data: &[f32],
        element: Element,
    ) -> Result<()> {
        if element == Element::F32 {
            return self.write(name, at, data);
        }
        debug_assert!(at.is_multiple_of(2) && data.len().is_multiple_of(2), "whole words");
        let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
        let words = self.u32_mut(name)?;
        for (two, word) in data.chunks(2).zip(&mut words[at / 2..]) {
            *word = bits(two[0]) | bits(two[1]) << 16;
        }
        Ok(())
    }

    /// The elements of an operand in f16 or in f32.
    pub fn read_as(&self, name: &str, element: Element) -> Result<Vec<f32>> {
        let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
        Ok(match element {
            Element::F32 => self.f32(name)?.to_vec(),
            Element::F16 => {
                let words = self.u32(name)?.iter();
                words.flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).collect()
            }
        })
    }

    /// Writes elements from `at` on as `mode` says.
    pub fn write_by(&mut self, name: &str, at: usize, data: &[f32], adds: bool) -> Result<()> {
        if !adds {
            return self.write(name, at, data);
        }
        let target = self.f32_mut(name)?.get_mut(at..at + data.len());
        let short = || Error::internal(format!("{name} is shorter than {}", at + data.len()));
        target.ok_or_else(short)?.iter_mut().zip(data).for_each(|(total, x)| *total += x);
        Ok(())
    }

    pub fn uniform<T: bytemuck::AnyBitPattern>(&self, name: &str) -> Result<T> {
        let bytes: &[u8] = bytemuck::cast_slice(self.u32(name)?);
        let size = size_of::<T>();
        let short = || Error::internal(format!("{name} is shorter than {size} bytes"));
        Ok(bytemuck::pod_read_unaligned(bytes.get(..size).ok_or_else(short)?))
    }

    pub fn step(&self) -> Result<Step> {
        self.uniform("step")
    }

    pub fn tokens(&self) -> Result<usize> {
        Ok(self.step()?.tokens as usize)
    }

    pub fn range(&self) -> Result<Range> {
        self.uniform("range")
    }

    /// Whether a write of this mode adds.
    pub fn adds(&self, mode: WriteMode) -> Result<bool> {
        Ok(match mode {
            WriteMode::Overwrite => false,
            WriteMode::Add => true,
            WriteMode::AddAfterFirst => self.step()?.accumulate != 0,
        })
    }
}
