//! Which function makes each of attention's kernels.

use super::specs::{
    AttentionBackwardKeyValue, AttentionBackwardProducts, AttentionBackwardQuery, AttentionDecode,
    AttentionDecodeMerge, AttentionDecodeMergeSeveral, AttentionDecodeMergeTensors,
    AttentionDecodeNewest, AttentionDecodeSeveral, AttentionDecodeTensors, AttentionDelta,
    AttentionDeltaTensors, AttentionForward, AttentionGroupSum, AttentionProbabilities,
    AttentionTensors,
};
use super::{batch, by_products, decode, newest, probabilities, tensors};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Kernel, Spec};
use crate::kernels::shape::{AttentionPass, AttentionProducts, DecodeSplits};

impl Spec for AttentionForward {
    fn name(&self) -> &'static str {
        AttentionPass::Forward.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, cached, tile } = *self;
        batch::forward(caps, shape, cached, tile)
    }

    fn flops_per_cached_key(&self) -> f64 {
        if self.cached { 4.0 * self.shape.width() as f64 } else { 0.0 }
    }
}

impl Spec for AttentionDelta {
    fn name(&self) -> &'static str {
        "attention_delta_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, parts } = *self;
        batch::attention_delta(caps, shape, parts)
    }
}

impl Spec for AttentionBackwardQuery {
    fn name(&self) -> &'static str {
        AttentionPass::Query.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, tile } = *self;
        batch::backward_query(caps, shape, tile)
    }
}

impl Spec for AttentionBackwardKeyValue {
    fn name(&self) -> &'static str {
        AttentionPass::KeyValue.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, owner, ends, tile } = *self;
        batch::backward_key_value(caps, shape, (owner, ends), tile)
    }
}

impl Spec for AttentionBackwardProducts {
    fn name(&self) -> &'static str {
        match self.products {
            AttentionProducts::Scores => "attention_backward_scores",
            _ => "attention_backward_sums",
        }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, tiles, ends, products } = *self;
        by_products::attention_backward_products(caps, shape, (tiles, ends), products)
    }
}

impl Spec for AttentionGroupSum {
    fn name(&self) -> &'static str {
        "attention_group_sum"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape } = *self;
        batch::attention_group_sum(caps, shape)
    }
}

impl Spec for AttentionProbabilities {
    fn name(&self) -> &'static str {
        "attention_probabilities_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape } = *self;
        probabilities::attention_probabilities(caps, shape)
    }

    fn flops_per_cached_key(&self) -> f64 {
        2.0 * self.shape.head_dim as f64
    }
}

impl Spec for AttentionDecode {
    fn name(&self) -> &'static str {
        decode_name(&self.splits)
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, cache, splits } = *self;
        decode::attention_decode(caps, shape, cache, &splits)
    }
}

impl Spec for AttentionDecodeMerge {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, splits } = *self;
        decode::attention_decode_merge(caps, shape, &splits)
    }
}

impl Spec for AttentionDecodeNewest {
    fn name(&self) -> &'static str {
        "attention_decode_newest"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, splits } = *self;
        newest::attention_decode_newest(caps, shape, &splits)
    }
}

impl Spec for AttentionDecodeSeveral {
    fn name(&self) -> &'static str {
        decode_name(&self.splits)
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, cache, splits, rows } = *self;
        decode::attention_decode_several(caps, shape, cache, &splits, rows)
    }
}

impl Spec for AttentionDecodeMergeSeveral {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, splits, rows } = *self;
        decode::attention_decode_merge_several(caps, shape, &splits, rows)
    }
}

impl Spec for AttentionTensors {
    fn name(&self) -> &'static str {
        self.pass.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, pass, element, dense, batch } = *self;
        tensors::attention_tensors(caps, shape, pass, element, dense, batch)
    }
}

impl Spec for AttentionDeltaTensors {
    fn name(&self) -> &'static str {
        "attention_delta_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, element, batch } = *self;
        tensors::attention_delta_tensors(caps, shape, element, batch)
    }
}

impl Spec for AttentionDecodeTensors {
    fn name(&self) -> &'static str {
        decode_name(&self.splits)
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, element, splits, batch } = *self;
        decode::attention_decode_tensors(caps, shape, element, &splits, batch)
    }
}

impl Spec for AttentionDecodeMergeTensors {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, element, splits, batch } = *self;
        decode::attention_decode_merge_tensors(caps, shape, element, &splits, batch)
    }
}

const fn decode_name(splits: &DecodeSplits) -> &'static str {
    if splits.count == 1 { "attention_decode" } else { "attention_decode_split" }
}
