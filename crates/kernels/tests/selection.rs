//! Selection over the table of adapters and over random limits, with no GPU: the WGSL itself is
//! read back with naga and held against the limits and the binding tables.
#![cfg(feature = "testing")]

use naga::{AddressSpace, StorageAccess};
use std::collections::{HashMap, HashSet};
use tinyloom_kernels::caps::{Capabilities, Features, Limits, Target};
use tinyloom_kernels::kernels::{
    Access, AttentionDecode, AttentionShape, CacheAttention, DecodeOver, Kernel, KvCacheFormat,
    Spec, WeightFormat, decode_splits,
};
use tinyloom_kernels::lower::{InferenceOptions, inference_plans};
use tinyloom_kernels::testing::{catalogue, gpu_adapters};
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::error::ErrorCode;
use tinyloom_model::params::Params;
use tinyloom_model::random::{below, philox};

/// What naga reads from a kernel's text.
struct Reflection {
    /// Names and uses, by index.
    bindings: Vec<(String, Access)>,
    workgroup_size: [u32; 3],
    workgroup_bytes: u32,
    entry: String,
}

/// What a text for browsers begins with: naga knows the builtins without the directive, and rejects it.
const ENABLE_SUBGROUPS: &str = "enable subgroups;\n";

/// A kernel's text without that directive.
fn undirected(kernel: &Kernel) -> String {
    kernel.wgsl.text().replace(ENABLE_SUBGROUPS, "")
}

fn reflect(kernel: &Kernel) -> Reflection {
    let wgsl = undirected(kernel);
    let module = naga::front::wgsl::parse_str(&wgsl)
        .unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(&wgsl)));
    let flags = naga::valid::ValidationFlags::all();
    naga::valid::Validator::new(flags, naga::valid::Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(&wgsl)));
    let mut bindings = Vec::new();
    let mut workgroup_bytes = 0;
    for (_, variable) in module.global_variables.iter() {
        let kind = match variable.space {
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                Some(Access::ReadWrite)
            }
            AddressSpace::Storage { .. } => Some(Access::Read),
            AddressSpace::Uniform => Some(Access::Uniform),
            AddressSpace::WorkGroup => {
                let size = module.types[variable.ty].inner.size(module.to_ctx());
                workgroup_bytes += size.next_multiple_of(16);
                None
            }
            _ => None,
        };
        if let Some(kind) = kind {
            let place = variable.binding.as_ref().expect("a resource has a binding");
            assert_eq!(place.group, 0, "{}", kernel.name);
            let name = variable.name.clone().expect("a resource has a name");
            bindings.push((place.binding, (name, kind)));
        }
    }
    bindings.sort_by_key(|(index, _)| *index);
    let dense = bindings.iter().enumerate().all(|(i, (index, _))| i as u32 == *index);
    assert!(dense, "{}: bindings {bindings:?}", kernel.name);
    assert_eq!(module.entry_points.len(), 1, "{}", kernel.name);
    Reflection {
        bindings: bindings.into_iter().map(|(_, kind)| kind).collect(),
        workgroup_size: module.entry_points[0].workgroup_size,
        workgroup_bytes,
        entry: module.entry_points[0].name.clone(),
    }
}

/// The value of a constant that a kernel's text begins with.
fn constant(wgsl: &str, name: &str) -> usize {
    let (_, rest) = wgsl.split_once(&format!("const {name}: u32 = ")).expect("a constant");
    rest.split_once("u;").expect("a value").0.parse().expect("a number")
}

