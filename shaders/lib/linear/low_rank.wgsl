// More terms of a product's sums: those of an adapter, a few columns of short rows times the matrices of its modules. They
// are loaded as further steps of K. Each module's matrix has steps of its own.
#import lib/linear/operands
#import lib/linear/b

#binding short_rows: array<vec4<f32>>  // read  f32 [M, SHORT]
#binding low_rank: array<vec4<f32>>    // read  f32, each module's matrix from element LOW_AT on, RANK terms

// Terms k … k + 3 of a row: zero past the last one.
fn fetch_short(row: u32, k: u32) -> vec4<f32> {
  if k >= SHORT {
    return vec4<f32>();
  }
  return short_rows[(row * SHORT + k) / 4u];
}

#if DOTS
// Terms k … k + 3 of column n: those of a module whose columns these are, [LOW_WIDTHS, RANK], and zero.
fn fetch_low(n: u32, k: u32) -> vec4<f32> {
  var at = 0u;
  var found = false;
  #unroll for (var m = 0u; m < MODULES; m++) {
    let column = n - LOW_FROM[m];
    let term = k - SHORT_FROM[m];
    // A difference below zero is large.
    if column < LOW_WIDTHS[m] && term < RANK {
      at = LOW_AT[m] + column * RANK + term;
      found = true;
    }
  }
  return select(vec4<f32>(), low_rank[at / 4u], found);
}
#else
// Columns n … n + 3 of term k, [RANK, LOW_WIDTHS]: zero past the last one of both.
fn fetch_low(k: u32, n: u32) -> vec4<f32> {
  var value = vec4<f32>();
  #unroll for (var m = 0u; m < MODULES; m++) {
    let term = k - SHORT_FROM[m];
    if n < LOW_WIDTHS[m] && term < RANK {
      value = low_rank[(LOW_AT[m] + term * LOW_WIDTHS[m] + n) / 4u];
    }
  }
  return value;
}
#endif

// As what is loaded of the product's own operands.
fn as_fetched_a(value: vec4<f32>) -> FetchedA {
#if A_F16
  return vec2(pack2x16float(value.xy), pack2x16float(value.zw));
#else
  return value;
#endif
}

fn as_fetched_b(value: vec4<f32>) -> FetchedB {
#if B_F16
  return vec2(pack2x16float(value.xy), pack2x16float(value.zw));
#else
  return value;
#endif
}
