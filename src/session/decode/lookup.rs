//! Prompt lookup: what follows where the last tokens of a text occurred before (Saxena, "Prompt lookup decoding",
//! 2023), and when it pays to check it.

use super::batched_pass::{BatchedPass, RowState};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::gpu::{Replay, submit_checked};
use crate::session::cache::caches::PreparedCache;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::model::Model;
use crate::session::step::{RowChoice, Sampling};
use crate::session::throughput::Throughput;
use std::rc::Rc;

/// Tokens that have to occur again.
const NGRAM: usize = 3;
/// Rows of a check: the last token, and the tokens that are looked up to follow it.
pub(super) const ROWS: usize = 16;
/// Places in the table of what has occurred.
const PLACES: usize = 4096;
/// Tokens in a row that were foreseen before checks begin, at first and at most: each failure doubles them.
const LEAST_STREAK: usize = 12;
const MOST_STREAK: usize = 192;
/// Tokens that a check has to give to be worth its round trip.
const WORTH: usize = 4;

/// The tokens of a check: the text's last one, and those that are foreseen to follow it.
pub(in crate::session) type CheckRows = [u32; ROWS];

/// What foresees a text, and whether that is checked now. Before it is, plain decoding tells at no cost how
/// often it would have been right.
#[derive(Debug)]
pub(in crate::session) struct Lookup {
    /// For each hash of three tokens the position after their last occurrence.
    places: Vec<u32>,
    /// Tokens of the text that are in the table.
    known: usize,
    /// The place of the token that should come next.
    next: Option<usize>,
    /// Tokens in a row that were foreseen.
    streak: usize,
    /// Foreseen tokens in a row before checks begin.
    wanted: usize,
    /// Checks are worth while.
    pub checking: bool,
    /// The GPU's position and token are not those of the text's end: they are written before the next decoding.
    pub state_is_stale: bool,
    /// What checks, bound to a cache as it was.
    pass: Option<BatchedPass>,
    throughput: Throughput,
}

impl Lookup {
    pub fn new(caps: &Capabilities) -> Self {
        Self {
            places: vec![0; PLACES],
            known: 0,
            next: None,
            streak: 0,
            wanted: LEAST_STREAK,
            checking: false,
            state_is_stale: false,
            pass: None,
            throughput: Throughput::new(caps),
        }
    }

    /// Notes what the text has more than before.
    pub fn read(&mut self, text: &[u32]) {
        for end in self.known..text.len() {
            match self.next {
                Some(next) if text[next] == text[end] => {
                    (self.streak, self.next) = (self.streak + 1, Some(next + 1));
                }
                _ => (self.streak, self.next) = (0, None),
            }
            if end + 1 >= NGRAM {
                let last = &text[end + 1 - NGRAM..=end];
                let place = &mut self.places[hash(last)];
                let before = std::mem::replace(place, end as u32 + 1) as usize;
                let again = before >= NGRAM && &text[before - NGRAM..before] == last;
                if self.next.is_none() && again {
                    self.next = Some(before);
                }
            }
        }
        self.known = text.len();
        self.checking |= self.streak >= self.wanted;
    }

    /// The rows of a check, where one is worth while and has room in the cache and among the `left` tokens that
    /// are still wanted. The pass is made that takes them.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`, `device-lost`.
    pub async fn prepare(
        &mut self,
        model: &Rc<Model>,
        cache: &KeyValueCache,
        text: &[u32],
        left: usize,
    ) -> Result<Option<CheckRows>> {
        let Some(rows) = self.worthwhile(cache, text, left) else { return Ok(None) };
        if !self.pass.as_ref().is_some_and(|pass| pass.bound.belongs_to(cache)) {
            // The old cache's pass goes first: there may be no memory for both.
            self.pass = None;
            let _lock = cache.lock().await;
            self.pass = Some(BatchedPass::new(model, cache, None, ROWS).await?);
        }
        Ok(Some(rows))
    }

    /// What is foreseen, where there is room for a whole check of it.
    fn worthwhile(
        &mut self,
        cache: &KeyValueCache,
        text: &[u32],
        left: usize,
    ) -> Option<CheckRows> {
        if !self.checking {
            return None;
        }
        let len = text.len();
        let rows_left = cache.with(|allocation| {
            Ok(allocation.chunk.min(allocation.shape.capacity.saturating_sub(len)))
        });
        let rows = self.draft(text);
        if rows.is_none() || left < ROWS || rows_left.unwrap_or(0) < ROWS {
            self.pause();
            return None;
        }
        rows
    }

