/**
 * Asks for the GPU, and loads the page in a task of its own. In the task in which the document has been parsed, the two
 * together would hold up the main thread.
 */
import { beginLab } from "./lab.ts";

beginLab();
import("./page.ts");
