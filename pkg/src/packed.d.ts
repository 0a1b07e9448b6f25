// The generated dist/packed.js: the wasm module, compressed by gzip, as base64.
declare const packed: string;
export default packed;
