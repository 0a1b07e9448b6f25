// The build puts Comlink's own module beside the compiled files, so that users need not install it.
export * from "comlink";
