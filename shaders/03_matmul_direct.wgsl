// matmul, matmul_t, matmul_at with no workgroup memory and no barrier, TM×TN results per invocation
// in registers: the form for adapters that run on a CPU, where a barrier costs more than it saves.
// Bindings and modes are those of 03_matmul_tiled.wgsl, and one more:
//
// So products of all shapes share a text: such an adapter takes longer to compile it than to run it.
//
// Results are named vectors: some compilers keep an array that a loop indexes in memory, even when every index is known.
// Row 4 · i + e has sum_i_e_0, sum_i_e_1 and so on. CHECK_K says that K may end within four steps, CHECK_N that a block may
// end past the last column.
//
// Rows and columns past the end are computed from clamped addresses and not stored.
// Grid: one invocation for a block of TM×TN results, columns fastest.
#import lib/step
#import lib/range
#import lib/flat
#import lib/linear/operands
#import lib/linear/b

#operand sizes: vec4<u32>  // uniform  N; K, or M for matmul_at; A_STRIDE; C_STRIDE

var<private> N: u32;
var<private> A_STRIDE: u32;
var<private> A_INNER: u32;
var<private> B_STRIDE: u32;
var<private> B_INNER: u32;
var<private> C_STRIDE: u32;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  N = sizes.x;
  A_INNER = sizes.y;
  A_STRIDE = sizes.z;
  B_INNER = select(N, A_INNER, DOTS);
  B_STRIDE = B_INNER;
  C_STRIDE = sizes.w;
  let rows = range_rows(step.tokens, range);
  let m_end = select(rows, A_INNER, OVER_TOKENS);
  let k_end = select(A_INNER, rows, OVER_TOKENS);
  let blocks_n = (N + TN - 1u) / TN;
  let id = flat_id(lane, workgroup, workgroups);
  let m0 = id / blocks_n * TM;
  let n0 = id % blocks_n * TN;
  if m0 < m_end {
    block(m0, n0, m_end, k_end, A_COLUMNS * range.col0, C_COLUMNS * range.col0);
  }
}

// Four columns of `b` in a row of it.
fn right_of(row: u32, n: u32) -> vec4<f32> {
  return elements_b(fetch_b(row, min(n, (N - 1u) / 4u * 4u)));
}

fn block(m0: u32, n0: u32, m_end: u32, k_end: u32, column: u32, target_column: u32) {
  #unroll for (var i = 0u; i < TM4; i++) {
    #unroll for (var e = 0u; e < 4u; e++) {
      #unroll for (var j = 0u; j < TN4; j++) {
        var sum_#i_#e_#j = vec4<f32>();
      }
    }
  }
  for (var k = 0u; k < k_end; k += 4u) {
#if OVER_TOKENS
    // Outer products of rows of both, which are zero past the end of K.
    #unroll for (var s = 0u; s < 4u; s++) {
      #unroll for (var i = 0u; i < TM4; i++) {
        let left_#s_#i = select(
          vec4<f32>(), fetch_a(min(k + s, k_end - 1u), min(m0 + i * 4u, (m_end - 1u) / 4u * 4u), column), k + s < k_end);
      }
      #unroll for (var j = 0u; j < TN4; j++) {
        let right_#s_#j = right_of(min(k + s, k_end - 1u), n0 + j * 4u);
        #unroll for (var i = 0u; i < TM4; i++) {
          #unroll for (var e = 0u; e < 4u; e++) {
            sum_#i_#e_#j += left_#s_#i[e] * right_#s_#j;
          }
        }
      }
    }
#else
    #unroll for (var i = 0u; i < TM4; i++) {
      #unroll for (var e = 0u; e < 4u; e++) {
        let row_#i_#e = fetch_a(min(m0 + (i * 4u + e), m_end - 1u), k, column);
      }
    }
#if DOTS
    // Both operands run along K: each four results are dot products with four rows of `b`.
    #unroll for (var j = 0u; j < TN4; j++) {
      #unroll for (var r = 0u; r < 4u; r++) {
        let right_#j_#r = elements_b(fetch_b(min(n0 + (j * 4u + r), N - 1u), k));
      }
      #unroll for (var i = 0u; i < TM4; i++) {
        #unroll for (var e = 0u; e < 4u; e++) {
          sum_#i_#e_#j += vec4(
            dot(row_#i_#e, right_#j_0), dot(row_#i_#e, right_#j_1), dot(row_#i_#e, right_#j_2), dot(row_#i_#e, right_#j_3));
        }
      }
    }
#else
    // Rows of `b` scaled by the elements of rows of `a`, which are zero past the end of K.
    #unroll for (var i = 0u; i < TM4; i++) {
      #unroll for (var e = 0u; e < 4u; e++) {
#if CHECK_K
        let left_#i_#e = select(vec4<f32>(), row_#i_#e, k + vec4(0u, 1u, 2u, 3u) < vec4(k_end));
#else
        let left_#i_#e = row_#i_#e;
#endif
      }
    }
    #unroll for (var s = 0u; s < 4u; s++) {
      #unroll for (var j = 0u; j < TN4; j++) {
#if CHECK_K
        let right_#s_#j = right_of(min(k + s, k_end - 1u), n0 + j * 4u);
#else
        let right_#s_#j = right_of(k + s, n0 + j * 4u);
#endif
        #unroll for (var i = 0u; i < TM4; i++) {
          #unroll for (var e = 0u; e < 4u; e++) {
            sum_#i_#e_#j += left_#i_#e[s] * right_#s_#j;
          }
        }
      }
    }
#endif
#endif
  }
  // Each turn stores the last row, and every other row moves down by one. Compilers for CPUs make branches of each load and
  // store in the text: with all rows written out they take two to three times as long, and lavapipe ten times with an
  // array that the loop indexes (docs/decisions/033-compiling-on-swiftshader.md).
  for (var rows = TM; rows > 0u; rows--) {
    #unroll for (var j = 0u; j < TN4; j++) {
      var last_#j = vec4<f32>();
      #unroll for (var i = 0u; i < TM4; i++) {
        #unroll for (var e = 0u; e < 4u; e++) {
          let moved_#i_#e_#j = sum_#i_#e_#j;
          sum_#i_#e_#j = last_#j;
          last_#j = moved_#i_#e_#j;
        }
      }
    }
    let row = m0 + rows - 1u;
    if row < m_end {
      #unroll for (var j = 0u; j < TN4; j++) {
#if CHECK_N
        if n0 + j * 4u < N {
          store_c(row, n0 + j * 4u, target_column, last_#j);
        }
#else
        store_c(row, n0 + j * 4u, target_column, last_#j);
#endif
      }
    }
  }
}
