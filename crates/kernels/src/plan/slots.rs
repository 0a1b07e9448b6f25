//! Shares buffers among tensors that are never alive together.

/// A tensor's size and the dispatches that first and last touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub bytes: u64,
    pub first: usize,
    pub last: usize,
}

impl Lifetime {
    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Gives each tensor a slot: largest first, into the first slot that is free for its whole
/// lifetime (greedy by size; Pisarchyk and Lee, arXiv:2001.03288). `existing` slots may be used
/// and are not made larger. Returns each tensor's slot and the sizes of all slots.
pub fn assign(tensors: &[Lifetime], existing: &[u64]) -> (Vec<usize>, Vec<u64>) {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(tensors[i].bytes), tensors[i].first));
    let mut sizes = existing.to_vec();
    let mut tenants: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
    let mut slot_of = vec![usize::MAX; tensors.len()];
    for i in order {
        let fits = |slot: &usize| {
            sizes[*slot] >= tensors[i].bytes
                && tenants[*slot].iter().all(|&t| !tensors[t].overlaps(&tensors[i]))
        };
        let slot =
            (0..sizes.len()).filter(fits).min_by_key(|&slot| sizes[slot]).unwrap_or_else(|| {
                sizes.push(tensors[i].bytes);
                tenants.push(Vec::new());
                sizes.len() - 1
            });
        tenants[slot].push(i);
        slot_of[i] = slot;
    }
    (slot_of, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn tensors_alive_together_never_share() {
        let tensors: Vec<_> =
            (0..60).map(|i| life(64 * (1 + i as u64 * 7 % 13), i, i + 1 + i % 5)).collect();
        let (slot_of, sizes) = assign(&tensors, &[100, 5000]);
        for (i, a) in tensors.iter().enumerate() {
            assert!(sizes[slot_of[i]] >= a.bytes);
            for (j, b) in tensors.iter().enumerate().skip(i + 1) {
                assert!(
                    slot_of[i] != slot_of[j] || !a.overlaps(b),
                    "{i} and {j} share slot {}",
                    slot_of[i]
                );
            }
        }
    }

    #[test]
    fn a_chain_needs_two_slots() {
        let tensors: Vec<_> = (0..10).map(|i| life(256, i, i + 1)).collect();
        let (_, sizes) = assign(&tensors, &[]);
        assert_eq!(sizes, [256, 256]);
    }
}
