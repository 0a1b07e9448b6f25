//! The one error type. Every public failure carries a stable [`ErrorCode`] and a message that
//! names the value, what is allowed and what to change.

use std::fmt;

/// Stable machine-readable reason of a failure; its [`Display`](fmt::Display) form is the
/// `code` that JavaScript sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    WebgpuUnavailable,
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
    Internal,
}

impl ErrorCode {
    /// The code as written in the JavaScript contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WebgpuUnavailable => "webgpu-unavailable",
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
            Self::Internal => "internal",
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