/// What a text says that naga cannot parse, since it has matrices of subgroups; workgroup memory as naga finds it
/// where plain WGSL stands in for them.
fn reflect_matrix(kernel: &Kernel, caps: &Capabilities) -> Reflection {
    let wgsl = kernel.wgsl.text();
    let mut bindings = vec![];
    for rest in wgsl.split("@group(0) @binding(").skip(1) {
        let (index, rest) = rest.split_once(") var<").expect("a variable");
        let (space, rest) = rest.split_once("> ").expect("an address space");
        let access = match space.replace(' ', "").as_str() {
            "storage,read" => Access::Read,
            "storage,read_write" => Access::ReadWrite,
            "uniform" => Access::Uniform,
            other => panic!("{}: {other}", kernel.name),
        };
        let name = rest.split(':').next().expect("a name").to_owned();
        // A constant of the kernel says it where a binding comes last.
        let index = index.parse().unwrap_or_else(|_| constant(&wgsl, index));
        bindings.push((index, (name, access)));
    }
    bindings.sort_by_key(|(index, _)| *index);
    assert!(bindings.iter().enumerate().all(|(i, (index, _))| i == *index), "{bindings:?}");
    let entries: Vec<_> = wgsl.split("@compute @workgroup_size(").skip(1).collect();
    let [entry] = entries[..] else { panic!("{} entry points", entries.len()) };
    let (size, rest) = entry.split_once(")\nfn ").expect("an entry point");
    let emulating = gpu_adapters::emulating(caps).expect("a device with matrices");
    let emulated = kernel.spec.kernel(&emulating).expect("the same kernel");
    let parsed = reflect(&emulated);
    let found = Reflection {
        bindings: bindings.into_iter().map(|(_, kind)| kind).collect(),
        workgroup_size: [size.parse().expect("a size"), 1, 1],
        workgroup_bytes: parsed.workgroup_bytes,
        entry: rest.split('(').next().expect("a name").to_owned(),
    };
    assert_eq!(found.bindings, parsed.bindings, "{}", kernel.name);
    assert_eq!(found.workgroup_size, parsed.workgroup_size, "{}", kernel.name);
    let directives = "enable f16;\nenable chromium_experimental_subgroup_matrix;\n\
                      diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
    assert!(wgsl.trim_start_matches(ENABLE_SUBGROUPS).starts_with(directives), "{wgsl}");
    found
}

/// Kernels already read, by text: for browsers and for native devices one reading serves.
#[derive(Default)]
struct Known {
    read: HashMap<String, Reflection>,
}

impl Known {
    /// Holds a kernel of a specification against its own table and against what a device allows.
    fn check(&mut self, what: &str, kernel: &Kernel, caps: &Capabilities) {
        assert_eq!(kernel.spec.kernel(caps).as_ref(), Ok(kernel), "{what}: of its spec");
        self.check_text(what, kernel, caps);
    }

    fn check_text(&mut self, what: &str, kernel: &Kernel, caps: &Capabilities) {
        let wgsl = kernel.wgsl.text();
        let subgroups = wgsl.contains("subgroup");
        let enabled = wgsl.starts_with("enable subgroups;");
        let matrices = wgsl.contains("subgroup_matrix");
        assert!(!matrices || caps.half_matrix().is_some(), "{what} uses matrices");
        assert!(kernel.workgroup_size.is_power_of_two(), "{what}");
        assert!(kernel.workgroup_size <= caps.limits.workgroup_invocations(), "{what}: {caps:?}");
        assert!(!kernel.reason.is_empty(), "{what} has no reason");
        assert!(!subgroups || caps.reduces_by_subgroup(), "{what} uses subgroups");
        assert_eq!(enabled, subgroups && caps.target == Target::Browser, "{what}");
        let text = undirected(kernel);
        let read = || if matrices { reflect_matrix(kernel, caps) } else { reflect(kernel) };
        Self::compare(what, kernel, caps, self.read.entry(text).or_insert_with(read));
    }

    /// Says how many texts naga read.
    fn report(&self) {
        assert!(!self.read.is_empty(), "no text was read");
        eprintln!("{} texts", self.read.len());
    }

    /// Holds what naga has read against the kernel's own table and against what a device allows.
    fn compare(what: &str, kernel: &Kernel, caps: &Capabilities, found: &Reflection) {
        let limits = &caps.limits;
        let table = kernel.bindings.iter().map(|b| (b.name.to_owned(), b.access));
        assert_eq!(found.bindings, table.collect::<Vec<_>>(), "{what}");
        assert_eq!(found.entry, kernel.name, "{what}");
        assert_eq!(found.workgroup_size, [kernel.workgroup_size, 1, 1], "{what}");
        let most = limits.max_compute_workgroup_storage_size;
        let bytes = found.workgroup_bytes;
        assert!(bytes <= most, "{what}: {bytes} of {most} bytes of workgroup memory");
        let storage = found.bindings.iter().filter(|b| b.1 != Access::Uniform).count();
        assert!(storage <= limits.max_storage_buffers_per_shader_stage as usize, "{what}");
    }
}

