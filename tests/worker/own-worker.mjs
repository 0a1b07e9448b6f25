// A worker of a user's own, in Node.
import { BpeTokenizer } from "tinyloom";
import * as ops from "tinyloom/ops";
import { serve } from "tinyloom/worker";
import { extra } from "./bodies/worker.mjs";

serve(extra(ops, BpeTokenizer));
