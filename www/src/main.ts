/**
 * Loads the page in a task of its own. In the task in which the document has been parsed, the two together would hold
 * up the main thread.
 */
import("./page.ts");
