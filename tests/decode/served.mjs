// The worker of worker.test.mjs.
import { serve } from "tinyloom/worker";

serve();
