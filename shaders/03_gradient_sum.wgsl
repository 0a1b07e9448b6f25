// gradient_sum: adds up the parts that products split along K have left of gradients of weights, in their order.
//
// Grid: an invocation for each four elements of the gradients, those of the first product first.
#import lib/step
#import lib/flat
#import lib/write_mode

// parts: f32 [PART_COUNTS[p], 4 · VECTORS[p]] from vector FROM[p] on, for each product p
#binding parts: array<vec4<f32>>     // read
#binding gradient: array<vec4<f32>>  // read_write  f32 [4 · VECTORS[p]] from vector TO[p] on; by WRITE_MODE
#binding step: Step                  // uniform

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
