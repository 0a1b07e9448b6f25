//! The list of all kernels: whatever concerns every one of them is made from it (`docs/architecture.md` tells how one is
//! added). It imports no file, and no family imports what is made from it but `KernelSpec`.

/// Hands the families to a macro: of each the module below `kernels`, and the types of its kernels.
macro_rules! families {
    ($with:ident) => {
        $with! {
            elementwise: Zero, CopyRow, Scale, CaptureForward, Checksum, InitializeForward;
            dropout: DropoutForward;
            intervention: InterveneForward;
            embedding: EmbeddingForward, EmbeddingBackward, PositionForward,
                PositionBackward;
            norm: RmsNormForward, RmsNormBackward, LayerNormForward, LayerNormBackward, HeadNormForward,
                HeadNormBackward, ColumnSum;
            linear: LinearProduct, AdaptedProduct, LinearSum, GradientSums, Matvec, MatvecRows;
            low_rank: LowRankProduct, LowRankWeights;
            rope: RopeRows, RopeAppend;
            cache: CacheAppend, CacheExpand;
            attention: AttentionForward, AttentionForwardCached, AttentionDelta, AttentionBackwardQuery, AttentionBackwardKeyValue,
                AttentionBackwardProducts, AttentionGroupSum, AttentionProbabilities, AttentionShares, AttentionDecode,
                AttentionDecodeMerge, AttentionDecodeQkv, AttentionTensors, AttentionDeltaTensors;
            softmax: Softmax;
            activation: ActivationForward, ActivationBackward;
            loss: CrossEntropy, ObjectiveCrossEntropy, SoftCap, LossSumForward;
            weights: PackWeights;
            optimizer: GradNorm, StepDecision, Average, UpdateSpec;
            sample: Sample, SampleSeveral, TopLogits, TopRows;
        }
    };
}
pub(crate) use families;
