/** `thread.ts` with what it imports, as the text of a module. The build makes it. */
declare const source: string;
export default source;
