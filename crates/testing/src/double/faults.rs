//! What goes wrong on a double, and when.

use crate::error::{Error, ErrorCode, Result};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A failure of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A submit or copy is refused: nothing of it happens.
    RefusedSubmit,
    /// One of the parts that a submit is cut into is refused, with the first half of its first plan's dispatches. The
    /// others happen.
    RefusedPart,
    /// A submit happens, but its bytes do not arrive.
    FailedMap,
    /// A buffer gets no memory.
    OutOfMemory,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How many calls still succeed before the one that fails.
    planned: RefCell<Vec<(Fault, usize)>>,
    lost: RefCell<Option<String>>,
    held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Faults {
    pub fn plan(&self, fault: Fault, nth: usize) {
        self.planned.borrow_mut().push((fault, nth));
    }

    /// Whether this call is one that fails.
    pub fn strikes(&self, fault: Fault) -> bool {
        let mut planned = self.planned.borrow_mut();
        let of_kind = |(kind, left): &(Fault, usize)| *kind == fault && *left == 0;
        let found = planned.iter().position(of_kind);
        if let Some(index) = found {
            planned.remove(index);
        }
        for (kind, left) in planned.iter_mut() {
            *left -= usize::from(*kind == fault && *left > 0);
        }
        found.is_some()
    }

    pub fn hold(&self) {
        self.held.set(true);
    }

    pub fn release(&self) {
        self.held.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub fn lose(&self, reason: &str) {
        self.lost.borrow_mut().get_or_insert_with(|| reason.into());
        self.release();
    }

    pub fn reason(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    pub fn alive(&self) -> Result<()> {
        self.reason().map_or(Ok(()), |reason| {
            Err(Error::new(ErrorCode::DeviceLost, format!("the GPU device is lost ({reason})")))
        })
    }

    /// Ends once readbacks are not held.
    pub fn arrival(self: &Rc<Self>) -> impl Future<Output = ()> + 'static {
        let faults = Rc::clone(self);
        poll_fn(move |context| {
            if !faults.held.get() {
                return Poll::Ready(());
            }
            faults.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
    }
}
