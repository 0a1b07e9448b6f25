/** What is loaded when a text is first read: readers of datasets, tokenizers and their training. */

export { fromDocuments, fromSource } from "./build.js";
export { fromConversations } from "./conversations.js";
export { loadTokenizer } from "./pretrained.js";
export { loadDataset, saveDataset } from "./saved.js";
export { train } from "./train.js";
