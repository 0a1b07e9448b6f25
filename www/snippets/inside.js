import { ByteTokenizer, Model, Runtime } from "tinyloom";

const runtime = await Runtime.create();
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const tokens = new ByteTokenizer().encode("planet>tenalp");
const { attention, residual } = await model.capture(tokens, { attention: true, residual: true });
console.log(Object.values(attention).map(({ length }) => length)); // of each layer: heads × letters × letters
console.log(Object.values(residual).map(({ length }) => length)); // letters × width, before and after each layer
console.log(await model.lens(tokens, { top: 1 })); // what it would say after each layer
const cut = { interventions: [{ at: "head", layer: 0, head: 2, scale: 0 }] };
console.log((await model.logits(tokens, cut)).length); // with one head cut
