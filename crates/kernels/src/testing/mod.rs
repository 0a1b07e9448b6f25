//! The kernels' tests: one body for every lane (native, and the browsers through wasm).
//!
//! A case builds each distinct kernel that selection returns over [`gpu_adapters::table`], as far as the lane's device can
//! compile it, runs it on fresh random data with poisoned outputs and holds the result against the CPU twin in f64. The
//! trait [`Device`] hides the device.

pub mod candidates;
pub mod candidates_linear;
pub mod candidates_tensors;
pub mod catalogue;
pub mod gpu_adapters;
pub mod harness;
pub(crate) mod lane;
pub mod ledger;
pub mod measure;
pub(crate) mod results;
mod texts;

pub(crate) use harness::Operand;
pub use harness::{Device, LocalFuture, Ran};
pub use lane::{Lane, Mode, Others};
pub use results::Results;
pub use texts::matrix_texts;

use crate::kernels::families;
use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::rc::Rc;

/// Architectures as configs of `model_type: "tinyloom"` by name, without sizes: 4 layers, 2 heads of 4 elements or more.
pub const ARCHITECTURES: &str = include_str!("architectures.json");

/// Each of [`ARCHITECTURES`] with these fields, by its name.
///
/// # Panics
/// Panics where the fields are no JSON object.
pub fn architectures(sizes: &str) -> Vec<(String, String)> {
    type Map = serde_json::Map<String, serde_json::Value>;
    let all: std::collections::BTreeMap<String, Map> =
        serde_json::from_str(ARCHITECTURES).expect("the file is JSON");
    let with_sizes = |(name, mut fields): (String, Map)| {
        fields.insert("model_type".into(), "tinyloom".into());
        let sizes: Map = serde_json::from_str(sizes).expect("sizes are an object");
        fields.extend(sizes);
        (name, serde_json::Value::Object(fields).to_string())
    };
    all.into_iter().map(with_sizes).collect()
}

/// What a case says when it passes, or what went wrong.
pub type Outcome = Result<String, String>;

/// How much a run covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every change runs.
    Everyday,
    /// Everyday's set, and all products instead of a sample. These take hours on software adapters.
    Full,
}

/// A test by name. It runs kernels by themselves, through `Lane::run`.
pub struct Case {
    pub name: String,
    /// The file that defines it.
    pub file: &'static str,
    pub level: Level,
    body: Box<dyn Fn(Rc<Lane>) -> LocalFuture<'static, Outcome>>,
}

impl Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// A case of every level.
    #[track_caller]
    pub(crate) fn new<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<Lane>) -> F + 'static,
    ) -> Self {
        let body = Box::new(move |lane| Box::pin(body(lane)) as LocalFuture<'static, Outcome>);
        let file = Location::caller().file();
        Self { name: name.into(), file, level: Level::Everyday, body }
    }

    /// A case of [`Level::Full`] alone.
    #[track_caller]
    pub(crate) fn full<F: Future<Output = Outcome> + 'static>(
        name: impl Into<String>,
        body: impl Fn(Rc<Lane>) -> F + 'static,
    ) -> Self {
        Self { level: Level::Full, ..Self::new(name, body) }
    }

    /// Runs it.
    pub fn run(&self, lane: Rc<Lane>) -> LocalFuture<'static, Outcome> {
        (self.body)(lane)
    }
}

macro_rules! cases {
    ($($family:ident: $($kernel:ident),+;)+) => {
        /// The cases of all families.
        fn of_families() -> Vec<Case> {
            [$(crate::kernels::$family::cases::cases()),+].into_iter().flatten().collect()
        }
    };
}
families!(cases);

/// The cases of all families, and those that concern every kernel.
pub fn cases() -> Vec<Case> {
    of_families().into_iter().chain(texts::cases()).collect()
}
