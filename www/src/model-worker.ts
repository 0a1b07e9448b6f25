/**
 * The worker in which models live. The package's own worker is a single file with all that anybody may ask of it. From
 * this one the bundler splits off what a first visit does not need, which is 24 KB on the wire.
 */
import { serve } from "tinyloom/worker";

serve();
askEarly();

/**
 * Asks for the adapter before the page does: a driver takes long to open for the first time. Each further request takes
 * as long, so the package's first one is given this one's answer.
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
