/**
 * Asks for the GPU and for the recording, and loads the page in a task of its own. In the task that ends the parsing of
 * the document, both would hold up the main thread.
 */
import { beginLab } from "./lab.ts";
import { recordingFile } from "./loom/recording-file.ts";

beginLab();
void recordingFile();
import("./page.ts");
