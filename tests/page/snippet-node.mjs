// A Node process with Dawn that runs a program which was written for a page.
// node tests/page/snippet-node.mjs FILE
import { pathToFileURL } from "node:url";
import { dawnEnv } from "../../scripts/machine.mjs";

Object.assign(process.env, dawnEnv());
const { create } = await import("webgpu"); // reads the environment
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) }, configurable: true });
await import(pathToFileURL(process.argv[2]).href);
process.exit(0); // Dawn's threads would keep the process alive