#[test]
fn kernels_that_share_bindings_match_their_binding_tables() {
    let mut known = Known::default();
    let of = |family: &str, hidden: usize, layers: usize, rest: &str| {
        let text = format!(
            r#"{{"model_type":"{family}","vocab_size":256,"hidden_size":{hidden},"intermediate_size":1024,
                "num_hidden_layers":{layers},"num_attention_heads":12,"num_key_value_heads":4,"head_dim":64,
                "max_position_embeddings":4096{rest}}}"#
        );
        ModelConfig::from_json(&text).unwrap()
    };
    // Layers of families without biases, norms of heads and norms after blocks share in every format of the weights.
    let window = r#","sliding_window":512"#;
    let configs = [
        (of("llama", 768, 2, ""), 5),
        (of("mistral", 768, 1, window), 4),
        (of("qwen2", 768, 2, ""), 5),
        (of("llama", 766, 2, ""), 0),
        (of("qwen3", 768, 2, ""), 0),
        (of("gemma2", 768, 2, window), 0),
    ];
    for caps in [Target::Native, Target::Browser].into_iter().flat_map(gpu_adapters::table) {
        for (config, least) in &configs {
            let bytes = caps.limits.max_storage_buffer_binding_size;
            let params = Params::new(Architecture::of(config), bytes).unwrap();
            for (weights, kv_cache) in WeightFormat::ALL
                .into_iter()
                .flat_map(|w| KvCacheFormat::ALL.map(|cache| (w, cache)))
            {
                let options = InferenceOptions { weights, kv_cache, ..Default::default() };
                let Ok(plans) = inference_plans(&caps, &params, 2048, options) else { continue };
                let what = format!("{}: {options:?}", caps.adapter.description);
                let (mut shared, mut joined) = (0, false);
                let both =
                    [Some(&plans.decode), plans.short_context.as_ref()].into_iter().flatten();
                for plan in both {
                    let shares = |index| {
                        let mut uses = plan.dispatches.iter();
                        uses.any(|it| it.kernel == index && !it.operands.is_empty())
                    };
                    shared += (0..plan.kernels.len()).filter(|&index| shares(index)).count();
                    for kernel in &plan.kernels {
                        joined |= kernel.name == "attention_decode_qkv";
                        known.check_text(&what, kernel, &caps);
                    }
                }
                // Where no plan is for longer texts, one dispatch has taken the place of two.
                let least = least - usize::from(joined && plans.short_context.is_none());
                let shares = kv_cache == KvCacheFormat::F32 && !caps.software;
                assert!(!shares || shared >= least, "{what}: {shared} kernels share: {config:?}");
            }
        }
    }
    known.report();
}

#[test]
fn every_variant_over_the_table_matches_its_binding_table() {
    let mut known = Known::default();
    let mut choices = HashSet::new();
    for target in [Target::Native, Target::Browser] {
        let table = gpu_adapters::table(target);
        assert!(table.len() >= 8);
        for caps in &table {
            let crippled = caps.adapter.description.contains("crippled");
            for (what, kernel) in catalogue::kernels(caps) {
                let what = format!("{}: {what}", caps.adapter.description);
                match kernel {
                    Ok(kernel) => {
                        known.check(&what, &kernel, caps);
                        choices.insert((
                            kernel.name,
                            kernel.variant.clone(),
                            kernel.workgroup_size,
                        ));
                    }
                    Err(error) => {
                        assert_eq!(error.code, ErrorCode::LimitExceeded, "{what}: {error}");
                        assert!(crippled, "{what}: {error}");
                    }
                }
            }
        }
    }
    known.report();
    eprintln!("{} choices of variant and workgroup size", choices.len());
}

/// Random capabilities: any limit may be small, odd, or far above the floor.
fn random(index: u32) -> Capabilities {
    let words = |block: u32| philox([index, block, 0, 0], [0x5e1ec7, 0]);
    let [a, b, c, d] = words(0);
    let [e, f, g, h] = words(1);
    let pick = |bits: u32, from: u64, to: u64| from + below(bits, bits.rotate_left(16), to - from);
    let invocations = 1 << pick(a, 0, 11);
    let small = 1u32 << pick(c, 2, 8);
    let wide = small << pick(d, 0, 3);
    let subgroups = e.is_multiple_of(2);
    Capabilities {
        limits: Limits {
            max_storage_buffers_per_shader_stage: pick(b, 2, 12) as u32,
            max_storage_buffer_binding_size: pick(f, 1 << 16, 1 << 32),
            max_compute_workgroup_storage_size: pick(g, 64, 1 << 16) as u32,
            max_compute_invocations_per_workgroup: invocations + pick(h, 0, 3) as u32,
            max_compute_workgroup_size_x: (invocations * 2).max(1) - pick(h >> 8, 0, 2) as u32,
            ..Limits::default()
        },
        features: Features { subgroups, subgroup_id: e.is_multiple_of(4), ..Features::default() },
        subgroup_size: if subgroups { [small, wide] } else { [0, 0] },
        software: h.is_multiple_of(5),
        ..Capabilities::floor(Target::Native)
    }
}

/// [`random`] capabilities with little workgroup memory, up to 32 bytes or twice that, and so on to 4 KB: a small kernel
/// that forgets to ask for its own is found here.
fn tight(index: u32) -> Capabilities {
    let mut caps = random(index);
    let memory = &mut caps.limits.max_compute_workgroup_storage_size;
    *memory = 16 + *memory % (16 << (index / 2 % 9));
    caps
}

