//! Attention's kernels on the CPU.

use super::specs::{
    AttentionBackwardKeyValue, AttentionBackwardProducts, AttentionBackwardQuery, AttentionDecode,
    AttentionDecodeMerge, AttentionDecodeMergeSeveral, AttentionDecodeMergeTensors,
    AttentionDecodeNewest, AttentionDecodeSeveral, AttentionDecodeTensors, AttentionDelta,
    AttentionDeltaTensors, AttentionForward, AttentionGroupSum, AttentionProbabilities,
    AttentionTensors,
};
use crate::error::Result;
use crate::twins::{Operands, Twin};
use crate::twins::{attention_fused as attention, attention_tiles as tiles};

impl Twin for AttentionForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::forward(on, &self.shape, self.cached)
    }
}

impl Twin for AttentionDelta {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::delta(on, &self.shape, self.parts)
    }
}

impl Twin for AttentionBackwardQuery {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::backward_query(on, &self.shape)
    }
}

impl Twin for AttentionBackwardKeyValue {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::backward_key_value(on, &self.shape, self.owner)
    }
}

impl Twin for AttentionBackwardProducts {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        tiles::products(on, &self.shape, (self.tiles, self.ends), self.products)
    }
}

impl Twin for AttentionGroupSum {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::group_sum(on, &self.shape)
    }
}

impl Twin for AttentionProbabilities {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::probabilities(on, &self.shape)
    }
}

impl Twin for AttentionDecode {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::decode(on, &self.shape, self.cache, self.splits.count)
    }
}

impl Twin for AttentionDecodeMerge {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::decode_merge(on, &self.shape, self.splits.count)
    }
}

impl Twin for AttentionDecodeNewest {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::newest(on, &self.shape, self.splits.count)
    }
}

impl Twin for AttentionDecodeSeveral {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::decode_several(on, &self.shape, self.cache, (self.splits.count, self.rows))
    }
}

impl Twin for AttentionDecodeMergeSeveral {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        attention::decode_merge_several(on, &self.shape, (self.splits.count, self.rows))
    }
}

impl Twin for AttentionTensors {}
impl Twin for AttentionDeltaTensors {}
impl Twin for AttentionDecodeTensors {}
impl Twin for AttentionDecodeMergeTensors {}
