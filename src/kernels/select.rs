//! From a spec and a device's capabilities to a kernel.

use super as k;
use super::compose::Kernel;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

impl KernelSpec {
    /// The kernel on a device: variant, reason, workgroup size, modules, bindings, grid and text.
    ///
    /// # Errors
    /// `limit-exceeded` when no variant fits the device.
    #[allow(clippy::too_many_lines, reason = "a table")]
    pub fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        match *self {
            Self::Zero { count } => k::zero(caps, count),
            Self::CopyRow { hidden } => k::copy_row(caps, hidden),
            Self::Scale { columns, factor } => k::scale(caps, columns, factor.0),
            Self::Dropout { columns, rate, mode, residual } => {
                k::dropout(caps, columns, rate.0, mode, residual)
            }
            Self::Checksum { count } => k::checksum(caps, count),
            Self::Initialize { count } => k::initialize(caps, count),
            Self::EmbeddingForward { hidden, rotated } => {
                k::embedding_forward(caps, hidden, rotated)
            }
            Self::EmbeddingPacked { hidden, rows, format, rotated } => {
                k::embedding_packed(caps, (hidden, rows), format, rotated)
            }
            Self::EmbeddingBackward { hidden } => k::embedding_backward(caps, hidden),
            Self::PositionForward { hidden } => k::position_forward(caps, hidden),
            Self::PositionBackward { hidden, ends } => k::position_backward(caps, hidden, ends),
            Self::RmsNormForward { hidden, terms, form } => {
                k::rms_norm_forward(caps, hidden, terms, form)
            }
            Self::RmsNormBackward { hidden, terms, mode, rows, parts } => {
                k::rms_norm_backward(caps, hidden, terms, mode, (rows, parts))
            }
            Self::LayerNormForward { hidden, epsilon } => {
                k::layer_norm_forward(caps, hidden, epsilon.0)
            }
            Self::LayerNormBackward { hidden, epsilon, mode, rows } => {
                k::layer_norm_backward(caps, hidden, epsilon.0, mode, rows)
            }
            Self::HeadNormForward { shape, terms } => k::head_norm_forward(caps, shape, terms),
            Self::HeadNormBackward { shape, terms, rows } => {
                k::head_norm_backward(caps, shape, terms, rows)
            }
            Self::ColumnSum { hidden, rows, weights } => k::column_sum(caps, hidden, rows, weights),
            Self::Linear { shape, output, splits, tile } => {
                k::linear::product::linear_product(caps, &shape, output, splits, tile)
            }
            Self::LinearSum { shape, output, splits } => {
                k::linear::product::linear_sum(caps, &shape, output, splits)
            }
            Self::GradientSum(sums) => k::gradient_sum(caps, sums),
            Self::Matvec(shape) => k::matvec(caps, shape),
            Self::Rope { shape, forward, half: true, .. } => k::rope_halves(caps, shape, forward),
            Self::Rope { shape, forward, parts: k::Parts::WHOLE, .. } => {
                k::rope(caps, shape, forward)
            }
            Self::Rope { shape, parts, .. } => k::rope_of_parts(caps, shape, parts),
            Self::CacheAppend { shape, cache } => k::cache_append(caps, shape, cache),
            Self::CacheExpand { shape, cache } => k::cache_expand(caps, shape, cache),
            Self::AttentionForward { shape, cached, tile } => {
                k::attention::batch::forward(caps, shape, cached, tile)
            }
            Self::AttentionProbabilities { shape } => k::attention_probabilities(caps, shape),
            Self::AttentionDelta { shape, parts } => k::attention_delta(caps, shape, parts),
            Self::AttentionBackwardQuery { shape, tile } => {
                k::attention::batch::backward_query(caps, shape, tile)
            }
            Self::AttentionBackwardKeyValue { shape, owner, ends, tile } => {
                k::attention::batch::backward_key_value(caps, shape, (owner, ends), tile)
            }
            Self::AttentionBackwardProducts { shape, tiles, ends, products } => {
                k::attention_backward_products(caps, shape, (tiles, ends), products)
            }
            Self::AttentionGroupSum { shape } => k::attention_group_sum(caps, shape),
            Self::AttentionDecode { shape, cache, splits } => {
                k::attention_decode(caps, shape, cache, &splits)
            }
            Self::AttentionDecodeMerge { shape, splits } => {
                k::attention_decode_merge(caps, shape, &splits)
            }
            Self::AttentionDecodeNewest { shape, splits } => {
                k::attention_decode_newest(caps, shape, &splits)
            }
            Self::AttentionTensors { shape, pass, element, dense, batch } => {
                k::attention_tensors(caps, shape, pass, element, dense, batch)
            }
            Self::AttentionDeltaTensors { shape, element, batch } => {
                k::attention_delta_tensors(caps, shape, element, batch)
            }
            Self::AttentionDecodeTensors { shape, element, splits, batch } => {
                k::attention_decode_tensors(caps, shape, element, &splits, batch)
            }
            Self::AttentionDecodeMergeTensors { shape, element, splits, batch } => {
                k::attention_decode_merge_tensors(caps, shape, element, &splits, batch)
            }
            Self::Softmax { columns, element } => k::softmax(caps, columns, element),
            Self::Activation(shape) => k::activation(caps, shape),
            Self::ActivationBackward(shape) => k::activation_backward(caps, shape),
            Self::CrossEntropy { row, gradient } => k::cross_entropy(caps, row, gradient),
            Self::ObjectiveCrossEntropy { row, gradient, objective, cap } => {
                let cap = cap.map(|cap| cap.0);
                k::objective_cross_entropy(caps, row, gradient, objective, cap)
            }
            Self::SoftCap { columns, cap } => k::soft_cap(caps, columns, cap.0),
            Self::LossSum => k::loss_sum(caps),
            Self::PackWeights { format, rows, columns } => {
                k::pack_weights(caps, format, rows, columns)
            }
            Self::UnpackWeights { format, rows, columns } => {
                k::unpack_weights(caps, format, rows, columns)
            }
            Self::GradNorm => k::grad_norm(caps),
            Self::StepDecision { partials } => k::step_decision(caps, partials),
            Self::Update(update) => update.kernel(caps),
            Self::Average { count, share } => k::average(caps, count, share),
            Self::Sample { vocabulary, biased } => k::sample(caps, vocabulary, biased),
            Self::MatvecRows(shape) => k::matvec_rows(caps, shape),
            Self::CacheAppendSeveral { shape, cache } => {
                k::cache_append_several(caps, shape, cache)
            }
            Self::AttentionDecodeSeveral { shape, cache, splits, rows } => {
                k::attention_decode_several(caps, shape, cache, &splits, rows)
            }
            Self::AttentionDecodeMergeSeveral { shape, splits, rows } => {
                k::attention_decode_merge_several(caps, shape, &splits, rows)
            }
            Self::SampleSeveral { vocabulary, rows } => k::sample_several(caps, vocabulary, rows),
            Self::TopLogits { vocabulary, count } => k::top_logits(caps, vocabulary, count),
        }
    }
}
