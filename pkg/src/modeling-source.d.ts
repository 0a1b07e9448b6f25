/** `modeling_tinyloom.py` as a text. The build makes it. */
declare const source: string;
export default source;
