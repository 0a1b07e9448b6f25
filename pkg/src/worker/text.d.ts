// The generated dist/worker/text.js: the worker's file as text.
declare const text: string;
export default text;
