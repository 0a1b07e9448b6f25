// attention_delta_backward: delta = Σ over a head's elements of output · d_output, which equals
// Σ over keys of P · dP (FlashAttention-2's pre-pass).
//
// Of the fused rows of a batch in f32 or f16, or of TENSORS of any strides (lib/attention/geometry.wgsl) in f32 or F16.
// Grid: TEAM invocations per row and head, neighbours of one workgroup, which read its vectors in turn.
#import lib/flat

#if TENSORS
#import lib/attention/geometry
#import lib/quad

#binding output: array<Quad>           // read     [batch, HEADS, query rows, HEAD_DIM]
#binding d_output: array<Quad>         // read     as output, strides of its own
#binding lse: array<f32>               // read     f32 [batch, HEADS, query rows]
#binding statistics: array<vec2<f32>>  // write    vec2<f32> [batch, HEADS, query rows]  overwritten: logsumexp, delta
#binding geometry: Geometry            // uniform

fn invocation_count() -> u32 {
  return geometry.batch * HEADS * geometry.query_rows;
}

fn product(id: u32, v: u32) -> f32 {
  let row = id % geometry.query_rows;
  let head = id / geometry.query_rows % HEADS;
  let item = id / geometry.query_rows / HEADS;
  let left = unpack_quad(output[row_at(geometry.output, item, head, row) + v]);
  return dot(left, unpack_quad(d_output[row_at(geometry.d_output, item, head, row) + v]));
}

fn store_delta(id: u32, x: f32) {
  statistics[id] = vec2(lse[id], x);
}
#else
#import lib/step

#if OUTPUT_F16
#import lib/quad

#binding output: array<vec2<u32>>  // read  [tokens, HEADS · HEAD_DIM]
#else
#binding output: array<vec4<f32>>  // read  [tokens, HEADS · HEAD_DIM]
#endif
#if D_OUTPUT_F16
#import lib/quad

#binding d_output: array<vec2<u32>>  // read  [tokens, HEADS · HEAD_DIM], or PARTS of it, which a product split along K has left
#else
#binding d_output: array<vec4<f32>>  // read  [tokens, HEADS · HEAD_DIM], or PARTS of it, which a product split along K has left
#endif
#binding delta: array<f32>  // write    f32 [tokens, HEADS]                  overwritten
#binding step: Step         // uniform
#if SUMMED
// whole: f32 [tokens, HEADS · HEAD_DIM] overwritten: the sum of the parts, for who reads it later
#binding whole: array<vec4<f32>>  // write
#endif

fn invocation_count() -> u32 {
  return step.tokens * HEADS;
}

fn product(id: u32, v: u32) -> f32 {
  let at = id * (HEAD_DIM / 4u) + v;
#if OUTPUT_F16
  let left = unpack_quad(output[at]);
#else
  let left = output[at];
#endif
#if D_OUTPUT_F16
  let right = unpack_quad(d_output[at]);
#else
  var right = d_output[at];
#endif
#if SUMMED
  #unroll for (var part = 1u; part < PARTS; part++) {
    right += d_output[at + part * PART_ROW];
  }
  whole[at] = right;
#endif
  return dot(left, right);
}

fn store_delta(id: u32, x: f32) {
  delta[id] = x;
}
#endif

var<workgroup> shares: array<f32, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let head = id / TEAM;
  let known = head < invocation_count();
  var total = 0.0;
  for (var v = id % TEAM; v < HEAD_DIM / 4u && known; v += TEAM) {
    total += product(head, v);
  }
  if TEAM > 1u {
    shares[lane] = total;
    workgroupBarrier();
    #unroll for (var share = 1u; share < TEAM; share++) {
      total += shares[(lane + share) % WORKGROUP];
    }
  }
  if known && id % TEAM == 0u {
    store_delta(head, total);
  }
}
