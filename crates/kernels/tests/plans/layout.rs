//! Where parameters are: in shards, and the parts of a matrix.

use super::configs;
use tinyloom_kernels::kernels::WeightFormat;
use tinyloom_model::arch::Architecture;
use tinyloom_model::params::{ALIGN, Params};

#[test]
fn tensors_never_overlap_and_decay_ends_where_norms_begin() {
    for (config, _) in configs() {
        for binding_bytes in [128 << 20, 16 << 20, 1 << 30] {
            let layout = Params::new(Architecture::of(&config), binding_bytes).unwrap();
            let mut runs = vec![vec![]; layout.shards.len()];
            for tensor in &layout.tensors {
                let parts = layout.runs(tensor);
                let elements: usize = parts.iter().map(|run| run.len).sum();
                assert_eq!(elements, tensor.shape.iter().product::<usize>(), "{}", tensor.name);
                for run in parts {
                    let shard = layout.shards[run.shard];
                    assert!(run.offset + run.len <= shard.len, "{}", tensor.name);
                    let decayed = tensor.shape.len() == 2;
                    let inside = run.offset + run.len <= shard.decay_end;
                    assert_eq!(inside, decayed, "{} of {shard:?}: {run:?}", tensor.name);
                    assert!(inside || run.offset >= shard.decay_end, "{}", tensor.name);
                    runs[run.shard].push((run.offset, run.offset + run.len));
                }
            }
            for (shard, mut runs) in layout.shards.iter().zip(runs) {
                assert!(shard.len as u64 * 4 <= binding_bytes);
                assert!(shard.decay_end <= shard.len);
                runs.sort_unstable();
                assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "tensors overlap");
            }
            let names: Vec<_> =
                Architecture::of(&config).tensors().into_iter().map(|(name, _)| name).collect();
            let mut laid_out: Vec<_> = layout.tensors.iter().map(|t| t.name.clone()).collect();
            laid_out.sort();
            let mut wanted = names.clone();
            wanted.sort();
            assert_eq!(laid_out, wanted);
        }
    }
}

#[test]
fn parts_are_aligned_and_cover_their_matrix() {
    for (config, _) in configs() {
        let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
        for matrix in &layout.matrices {
            let mut row = 0;
            for part in &matrix.parts {
                assert_eq!(part.row0, row);
                assert_eq!(part.offset % ALIGN, 0);
                assert_eq!(part.row0 % ALIGN, 0);
                row += part.rows;
            }
            assert_eq!(row, matrix.rows);
        }
        let parts = layout.matrices[layout.architecture.embedding].parts.len();
        assert_eq!(parts, if config.vocab_size == 150_000 { 5 } else { 1 });
    }
}

/// Matrices that inference packs follow one another, and begin another buffer where a binding would be too long.
#[test]
fn packed_matrices_lie_side_by_side() {
    let capacities = [1 << 16, 1 << 20, 128 << 20];
    let configs = configs().into_iter().map(|(config, _)| config);
    for (config, capacity) in configs.flat_map(|config| capacities.map(|of| (config.clone(), of))) {
        let Ok(params) = Params::new(Architecture::of(&config), capacity) else { continue };
        for format in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
            let mut last = None;
            let multiplied = (0..params.matrices.len()).filter(|&id| {
                params.architecture.multiplies(id) && format.packs(params.matrices[id].cols)
            });
            for id in multiplied {
                let matrix = &params.matrices[id];
                for (index, part) in matrix.parts.iter().enumerate() {
                    let (buffer, offset) = params.packed_part(format, id, index).unwrap();
                    let end = offset + format.bytes(part.rows, matrix.cols);
                    assert!(offset % 256 == 0 && end <= capacity, "{format:?}: {offset} to {end}");
                    match last {
                        Some((known, before)) if known == buffer => {
                            assert!(
                                offset >= before && offset < before + 256,
                                "{offset} behind {before}"
                            );
                        }
                        _ => assert_eq!((buffer, offset), (matrix.first_part + index, 0)),
                    }
                    last = Some((buffer, end));
                }
            }
        }
    }
}
