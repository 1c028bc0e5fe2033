//! Flags of schedules for the verifications and the copies of their backups.

use backup_core::api::{GoDuration, backup::BackupCopy, schedule::BackupChoice};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::duration;

/// How the backups of a schedule are verified, and where they are copied to.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Verifications and copies")]
pub(crate) struct AftercareFlags {
    /// Time between two verifications, such as 24h, at least 1m; each is of one backup. 0 ends them
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) verify_every: Option<GoDuration>,
    /// Backup to verify: newest, random, or all in turn [default: newest]
    #[arg(long, value_name = "WHICH", value_parser = backup_choice(), hide_possible_values = true)]
    pub(crate) verify_which: Option<BackupChoice>,
    /// Locations to copy each backup to, with the time that the copy is kept, such as offsite=90d
    /// [default: as long as the backup]
    #[arg(long, value_delimiter = ',', value_name = "LOCATION[=TTL]", value_parser = copy)]
    pub(crate) copy_to: Vec<BackupCopy>,
}

/// Which backup of a schedule has the next turn, as a flag.
pub(super) fn backup_choice() -> impl TypedValueParser<Value = BackupChoice> {
    let known = PossibleValuesParser::new(BackupChoice::KNOWN.iter().copied());
    known.map(|word| BackupChoice::from(word.as_str()))
}

/// A copy as a flag: `LOCATION` or `LOCATION=TTL`.
fn copy(text: &str) -> Result<BackupCopy, String> {
    let (location, ttl) = match text.split_once('=') {
        Some((location, ttl)) => (location, Some(duration(ttl)?)),
        None => (text, None),
    };
    if location.is_empty() {
        return Err("expected LOCATION or LOCATION=TTL".to_owned());
    }
    Ok(BackupCopy {
        location: location.to_owned(),
        ttl,
        ..BackupCopy::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_a_location_with_or_without_a_time() {
        for (text, expected) in [
            ("offsite", Some(("offsite", None))),
            ("offsite=90d", Some(("offsite", Some("2160h0m0s")))),
            ("offsite=soon", None),
            ("=90d", None),
            ("", None),
        ] {
            let read = copy(text).ok();
            let read = read.map(|copy| (copy.location, copy.ttl.map(|ttl| ttl.to_string())));
            let expected = expected.map(|(location, ttl): (&str, Option<&str>)| {
                (location.to_owned(), ttl.map(str::to_owned))
            });
            assert_eq!(read, expected, "{text}");
        }
    }
}
