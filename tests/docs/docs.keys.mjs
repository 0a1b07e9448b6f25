import { leftIn } from "../gate/passed.mjs";
import { openDocuments } from "./documents.mjs";

export const state = () => ({ run: openDocuments().run.length > 0, left: leftIn("docs") });
