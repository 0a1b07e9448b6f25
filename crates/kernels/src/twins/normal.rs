//! Normal numbers for tests: data, and weights whose scale a test chooses.

use crate::random::{philox, split};

/// Fills `out` with elements `offset..` of the normal stream `(seed, stream)`: mean 0, standard
/// deviation `std`. Element i comes from word i mod 4 of block i / 4, so a tensor may be filled in
/// pieces of any size.
pub fn fill_normal(seed: u64, stream: u64, offset: u64, std: f32, out: &mut [f32]) {
    let [stream_low, stream_high] = split(stream);
    let mut words = [0; 4];
    for (i, x) in out.iter_mut().enumerate() {
        let index = offset + i as u64;
        if i == 0 || index.is_multiple_of(4) {
            let [low, high] = split(index / 4);
            words = philox([low, high, stream_low, stream_high], split(seed));
        }
        // The middle of the word's interval keeps the probability inside (0, 1) and symmetric.
        let probability = (f64::from(words[(index % 4) as usize]) + 0.5) / 4_294_967_296.0;
        *x = (f64::from(std) * inverse_normal_cdf(probability)) as f32;
    }
}

/// Ratio of two degree-7 polynomials, coefficients from the constant term up.
fn ratio(numerator: &[f64; 8], denominator: &[f64; 8], r: f64) -> f64 {
    let horner = |c: &[f64; 8]| c.iter().rev().fold(0.0, |sum, &x| sum * r + x);
    horner(numerator) / horner(denominator)
}

/// Quantile of the standard normal for 0 < p < 1 to about 1e-16 relative: PPND16 of Wichura,
/// "Algorithm AS 241: The percentage points of the normal distribution", Applied Statistics 37
/// (1988). `libm` and plain arithmetic give the same bits natively and in WebAssembly.
pub fn inverse_normal_cdf(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(&CENTRE.0, &CENTRE.1, 0.180625 - q * q);
    }
    let r = libm::sqrt(-libm::log(if q < 0.0 { p } else { 1.0 - p }));
    let tail = if r <= 5.0 {
        ratio(&MIDDLE.0, &MIDDLE.1, r - 1.6)
    } else {
        ratio(&TAIL.0, &TAIL.1, r - 5.0)
    };
    tail.copysign(q)
}

type Coefficients = ([f64; 8], [f64; 8]);

const CENTRE: Coefficients = (
    [
        3.387_132_872_796_366_5,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_3e3,
        1.373_169_376_550_946e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
);
const MIDDLE: Coefficients = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_4e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);
const TAIL: Coefficients = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_7e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_known_values() {
        // Reference values to the digits of the AS 241 paper and of standard tables.
        for (p, z) in [
            (0.5, 0.0),
            (0.25, -0.674_489_750_196_081_7),
            (0.975, 1.959_963_984_540_054),
            (0.001, -3.090_232_306_167_813_5),
            (1e-20, -9.262_340_089_798_408),
        ] {
            let got = inverse_normal_cdf(p);
            assert!((got - z).abs() <= 1e-14 * (1.0 + z.abs()), "{p}: {got} against {z}");
        }
        // Against erfc over the whole range that 32 random bits reach.
        for i in 1..400 {
            let p = libm::exp(-23.0 * f64::from(i) / 400.0);
            let back = 0.5 * libm::erfc(-inverse_normal_cdf(p) / std::f64::consts::SQRT_2);
            assert!((back / p - 1.0).abs() < 1e-13, "{p}: {back}");
        }
    }

    #[test]
    fn normals_have_the_moments_of_a_normal() {
        let mut x = vec![0.0; 200_000];
        fill_normal(42, 3, 0, 0.5, &mut x);
        let moment =
            |k: i32| x.iter().map(|&v| f64::from(v * 2.0).powi(k)).sum::<f64>() / x.len() as f64;
        for (k, expected, tolerance) in
            [(1, 0.0, 0.01), (2, 1.0, 0.015), (3, 0.0, 0.04), (4, 3.0, 0.1)]
        {
            assert!((moment(k) - expected).abs() < tolerance, "moment {k}: {}", moment(k));
        }
    }

    #[test]
    fn a_stream_may_be_filled_in_pieces() {
        let mut whole = vec![0.0; 103];
        fill_normal(7, 1, 5, 1.0, &mut whole);
        let mut pieces = vec![0.0; 103];
        let mut start = 0;
        for length in [1, 2, 5, 40, 55] {
            fill_normal(7, 1, 5 + start as u64, 1.0, &mut pieces[start..start + length]);
            start += length;
        }
        assert_eq!(whole, pieces);
        let mut other = vec![0.0; 103];
        fill_normal(7, 2, 5, 1.0, &mut other);
        assert_ne!(whole, other);
        fill_normal(7 | 1 << 40, 1, 5, 1.0, &mut other);
        assert_ne!(whole, other);
    }
}
