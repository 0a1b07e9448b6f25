//! The one error type. Every public failure carries a stable [`ErrorCode`] and a message that
//! names the value, what is allowed and what to change.

use std::fmt;

/// Stable machine-readable reason of a failure; its [`Display`](fmt::Display) form is the
/// `code` that JavaScript sees, which has `webgpu-unavailable` besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    AdapterUnavailable,
    LimitExceeded,
    OutOfMemory,
    InvalidConfig,
    InvalidOptions,
    InvalidTokens,
    InvalidCheckpoint,
    NonFinite,
    DeviceLost,
    Freed,
    Aborted,
    /// A part of a training step is done, but its result did not arrive. To JavaScript this is `internal`, with a mark.
    Unread,
    Internal,
}

impl ErrorCode {
    /// The code as written in the JavaScript contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AdapterUnavailable => "adapter-unavailable",
            Self::LimitExceeded => "limit-exceeded",
            Self::OutOfMemory => "out-of-memory",
            Self::InvalidConfig => "invalid-config",
            Self::InvalidOptions => "invalid-options",
            Self::InvalidTokens => "invalid-tokens",
            Self::InvalidCheckpoint => "invalid-checkpoint",
            Self::NonFinite => "non-finite",
            Self::DeviceLost => "device-lost",
            Self::Freed => "freed",
            Self::Aborted => "aborted",
            Self::Unread | Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure: a stable code and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An empty vector with room for this many elements, for sizes that a caller chooses: an allocation
/// that fails by itself would end the whole module.
///
/// # Errors
/// `out-of-memory`, naming `what` and its size.
pub fn room<T>(what: &str, elements: u64) -> Result<Vec<T>> {
    let mut made = Vec::new();
    if usize::try_from(elements).is_ok_and(|n| made.try_reserve_exact(n).is_ok()) {
        return Ok(made);
    }
    let bytes = elements.saturating_mul(size_of::<T>() as u64);
    Err(Error::new(
        ErrorCode::OutOfMemory,
        format!("{what} takes {bytes} bytes, and the module's own memory has no room for them"),
    ))
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A limit of the adapter (or a cap set by the caller) is too small: name, have, need.
    pub fn limit(name: &str, have: u64, need: u64, what: &str) -> Self {
        Self::new(
            ErrorCode::LimitExceeded,
            format!("{what} needs {name} of at least {need}, and this device allows {have}"),
        )
    }

    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidConfig, message)
    }

    pub fn options(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidOptions, message)
    }

    pub fn tokens(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidTokens, message)
    }

    pub fn checkpoint(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidCheckpoint, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_its_size() {
        assert!(room::<f32>("a tensor", 1000).unwrap().capacity() >= 1000);
        for elements in [1 << 62, u64::MAX] {
            let error = room::<f32>("a tensor", elements).unwrap_err();
            assert_eq!(error.code, ErrorCode::OutOfMemory);
            assert!(error.message.contains("a tensor takes"), "{error}");
        }
    }
}
