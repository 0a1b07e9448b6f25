// A process of its own that makes a dataset of a file, and prints the peak of its memory:
//   node text-memory.mjs FILE [TOKENIZER FOLDER]
import { pathToFileURL } from "node:url";
import { ByteTokenizer, Dataset, Tokenizer } from "tinyloom";

const [file, folder] = process.argv.slice(2);
const tokenizer = folder
  ? await Tokenizer.fromPretrained(pathToFileURL(`${folder}/`))
  : new ByteTokenizer();
const began = performance.now();
const dataset = await Dataset.from(pathToFileURL(file), tokenizer);
const result = {
  tokens: dataset.tokens,
  hash: dataset.hash,
  seconds: (performance.now() - began) / 1000,
  peak: process.resourceUsage().maxRSS * 1024,
};
console.log(JSON.stringify(result));
