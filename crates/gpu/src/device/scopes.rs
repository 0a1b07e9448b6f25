//! Error scopes around the work of a call. They are pushed and popped without an await in between, so
//! that a page's own scopes on the device stay as they are.
//!
//! In a browser they are the device's own methods: wgpu 30 ends the module at a `GPUInternalError`,
//! has no message of an out-of-memory error, and takes a rejected `popErrorScope` for success.

use super::WgpuDevice;
#[cfg(target_arch = "wasm32")]
use super::browser::ErrorFilter;
use super::pipelines::Pipelines;
use crate::error::{Error, Result};
use crate::kernels::Wgsl;
use crate::{LocalFuture, no_memory};
#[cfg(target_arch = "wasm32")]
use futures_util::FutureExt;
#[cfg(target_arch = "wasm32")]
use js_sys::{Array, Promise};
use std::rc::Rc;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_futures::JsFuture;

/// Which errors a scope catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Validation,
    OutOfMemory,
    Internal,
}

impl Filter {
    pub const ALL: [Self; 3] = [Self::Validation, Self::OutOfMemory, Self::Internal];
}

/// An open error scope.
pub(super) struct Scope {
    filter: Filter,
    #[cfg(not(target_arch = "wasm32"))]
    guard: wgpu::ErrorScopeGuard,
    #[cfg(target_arch = "wasm32")]
    device: Option<super::browser::ErrorScopes>,
}

/// The message of the first error that a scope caught.
type Caught = LocalFuture<Option<String>>;

/// The first error that the scopes of a call caught, the innermost first.
type Popped = LocalFuture<Option<(Filter, String)>>;

#[cfg(not(target_arch = "wasm32"))]
impl Scope {
    pub fn push(device: &wgpu::Device, filter: Filter) -> Self {
        let guard = device.push_error_scope(match filter {
            Filter::Validation => wgpu::ErrorFilter::Validation,
            Filter::OutOfMemory => wgpu::ErrorFilter::OutOfMemory,
            Filter::Internal => wgpu::ErrorFilter::Internal,
        });
        Self { filter, guard }
    }

    pub fn pop(self) -> Caught {
        let popped = self.guard.pop();
        Box::pin(async move { popped.await.map(|error| error.to_string()) })
    }
}

#[cfg(target_arch = "wasm32")]
impl Scope {
    pub fn push(device: &wgpu::Device, filter: Filter) -> Self {
        let device = super::browser::error_scopes(device);
        if let Some(device) = &device {
            device.push_error_scope(match filter {
                Filter::Validation => ErrorFilter::Validation,
                Filter::OutOfMemory => ErrorFilter::OutOfMemory,
                Filter::Internal => ErrorFilter::Internal,
            });
        }
        Self { filter, device }
    }

    pub fn pop(self) -> Caught {
        // Listens at once: what has arrived by the time that it is awaited takes no turn of the page.
        let popped = self.device.map(|device| JsFuture::from(device.pop_error_scope()));
        Box::pin(async move { caught(popped?).await })
    }
}

/// What a scope says that was popped.
#[cfg(target_arch = "wasm32")]
async fn caught(popped: JsFuture) -> Option<String> {
    match popped.await {
        Ok(error) if error.is_object() => Some(super::browser::message(&error)),
        Ok(_) => None,
        Err(error) => Some(format!("popErrorScope failed: {error:?}")),
    }
}

/// A buffer that was asked for, and whether there was memory for it.
struct Allocated {
    label: String,
    bytes: u64,
    caught: Caught,
}

/// What belongs to one call: its scopes, and what is made within them.
pub(super) struct CallScopes {
    scopes: [Scope; 3],
    allocated: Vec<Allocated>,
    /// Tells its pipelines from those of other calls.
    number: u64,
    compiled: Vec<Wgsl>,
}

/// Forgets a call's pipelines, unless the device turns out to have accepted the call.
struct Unproved {
    pipelines: Rc<Pipelines>,
    number: u64,
    compiled: Vec<Wgsl>,
}

impl Unproved {
    fn accept(mut self) {
        self.pipelines.prove(self.number, &std::mem::take(&mut self.compiled));
    }
}

impl Drop for Unproved {
    fn drop(&mut self) {
        if !self.compiled.is_empty() {
            self.pipelines.forget(self.number, &self.compiled);
        }
    }
}

impl WgpuDevice {
    pub(super) fn open_scopes(&self) {
        self.calls.set(self.calls.get() + 1);
        self.error_scopes.borrow_mut().push(CallScopes {
            scopes: Filter::ALL.map(|filter| Scope::push(&self.device, filter)),
            allocated: Vec::new(),
            number: self.calls.get(),
            compiled: Vec::new(),
        });
    }

