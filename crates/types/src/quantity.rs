//! Sizes, shares and durations as people write them: `512M`, `1.5`, `30s`.

use std::time::Duration;

/// Parses `4096`, `64k`, `512M`, `2GiB`: binary multiples, an optional `B`/`iB` ignored.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let complain = || format!("\"{text}\" is not a size; write it like 512M or 2G");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(complain()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(complain);
    }
    let fraction: f64 = number.parse().map_err(|_| complain())?;
    let bytes = fraction * (1u64 << shift) as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes > u64::MAX as f64 {
        Err(complain())
    } else {
        Ok(bytes as u64)
    }
}

/// Parses a number of CPUs (`2`, `0.5`) into thousandths.
pub fn parse_cpus(text: &str) -> Result<u64, String> {
    let cpus: f64 = text
        .trim()
        .parse()
        .map_err(|_| format!("\"{text}\" is not a number of CPUs; write it like 2 or 0.5"))?;
    if !(0.01..=4096.0).contains(&cpus) {
        return Err(format!("{text} CPUs is outside 0.01 to 4096; write it like 2 or 0.5"));
    }
    Ok((cpus * 1000.0).round() as u64)
}

/// Parses `500ms`, `30s`, `5m`, `2h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let complain = || format!("\"{text}\" is not a duration; write it like 500ms, 30s or 5m");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let number: f64 = number.parse().map_err(|_| complain())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return Err(complain()),
    };
    if seconds <= 0.0 {
        return Err(format!(
            "a duration of \"{text}\" leaves no time at all; write it like 500ms, 30s or 5m"
        ));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| complain())
}

/// The shortest honest way to write a size: `64 MiB`, `1.5 GiB`, `700 B`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() < 0.05 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65536),
            ("512M", 512 << 20),
            ("2GiB", 2 << 30),
            ("1.5g", 3 << 29),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "12X", "-1", "1e999g", "99999999999T", "1 2"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_and_cpus() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["0", "soon", "-1s", "1y", "1e300h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_cpus("0.5"), Ok(500));
        assert!(parse_cpus("0").is_err() && parse_cpus("NaN").is_err() && parse_cpus("many").is_err());
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(format_bytes(700), "700 B");
        assert_eq!(format_bytes(64 << 20), "64 MiB");
        assert_eq!(format_bytes(3 << 29), "1.5 GiB");
    }
}
