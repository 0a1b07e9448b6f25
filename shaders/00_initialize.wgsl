// initialize_forward: initial weights, nearly normal: sums of eight uniform 16-bit numbers, brought to
// their deviation by one product. Integer arithmetic up to there: the host's `fill_weights` and every
// adapter that rounds to nearest give the same bits.
//
// Grid: one invocation per element.
#import lib/flat
#import lib/philox

struct Initialize {
  seed: vec2<u32>,
  tag: u32,      // keeps this stream apart from others of the same seed
  factor: f32,   // deviation of the weights over that of the sums
}

struct Run {
  first: u32,    // element of `weights`
  count: u32,
  index: u32,    // of the first element in its tensor
  stream: u32,   // of the tensor
}

#binding weights: array<f32>  // write    f32   `count` elements from `first` on, overwritten
#binding options: Initialize  // uniform
#binding elements: Run        // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < elements.count {
    let words = philox(vec4(elements.index + id, 0u, elements.stream, options.tag), options.seed);
    let halves = (words & vec4(0xffffu)) + (words >> vec4(16u));
    let sum = i32(halves.x + halves.y + halves.z + halves.w);
    weights[elements.first + id] = f32(sum - 4 * 0xffff) * options.factor;
  }
}
