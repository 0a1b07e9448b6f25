//! A guess at how large a GPU is: WebGPU tells neither its compute units nor its bandwidth.

use super::Capabilities;

/// How many workgroups keep a GPU busy, and how fast its memory is. The kernels' own figures were
/// measured on [`GpuClass::LARGE`]; [`GpuClass::workgroups`] scales them to the other classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuClass {
    /// Its name in messages.
    pub called: &'static str,
    /// Multiprocessors, compute units or cores: each runs workgroups of its own.
    pub units: usize,
    /// Memory traffic, per second.
    pub gigabytes: usize,
    /// Forms of the kernels of a decoded token.
    pub decoding: Decoding,
}

/// Which forms of the kernels of a decoded token a GPU takes. All are right wherever there are subgroups of known
/// ids, and elsewhere none but [`Decoding::PLAIN`] is taken. Which is faster only a measurement tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// Ranges of the keys of a short text, which the output product merges. 1: a workgroup reads all keys of a query
    /// head.
    pub merged_ranges: usize,
    /// Matrix rows that one subgroup computes alone, in a product with a packed matrix of at least 8,192 rows. 0: a
    /// whole workgroup computes each row.
    pub team_rows: usize,
    /// Matrix rows of a workgroup, each computed by whole subgroups of one known width: a power of two. 1: a whole
    /// workgroup computes each row.
    pub workgroup_rows: usize,
    /// Most invocations of a workgroup that computes a query head of the newest row and its attention: a power of two.
    /// 0: two dispatches do so.
    pub qkv_invocations: usize,
}

impl Decoding {
    /// A workgroup for a row of a matrix, and for a query head of a short text.
    pub const PLAIN: Self =
        Self { merged_ranges: 1, team_rows: 0, workgroup_rows: 1, qkv_invocations: 0 };
    /// Measured on an H100 and an H200 (`docs/decisions/036`, `060`), and on no other class.
    pub const TEAMS: Self =
        Self { merged_ranges: 6, team_rows: 4, workgroup_rows: 2, qkv_invocations: 512 };
}

impl GpuClass {
    /// A data centre's GPU: the figures are an NVIDIA H200's.
    pub const LARGE: Self =
        Self { called: "a large GPU", units: 132, gigabytes: 4800, decoding: Decoding::TEAMS };
    /// A GPU with its own memory: GeForce RTX 3070 or 4060 Ti, Radeon RX 7700, Intel Arc A770.
    pub const DESKTOP: Self =
        Self { called: "a desktop GPU", units: 46, gigabytes: 450, decoding: Decoding::PLAIN };
    /// A GPU that shares the CPU's memory: Apple M2, Intel Core Ultra, AMD Ryzen.
    pub const INTEGRATED: Self =
        Self { called: "an integrated GPU", units: 10, gigabytes: 100, decoding: Decoding::PLAIN };
    /// A phone's GPU, and the GPU of an old or cheap notebook.
    pub const MOBILE: Self =
        Self { called: "a mobile GPU", units: 5, gigabytes: 50, decoding: Decoding::PLAIN };

    pub const ALL: [Self; 4] = [Self::LARGE, Self::DESKTOP, Self::INTEGRATED, Self::MOBILE];

    /// How many workgroups occupy this GPU as much as `measured` occupy [`GpuClass::LARGE`].
    pub const fn workgroups(&self, measured: usize) -> usize {
        (measured * self.units).div_ceil(Self::LARGE.units)
    }
}

// Vendors: their names in browsers, and their PCI numbers in native builds.
const NVIDIA: [&str; 2] = ["nvidia", "0x10de"];
const AMD: [&str; 2] = ["amd", "0x1002"];
const INTEL: [&str; 2] = ["intel", "0x8086"];
const APPLE: [&str; 2] = ["apple", "0x106b"];
const PHONES: [&str; 8] =
    ["qualcomm", "arm", "img-tec", "samsung", "0x5143", "0x13b5", "0x1010", "0x144d"];

