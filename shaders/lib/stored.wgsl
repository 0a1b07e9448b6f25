// A vector of a result as it is stored: in f32 or, by four elements, in F16 for products that round it.
#import lib/vector
#if F16
#import lib/quad
alias Stored = Quad;
#else
alias Stored = Vector;
#endif

fn stored(x: Vector) -> Stored {
#if F16
  return pack_quad(x);
#else
  return x;
#endif
}
