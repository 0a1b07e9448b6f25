import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import wasm from "tinyloom/tinyloom_bg.wasm?url";
import { show, work } from "./body.js";

export function start() {
  show(work({ ByteTokenizer, Dataset, Model, Runtime, Trainer }, { wasm }));
}
