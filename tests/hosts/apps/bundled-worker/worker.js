import { BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer } from "tinyloom";
import { work } from "./body.js";

work({ BpeTokenizer, ByteTokenizer, Dataset, Model, Runtime, Tokenizer, Trainer }).then(
  postMessage,
  ({ code, message }) => postMessage({ code, message }),
);
