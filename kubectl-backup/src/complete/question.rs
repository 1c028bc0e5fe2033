//! Finds what the words so far ask for. Pure: reads only the definition of the commands.

use clap::{Arg, ArgAction, Command};

/// A kind of names in the cluster, or in the kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noun {
    Backup,
    Restore,
    Schedule,
    Location,
    SnapshotLocation,
    Repository,
    Namespace,
    /// A type of objects, of either scope.
    Type,
    ClusterType,
    NamespacedType,
    /// The first part of an item's path: a namespace, or a cluster-scoped type.
    PathStart,
    Context,
    Cluster,
    User,
}

/// The possible completions of the last word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    /// Candidates that need no request, and their descriptions.
    pub(crate) fixed: Vec<(String, String)>,
    pub(crate) noun: Option<Noun>,
    /// The text after each name of the noun.
    pub(crate) ending: &'static str,
    pub(crate) files: bool,
    /// The part of the word that candidates continue.
    pub(crate) typed: String,
    /// The part before `typed`, which is kept.
    pub(crate) prefix: String,
    pub(crate) taken: Vec<String>,
}

pub(crate) fn ask(root: &Command, words: &[String]) -> Question {
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let mut command = root;
    let mut positionals = 0;
    let mut taken = Vec::new();
    let mut path = Vec::new();
    // An option whose value is expected.
    let mut open: Option<&Arg> = None;
    let mut only_names = false;
    for word in before {
        if open.take().is_some_and(|arg| is_value(arg, word)) {
            continue;
        }
        if word == "--" {
            only_names = true;
        } else if !only_names && word.starts_with('-') && word.len() > 1 {
            open = option(command, word).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(next) = command
            .find_subcommand(word)
            .filter(|_| !only_names && positionals == 0)
        {
            command = next;
            positionals = 0;
            taken = Vec::new();
            path.push(next.get_name());
        } else {
            positionals += 1;
            taken.push(word.clone());
        }
    }
    if let Some(arg) = open.filter(|arg| is_value(arg, last)) {
        return value(arg, &path, last, String::new());
    }
    if !only_names && last.starts_with('-') {
        return match last.split_once('=') {
            Some((name, typed)) => option(command, name).map_or_else(Question::default, |arg| {
                value(arg, &path, typed, format!("{name}="))
            }),
            None => Question {
                fixed: options(command),
                typed: last.to_owned(),
                ..Question::default()
            },
        };
    }
    let mut question = match positional(command, positionals) {
        Some(arg) => value(arg, &path, last, String::new()),
        None => Question {
            typed: last.to_owned(),
            ..Question::default()
        },
    };
    if positionals == 0 && !only_names {
        let commands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        question
            .fixed
            .extend(commands.map(|sub| (sub.get_name().to_owned(), about(sub.get_about()))));
    }
    question.taken = taken;
    question
}

fn positional(command: &Command, at: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().collect();
    let repeated = all
        .last()
        .filter(|arg| matches!(arg.get_action(), ArgAction::Append));
    all.get(at).or(repeated).copied()
}

fn option<'command>(command: &'command Command, word: &str) -> Option<&'command Arg> {
    let name = word.split('=').next().unwrap_or(word);
    command
        .get_arguments()
        .find(|arg| match name.strip_prefix("--") {
            Some(long) => {
                arg.get_long() == Some(long)
                    || arg.get_all_aliases().is_some_and(|all| all.contains(&long))
            }
            None => name.len() == 2 && arg.get_short() == name.chars().nth(1),
        })
}

fn takes_value(arg: &Arg) -> bool {
    // Most options with an optional value take it only after =.
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}

/// Whether the word after an option is its value: an optional value begins with no hyphen.
fn is_value(arg: &Arg, word: &str) -> bool {
    let is_optional = arg
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    !(is_optional && word.starts_with('-'))
}

