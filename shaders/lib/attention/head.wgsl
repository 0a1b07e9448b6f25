// A head's vector in registers. Members have names: some compilers keep an array that a loop indexes in memory, even when
// every index is known. On SwiftShader a product with 4×4 results per invocation ran at 0.2 GFLOP/s with arrays and at
// 1.7 written out.
struct Head {
  #unroll for (var i = 0u; i < VECTORS; i++) {
    v#i: vec4<f32>,
  }
}

fn head_dot(a: Head, b: Head) -> f32 {
  var sum = dot(a.v0, b.v0);
  #unroll for (var i = 1u; i < VECTORS; i++) {
    sum += dot(a.v#i, b.v#i);
  }
  return sum;
}

// y + s · x.
fn head_axpy(y: Head, s: f32, x: Head) -> Head {
  return Head(
    #unroll for (var i = 0u; i < VECTORS; i++) {
      y.v#i + s * x.v#i,
    }
  );
}

fn head_scale(s: f32, x: Head) -> Head {
  return Head(
    #unroll for (var i = 0u; i < VECTORS; i++) {
      s * x.v#i,
    }
  );
}
