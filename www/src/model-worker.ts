/**
 * The worker in which models live. The package has one in a single file, with all that anybody may ask of it; from this
 * one the bundler splits off what a first visit does not need, which is 24 KB of it on the wire.
 */
import { serve } from "tinyloom/worker";

serve();
// A driver takes long to be there for the first time. The package asks again once its parts have loaded.
navigator.gpu?.requestAdapter({ powerPreference: "high-performance" }).catch(() => undefined);