// Whole words of architectures' and devices' names, as `words` gives them: an RTX A1000 is no A100. A part that ends in
// `*` may go on within its word. Chromium's architectures are those of Dawn's `src/dawn/gpu_info.json`.
const LARGE: [&str; 12] = [
    "hopper", "volta", "cdna", "a100", "a100x", "h100", "h200", "gh200", "b200", "gb200", "v100",
    "instinct",
];
const INTEL_DESKTOP: [&str; 6] =
    ["gen 12 hp", "gen 12hp", "xe hpg", "xe 2hpg", "arc tm a*", "arc tm b*"];
const INTEL_OLD: [&str; 6] = ["gen 7", "gen 8", "gen 9", "gen 11", "uhd", "hd graphics"];
/// Dawn calls most of AMD's GPUs that share the CPU's memory `gcn-5`, whatever they are. Drivers give these
/// GPUs no model: `AMD Radeon(TM) Graphics` on Windows, `AMD Radeon Graphics (RADV RENOIR)` in mesa.
const AMD_INTEGRATED: [&str; 3] = ["gcn 5", "radeon tm graphics", "radeon graphics"];

impl Capabilities {
    /// The class that the adapter's names suggest or, where it has none, its limits. What an adapter on
    /// the CPU gets was measured with the figures of [`GpuClass::LARGE`], and stays.
    pub fn class(&self) -> GpuClass {
        let vendor = self.adapter.vendor.to_ascii_lowercase();
        let is = |vendors: &[&str]| vendors.contains(&vendor.as_str());
        match () {
            () if self.software => GpuClass::LARGE,
            () if is(&NVIDIA) => self.class_of_nvidia(),
            () if is(&AMD) && self.model_has(&LARGE) => GpuClass::LARGE,
            () if is(&AMD) && self.model_has(&AMD_INTEGRATED) => GpuClass::INTEGRATED,
            () if is(&AMD) => GpuClass::DESKTOP,
            () if is(&INTEL) && self.model_has(&INTEL_DESKTOP) => GpuClass::DESKTOP,
            () if is(&INTEL) && self.model_has(&INTEL_OLD) => GpuClass::MOBILE,
            () if is(&INTEL) || is(&APPLE) => GpuClass::INTEGRATED,
            () if is(&PHONES) => GpuClass::MOBILE,
            () => self.class_by_limits(),
        }
    }

    /// The forms of the kernels of a decoded token. An adapter on the CPU has forms of its own.
    pub fn decoding(&self) -> Decoding {
        match self.decoding {
            Some(given) => given,
            None if self.software => Decoding::PLAIN,
            None => self.class().decoding,
        }
    }

    /// Whether the architecture or the device is called one of these.
    fn model_has(&self, parts: &[&str]) -> bool {
        let names = [&self.adapter.architecture, &self.adapter.device].map(|name| words(name));
        let has = |part: &&str| {
            let wanted = match part.strip_suffix('*') {
                Some(begins) => format!(" {begins}"),
                None => format!(" {part} "),
            };
            names.iter().any(|name| name.contains(&wanted))
        };
        parts.iter().any(has)
    }

    /// Dawn names the architecture of every GeForce and of no data centre's GPU: an H200 in Chromium
    /// says `nvidia` and nothing else.
    fn class_of_nvidia(&self) -> GpuClass {
        let unnamed = self.adapter.architecture.is_empty() && self.adapter.device.is_empty();
        if unnamed || self.model_has(&LARGE) { GpuClass::LARGE } else { GpuClass::DESKTOP }
    }

    /// Among adapters in browsers, only NVIDIA's have this much workgroup memory.
    fn class_by_limits(&self) -> GpuClass {
        let limits = &self.limits;
        let wide = limits.max_compute_workgroup_storage_size >= 48 << 10
            && limits.workgroup_invocations() >= 1024;
        if wide { GpuClass::DESKTOP } else { GpuClass::INTEGRATED }
    }
}