fn options(command: &Command) -> Vec<(String, String)> {
    let long = command.get_arguments().filter_map(|arg| {
        let sign = if takes_value(arg) { "=" } else { "" };
        Some((
            format!("--{}{sign}", arg.get_long()?),
            about(arg.get_help()),
        ))
    });
    long.collect()
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// A value of this argument. If the argument takes a list with commas, the last value.
fn value(arg: &Arg, path: &[&str], word: &str, before: String) -> Question {
    let mut question = Question {
        typed: word.to_owned(),
        prefix: before,
        ..Question::default()
    };
    if arg.get_value_delimiter() == Some(',')
        && let Some((earlier, typed)) = word.rsplit_once(',')
    {
        question.taken = earlier.split(',').map(str::to_owned).collect();
        question.prefix = format!("{}{earlier},", question.prefix);
        typed.clone_into(&mut question.typed);
    }
    let possible = arg.get_possible_values();
    question.fixed = possible
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| (value.get_name().to_owned(), about(value.get_help())))
        .collect();
    let id = arg.get_id().as_str();
    question.noun = noun(id, path);
    if let Some(noun) = path_noun(id, word) {
        question.noun = Some(noun);
        if let Some((namespace, typed)) = word.split_once('/') {
            question.prefix = format!("{}{namespace}/", question.prefix);
            typed.clone_into(&mut question.typed);
        }
        // The item's name follows.
        question.ending = if id == "place" { "" } else { "/" };
    }
    question.files = matches!(
        arg.get_value_hint(),
        clap::ValueHint::FilePath | clap::ValueHint::AnyPath
    );
    question
}

/// The noun of the last part of a path: `NAMESPACE[/TYPE]` (`place`) or `[NAMESPACE/]TYPE/NAME`.
fn path_noun(id: &str, word: &str) -> Option<Noun> {
    match (id, word.matches('/').count()) {
        ("place", 0) => Some(Noun::Namespace),
        ("item" | "objects", 0) => Some(Noun::PathStart),
        ("place" | "item" | "objects", 1) => Some(Noun::NamespacedType),
        _ => None,
    }
}

