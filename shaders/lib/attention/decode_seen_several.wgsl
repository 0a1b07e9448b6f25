// The keys that the query of each row sees, of the text of that row: lib/cache/append_several.wgsl. The row's
// own key is the last of them, of which it sees WINDOW.
@group(0) @binding(RESULT - 1u) var<storage, read> documents: array<u32>;
@group(0) @binding(UNIFORM) var<uniform> step: Step;

fn item_count() -> u32 {
  return step.tokens;
}

// Position of the first one and the one behind the last.
fn seen_keys(item: u32) -> vec2<u32> {
  let end = item - documents[item] + 1u;
  return vec2(end - min(end, WINDOW), end);
}