/// Indices, both of [`random`], that found kernels with more workgroup memory than was checked: sampling and attention's
/// delta.
const FOUND: [u32; 2] = [777_086, 113_944_825];

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Without another one every run has the same limits.
fn seed() -> u64 {
    variable("TINYLOOM_SEED").map_or(0, |text| text.parse().expect("an integer"))
}

fn full() -> bool {
    variable("TINYLOOM_LEVEL").is_some_and(|level| level == "full")
}

/// The number of limits of an everyday run. At least 18: [`tight`] has nine sizes of memory, on every second index.
const LIMITS: u32 = 20;

/// The limits of this run and their indices: others with each `TINYLOOM_SEED`.
fn limits() -> impl Iterator<Item = (u32, Capabilities)> {
    let first = (seed() % (1 << 30)) as u32;
    let fresh = first..first + if full() { 1000 } else { LIMITS };
    let of = |index: u32| if index.is_multiple_of(2) { random(index) } else { tight(index) };
    fresh.map(move |index| (index, of(index)))
}

#[test]
fn random_limits_never_get_a_kernel_that_they_forbid() {
    let (chosen, refused) = hold(limits(), Known::default());
    assert!(chosen > refused, "{chosen} of {}", chosen + refused);
}

#[test]
fn limits_that_once_got_a_kernel_that_they_forbid_do_not() {
    hold(FOUND.map(|index| (index, random(index))), Known::default());
}

/// Holds every kernel of the catalogue to limits; gives how many kernels these allow, and how many they refuse.
fn hold(limits: impl IntoIterator<Item = (u32, Capabilities)>, mut known: Known) -> (usize, usize) {
    let (mut chosen, mut refused) = (0, 0);
    for (index, caps) in limits {
        for (what, kernel) in catalogue::kernels(&caps) {
            let what = format!("limits {index}: {what}");
            match kernel {
                Ok(kernel) => {
                    known.check(&what, &kernel, &caps);
                    chosen += 1;
                }
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::LimitExceeded, "{what}: {error}");
                    assert!(error.message.contains("needs max"), "{what}: {error}");
                    refused += 1;
                }
            }
        }
    }
    known.report();
    eprintln!("{chosen} kernels chosen, {refused} refused");
    (chosen, refused)
}

#[test]
fn the_floor_runs_everything_without_features() {
    for software in [false, true] {
        let caps = Capabilities { software, ..Capabilities::floor(Target::Browser) };
        for (what, kernel) in catalogue::kernels(&caps) {
            let kernel = kernel.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(!kernel.wgsl.text().contains("enable "), "{what}");
        }
    }
}

#[test]
fn long_caches_are_cut_into_enough_ranges_to_fill_a_large_gpu() {
    let table = gpu_adapters::table(Target::Browser);
    let nvidia = table.iter().find(|caps| caps.adapter.description == "NVIDIA").expect("a row");
    for (heads, kv_heads) in [(12, 12), (12, 4), (32, 8), (14, 2), (32, 1)] {
        let shape = AttentionShape { heads, kv_heads, head_dim: 64 };
        let splits = decode_splits(nvidia, shape, 32_768, 1).unwrap();
        let attention = CacheAttention { shape, ..CacheAttention::default() };
        let over = DecodeOver::Cache(attention, KvCacheFormat::F32);
        let kernel = AttentionDecode { over, splits }.kernel(nvidia).unwrap();
        let [x, y] = kernel.grid.resolve(1, 65_535).unwrap().unwrap();
        assert!(x * y >= 256 && y as usize == splits.count, "{heads}/{kv_heads}: {x} by {y}");
        // Up to sixteen query heads share a reading of the cache.
        assert_eq!(x as usize, kv_heads * (heads / kv_heads).div_ceil(16), "{heads}/{kv_heads}");
        // Each range has 64 keys. A short window has one range, and so has a short cache.
        assert_eq!(decode_splits(nvidia, shape, 257, 1).unwrap().count, 5);
        let windowed = CacheAttention { window: Some(256), ..attention };
        assert_eq!(decode_splits(nvidia, shape, windowed.keys(32_768), 1).unwrap().count, 1);
        assert_eq!(decode_splits(nvidia, shape, 256, 1).unwrap().count, 1);
        // Batch items bring workgroups of their own.
        let many = decode_splits(nvidia, shape, 32_768, 8).unwrap().count;
        let groups = 8 * many * x as usize;
        assert!(many < splits.count && (900..=1056).contains(&groups), "{many} ranges");
    }
}
