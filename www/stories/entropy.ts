import { grammar, middleCounts, type Rule, sentencesPerStory } from "./grammar.ts";

export interface GrammarEntropy {
  natsPerSentence: number;
  natsPerByte: number;
  bytesPerSentence: number;
}

interface Expectation {
  nats: number;
  bytes: number;
}

/**
 * Entropy and expected length of what a symbol derives. The grammar is free of recursion and ambiguity, so the
 * entropy of its strings is that of its derivations: by the chain rule, the entropy of the choice made here plus the
 * expected entropy of the parts. A part's bytes include the separator (space or full stop) that follows it.
 */
function expectation(symbol: Rule): Expectation {
  const total = { nats: 0, bytes: 0 };
  for (const { probability, parts } of grammar.get(symbol)!) {
    total.nats -= probability * Math.log(probability);
    for (const part of parts) {
      const { nats, bytes } =
        part.symbol === undefined
          ? { nats: 0, bytes: part.word.length + 1 }
          : expectation(part.symbol);
      total.nats += probability * nats;
      total.bytes += probability * bytes;
    }
  }
  return total;
}

/**
 * The exact entropy rate of the endless text: a story's entropy over its expected sentences and bytes. Each sentence
 * is followed by one more byte, a space or the line break. No model can have a lower expected loss than `natsPerByte`.
 */
export function grammarEntropy(): GrammarEntropy {
  let nats = Math.log(middleCounts.length);
  let bytes = 0;
  let sentences = 0;
  for (const [kind, count] of sentencesPerStory) {
    const expected = expectation(kind);
    nats += count * expected.nats;
    bytes += count * (expected.bytes + 1);
    sentences += count;
  }
  return {
    natsPerSentence: nats / sentences,
    natsPerByte: nats / bytes,
    bytesPerSentence: bytes / sentences,
  };
}
