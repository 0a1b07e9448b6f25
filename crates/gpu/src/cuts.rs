//! Where a list of dispatches is cut into submits.

/// Cuts dispatches of some total cost into submits. Each ends with the dispatch that reaches its share:
/// none costs more than its share and one dispatch.
#[derive(Debug)]
pub struct Cuts {
    total: f64,
    done: f64,
    submits: usize,
    submit: usize,
}

impl Cuts {
    pub fn new(total: f64, submits: usize) -> Self {
        Self { total, done: 0.0, submits, submit: 1 }
    }

    /// Whether a submit ends before what comes next, whose cost this is.
    pub fn before(&mut self, cost: f64) -> bool {
        let goal = self.total * self.submit as f64 / self.submits as f64;
        let cut = self.submit < self.submits && self.done >= goal;
        self.submit += usize::from(cut);
        self.done += cost;
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_submit_costs_more_than_its_share_and_one_dispatch() {
        let costs: Vec<f64> = (0..97).map(|i| f64::from(i * 31 % 17 + 1)).collect();
        let (total, largest): (f64, f64) = (costs.iter().sum(), 17.0);
        for submits in 1..40 {
            let mut cuts = Cuts::new(total, submits);
            let mut sums = vec![0.0];
            for &cost in &costs {
                if cuts.before(cost) {
                    sums.push(0.0);
                }
                *sums.last_mut().unwrap() += cost;
            }
            assert_eq!(sums.len(), submits);
            let most = total / submits as f64 + largest;
            assert!(sums.iter().all(|sum| *sum <= most), "{submits} submits: {sums:?}");
        }
    }
}
