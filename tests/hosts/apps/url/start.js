import { BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer } from "tinyloom";
import wasm from "tinyloom/tinyloom_bg.wasm?url";
import { show, work } from "./body.js";

export function start() {
  show(
    work({ BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer }, { wasm }),
  );
}
