import { BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer } from "tinyloom";
import { attention } from "tinyloom/ops";
import { show, work } from "./body.js";

export function start() {
  if (typeof attention.forward !== "function") throw new Error("tinyloom/ops is not there");
  show(work({ BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer }));
}
