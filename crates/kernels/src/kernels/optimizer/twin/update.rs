//! What twins of a rule's kernels read and write: the operands of one dispatch by name, in f32 or in f64.

use super::{Decision, StepOptions};
use crate::error::{Error, Result};
use crate::kernels::{Binding, UpdateSpec};
use crate::plan::{Range, Step};
use crate::twins::Real;

/// A twin in both precisions: the double computes in the first, the lanes hold kernels to the second.
#[derive(Clone, Copy, Debug)]
pub struct UpdateTwin {
    pub f32: fn(&mut Cpu<f32>) -> Result<()>,
    pub f64: fn(&mut Cpu<f64>) -> Result<()>,
}

/// [`UpdateTwin`] of a generic function.
macro_rules! twin {
    ($twin:ident) => {
        $crate::kernels::optimizer::twin::update::UpdateTwin {
            f32: $twin::<f32>,
            f64: $twin::<f64>,
        }
    };
}
pub(crate) use twin;

/// A binding's words, and what the twin has made of them.
#[derive(Clone, Debug)]
pub struct BoundWords<R> {
    pub binding: Binding,
    pub words: Vec<u32>,
    /// Elements that the twin has written, as numbers or as words.
    pub written: Vec<Option<Written<R>>>,
    /// What rounding errors of each may be relative to, where it is larger than the element: what was there before,
    /// unless the twin says otherwise.
    pub terms: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Written<R> {
    Number(R),
    Word(u32),
}

/// The operands of a dispatch.
#[derive(Clone, Debug)]
pub struct Cpu<R> {
    pub spec: UpdateSpec,
    /// Invocations of a workgroup.
    pub workgroup: usize,
    pub bound: Vec<BoundWords<R>>,
}

impl<R: Real> Cpu<R> {
    pub fn new(
        (spec, workgroup): (UpdateSpec, u32),
        operands: impl IntoIterator<Item = (Binding, Vec<u32>)>,
    ) -> Self {
        let bind = |(binding, words): (Binding, Vec<u32>)| {
            let written = vec![None; words.len()];
            let number = |&word| f64::from(f32::from_bits(word));
            let terms = words.iter().map(number).map(|x| if x.is_finite() { x } else { 0.0 });
            let terms = terms.collect();
            BoundWords { binding, words, written, terms }
        };
        let bound = operands.into_iter().map(bind).collect();
        Self { spec, workgroup: workgroup as usize, bound }
    }

    fn missing(&self, name: &str) -> Error {
        Error::internal(format!(
            "{} has no binding {name}, or a shorter one",
            self.spec.kernel.name
        ))
    }

    fn bound(&self, name: &str) -> Result<&BoundWords<R>> {
        self.bound.iter().find(|b| b.binding.name == name).ok_or_else(|| self.missing(name))
    }

    /// Words of an operand as they were before the dispatch.
    pub fn words(&self, name: &str, at: usize, count: usize) -> Result<&[u32]> {
        self.bound(name)?.words.get(at..at + count).ok_or_else(|| self.missing(name))
    }

    /// Numbers of an operand as they were before the dispatch.
    pub fn read(&self, name: &str, at: usize, count: usize) -> Result<Vec<R>> {
        let number = |&word: &u32| R::from_f64(f64::from(f32::from_bits(word)));
        Ok(self.words(name, at, count)?.iter().map(number).collect())
    }

    fn put(
        &mut self,
        name: &str,
        at: usize,
        values: impl ExactSizeIterator<Item = Written<R>>,
    ) -> Result<()> {
        let missing = self.missing(name);
        let bound = self.bound.iter_mut().find(|bound| bound.binding.name == name);
        let target = bound.and_then(|bound| bound.written.get_mut(at..at + values.len()));
        target.ok_or(missing)?.iter_mut().zip(values).for_each(|(x, value)| *x = Some(value));
        Ok(())
    }

    pub fn write(&mut self, name: &str, at: usize, values: &[R]) -> Result<()> {
        self.put(name, at, values.iter().map(|&value| Written::Number(value)))
    }

    /// Says what errors of elements may be relative to.
    pub fn terms(&mut self, name: &str, at: usize, terms: &[R]) -> Result<()> {
        let missing = self.missing(name);
        let bound = self.bound.iter_mut().find(|bound| bound.binding.name == name);
        let target = bound.and_then(|bound| bound.terms.get_mut(at..at + terms.len()));
        target.ok_or(missing)?.iter_mut().zip(terms).for_each(|(term, x)| *term = x.to_f64());
        Ok(())
    }

    /// Writes state, which a profile's step leaves as it is.
    pub fn write_state(&mut self, name: &str, at: usize, values: &[R]) -> Result<()> {
        if self.step()?.still == 0 { self.write(name, at, values) } else { Ok(()) }
    }

    /// Writes words of a state.
    pub fn write_state_words(&mut self, name: &str, at: usize, words: &[u32]) -> Result<()> {
        if self.step()?.still != 0 {
            return Ok(());
        }
        self.put(name, at, words.iter().map(|&word| Written::Word(word)))
    }

    pub fn step(&self) -> Result<Step> {
        let words = self.words("step", 0, size_of::<Step>() / 4)?;
        Ok(bytemuck::pod_read_unaligned(bytemuck::cast_slice(words)))
    }

    /// Row and column of a range: two places that a kernel is told.
    pub fn places(&self, name: &str) -> Result<[usize; 2]> {
        let range = self.range(name)?;
        Ok([range.row0, range.col0].map(|at| at as usize))
    }

    pub fn range(&self, name: &str) -> Result<Range> {
        Ok(bytemuck::pod_read_unaligned(bytemuck::cast_slice(self.words(name, 0, 4)?)))
    }

    /// What the step says and what was decided; none: it does not update.
    pub fn updates(&self) -> Result<Option<(StepOptions<R>, Decision<R>)>> {
        let state = self.read("optimizer", 0, 4)?;
        let decision = Decision {
            norm: R::ZERO,
            update: state[3] != R::ZERO,
            factor: state[2],
            carried: [state[0], state[1]],
        };
        let options = StepOptions::of(&self.step()?);
        Ok(decision.update.then_some((options, decision)))
    }

    /// The elements of a run that are decayed, and those that are not.
    pub fn decayed(&self, count: usize) -> Result<[(std::ops::Range<usize>, bool); 2]> {
        let end = self.range("range")?.cols as usize;
        Ok([(0..end, true), (end..count, false)])
    }

    /// What each of `groups` workgroups adds up that share the elements as `lib/reduce_*` kernels do: a stretch of a
    /// workgroup's size, then the next after those of all others.
    pub fn by_workgroups(&self, groups: usize, terms: &[R]) -> Vec<R> {
        let mut sums = vec![R::ZERO; groups];
        for (stretch, terms) in terms.chunks(self.workgroup).enumerate() {
            sums[stretch % groups] += terms.iter().copied().sum();
        }
        sums
    }
}
