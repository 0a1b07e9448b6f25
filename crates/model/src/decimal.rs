//! Numbers in words. `Display` and `Debug` of floats take the module some 6 KB for each of f32 and f64; JSON's
//! writer is part of it in any case.

use std::fmt;

/// An f32 in the fewest digits that read back as it: in JavaScript, in WGSL and in JSON.
#[derive(Clone, Copy, Debug)]
pub struct Decimal(pub f32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = *self;
        if !value.is_finite() {
            return f64::from(value).fmt(f);
        }
        let text = serde_json::to_string(&value).map_err(|_| fmt::Error)?;
        // Without a point, -0 is a whole number, which has no sign.
        f.write_str(text.strip_suffix(".0").filter(|whole| *whole != "-0").unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_the_fewest_that_read_back() {
        for (value, text) in [
            (0.1, "0.1"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (0.0, "0"),
        ] {
            assert_eq!(Decimal(value).to_string(), text);
        }
        for value in [f32::MIN_POSITIVE, f32::MAX, 1.0 / 3.0, 1e-45, 16_777_217.0] {
            assert_eq!(Decimal(value).to_string().parse(), Ok(value));
        }
        assert_eq!(Decimal(-0.0).to_string(), "-0.0");
        assert_eq!(Decimal(f32::NEG_INFINITY).to_string(), "-inf");
        assert_eq!(Decimal(f32::NAN).to_string(), "NaN");
    }
}
