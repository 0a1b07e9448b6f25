// Tokens first, first + step, … before `end`.
struct Span {
  first: u32,
  end: u32,
  step: u32,
}

// The largest logit of a span. `total` is Σ exp(logit − largest), `mass` the same with the differences divided by the
// temperature.
struct Terms {
  largest: f32,
  total: f32,
  mass: f32,
}

// In one pass (online softmax: Milakov and Gimelshein, arXiv:1805.02867), as softmax_terms of lib/logit/online.wgsl for
// a whole row. All LOADS are issued before the first is used.
fn terms_of(span: Span, inverse_temperature: f32) -> Terms {
  var terms = Terms(-1e30, 0.0, 0.0);
  for (var i = span.first; i < span.end; i += LOADS * span.step) {
    var values = array<f32, LOADS>();
    #unroll for (var j = 0u; j < LOADS; j++) {
      values[j] = logits[first_logit + min(i + j * span.step, span.end - 1u)];
    }
    var next = terms.largest;
    #unroll for (var j = 0u; j < LOADS; j++) {
      next = max(next, values[j]);
    }
    terms.total *= exp(terms.largest - next);
    terms.mass *= exp((terms.largest - next) * inverse_temperature);
    #unroll for (var j = 0u; j < LOADS; j++) {
      let inside = i + j * span.step < span.end;
      terms.total += select(0.0, exp(values[j] - next), inside);
      terms.mass += select(0.0, exp((values[j] - next) * inverse_temperature), inside);
    }
    terms.largest = next;
  }
  return terms;
}
