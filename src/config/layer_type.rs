//! Which layers have a window.

/// What the queries of a layer see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// All keys before them.
    Full,
    /// Those in the sliding window.
    Sliding,
}

impl LayerType {
    pub(crate) const ALL: [Self; 2] = [Self::Full, Self::Sliding];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }
}
