//! Lengths of time on the command line.

use std::time::Duration;

/// `60s`, `1m30s`, `500ms`, or a plain number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let hint = || format!("'{text}' is no length of time; write it like 60s, 2m or 1h30m");
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| hint());
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| hint())?;
    Duration::try_from(span).map_err(|_| hint())
}

/// The same, but not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing; write it like 60s, 2m or 1h30m".into()),
        d => Ok(d),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("60"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "soon", "-5s", "-1", "nan", "inf", "1e400"] {
            assert!(duration(text).is_err_and(|e| e.contains("60s")), "{text}");
        }
        assert!(positive_duration("0s").is_err());
    }
}
