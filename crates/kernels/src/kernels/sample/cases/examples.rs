//! The examples of sampling.

use crate::caps::Capabilities;
use crate::kernels::{Sample, SampleSeveral, Spec, TopLogits, TopRows};
use crate::testing::catalogue::Entry;

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for vocabulary in [1, 61, 768, 4096, 150_001] {
        let mut add =
            |what: &str, kernel| entries.push((format!("{what} of {vocabulary}"), kernel));
        add("sample", Sample { vocabulary, biased: false }.kernel(caps));
        add("sample with a bias", Sample { vocabulary, biased: true }.kernel(caps));
        add("sample for several", SampleSeveral { vocabulary, rows: 3 }.kernel(caps));
        let count = vocabulary.min(3);
        add("likeliest", TopLogits { vocabulary, count }.kernel(caps));
        add("likeliest of rows", TopRows { vocabulary, count }.kernel(caps));
    }
    entries
}
