import { Adapter, BpeTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";

const chats = ["red", "blue", "gold"].map((colour) => [
  { role: "user", content: `What is ${colour}?` },
  { role: "assistant", content: "A colour." },
]);
const template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
const tokenizer = await BpeTokenizer.train(JSON.stringify(chats), { vocabSize: 280 });
const model = await Model.create(await Runtime.create(), {
  vocab_size: 280,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const dataset = await Dataset.fromConversations(chats, tokenizer, { template }); // only the answers are learned
const adapter = await Adapter.create(model, { rank: 8 }); // LoRA: the model stays as it is
const trainer = await Trainer.create(adapter, { learningRate: 0.01, tokensPerStep: 128 });
for await (const { step, loss } of trainer.run(dataset, { steps: 10 })) console.log(step, loss);
console.log(Object.keys(await adapter.save())); // the files of PEFT
