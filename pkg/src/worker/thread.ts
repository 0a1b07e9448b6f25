// The file of the package's own worker. Its imports are static: it is bundled into one file, and Parcel does
// not understand what esbuild makes of the others.

import * as tinyloom from "../index.js";
import * as storage from "../storage/index.js";
import { expose } from "./comlink.js";
import { Host } from "./host.js";
import { onConnect } from "./node.js";

onConnect((port) => expose(new Host({ ...tinyloom, ...storage }), port));
