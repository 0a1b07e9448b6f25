//! Prompt lookup: what follows where the last tokens of a text occurred before (Saxena, "Prompt lookup decoding",
//! 2023), and when it pays to check it.

use super::pace::Pace;
use super::several::SeveralPass;
use crate::caps::Capabilities;

/// Tokens that have to occur again.
const NGRAM: usize = 3;
/// Rows of a check: the last token, and as many behind it as are looked up.
pub(super) const ROWS: usize = 16;
/// Places in the table of what has occurred.
const PLACES: usize = 4096;
/// Tokens in a row that were foreseen before checks begin, at first and at most: each failure doubles them.
const LEAST_STREAK: usize = 12;
const MOST_STREAK: usize = 192;
/// Tokens that a check has to give to be worth its round trip.
const WORTH: usize = 4;

/// What foresees a text, and whether that is checked now. Before it is, plain decoding tells at no cost how
/// often it would have been right.
#[derive(Debug)]
pub(super) struct Lookup {
    /// For each hash of three tokens the position behind their last occurrence.
    places: Vec<u32>,
    /// Tokens of the text that are in the table.
    known: usize,
    /// The place of the token that should come next.
    next: Option<usize>,
    /// Tokens in a row that were foreseen.
    streak: usize,
    /// Such tokens before checks begin.
    wanted: usize,
    /// Checks are worth while.
    pub checking: bool,
    /// The GPU's position and token are not those of the text's end: they are written before the next decoding.
    pub astray: bool,
    pub pass: Option<SeveralPass>,
    pub pace: Pace,
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
            astray: false,
            pass: None,
            pace: Pace::new(caps),
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

    /// The tokens of a check, the text's last one first; none where nothing is foreseen.
    pub fn draft(&self, text: &[u32]) -> Option<[u32; ROWS]> {
        let next = self.next?;
        let mut rows = [text[text.len() - 1]; ROWS];
        // Where the run reaches the text's end it goes on with what is foreseen.
        for i in 1..ROWS {
            let at = next + i - 1;
            rows[i] = if at < text.len() { text[at] } else { rows[at - text.len() + 1] };
        }
        Some(rows)
    }

    /// Learns from a check that gave so many tokens.
    pub fn checked(&mut self, given: usize) {
        if given >= WORTH {
            self.wanted = (self.wanted / 2).max(LEAST_STREAK);
        } else {
            self.stop();
        }
    }

    /// Nothing is checked before as much has been foreseen again.
    pub fn pause(&mut self) {
        self.checking = false;
        self.streak = 0;
    }

    /// Nothing is checked before more has been foreseen than the last time.
    pub fn stop(&mut self) {
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
}
