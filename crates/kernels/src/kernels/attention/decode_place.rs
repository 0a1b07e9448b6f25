//! Where decode attention finds its query, keys and values and leaves its result: the bindings, and
//! the modules that read and write them.

use crate::format::{Element, KvCache};
use crate::kernels::compose::{Binding, Composer, read, read_write, uniform};
use crate::kernels::modules::{cache_rows, key_rows, quads};
use crate::kernels::shape::AttentionShape;

/// What is attended over.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) enum DecodePlace {
    /// A model's cache, by the newest row of a text.
    Cache(KvCache),
    /// A model's cache with the texts of this many rows, by the newest row of each.
    Several(KvCache, usize),
    /// Tensors of this many batch items, one query row each.
    Tensors(Element, usize),
}

/// What a kernel of decode attention does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) enum DecodeStage {
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
            Self::Several(_, batch) | Self::Tensors(_, batch) => batch,
        }
    }

    /// How elements are stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache(cache) | Self::Several(cache, _) => cache.name(),
            Self::Tensors(element, _) => element.name(),
        }
    }

    /// What is read. Of tensors, the last is the mask, of several rows the documents.
    const fn reads(self, stage: DecodeStage) -> &'static [&'static str] {
        match (self, stage) {
            (Self::Cache(_), DecodeStage::Merge) => &["partials"],
            (Self::Cache(_), _) => &["query", "cache"],
            (Self::Several(..), DecodeStage::Merge) => &["partials", "documents"],
            (Self::Several(..), _) => &["query", "cache", "documents"],
            (Self::Tensors(..), DecodeStage::Merge) => &["partials", "mask"],
            (Self::Tensors(..), _) => &["query", "keys", "values", "mask"],
        }
    }

    /// What is written, bound behind it.
    const fn writes(self, stage: DecodeStage) -> &'static [&'static str] {
        match (self, stage) {
            (_, DecodeStage::Split) => &["partials"],
            (Self::Cache(_) | Self::Several(..), _) => &["output"],
            (Self::Tensors(..), _) => &["output", "lse"],
        }
    }

    pub fn bindings(self, stage: DecodeStage) -> Vec<Binding> {
        let mut bindings: Vec<Binding> = self.reads(stage).iter().copied().map(read).collect();
        bindings.extend(self.writes(stage).iter().copied().map(read_write));
        bindings.push(uniform(match self {
            Self::Cache(_) | Self::Several(..) => "step",
            Self::Tensors(..) => "geometry",
        }));
        bindings
    }

    /// The constants and modules of a kernel that reads and writes here.
    pub fn modules(
        self,
        composer: Composer,
        shape: AttentionShape,
        stage: DecodeStage,
    ) -> Composer {
        let composer = match self {
            Self::Cache(_) => composer
                .size("WINDOW", shape.window.unwrap_or(u32::MAX as usize))
                .module("lib/step")
                .module("lib/attention/decode_seen_cache"),
            Self::Several(..) => composer
                .size("WINDOW", shape.window.unwrap_or(u32::MAX as usize))
                .size("ROW_VECTORS", shape.stride() / 4)
                .module("lib/step")
                .module("lib/attention/decode_seen_several"),
            Self::Tensors(element, _) => quads(composer, element)
                .module("lib/attention/geometry")
                .module("lib/attention/decode_seen_tensors"),
        };
        let composer =
            if stage == DecodeStage::Merge { composer } else { self.inputs(composer, shape) };
        let composer = match stage {
            DecodeStage::Whole => composer.module("lib/attention/decode_whole"),
            DecodeStage::Split => composer
                .module("lib/attention/decode_ranges")
                .module("lib/attention/decode_partial"),
            DecodeStage::Merge => composer.module("lib/attention/decode_ranges"),
        };
        match self {
            _ if stage == DecodeStage::Split => composer,
            Self::Cache(_) | Self::Several(..) => {
                composer.module("lib/attention/decode_output_row")
            }
            Self::Tensors(..) => composer.module("lib/attention/decode_output_tensors"),
        }
    }

    fn inputs(self, composer: Composer, shape: AttentionShape) -> Composer {
        match self {
            Self::Cache(cache) => key_rows(cache_rows(composer, cache, &shape), shape.ring)
                .module("lib/attention/decode_cache"),
            Self::Several(cache, _) => key_rows(cache_rows(composer, cache, &shape), shape.ring)
                .module("lib/attention/decode_several"),
            Self::Tensors(..) => key_rows(composer, None).module("lib/attention/decode_tensors"),
        }
    }
}
