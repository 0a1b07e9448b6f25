// The other side of lib/attention/mask_rows.wgsl: which queries may see a key. Ends of documents lie
// DOCUMENT_ENDS elements after the starts.
fn first_query(item: u32, key: u32) -> u32 {
  return key;
}

fn end_query(item: u32, key: u32) -> u32 {
  let document_end = documents[DOCUMENT_ENDS + key];
  if WINDOWED {
    return min(document_end, key + min(WINDOW, document_end));
  }
  return document_end;
}
