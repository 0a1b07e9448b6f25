//! Plans as lines of text, and the hashes of these.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};

use tinyloom_kernels::caps::Capabilities;
use tinyloom_kernels::kernels::{Kernel, Spec};
use tinyloom_kernels::plan::{Buffer, Dispatch, Plan};
use tinyloom_model::error::Result;

/// One plan on one adapter. Its lines are numbers in the table of its listing.
pub struct Entry {
    /// The case and the plan's name: what has a hash.
    pub plan: String,
    /// The adapter and the options.
    pub at: String,
    /// Slots, products and ranges, or the error instead of a plan.
    head: usize,
    dispatches: Vec<Listed>,
}

/// A dispatch, and the kernel that it runs.
struct Listed {
    line: usize,
    name: &'static str,
    kernel: usize,
}

/// The plans of one case. What several of them share is in the table once.
#[derive(Default)]
pub struct Listing {
    lines: Vec<String>,
    known: HashMap<String, usize>,
    pub entries: Vec<Entry>,
}

/// A table of angles by the name that it had when there were at most two.
fn name(buffer: Buffer) -> String {
    match buffer {
        Buffer::RopeTable(0) => "RopeTable".into(),
        Buffer::RopeTable(1) => "WindowRopeTable".into(),
        other => format!("{other:?}"),
    }
}

/// FNV-1a: the same for the same text on every platform and compiler.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// A line, of several.
    fn add(&mut self, line: &str) {
        self.bytes(line);
        self.bytes("\n");
    }

    fn bytes(&mut self, text: &str) {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.0 = text.bytes().fold(self.0, step);
    }

    fn of(text: &str) -> Self {
        let mut hash = Self::EMPTY;
        hash.bytes(text);
        hash
    }
}

impl Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

fn kernel_line(kernel: &Kernel) -> String {
    format!(
        "{} | {} | {} | {} | {:?} | {:?} | {}",
        kernel.name,
        kernel.variant,
        kernel.reason,
        kernel.workgroup_size,
        kernel.grid,
        kernel.bindings.iter().map(|binding| binding.access).collect::<Vec<_>>(),
        Hash::of(&kernel.wgsl.text())
    )
}

fn dispatch_line(dispatch: &Dispatch, kernel: &Kernel) -> String {
    let mut line = format!("{:?} | {} | {}", dispatch.phase, dispatch.label, kernel.name);
    let range = dispatch.range;
    let _ = write!(line, " | {}+{} {}+{}", range.row0, range.rows, range.col0, range.cols);
    let _ = write!(line, " | {:.4e} {:.4e}", dispatch.cost.flops, dispatch.cost.bytes);
    for slice in &dispatch.slices {
        let buffer = name(slice.buffer);
        let _ = write!(line, " | {buffer} {}+{}", slice.offset, slice.bytes);
    }
    line
}

/// A plan's kernels are those of their specs. Those that share bindings have operands elsewhere, as the plan says.
fn check_kernels(caps: &Capabilities, plan: &Plan) {
    for (index, kernel) in plan.kernels.iter().enumerate() {
        let mut again = kernel.spec.kernel(caps).unwrap();
        let mut uses =
            plan.dispatches.iter().filter(|dispatch| dispatch.kernel == index).peekable();
        assert!(uses.peek().is_some(), "no dispatch runs {:?}", kernel.spec);
        if uses.all(|dispatch| !dispatch.operands.is_empty()) {
            let (variant, bindings) = (kernel.variant.clone(), kernel.bindings.clone());
            again = Kernel { variant, bindings, wgsl: kernel.wgsl.clone(), ..again };
        }
        assert_eq!(again, *kernel, "{:?}", kernel.spec);
    }
}

impl Listing {
    fn number(&mut self, line: String) -> usize {
        let next = self.lines.len();
        *self.known.entry(line).or_insert_with_key(|line| {
            self.lines.push(line.clone());
            next
        })
    }

    /// Adds a plan, or the error instead of it.
    pub fn add(&mut self, plan: String, at: String, caps: &Capabilities, result: Result<&Plan>) {
        let (head, dispatches) = match result {
            Ok(plan) => self.plan(caps, plan),
            Err(error) => (self.number(error.to_string()), vec![]),
        };
        self.entries.push(Entry { plan, at, head, dispatches });
    }

    fn plan(&mut self, caps: &Capabilities, plan: &Plan) -> (usize, Vec<Listed>) {
        check_kernels(caps, plan);
        let kernels: Vec<usize> =
            plan.kernels.iter().map(|kernel| self.number(kernel_line(kernel))).collect();
        let ranges: Vec<_> = plan.ranges.iter().map(|r| (r.row0, r.rows, r.col0, r.cols)).collect();
        let head = self.number(format!(
            "slots {:?}, {} bytes unshared; {} products; ranges {ranges:?}",
            plan.slots,
            plan.unshared_bytes,
            plan.products.len()
        ));
        let listed = |dispatch: &Dispatch| {
            let kernel = &plan.kernels[dispatch.kernel];
            let line = self.number(dispatch_line(dispatch, kernel));
            Listed { line, name: kernel.name, kernel: kernels[dispatch.kernel] }
        };
        (head, plan.dispatches.iter().map(listed).collect())
    }

    /// A plan's lines; under each dispatch is its kernel, without the hash of its text.
    pub fn readable(&self, entry: &Entry) -> String {
        let mut text = format!("{} on {}\n{}\n", entry.plan, entry.at, self.lines[entry.head]);
        for dispatch in &entry.dispatches {
            let (kernel, _) = self.lines[dispatch.kernel].rsplit_once(" | ").unwrap();
            let _ = writeln!(text, "{}\n    {kernel}", self.lines[dispatch.line]);
        }
        text
    }

    /// For `npm run plans`: the lines, and each plan's name with the numbers of its lines.
    pub fn json(&self) -> serde_json::Value {
        let entry = |entry: &Entry| {
            let dispatches = entry.dispatches.iter().flat_map(|it| [it.line, it.kernel]);
            let lines: Vec<usize> = [entry.head].into_iter().chain(dispatches).collect();
            serde_json::json!([format!("{} on {}", entry.plan, entry.at), lines])
        };
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        serde_json::json!({ "lines": self.lines, "entries": entries })
    }
}

/// Lines of `name  hash`. A plan's hash is of all but the kernels that its dispatches run; a kernel's hash is of each
/// use of it in the plans. So another text of one kernel changes one line.
pub fn hashes(listings: &[Listing]) -> [String; 2] {
    let mut plans = BTreeMap::new();
    let mut kernels = BTreeMap::new();
    for listing in listings {
        let lines: Vec<String> =
            listing.lines.iter().map(|line| Hash::of(line).to_string()).collect();
        for Entry { plan, at, head, dispatches } in &listing.entries {
            let whole = plans.entry(plan.as_str()).or_insert(Hash::EMPTY);
            whole.add(at);
            whole.add(&lines[*head]);
            for dispatch in dispatches {
                whole.add(&lines[dispatch.line]);
                let kernel = kernels.entry(dispatch.name).or_insert(Hash::EMPTY);
                kernel.add(plan);
                kernel.add(at);
                kernel.add(&lines[dispatch.kernel]);
            }
        }
    }
    [plans, kernels]
        .map(|hashes| hashes.iter().map(|(name, hash)| format!("{name}  {hash}\n")).collect())
}
