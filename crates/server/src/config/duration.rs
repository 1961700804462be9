//! Durations: a whole number and a unit.

use std::time::Duration;

/// Reads `500ms`, `30s`, `5m`, `12h`, `7d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let wrong = || "a duration is a whole number and a unit: 500ms, 30s, 5m, 12h, 7d".to_owned();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    // A hundred years are for ever; more would not fit into a point in time.
    let whole = number.checked_mul(seconds).filter(|whole| *whole <= 100 * 365 * 86_400);
    whole
        .map(Duration::from_secs)
        .ok_or_else(|| "this is longer than a hundred years; leave the key out for ever".to_owned())
}

/// A duration for people, in the form it is written in.
pub(crate) fn in_words(duration: Duration) -> String {
    if duration.subsec_millis() > 0 {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{}s", duration.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("12h", 43_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "7", "d", "1.5h", "-1s", "7 d", "7D", "1h30m", "99999999999999999999s", "99999999d"]
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
