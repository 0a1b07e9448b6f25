import * as Comlink from "comlink";
import { Studio } from "./studio.ts";

Comlink.expose(new Studio());
