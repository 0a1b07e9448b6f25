//! The raw classes that the TypeScript package wraps: the only code that speaks wasm-bindgen.
//!
//! Every failure crosses as a plain object `{ code, message }`. Structured values cross as JSON text; tensors, and
//! calls of operations on them, as typed arrays. Futures own what they use, so no borrow of an object outlives a call.

mod dataset;
mod gpu_adapter;
mod looking;
mod lora;
mod model;
mod ops;
pub mod runtime;
mod snapshot;
mod trainer;
mod webgpu;

use crate::error::{Error, ErrorCode};
use js_sys::{Function, Object, Reflect};
use serde::Serialize;
use wasm_bindgen::prelude::*;

/// What a call gives JavaScript.
pub type JsResult<T> = Result<T, JsValue>;

/// A plain object with these properties.
fn object(properties: &[(&str, &JsValue)]) -> Object {
    let object = Object::new();
    for (name, value) in properties {
        // Setting a property of a fresh plain object cannot fail.
        let _ = Reflect::set(&object, &(*name).into(), value);
    }
    object
}

/// An error as JavaScript sees it. `unread`: the part of a step that failed is done all the same.
pub fn to_js(error: Error) -> JsValue {
    let (code, message) = (error.code.as_str().into(), error.message.into());
    let unread = (error.code == ErrorCode::Unread).into();
    object(&[("code", &code), ("message", &message), ("unread", &unread)]).into()
}

/// Calls `told` with the message of a panic, and prints message and stack. After a panic nothing of the
/// module may be trusted: what was running never ends.
#[wasm_bindgen(js_name = onPanic)]
pub fn on_panic(told: Function) {
    std::panic::set_hook(Box::new(move |info| {
        let _ = told.call1(&JsValue::UNDEFINED, &info.to_string().into());
        console_error_panic_hook::hook(info);
    }));
}

/// Whether the module's memory has room for a piece of this many bytes.
#[wasm_bindgen(js_name = hasRoom)]
pub fn has_room(bytes: f64) -> bool {
    crate::error::room::<u8>("", bytes as u64).is_ok()
}

/// A page's callback as a [`Progress`](crate::session::Progress) asks it; one that throws ends the call.
fn asking(ask: Function) -> impl Fn(u64, u64, &'static str) -> bool {
    move |done, total, stage| {
        let answer = ask.call3(
            &JsValue::UNDEFINED,
            &(done as f64).into(),
            &(total as f64).into(),
            &stage.into(),
        );
        answer.map_or(true, |stop| stop.is_truthy())
    }
}

/// A value as JSON.
pub fn json<T: Serialize>(value: &T) -> JsResult<String> {
    serde_json::to_string(value).map_err(|e| to_js(Error::internal(e.to_string())))
}

/// A number from JavaScript as a seed: any non-negative integer that a double holds exactly.
fn seed(value: f64) -> JsResult<u64> {
    if value >= 0.0 && value.fract() == 0.0 && value <= 9_007_199_254_740_991.0 {
        return Ok(value as u64);
    }
    Err(to_js(Error::options(format!("seed is {value}; it must be an integer from 0 to 2^53 − 1"))))
}
