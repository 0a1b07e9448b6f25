/**
 * What is loaded with the first tokenizer of files or conversation: tokenizers and their training, chat templates. Datasets
 * of bytes and of other tokenizers do without, which is half of the text's code.
 */

export { BYTE_CHARACTERS } from "./bpe.js";
export { chatPrompt } from "./chat.js";
export { fromConversations } from "./conversations.js";
export { loadTokenizer, readTokenizer } from "./pretrained.js";
export { train } from "./train.js";
