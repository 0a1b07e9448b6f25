//! What a page, a worker and Node have in common: clock, timers and navigator. Each may be absent.

use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{MessageChannel, Navigator, Performance};

#[wasm_bindgen]
extern "C" {
    /// The global object of a page, of a worker or of Node: web-sys has no type for all of them.
    pub type Global;

    #[wasm_bindgen(method, getter)]
    pub fn navigator(this: &Global) -> Option<Navigator>;

    #[wasm_bindgen(method, getter)]
    fn performance(this: &Global) -> Option<Performance>;

    #[wasm_bindgen(method, catch, js_name = setTimeout)]
    fn set_timeout(
        this: &Global,
        then: &Function,
        milliseconds: f64,
    ) -> std::result::Result<JsValue, JsValue>;
}

pub fn global() -> Global {
    js_sys::global().unchecked_into()
}

thread_local! {
    /// Looked up once: a step reads the clock several times, and the look-up costs more than the reading.
    static CLOCK: Option<Performance> = global().performance();
}

/// Milliseconds by the host's own clock.
pub fn now() -> f64 {
    CLOCK.with(|clock| clock.as_ref().map_or_else(js_sys::Date::now, Performance::now))
}

/// Whether this is Firefox, as it says itself.
pub(super) fn is_firefox() -> bool {
    // A navigator that stands in for one may have no user agent.
    let agent = global().navigator().and_then(|navigator| navigator.user_agent().ok());
    agent.is_some_and(|agent| agent.contains("Firefox/"))
}

/// Resolves after this many milliseconds, later in a hidden page; at once where there are no timers.
pub(super) async fn pause(milliseconds: f64) {
    let mut begin = |resolve: Function, _: Function| {
        if global().set_timeout(&resolve, milliseconds).is_err() {
            let _ = resolve.call0(&JsValue::UNDEFINED);
        }
    };
    let _ = JsFuture::from(Promise::new(&mut begin)).await;
}

/// Resolves in a task of its own. A message is not held back in a hidden page, as a timer is.
pub(super) async fn next_task() {
    let Ok(channel) = MessageChannel::new() else { return pause(0.0).await };
    let (receiver, sender) = (channel.port1(), channel.port2());
    let mut begin = |resolve: Function, _: Function| {
        receiver.set_onmessage(Some(&resolve));
        if sender.post_message(&JsValue::NULL).is_err() {
            let _ = resolve.call0(&JsValue::UNDEFINED);
        }
    };
    let _ = JsFuture::from(Promise::new(&mut begin)).await;
    // An open port keeps a Node process alive.
    receiver.close();
}
