use crate::prelude::*;

#[tokio::test]
async fn help_of_every_command() {
    let person = Person::without_cluster();
    for command in commands(&kubectl_backup::command(), "") {
        let line = format!("{command} --help").trim_start().to_owned();
        transcript!(format!("help{command}") => person, &line);
    }
}

#[tokio::test]
async fn options_lists_the_flags_of_every_command() {
    transcript!("options" => Person::without_cluster(), "options");
}

/// All commands with their prefix. `restores` has the same commands as `restore`.
fn commands(of: &clap::Command, path: &str) -> Vec<String> {
    let below = of.get_subcommands().filter(|_| path != " restores");
    let below =
        below.flat_map(|command| commands(command, &format!("{path} {}", command.get_name())));
    std::iter::once(path.to_owned()).chain(below).collect()
}

#[tokio::test]
async fn mistakes_in_the_arguments_are_told_with_exit_code_2() {
    let person = Person::without_cluster();
    let mut all = String::new();
    for line in [
        "",
        "make",
        "create a b",
        "create --ttl=tomorrow",
        "create --ttl=-1h",
        "create -l a=b=c",
        "create --labels=team",
        "create --timeout=5m",
        "create --wait --dry-run=server",
        "create Nightly --dry-run=client",
        "logs",
        "get -o xml",
        "get -o jsonpath={.items[*].metadata.name}",
        "describe -o custom-columns=NAME:.metadata.name",
        "get -w a b",
        "completion tcsh",
        "restore",
        "restore nightly --from-backup=other",
        "restore --from-backup=a --from-schedule=b",
        "restore --from-backup=a get",
        "restore --from-backup=a --namespace-mappings=shop",
        "restore a --plan --dry-run=client",
        "restore a --plan --wait",
        "restore a --plan -o name",
        "restore --from-backup=a --existing-resource-policy=replace",
        "cancel",
        "delete",
        "locations sync --now",
        "locks -o xml",
        "locks release back-again --reason=x",
        "locks release restore/back-again",
        "locks hold maintenance",
        "locks hold Maintenance --reason=x",
        "locks hold maintenance --all --namespaces=a --reason=x",
    ] {
        let seen = person.types(line).await;
        assert!(seen.ends_with("--- exit 2\n"), "{seen}");
        all += &seen;
        all += "\n";
    }
    assert_snapshot!(all);
}
