//! The twin of `00_checksum.wgsl`.

/// Sum i of words i, i + lanes, …, each mixed with its index.
pub fn checksum_forward(words: &[u32], lanes: usize) -> Vec<u32> {
    let mut sums = vec![0u32; lanes];
    for (i, &word) in words.iter().enumerate() {
        let mut x = word.wrapping_add((i as u32).wrapping_mul(0x9e37_79b9));
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        let sum = &mut sums[i % lanes];
        *sum = sum.wrapping_add(x ^ (x >> 16));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_its_place_change_a_sum() {
        let words = [7, 7, 0, 3, 9];
        let sums = |words: &[u32]| checksum_forward(words, 2);
        assert_eq!(sums(&words), sums(&words));
        for changed in [[7, 7, 0, 3, 8], [7, 7, 9, 3, 0], [7, 3, 0, 7, 9], [0, 7, 7, 3, 9]] {
            assert_ne!(sums(&words), sums(&changed));
        }
    }
}
