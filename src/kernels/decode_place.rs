//! Where decode attention finds its query, keys and values and leaves its result: the bindings, and
//! the modules that read and write them.

use super::attention::AttentionShape;
use super::attention_tensors::Element;
use super::cache::{KvCache, key_rows};
use super::compose::{Binding, Composer, shader};

/// What is attended over.
#[derive(Clone, Copy, Debug)]
pub(super) enum DecodePlace {
    /// A model's cache, by the newest row of a text.
    Cache(KvCache),
    /// Tensors of this many batch items, one query row each.
    Tensors(Element, usize),
}

/// What a kernel of decode attention does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeStage {
    /// All keys, to the result.
    Whole,
    /// A range of keys, to partial results.
    Split,
    /// Partial results to the result.
    Merge,
}

impl DecodePlace {
    pub fn batch(self) -> usize {
        match self {
            Self::Cache(_) => 1,
            Self::Tensors(_, batch) => batch,
        }
    }

    /// How elements are stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache(cache) => cache.name(),
            Self::Tensors(element, _) => element.name(),
        }
    }

    /// What is read (from a cache: query, cache; from tensors: query, keys, values, mask; by the
    /// merge the partial results, and for tensors the mask), what is written (partial results or the
    /// result, for tensors with the logsumexp), the uniform.
    fn counts(self, stage: DecodeStage) -> [usize; 2] {
        let merges = stage == DecodeStage::Merge;
        match self {
            Self::Cache(_) => [if merges { 1 } else { 2 }, 1],
            Self::Tensors(..) => {
                [if merges { 2 } else { 4 }, if stage == DecodeStage::Split { 1 } else { 2 }]
            }
        }
    }

    pub fn bindings(self, stage: DecodeStage) -> Vec<Binding> {
        let [reads, writes] = self.counts(stage);
        let mut bindings = vec![Binding::Read; reads];
        bindings.resize(reads + writes, Binding::ReadWrite);
        bindings.push(Binding::Uniform);
        bindings
    }

    /// The constants and modules of a kernel that reads and writes here.
    pub fn modules(
        self,
        composer: Composer,
        shape: AttentionShape,
        stage: DecodeStage,
    ) -> Composer {
        let [reads, writes] = self.counts(stage);
        let composer = composer.size("RESULT", reads).size("UNIFORM", reads + writes);
        let composer = match self {
            Self::Cache(_) => composer
                .size("WINDOW", shape.window.unwrap_or(u32::MAX as usize))
                .module(shader!("lib/step"))
                .module(shader!("lib/decode_seen_cache")),
            Self::Tensors(element, _) => element
                .module(composer.size("MASK", reads - 1))
                .module(shader!("lib/attention_geometry"))
                .module(shader!("lib/decode_seen_tensors")),
        };
        let composer =
            if stage == DecodeStage::Merge { composer } else { self.inputs(composer, shape) };
        let composer = match stage {
            DecodeStage::Whole => composer.module(shader!("lib/decode_whole")),
            DecodeStage::Split => {
                composer.module(shader!("lib/decode_ranges")).module(shader!("lib/decode_partial"))
            }
            DecodeStage::Merge => composer.module(shader!("lib/decode_ranges")),
        };
        match self {
            _ if stage == DecodeStage::Split => composer,
            Self::Cache(_) => composer.module(shader!("lib/decode_output_row")),
            Self::Tensors(..) => composer.module(shader!("lib/decode_output_tensors")),
        }
    }

    fn inputs(self, composer: Composer, shape: AttentionShape) -> Composer {
        match self {
            Self::Cache(cache) => {
                key_rows(cache.module(composer), shape.ring).module(shader!("lib/decode_cache"))
            }
            Self::Tensors(..) => key_rows(composer, None).module(shader!("lib/decode_tensors")),
        }
    }
}