    /// The draws that count, of one draw per row. The first row is at position `first`.
    ///
    /// # Arguments
    /// `sampling`: that of the first row's draw.
    ///
    /// # Errors
    /// `device-lost`, `out-of-memory`, `internal` where nothing has been prepared.
    pub async fn check(
        &mut self,
        model: &Model,
        cache: &PreparedCache,
        (rows, first): (CheckRows, usize),
        sampling: Sampling,
    ) -> Result<Vec<u8>> {
        let pass = self.pass.as_ref().ok_or_else(|| Error::internal("no check is prepared"))?;
        let draws = sampling.first_draw;
        let choice = |row: usize| RowChoice {
            sampling: Sampling { first_draw: draws + row as u32, ..sampling },
            offset: draws.wrapping_sub(first as u32),
            last: u32::MAX,
            ..RowChoice::default()
        };
        let choices: [_; ROWS] = std::array::from_fn(choice);
        let states: [_; ROWS] =
            std::array::from_fn(|row| RowState { token: rows[row], position: first + row });
        let gpu = &**model.gpu();
        let queue = || {
            cache.with(|allocation| cache.intervene(model, allocation))?;
            pass.reset(&states, &[])?;
            pass.choose(&choices)?;
            let submits = self.throughput.submits(pass.work, pass.largest);
            gpu.submit(&[Replay::new(pass.plan(), ROWS)], submits, Some(pass.drawn(1)?))
        };
        self.state_is_stale = true;
        let sent = self.throughput.sent(gpu, pass.work);
        let read = submit_checked(gpu, queue)?;
        cache.writes(first + ROWS);
        let mut drawn = self.throughput.arrival(gpu, sent, read).await?;
        let words = bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(&drawn);
        let right = words.iter().zip(&rows[1..]).take_while(|(drawn, row)| drawn[0] == **row);
        let given = right.count() + 1;
        drawn.truncate(8 * given);
        self.checked(given);
        Ok(drawn)
    }

    /// The tokens of a check, the text's last one first; none where nothing is foreseen.
    fn draft(&self, text: &[u32]) -> Option<CheckRows> {
        let next = self.next?;
        let mut rows = [text[text.len() - 1]; ROWS];
        // Where the run reaches the text's end it goes on with what is foreseen.
        for i in 1..ROWS {
            let at = next + i - 1;
            rows[i] = if at < text.len() { text[at] } else { rows[at - text.len() + 1] };
        }
        Some(rows)
    }

    /// Learns from a check that gave `given` tokens.
    fn checked(&mut self, given: usize) {
        if given >= WORTH {
            self.wanted = (self.wanted / 2).max(LEAST_STREAK);
        } else {
            self.stop();
        }
    }

    /// Nothing is checked before as much has been foreseen again.
    fn pause(&mut self) {
        self.checking = false;
        self.streak = 0;
    }

    /// Nothing is checked before more has been foreseen than the last time.
    fn stop(&mut self) {
        self.pause();
        self.wanted = (2 * self.wanted).min(MOST_STREAK);
    }
}

fn hash(tokens: &[u32]) -> usize {
    let mixed = tokens.iter().fold(0u32, |sum, &t| (sum ^ t).wrapping_mul(0x9e37_79b1));
    (mixed >> 20) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Target;
    use crate::session::fake::Fake;
    use crate::session::tests::{config, model};
    use crate::session::{GenerateOptions, Generation};
    use pollster::block_on;

    fn lookup() -> Lookup {
        Lookup::new(&Capabilities::floor(Target::Native))
    }

    #[test]
    fn what_occurs_again_is_foreseen_and_goes_round() {
        let text: Vec<u32> = (0..40).map(|i| i % 5).collect();
        let mut lookup = lookup();
        lookup.read(&text);
        assert!(lookup.checking);
        let rows = lookup.draft(&text).unwrap();
        let expected: Vec<u32> = (39..39 + ROWS as u32).map(|i| i % 5).collect();
        assert_eq!(rows[..], expected);
    }

    #[test]
    fn other_texts_are_not_checked() {
        let mut lookup = lookup();
        // No run of three occurs twice.
        let text: Vec<u32> = (0..400).map(|i| i * i % 1009).collect();
        lookup.read(&text);
        assert!(!lookup.checking && lookup.draft(&text).is_none());
    }

    #[test]
    fn failures_ask_for_longer_streaks() {
        let mut lookup = lookup();
        let text: Vec<u32> = (0..40).map(|i| i % 5).collect();
        lookup.read(&text);
        lookup.checked(1);
        assert!(!lookup.checking);
        let longer = |n: u32| (0..n).map(|i| i % 5).collect::<Vec<_>>();
        lookup.read(&longer(40 + LEAST_STREAK as u32));
        assert!(!lookup.checking);
        lookup.read(&longer(41 + 2 * LEAST_STREAK as u32));
        assert!(lookup.checking);
        lookup.checked(ROWS);
        assert!(lookup.checking);
    }

    #[test]
    fn the_pass_of_checks_stays_where_another_text_has_used_the_cache() {
        // A GPU that draws token 0 again and again.
        let fake = Fake::new(false, 3e10, 0.0);
        let model = model(&fake, config(128, 2, 4096));
        let begun = |options| block_on(Generation::start(&model, &[1; 4], options)).unwrap();
        let options = GenerateOptions { max_tokens: 2000, ..GenerateOptions::default() };
        let mut text =
            begun(GenerateOptions { max_tokens: 240, prompt_lookup: true, ..options.clone() });
        let mut other = begun(options);
        let next = |text: &mut Generation| block_on(text.next()).unwrap().len();
        next(&mut other);
        let plans = || fake.plans.borrow().len();
        let before = plans();
        while plans() == before {
            assert!(next(&mut text) > 0, "no check was made");
        }
        let mut checks = 0;
        for _ in 0..4 {
            next(&mut other);
            assert_eq!(next(&mut text), 1, "the text is read again");
            checks += usize::from(next(&mut text) == ROWS);
        }
        assert_eq!(checks, 4);
        assert_eq!(plans(), before + 1);
    }
}
