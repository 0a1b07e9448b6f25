/** What is loaded when a text is first read: readers of datasets, tokenizers and their training. */

export { BYTE_CHARACTERS } from "./bpe.js";
export { fromDocuments, fromSource } from "./build.js";
export { chatPrompt } from "./chat.js";
export { fromConversations } from "./conversations.js";
export { loadTokenizer, readTokenizer } from "./pretrained.js";
export { loadDataset, saveDataset } from "./saved.js";
export { train } from "./train.js";
export { documentOf } from "./view.js";
