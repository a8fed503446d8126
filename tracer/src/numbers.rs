//! Numbers in words, for all that people read: rounded to what is known, always with a unit.

use crate::units::Nanos;

/// What stands for a number that does not exist (infinite, not a number).
const NO_NUMBER: &str = "–";

/// A share as percent: `61 %`, `<1 %`, `>99 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", hundredths(share))
}

/// A share in percentage points, without a unit: `52`, `<1`.
pub fn hundredths(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        NO_NUMBER.to_owned()
    } else if value.abs() >= 1e6 {
        format!("{value:.1e}")
    } else if value > 0.0 && value < 0.5 {
        "<1".to_owned()
    } else if (99.5..100.0).contains(&value) {
        ">99".to_owned()
    } else {
        // Adding zero turns -0 into 0.
        format!("{:.0}", value.round() + 0.0)
    }
}

/// Seconds with the unit that gives a short number: `60 s`, `9.6 ms`, `1,234 s`.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return NO_NUMBER.to_owned();
    }
    if s < 0.0 {
        return format!("-{}", seconds(-s));
    }
    if s == 0.0 {
        return "0 s".to_owned();
    }
    if s >= 1e9 {
        return format!("{s:.1e} s");
    }
    if s >= 99.5 {
        return format!("{} s", count(s.round() as u64));
    }
    if s < 1e-9 {
        return "<1 ns".to_owned();
    }
    let text = Nanos::from_secs_f64(s).to_string();
    // `60.0 s` claims more than `60 s` only where nothing was rounded away.
    text.strip_suffix(".0 s").map_or(text.clone(), |whole| format!("{whole} s"))
}

/// Milliseconds, as [`seconds`].
pub fn millis(ms: f64) -> String {
    seconds(ms / 1e3)
}

/// Nanoseconds, as [`seconds`].
pub fn nanos(ns: u64) -> String {
    if ns == 0 { "0 s".to_owned() } else { seconds(Nanos(ns).secs()) }
}

/// A whole number with its thousands apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate: `104`, `9.6`, `0.2`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if !r.is_finite() => NO_NUMBER.to_owned(),
        r if r.abs() >= 1e9 => format!("{r:.1e}"),
        r if r >= 10.0 => count(r.round() as u64),
        r => format!("{r:.1}"),
    }
}

/// A size: `512 B`, `4.0 KiB`, `120 MiB`.
pub fn bytes(n: f64) -> String {
    if !n.is_finite() {
        return NO_NUMBER.to_owned();
    }
    let mut value = n;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value.abs() >= 1e5 {
        format!("{value:.1e} {unit}")
    } else if unit == "B" || value.abs() >= 10.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// `1 gap`, `2 gaps`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_claim_what_is_not_known() {
        let cases = [
            (0.614, "61 %"),
            (0.0, "0 %"),
            (-0.0, "0 %"),
            (0.001, "<1 %"),
            (0.998, ">99 %"),
            (1.0, "100 %"),
            (f64::NAN, "– %"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn times_carry_their_unit() {
        let cases = [
            (60.0, "60 s"),
            (12.34, "12.3 s"),
            (0.0096, "9.6 ms"),
            (71e-6, "71 µs"),
            (1_234.4, "1,234 s"),
            (0.0, "0 s"),
            (-0.5, "-500 ms"),
            (1e300, "1.0e300 s"),
            (1e-300, "<1 ns"),
            (f64::INFINITY, "–"),
        ];
        for (s, text) in cases {
            assert_eq!(seconds(s), text);
        }
        assert_eq!(nanos(u64::MAX), "1.8e10 s");
    }

    #[test]
    fn counts_and_sizes_read_easily() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(4096.0), "4.0 KiB");
        assert_eq!(bytes(125_829_120.0), "120 MiB");
        assert_eq!(rate(103.9), "104");
        assert_eq!(rate(0.25), "0.2");
    }
}
