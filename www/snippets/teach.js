import { Adapter, ByteTokenizer, Model, Runtime, Trainer } from "tinyloom";
import { kto } from "tinyloom/align";

const runtime = await Runtime.create();
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const adapter = await Adapter.create(model, { rank: 8 });
const trainer = await Trainer.create(adapter, { learningRate: 0.01, tokensPerStep: 128 });
const { encode } = new ByteTokenizer();
const marked = (text, desirable) => ({
  prompt: encode("One day "),
  completion: encode(text),
  desirable,
});
const texts = [marked("a fox ran.", true), marked("a big shy fox ran by the river.", false)];
for await (const { step, desirable } of kto(trainer, texts, { textsPerStep: 2, steps: 10 }))
  console.log(step, desirable);
