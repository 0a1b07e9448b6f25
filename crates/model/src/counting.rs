//! An allocator that counts, for tests of what allocates: of this crate, and of sessions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTED: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// The system's allocator, which also counts for threads that ask.
struct Counting;

fn note(bytes: usize) {
    let _ = COUNTED.try_with(|counted| {
        counted.set(counted.get().map(|(calls, sum)| (calls + 1, sum + bytes)));
    });
}

// SAFETY: every call is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations and their bytes on this thread while `work` runs.
pub(crate) fn counted(work: impl FnOnce()) -> (usize, usize) {
    COUNTED.set(Some((0, 0)));
    work();
    COUNTED.take().expect("nothing else counts")
}

/// Runs what a GPU would do, which is not counted.
#[allow(dead_code, reason = "tests of sessions alone use it")]
pub(super) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let before = COUNTED.take();
    let result = work();
    COUNTED.set(before);
    result
}