    pub(super) fn close_scopes(&self) -> LocalFuture<Result<()>> {
        let Some(call) = self.error_scopes.borrow_mut().pop() else {
            return Box::pin(async { Err(Error::internal("no error scope is open")) });
        };
        let CallScopes { scopes, allocated, number, compiled } = call;
        let popped = self.pop(scopes);
        let unproved = Unproved { pipelines: Rc::clone(&self.pipelines), number, compiled };
        let (loss, held) = (self.loss.clone(), self.counters.get().gpu_bytes);
        Box::pin(async move {
            match first_error(popped, allocated, held).await {
                Some(error) => return Err(loss.explain(error).await),
                None => loss.alive()?,
            }
            unproved.accept();
            Ok(())
        })
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn pop(&self, scopes: [Scope; 3]) -> Popped {
        let popped: Vec<_> =
            scopes.into_iter().rev().map(|scope| (scope.filter, scope.pop())).collect();
        Box::pin(first_caught(popped))
    }

    /// Listens to the answers together: each promise that is listened to by itself takes two closures, which
    /// the browser's garbage collector has to watch.
    #[cfg(target_arch = "wasm32")]
    fn pop(&self, scopes: [Scope; 3]) -> Popped {
        use wasm_bindgen::{JsCast, JsValue};

        let filters = scopes.each_ref().map(|scope| scope.filter);
        let popped = scopes.into_iter().rev().filter_map(|scope| scope.device);
        let popped: Array = popped.map(|device| device.pop_error_scope()).collect();
        let all = JsFuture::from(Promise::all(&popped)).shared();
        self.staging.answer(all.clone());
        Box::pin(async move {
            let answers = all.await.map(Array::<JsValue>::unchecked_from_js);
            if answers.is_ok_and(|answers| answers.iter().all(|error| error.is_null())) {
                return None;
            }
            // Again one by one: some of the promises may have been rejected.
            let each =
                popped.iter().map(|one| Box::pin(caught(Promise::from(one).into())) as Caught);
            first_caught(filters.into_iter().rev().zip(each).collect()).await
        })
    }

    /// Whether a call's scopes are open.
    pub(super) fn has_error_scope(&self) -> bool {
        !self.error_scopes.borrow().is_empty()
    }

    /// Number of the innermost call with open scopes; that of none where none is.
    pub(super) fn call(&self) -> u64 {
        self.error_scopes.borrow().last().map_or(0, |call| call.number)
    }

    /// Notes that the innermost call with open scopes has compiled this.
    pub(super) fn note_compiled(&self, wgsl: &Wgsl) {
        if let Some(call) = self.error_scopes.borrow_mut().last_mut() {
            call.compiled.push(wgsl.clone());
        }
    }

    /// Makes a buffer in an error scope of its own, so that an out-of-memory error can name it.
    pub(super) fn allocate(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        debug_assert!(self.has_error_scope(), "a buffer is made outside of error scopes");
        let scope = Scope::push(&self.device, Filter::OutOfMemory);
        let buffer = self.device.create_buffer(descriptor);
        let caught = scope.pop();
        let label = descriptor.label.unwrap_or("a buffer").to_owned();
        if let Some(call) = self.error_scopes.borrow_mut().last_mut() {
            call.allocated.push(Allocated { label, bytes: descriptor.size, caught });
        }
        self.count(|c| c.buffers += 1);
        buffer
    }
}

/// The first error of scopes that were popped, the innermost first.
async fn first_caught(popped: Vec<(Filter, Caught)>) -> Option<(Filter, String)> {
    let mut first = None;
    for (filter, caught) in popped {
        if let Some(message) = caught.await {
            first.get_or_insert((filter, message));
        }
    }
    first
}

/// The error that says most: a buffer without memory is why what uses it is refused.
async fn first_error(popped: Popped, allocated: Vec<Allocated>, held: u64) -> Option<Error> {
    let mut first = None;
    for Allocated { label, bytes, caught } in allocated {
        if caught.await.is_some() {
            first.get_or_insert_with(|| no_memory(&format!("for {label}, {bytes} bytes"), held));
        }
    }
    if let Some((filter, message)) = popped.await {
        first.get_or_insert_with(|| match filter {
            Filter::OutOfMemory => no_memory("for a command", held),
            Filter::Validation | Filter::Internal => {
                Error::internal(format!("the GPU refused a command: {message}"))
            }
        });
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn caught(message: Option<&'static str>) -> Caught {
        Box::pin(async move { message.map(str::to_owned) })
    }

    fn told(
        popped: [Option<&'static str>; 3],
        allocated: [Option<&'static str>; 2],
    ) -> Option<Error> {
        let popped = Filter::ALL.into_iter().zip(popped.map(caught)).collect();
        let labels = ["Weights(0)", "Logits"].into_iter().zip([4096, 1 << 20]);
        let allocated = labels
            .zip(allocated)
            .map(|((label, bytes), message)| Allocated {
                label: label.into(),
                bytes,
                caught: caught(message),
            })
            .collect();
        let popped = Box::pin(first_caught(popped));
        pollster::block_on(first_error(popped, allocated, 1 << 21))
    }

    #[test]
    fn the_buffer_without_memory_is_named_and_not_what_follows_from_it() {
        let error = told([Some("invalid buffer"), None, None], [None, Some("no memory")]).unwrap();
        assert_eq!(error.code, ErrorCode::OutOfMemory);
        assert!(error.message.contains("for Logits, 1048576 bytes"), "{error}");
        assert!(error.message.contains("2097152 bytes: use a smaller"), "{error}");
    }

    #[test]
    fn each_filter_gives_its_code() {
        assert_eq!(told([None; 3], [None; 2]), None);
        for (index, code) in
            [(0, ErrorCode::Internal), (1, ErrorCode::OutOfMemory), (2, ErrorCode::Internal)]
        {
            let mut popped = [None; 3];
            popped[index] = Some("why");
            let error = told(popped, [None; 2]).unwrap();
            assert_eq!(error.code, code);
            assert_eq!(error.message.contains("why"), code == ErrorCode::Internal, "{error}");
        }
    }
}