/// The words of a name in lower case, a space around each.
fn words(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |all, word| all + word + " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::{AdapterName, Target};

    fn class(vendor: &str, architecture: &str, device: &str) -> GpuClass {
        let [vendor, architecture, device] = [vendor, architecture, device].map(str::to_owned);
        let adapter = AdapterName { vendor, architecture, device, ..AdapterName::default() };
        Capabilities { adapter, ..Capabilities::floor(Target::Browser) }.class()
    }

    #[test]
    fn names_of_browsers_and_of_drivers_lead_to_a_class() {
        for (vendor, architecture, device, wanted) in [
            ("nvidia", "", "", GpuClass::LARGE), // as an H200 in Chromium says
            ("nvidia", "", "nvidia-h200", GpuClass::LARGE),
            ("0x10de", "", "NVIDIA H200", GpuClass::LARGE),
            ("0x10de", "", "NVIDIA GeForce RTX 4060 Ti", GpuClass::DESKTOP),
            ("0x10de", "", "NVIDIA A100-SXM4-40GB", GpuClass::LARGE),
            ("0x10de", "", "NVIDIA GH200 480GB", GpuClass::LARGE),
            ("0x10de", "", "NVIDIA RTX A1000 Laptop GPU", GpuClass::DESKTOP),
            ("nvidia", "lovelace", "", GpuClass::DESKTOP),
            ("amd", "rdna-3", "", GpuClass::DESKTOP),
            ("amd", "gcn-5", "", GpuClass::INTEGRATED),
            ("0x1002", "", "AMD Radeon Graphics (RADV RENOIR)", GpuClass::INTEGRATED),
            ("0x1002", "", "AMD Radeon(TM) Graphics", GpuClass::INTEGRATED),
            ("0x1002", "", "AMD Radeon RX 7700 XT (RADV NAVI32)", GpuClass::DESKTOP),
            ("amd", "cdna-3", "", GpuClass::LARGE),
            ("0x1002", "", "AMD Instinct MI300X", GpuClass::LARGE),
            ("intel", "gen-12-hp", "", GpuClass::DESKTOP),
            ("intel", "xe-2hpg", "", GpuClass::DESKTOP),
            ("0x8086", "", "Intel(R) Arc(TM) A770 Graphics", GpuClass::DESKTOP),
            ("0x8086", "", "Intel(R) Arc(TM) Graphics", GpuClass::INTEGRATED),
            ("intel", "gen-12-lp", "", GpuClass::INTEGRATED),
            ("intel", "gen-9", "", GpuClass::MOBILE),
            ("0x8086", "", "Intel(R) UHD Graphics 620", GpuClass::MOBILE),
            ("apple", "common-3", "", GpuClass::INTEGRATED),
            ("qualcomm", "adreno-7xx", "", GpuClass::MOBILE),
            ("arm", "valhall", "", GpuClass::MOBILE),
            ("", "", "", GpuClass::INTEGRATED),
        ] {
            assert_eq!(
                class(vendor, architecture, device),
                wanted,
                "{vendor} {architecture} {device}"
            );
        }
    }

    #[test]
    fn limits_tell_where_names_are_hidden() {
        let mut caps = Capabilities::floor(Target::Browser);
        assert_eq!(caps.class(), GpuClass::INTEGRATED);
        caps.limits.max_compute_workgroup_storage_size = 48 << 10;
        caps.limits.max_compute_invocations_per_workgroup = 1024;
        caps.limits.max_compute_workgroup_size_x = 1024;
        assert_eq!(caps.class(), GpuClass::DESKTOP);
    }

    #[test]
    fn workgroups_are_scaled_and_never_none() {
        assert_eq!(GpuClass::LARGE.workgroups(1056), 1056);
        assert_eq!(GpuClass::DESKTOP.workgroups(132), 46);
        assert!(GpuClass::ALL.iter().all(|class| class.workgroups(1) == 1));
    }
}
