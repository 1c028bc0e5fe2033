//! Values of the flags by which the controller limits the pods of the data mover. The controller
//! checks them when it starts, and `kubectl backup install` before it applies anything: a pod with
//! an unusable limit would fail. Pure.

use std::num::NonZeroU64;

use crate::{api::GoDuration, quantity};

/// Minimum memory of a pod (bytes): twice what deriving a key from the password of a repository
/// takes.
const MIN_MEMORY_BYTES: u128 = 256 << 20;
/// Minimum rate (bytes per second): at a lower one the requests of a pod reach their timeouts.
const MIN_RATE_BYTES: u64 = 64 << 10;
/// Maximum number of transfers at the same time.
pub const MAX_CONCURRENCY: u16 = 1000;

/// A rate in bytes per second, such as `20Mi`. Errors: what it has to be.
pub fn rate(text: &str) -> Result<NonZeroU64, String> {
    let rate = quantity::bytes(text)
        .and_then(|bytes| u64::try_from(bytes).ok())
        .filter(|bytes| *bytes >= MIN_RATE_BYTES);
    rate.and_then(NonZeroU64::new).ok_or_else(|| {
        "it has to be a number of bytes per second such as 20Mi, at least 64Ki".to_owned()
    })
}

/// The memory limit of a pod, in the notation of Kubernetes. Errors: what it has to be.
pub fn memory(text: &str) -> Result<String, String> {
    match quantity::bytes(text) {
        Some(bytes) if bytes >= MIN_MEMORY_BYTES && u64::try_from(bytes).is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("it has to be a size such as 512Mi, at least 256Mi".to_owned()),
    }
}

fn timeout(text: &str) -> Result<(), String> {
    match text.parse::<GoDuration>() {
        Ok(time) if time > GoDuration::default() => Ok(()),
        _ => Err("it has to be a duration such as 30m, more than 0".to_owned()),
    }
}

fn concurrency(text: &str) -> Result<(), String> {
    match text.parse::<u16>() {
        Ok(1..=MAX_CONCURRENCY) => Ok(()),
        _ => Err(format!("it has to be a number from 1 to {MAX_CONCURRENCY}")),
    }
}

/// Checks these flags among the arguments of a controller. Errors: the flag with its value, and what
/// it has to be.
pub fn check(args: &[String]) -> Result<(), String> {
    for (at, arg) in args.iter().enumerate() {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (arg.as_str(), args.get(at + 1).map(String::as_str)),
        };
        let value = value.unwrap_or_default();
        let checked = match flag {
            "--mover-upload-limit" | "--mover-download-limit" => rate(value).map(drop),
            "--mover-memory-limit" => memory(value).map(drop),
            "--data-mover-prepare-timeout" => timeout(value),
            "--data-mover-concurrency" => concurrency(value),
            _ => Ok(()),
        };
        checked.map_err(|rule| format!("{flag} is {value:?}: {rule}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual(&["--mover-upload-limit=20Mi", "--mover-download-limit=64Ki", "--mover-memory-limit=1Gi"], None)]
    #[case::others(&["--data-mover-concurrency=1", "--data-mover-prepare-timeout=30m", "--plugin-timeout=x"], None)]
    #[case::with_a_space(&["--mover-upload-limit", "20Mi"], None)]
    #[case::without_a_unit(&["--mover-upload-limit=20"], Some("--mover-upload-limit is \"20\": it has to be"))]
    #[case::of_another_notation(&["--mover-download-limit=20MB/s"], Some("--mover-download-limit"))]
    #[case::zero(&["--mover-download-limit=0"], Some("at least 64Ki"))]
    #[case::nothing(&["--mover-upload-limit"], Some("--mover-upload-limit is \"\""))]
    #[case::bad_after_a_space(&["--mover-upload-limit", "fast"], Some("\"fast\""))]
    #[case::too_little_memory(&["--mover-memory-limit=100Mi"], Some("at least 256Mi"))]
    #[case::too_much_memory(&["--mover-memory-limit=1e25"], Some("--mover-memory-limit"))]
    #[case::no_time(&["--data-mover-prepare-timeout=0s"], Some("more than 0"))]
    #[case::none_at_a_time(&["--data-mover-concurrency=0"], Some("from 1 to 1000"))]
    fn a_flag_with_an_unusable_value_is_named_with_what_it_has_to_be(
        #[case] args: &[&str],
        #[case] expected: Option<&str>,
    ) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        match (check(&args), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => assert!(error.contains(part), "{error}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}
