// The file of the package's own worker.
import { serve } from "./serve.js";

serve();
