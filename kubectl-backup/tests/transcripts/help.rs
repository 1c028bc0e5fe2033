use crate::prelude::*;

#[tokio::test]
async fn help_of_every_command() {
    let person = Person::without_cluster();
    for command in commands(&kubectl_backup::command(), "") {
        let line = format!("kubectl backup{command} --help");
        transcript!(format!("help{command}"), person, &line);
    }
}

#[tokio::test]
async fn options_lists_the_flags_of_every_command() {
    transcript!("options", Person::without_cluster(), "kubectl backup options");
}

/// All commands, each with what comes before it. Those of `restores` are those of `restore`.
fn commands(of: &clap::Command, path: &str) -> Vec<String> {
    let below = of.get_subcommands().filter(|_| path != " restores");
    let below = below.flat_map(|command| commands(command, &format!("{path} {}", command.get_name())));
    std::iter::once(path.to_owned()).chain(below).collect()
}

#[tokio::test]
async fn mistakes_in_the_arguments_are_told_with_exit_code_2() {
    let person = Person::without_cluster();
    let mut all = String::new();
    for line in [
        "kubectl backup",
        "kubectl backup make",
        "kubectl backup create a b",
        "kubectl backup create --ttl=tomorrow",
        "kubectl backup create --ttl=-1h",
        "kubectl backup create -l a=b=c",
        "kubectl backup create --labels=team",
        "kubectl backup create --timeout=5m",
        "kubectl backup create --wait --dry-run=server",
        "kubectl backup create Nightly --dry-run=client",
        "kubectl backup describe",
        "kubectl backup get -o xml",
        "kubectl backup get -o jsonpath={..name}",
        "kubectl backup get -o custom-columns=NAME",
        "kubectl backup get -w a b",
        "kubectl backup get -w --sort-by=.metadata.name",
        "kubectl backup get --sort-by=.items[0,1]",
        "kubectl backup completion tcsh",
        "kubectl backup restore",
        "kubectl backup restore nightly",
        "kubectl backup restore --from-backup=a --from-schedule=b",
        "kubectl backup restore --from-backup=a get",
        "kubectl backup restore --from-backup=a --namespace-mappings=shop",
        "kubectl backup restore --from-backup=a --existing-resource-policy=replace",
        "kubectl backup cancel",
        "kubectl backup delete",
        "kubectl backup sync --now",
        "kubectl backup locks -o xml",
        "kubectl backup locks release back-again --reason=x",
        "kubectl backup locks release restore/back-again",
        "kubectl backup locks hold maintenance",
        "kubectl backup locks hold Maintenance --reason=x",
        "kubectl backup locks hold maintenance --all --namespaces=a --reason=x",
    ] {
        let seen = person.types(line).await;
        assert!(seen.ends_with("--- exit 2\n"), "{seen}");
        all += &seen;
        all += "\n";
    }
    assert_snapshot!(all);
}
