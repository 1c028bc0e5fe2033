//! What users of velero and kubectl type out of habit, and what it is called here.

use std::ffi::OsString;

/// Flags of all commands, or of all that list, that take their value as the next word.
const WITH_VALUE: [&str; 11] = [
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--cluster",
    "--user",
    "--as",
    "-s",
    "--server",
    "-o",
    "--output",
];
/// Kinds that are commands of ours.
const OWN: [&str; 9] = [
    "restore",
    "restores",
    "schedule",
    "schedules",
    "location",
    "locations",
    "repo",
    "repository",
    "repositories",
];
/// Words that kubectl, and velero as well, have before the kind.
const VERBS: [&str; 7] = [
    "get", "list", "describe", "create", "delete", "logs", "cancel",
];

/// The command that was most likely meant, if other words than ours were typed. `args` begin with
/// the name of the program.
pub(crate) fn meant(args: &[OsString]) -> Option<String> {
    let words = words(args);
    let ours = translated(&words)?;
    let typed: Vec<&str> = words.iter().map(String::as_str).collect();
    (ours != typed && exists(&ours)).then(|| format!("kubectl backup {}", ours.join(" ")))
}

/// The arguments that are no flags.
fn words(args: &[OsString]) -> Vec<String> {
    let mut args = args
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    let mut words = Vec::new();
    while let Some(word) = args.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            args.next();
        } else if !word.starts_with('-') {
            words.push(word);
        }
    }
    words
}

fn translated(words: &[String]) -> Option<Vec<&str>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (noun, verb, rest) = match words.as_slice() {
        [verb, noun, rest @ ..] if VERBS.contains(verb) && group(noun).is_some() => {
            (*noun, Some(*verb), rest)
        }
        [noun, verb, rest @ ..] if group(noun).is_some() => (*noun, Some(*verb), rest),
        // Ours list by themselves.
        [noun] if group(noun).is_some() && !OWN.contains(noun) => (*noun, None, &[][..]),
        ["list", rest @ ..] => ("backup", Some("get"), rest),
        _ => return None,
    };
    let verb = match verb {
        None | Some("list" | "ls") => "get",
        Some("show" | "inspect") => "describe",
        Some("rm" | "remove") => "delete",
        Some("edit" | "update" | "patch" | "modify") => "set",
        Some(verb) => verb,
    };
    let group = group(noun)?;
    // Locations of snapshots are listed without a verb.
    let verb = Some(verb).filter(|verb| group != SNAPSHOT_LOCATIONS || *verb != "get");
    Some(
        group
            .iter()
            .copied()
            .chain(verb)
            .chain(rest.iter().copied())
            .collect(),
    )
}

const SNAPSHOT_LOCATIONS: &[&str] = &["locations", "snapshots"];

/// Our words for a kind, by what velero or the API calls it.
fn group(noun: &str) -> Option<&'static [&'static str]> {
    let noun = noun.trim_end_matches(".velero.io");
    Some(match noun {
        "backup" | "backups" => &[],
        "restore" | "restores" => &["restore"],
        "schedule" | "schedules" => &["schedules"],
        "backup-location"
        | "backup-locations"
        | "backupstoragelocation"
        | "backupstoragelocations"
        | "bsl"
        | "location"
        | "locations" => &["locations"],
        "repo" | "repository" | "repositories" | "backuprepository" | "backuprepositories" => {
            &["repositories"]
        }
        "snapshot-location"
        | "snapshot-locations"
        | "volumesnapshotlocation"
        | "volumesnapshotlocations"
        | "vsl" => SNAPSHOT_LOCATIONS,
        _ => return None,
    })
}

/// Whether the first words are a command of ours.
fn exists(words: &[&str]) -> bool {
    let mut command = super::command();
    command.build();
    let mut at = &command;
    for (depth, word) in words.iter().enumerate() {
        match at.find_subcommand(word) {
            Some(next) => at = next,
            // Names follow.
            None => {
                return depth > 0
                    && (!at.has_subcommands() || at.get_positionals().next().is_some());
            }
        }
    }
    !words.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(line: &str) -> Option<String> {
        let args: Vec<OsString> = std::iter::once("kubectl-backup")
            .chain(line.split(' '))
            .map(Into::into)
            .collect();
        meant(&args)
    }

    #[test]
    fn words_of_velero_and_kubectl_have_a_hint() {
        for (typed, ours) in [
            ("backup get", "get"),
            ("backup", "get"),
            ("backup create nightly --ttl=1h", "create nightly"),
            (
                "-n velero backup describe nightly --details",
                "describe nightly",
            ),
            ("backup-location get", "locations get"),
            ("backup-location", "locations get"),
            ("get backup-locations", "locations get"),
            ("get bsl", "locations get"),
            ("snapshot-location get", "locations snapshots"),
            (
                "snapshot-location create ebs",
                "locations snapshots create ebs",
            ),
            ("get repositories", "repositories get"),
            ("backuprepositories", "repositories get"),
            ("list", "get"),
            ("list backups", "get"),
            ("get backups", "get"),
            ("get backups nightly", "get nightly"),
            ("get restores", "restore get"),
            ("describe restore r1", "restore describe r1"),
            ("restore list", "restore get"),
            ("schedule list", "schedules get"),
            ("schedules edit nightly", "schedules set nightly"),
            ("create schedule nightly", "schedules create nightly"),
            ("delete backup nightly", "delete nightly"),
            ("delete backups.velero.io nightly", "delete nightly"),
            ("create restore r1", "restore create r1"),
        ] {
            assert_eq!(
                hint(typed),
                Some(format!("kubectl backup {ours}")),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_is_ours_or_no_habit_has_none() {
        for typed in [
            "get",
            "describe nightly",
            "restore get",
            "restore --from-backup=nightly",
            "restores",
            "schedules",
            "restore nightly",
            "restores -o name",
            "restore create r1",
            "locations snapshots",
            "nonsense",
            "backup nonsense",
            "plugin get",
        ] {
            assert_eq!(hint(typed), None, "{typed}");
        }
    }
}