/// The noun whose names an argument takes.
fn noun(id: &str, path: &[&str]) -> Option<Noun> {
    Some(match id {
        "from_backup" => Noun::Backup,
        "backup" if path == ["debug"] => Noun::Backup,
        "restore" if path == ["debug"] => Noun::Restore,
        "from_schedule" => Noun::Schedule,
        "schedule" if path == ["drill"] => Noun::Schedule,
        "storage_location" | "location" | "to" | "copy_to" => Noun::Location,
        "volume_snapshot_locations" => Noun::SnapshotLocation,
        "namespace"
        | "namespaces"
        | "include_namespaces"
        | "exclude_namespaces"
        | "drill_include_namespaces"
        | "containing" => Noun::Namespace,
        "include_resources"
        | "exclude_resources"
        | "status_include_resources"
        | "status_exclude_resources" => Noun::Type,
        "include_cluster_scoped_resources" | "exclude_cluster_scoped_resources" => {
            Noun::ClusterType
        }
        "include_namespace_scoped_resources"
        | "exclude_namespace_scoped_resources"
        | "additional_resources" => Noun::NamespacedType,
        "context" => Noun::Context,
        "cluster" => Noun::Cluster,
        "user" => Noun::User,
        "name" | "names" => match path {
            // A new object has no name yet.
            [.., "create"] | ["locks", ..] => return None,
            ["restore" | "restores", ..] => Noun::Restore,
            ["schedules", ..] => Noun::Schedule,
            ["locations", "snapshots", ..] => Noun::SnapshotLocation,
            ["locations", ..] => Noun::Location,
            ["repositories", ..] => Noun::Repository,
            _ => Noun::Backup,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Question {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        ask(&crate::complete::built(), &words)
    }

    #[test]
    fn names_of_the_right_kind_are_asked_for() {
        for (line, noun, typed, prefix) in [
            ("describe ", Some(Noun::Backup), "", ""),
            ("describe nig", Some(Noun::Backup), "nig", ""),
            ("delete a ", Some(Noun::Backup), "", ""),
            ("describe a ", None, "", ""),
            ("volumes ni", Some(Noun::Backup), "ni", ""),
            ("copy ni", Some(Noun::Backup), "ni", ""),
            ("copy a --to=se", Some(Noun::Location), "se", "--to="),
            ("drill ni", Some(Noun::Backup), "ni", ""),
            (
                "drill --schedule=ni",
                Some(Noun::Schedule),
                "ni",
                "--schedule=",
            ),
            (
                "schedules set a --drill-include-namespaces=sh",
                Some(Noun::Namespace),
                "sh",
                "--drill-include-namespaces=",
            ),
            ("restore describe ", Some(Noun::Restore), "", ""),
            ("restores describe ", Some(Noun::Restore), "", ""),
            ("schedule pause ", Some(Noun::Schedule), "", ""),
            (
                "restore --from-backup=ni",
                Some(Noun::Backup),
                "ni",
                "--from-backup=",
            ),
            ("restore --from-backup ni", Some(Noun::Backup), "ni", ""),
            (
                "-n x create --from-schedule=",
                Some(Noun::Schedule),
                "",
                "--from-schedule=",
            ),
            ("create ", None, "", ""),
            (
                "create --include-namespaces=a,b",
                Some(Noun::Namespace),
                "b",
                "--include-namespaces=a,",
            ),
            ("locations sync ", Some(Noun::Location), "", ""),
            ("locations snapshots ", Some(Noun::SnapshotLocation), "", ""),
            (
                "locations snapshots delete ",
                Some(Noun::SnapshotLocation),
                "",
                "",
            ),
            ("locations snapshots create ", None, "", ""),
            ("repositories get ", Some(Noun::Repository), "", ""),
            ("repositories check ", Some(Noun::Repository), "", ""),
            (
                "get --containing=",
                Some(Noun::Namespace),
                "",
                "--containing=",
            ),
            (
                "create --volume-snapshot-locations=a,",
                Some(Noun::SnapshotLocation),
                "",
                "--volume-snapshot-locations=a,",
            ),
            ("debug --backup=", Some(Noun::Backup), "", "--backup="),
            ("debug --restore ", Some(Noun::Restore), "", ""),
            ("get --context ", Some(Noun::Context), "", ""),
            ("get -n ", Some(Noun::Namespace), "", ""),
            ("describe -- -a", Some(Noun::Backup), "-a", ""),
            (
                "create --include-resources=pods,dep",
                Some(Noun::Type),
                "dep",
                "--include-resources=pods,",
            ),
            (
                "restore --status-include-resources ",
                Some(Noun::Type),
                "",
                "",
            ),
            (
                "create --include-cluster-scoped-resources=",
                Some(Noun::ClusterType),
                "",
                "--include-cluster-scoped-resources=",
            ),
            (
                "create --exclude-namespace-scoped-resources=",
                Some(Noun::NamespacedType),
                "",
                "--exclude-namespace-scoped-resources=",
            ),
            ("ls nightly sh", Some(Noun::Namespace), "sh", ""),
            (
                "ls nightly shop/dep",
                Some(Noun::NamespacedType),
                "dep",
                "shop/",
            ),
            ("search sh", Some(Noun::PathStart), "sh", ""),
            (
                "search shop/dep",
                Some(Noun::NamespacedType),
                "dep",
                "shop/",
            ),
            ("search shop/deployments/w", None, "shop/deployments/w", ""),
            ("cat nightly shop/", Some(Noun::NamespacedType), "", "shop/"),
            (
                "restore --object=shop/dep",
                Some(Noun::NamespacedType),
                "dep",
                "--object=shop/",
            ),
        ] {
            let question = asked(line);
            assert_eq!(
                (
                    question.noun,
                    question.typed.as_str(),
                    question.prefix.as_str()
                ),
                (noun, typed, prefix),
                "{line}"
            );
        }
    }

    #[test]
    fn commands_flags_and_fixed_values_need_no_cluster() {
        let names = |line: &str| {
            asked(line)
                .fixed
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        let has = |line: &str, name: &str| names(line).iter().any(|one| one == name);
        assert!(has("", "describe") && has("", "restore") && !has("", super::super::WORD));
        assert!(has("restore ", "get") && !has("restore get ", "get"));
        assert!(
            has("create --", "--wait")
                && has("create --", "--ttl=")
                && has("create --", "--context=")
        );
        assert_eq!(names("create --dry-run="), ["client", "server"]);
        assert_eq!(names("install --dry-run "), ["client", "server"]);
        assert!(has("install --dry-run -", "--output=") && has("install --dry-run -o ", "yaml"));
        assert!(has("get -o ", "json") && has("describe -o ", "yaml"));
        assert!(has("completion ", "fish"));
        assert_eq!(asked("delete a ").taken, ["a"]);
        assert!(asked("get --kubeconfig=").files);
    }
}
