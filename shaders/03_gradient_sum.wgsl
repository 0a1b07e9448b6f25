// gradient_sum: adds up the parts that products split along K have left of gradients of weights, in their order.
//
//   0 parts     read        f32 [PART_COUNTS[p], 4 · VECTORS[p]] from vector FROM[p] on, for each product p
//   1 gradient  read_write  f32 [4 · VECTORS[p]] from vector TO[p] on; by WRITE_MODE
//   2 step      uniform
//
// Grid: an invocation for each four elements of the gradients, those of the first product first.
#import lib/step
#import lib/flat
#import lib/write_mode

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  var i = flat_id(lane, workgroup, workgroups);
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    if i < VECTORS[p] {
      var total = parts[FROM[p] + i];
      for (var part = 1u; part < PART_COUNTS[p]; part++) {
        total += parts[FROM[p] + part * VECTORS[p] + i];
      }
      if adds(step.accumulate) {
        total += gradient[TO[p] + i];
      }
      gradient[TO[p] + i] = total;
      return;
    }
    i -= VECTORS[p];
  }
}
