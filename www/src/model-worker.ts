/**
 * The worker in which models live. The package has one in a single file, with all that anybody may ask of it; from this
 * one the bundler splits off what a first visit does not need, which is 24 KB of it on the wire.
 */
import { serve } from "tinyloom/worker";

serve();
askEarly();

/**
 * Asks for the adapter at once, which the package asks for when its parts have loaded: a driver takes long to be there for
 * the first time. Each further request takes as long, so the package's first one is given this one's answer.
 */
function askEarly(): void {
  const { gpu } = navigator;
  if (!gpu) return;
  const asked = gpu.requestAdapter({ powerPreference: "high-performance" });
  asked.catch(() => undefined); // the package reports it
  gpu.requestAdapter = () => {
    Reflect.deleteProperty(gpu, "requestAdapter");
    return asked;
  };
}
