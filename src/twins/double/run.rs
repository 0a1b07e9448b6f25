//! One dispatch: its spec's twin over its bindings.

use super::memory::{Memory, Operand};
use super::operands::Operands;
use super::{attention, optimizer, products, rows, sampling, tiles};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, KernelSpec as Spec};
use crate::plan::Range;

/// Executes a dispatch.
///
/// # Errors
/// `internal` for a spec that has no twin here, and where bindings are not those of the spec.
pub(super) fn dispatch(
    kernel: &Kernel,
    bound: &[Operand],
    ranges: &[Range],
    memory: &mut Memory,
) -> Result<()> {
    let mut operands = Operands::take(kernel, bound, ranges, memory)?;
    execute(kernel.spec, &mut operands)?;
    #[cfg(all(test, feature = "testing"))]
    super::underflow_tests::watch(kernel.spec, &operands);
    operands.put(memory)
}

fn execute(spec: Spec, on: &mut Operands) -> Result<()> {
    match spec {
        Spec::Zero { count } => rows::zero(on, count),
        Spec::CopyRow { hidden } => rows::copy_row(on, hidden),
        Spec::Scale { columns, factor } => rows::scale(on, columns, factor.0),
        Spec::Dropout { columns, rate, mode, residual } => {
            rows::dropout(on, columns, rate.0, mode, residual)
        }
        Spec::Checksum { count } => rows::checksum(on, count),
        Spec::Initialize { count } => rows::initialize(on, count),
        Spec::EmbeddingForward { hidden, rotated } => rows::embed(on, [hidden, rotated]),
        Spec::EmbeddingPacked { hidden, rows, format, rotated } => {
            rows::embed_packed(on, [hidden, rows, rotated], format)
        }
        Spec::EmbeddingBackward { hidden } => rows::embed_backward(on, hidden),
        Spec::PositionForward { hidden } => rows::positions(on, hidden),
        Spec::PositionBackward { hidden, ends } => rows::positions_backward(on, hidden, ends),
        Spec::RmsNormForward { hidden, terms, form } => rows::norm(on, hidden, terms, form),
        Spec::RmsNormBackward { hidden, terms, mode, rows, parts } => {
            rows::norm_backward(on, [hidden, rows], terms, mode, parts)
        }
        Spec::LayerNormForward { hidden, epsilon } => rows::layer_norm(on, hidden, epsilon.0),
        Spec::LayerNormBackward { hidden, epsilon, mode, rows } => {
            rows::layer_norm_backward(on, [hidden, rows], epsilon.0, mode)
        }
        Spec::HeadNormForward { shape, terms } => rows::head_norm(on, &shape, terms),
        Spec::HeadNormBackward { shape, terms, rows } => {
            rows::head_norm_gradient(on, &shape, terms, rows)
        }
        Spec::ColumnSum { hidden, rows, weights } => rows::column_sum(on, [hidden, rows], weights),
        Spec::Activation(shape) => rows::gate(on, shape),
        Spec::ActivationBackward(shape) => rows::gate_backward(on, shape),
        Spec::CrossEntropy { row, gradient } => rows::cross_entropy(on, row, gradient),
        Spec::ObjectiveCrossEntropy { row, gradient, objective, cap } => {
            let cap = cap.map(|cap| cap.0);
            rows::objective_cross_entropy(on, row, gradient, objective, cap)
        }
        Spec::SoftCap { columns, cap } => rows::soft_cap(on, columns, cap.0),
        Spec::LossSum => rows::loss_sum(on),
        Spec::Rope { shape, forward, half, parts } => {
            attention::rope(on, shape, forward, half, parts)
        }
        Spec::Linear { shape, output, splits, .. } => products::linear(on, &shape, output, splits),
        Spec::LinearSum { shape, output, splits } => {
            products::linear_sum(on, &shape, output, splits)
        }
        Spec::GradientSum(sums) => products::gradient_sum(on, &sums),
        Spec::Matvec(shape) => products::matvec(on, &shape),
        Spec::MatvecRows(shape) => products::matvec_rows(on, &shape),
        Spec::PackWeights { format, rows, columns } => products::pack(on, format, rows * columns),
        Spec::UnpackWeights { format, rows, columns } => {
            products::unpack(on, format, rows * columns)
        }
        _ => optimize_or_attend(spec, on),
    }
}

fn optimize_or_attend(spec: Spec, on: &mut Operands) -> Result<()> {
    match spec {
        Spec::CacheAppend { shape, cache } => attention::append(on, &shape, cache),
        Spec::CacheAppendSeveral { shape, cache } => attention::append_several(on, &shape, cache),
        Spec::AttentionDecodeSeveral { shape, cache, splits, rows } => {
            attention::decode_several(on, &shape, cache, (splits.count, rows))
        }
        Spec::AttentionDecodeMergeSeveral { shape, splits, rows } => {
            attention::decode_merge_several(on, &shape, (splits.count, rows))
        }
        Spec::SampleSeveral { vocabulary, rows } => sampling::sample_several(on, vocabulary, rows),
        Spec::CacheExpand { shape, cache } => attention::expand(on, &shape, cache),
        Spec::AttentionForward { shape, cached, .. } => attention::forward(on, &shape, cached),
        Spec::AttentionProbabilities { shape } => attention::probabilities(on, &shape),
        Spec::AttentionDelta { shape, parts } => attention::delta(on, &shape, parts),
        Spec::AttentionBackwardQuery { shape, .. } => attention::backward_query(on, &shape),
        Spec::AttentionBackwardKeyValue { shape, owner, .. } => {
            attention::backward_key_value(on, &shape, owner)
        }
        Spec::AttentionBackwardProducts { shape, tiles, ends, products } => {
            tiles::products(on, &shape, (tiles, ends), products)
        }
        Spec::AttentionGroupSum { shape } => attention::group_sum(on, &shape),
        Spec::AttentionDecode { shape, cache, splits } => {
            attention::decode(on, &shape, cache, splits.count)
        }
        Spec::AttentionDecodeMerge { shape, splits } => {
            attention::decode_merge(on, &shape, splits.count)
        }
        Spec::AttentionDecodeNewest { shape, splits } => products::newest(on, &shape, splits.count),
        Spec::GradNorm => optimizer::grad_norm(on),
        Spec::StepDecision { partials } => optimizer::step_decision(on, partials),
        #[cfg(feature = "testing")]
        Spec::Update(update) => optimizer::update(on, update),
        Spec::Average { count, share } => optimizer::average(on, count, share.0),
        Spec::Sample { vocabulary, biased } => sampling::sample(on, vocabulary, biased),
        Spec::TopLogits { vocabulary, count } => sampling::top_logits(on, vocabulary, count),
        other => Err(Error::internal(format!("the CPU double has no twin of {other:?}"))),
    }
}
