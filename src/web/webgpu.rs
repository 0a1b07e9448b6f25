//! WebGPU's objects as the page gives them, which may be no such things: their types in web-sys are not
//! stable, and would trust them.

use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// `navigator.gpu`, or what stands in for it.
    pub(super) type WebGpu;
    #[wasm_bindgen(method, getter, catch, js_name = wgslLanguageFeatures)]
    pub(super) fn wgsl_language_features(this: &WebGpu) -> Result<JsValue, JsValue>;

    /// A GPUAdapter.
    pub(super) type WebAdapter;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn info(this: &WebAdapter) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn features(this: &WebAdapter) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn limits(this: &WebAdapter) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = isFallbackAdapter)]
    pub(super) fn is_fallback(this: &WebAdapter) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = requestDevice)]
    pub(super) fn request_device(this: &WebAdapter) -> Result<JsValue, JsValue>;

    /// A GPUAdapterInfo.
    pub(super) type AdapterInfo;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn vendor(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn architecture(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn device(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn description(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = subgroupMinSize)]
    pub(super) fn subgroup_min_size(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = subgroupMaxSize)]
    pub(super) fn subgroup_max_size(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = subgroupMatrixConfigs)]
    pub(super) fn subgroup_matrix_configs(this: &AdapterInfo) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch, js_name = isFallbackAdapter)]
    pub(super) fn is_fallback(this: &AdapterInfo) -> Result<JsValue, JsValue>;

    /// One of WebGPU's set-like objects.
    pub(super) type SetLike;
    #[wasm_bindgen(method, getter, catch, js_name = has)]
    pub(super) fn membership(this: &SetLike) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch)]
    pub(super) fn has(this: &SetLike, name: &str) -> Result<JsValue, JsValue>;

    /// A GPUDeviceDescriptor.
    pub(super) type Descriptor;
    #[wasm_bindgen(method, getter, catch, js_name = requiredFeatures)]
    pub(super) fn required_features(this: &Descriptor) -> Result<JsValue, JsValue>;

    /// A GPUDevice.
    pub(super) type Device;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn queue(this: &Device) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, catch)]
    pub(super) fn lost(this: &Device) -> Result<JsValue, JsValue>;
}
