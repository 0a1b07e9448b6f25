//! The words of refusals: numbers and lists as JavaScript prints them.

use crate::error::{Error, Result};
use std::fmt;

/// A number as JavaScript prints it.
pub(super) struct Shown(pub f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = *self;
        match value.abs() {
            0.0 => f.write_str("0"),
            size if size.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
            1e-6..1e21 => write!(f, "{value}"),
            _ => match serde_json::to_string(&value) {
                Ok(text) => f.write_str(&text),
                Err(_) => Err(fmt::Error),
            },
        }
    }
}

/// Sizes as a template string shows them: `[2,4,6]`.
pub(super) struct Sizes<'a>(pub &'a [usize]);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", sizes.join(","))
    }
}

/// A whole number within bounds.
pub(super) fn whole(value: f64, [low, high]: [f64; 2]) -> Option<i64> {
    (value.fract() == 0.0 && (low..=high).contains(&value)).then_some(value as i64)
}

/// What [`whole`] allows, in words.
pub(super) fn allowed([low, high]: [f64; 2]) -> String {
    format!("a whole number of at least {} and at most {}", Shown(low), Shown(high))
}

/// `count` whole numbers, each within the bounds for its index.
pub(super) fn whole_numbers(
    what: &str,
    given: &[f64],
    (count, of): (usize, &str),
    within: impl Fn(usize) -> [f64; 2],
) -> Result<Vec<i64>> {
    if given.len() != count {
        let have = given.len();
        return Err(Error::options(format!(
            "{what} has {have} numbers; give {count}, the number of {of}"
        )));
    }
    let judged = given.iter().enumerate().map(|(index, &value)| {
        let bounds = within(index);
        whole(value, bounds).ok_or_else(|| {
            let (shown, allowed) = (Shown(value), allowed(bounds));
            Error::options(format!("{what}[{index}] is {shown}; give {allowed}"))
        })
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_javascript_does() {
        for (value, text) in [
            (-0.0, "0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (1e7, "10000000"),
            (0.5, "0.5"),
            (1e-6, "0.000001"),
            (-2.5e-7, "-2.5e-7"),
            (1e21, "1e+21"),
            (-3.402_823_466_385_288_6e38, "-3.4028234663852886e+38"),
        ] {
            assert_eq!(Shown(value).to_string(), text);
        }
    }
}
