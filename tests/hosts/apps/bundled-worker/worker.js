import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { work } from "./body.js";

work({ ByteTokenizer, Dataset, Model, Runtime, Trainer }).then(postMessage, ({ code, message }) =>
  postMessage({ code, message }),
);
