/**
 * Asks for the GPU and for the recording, and loads the page in a task of its own. In the task that ends the parsing of
 * the document, both would hold up the main thread. A new version of the page comes first.
 */
import { beginLab } from "./lab.ts";
import { recordingFile } from "./loom/recording-file.ts";
import { takeNewVersion } from "./offline.ts";

// Where a frame may have no service worker, asking for one throws.
const taken = takeNewVersion().catch(() => undefined);
void taken.then(() => {
  beginLab();
  void recordingFile();
  import("./page.ts");
});
