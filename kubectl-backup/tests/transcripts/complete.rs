use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::prelude::*;

/// Requests completions; the last word is empty if the line ends with a space.
async fn completes(person: &Person, words: &str) -> String {
    person
        .types_words(
            &std::iter::once("__complete")
                .chain(words.split(' '))
                .collect::<Vec<_>>(),
        )
        .await
}

#[tokio::test]
async fn names_and_commands_are_completed_as_kubectl_asks_for_it() {
    let api = FakeApi::with([
        completed_backup("nightly-20261102030000"),
        completed_backup("nightly-20261103030000"),
        completed_backup("before-upgrade"),
        completed_restore("back-again", "before-upgrade"),
        location("Available", ""),
    ])
    .await;
    let person = Person::at(&api);
    let mut all = String::new();
    for words in [
        "",
        "de",
        "describe ni",
        "delete before-upgrade ",
        "restore describe ",
        "restore --from-backup=ni",
        "create --storage-location ",
        "get --context ",
        "get --sh",
        "get --kubeconfig ",
        "no-such-command ",
    ] {
        all = all + "[" + words + "]\n" + &completes(&person, words).await + "\n";
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn types_are_completed_by_what_the_cluster_serves() {
    let api = FakeApi::start().await;
    let resource = |plural: &str, kind: &str, scope: &str, short: &[&str], verbs: &[&str]| {
        json!({ "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind }, "scope": scope,
            "singularResource": "", "shortNames": short, "verbs": verbs })
    };
    let core = json!({ "metadata": { "name": "" }, "versions": [{ "version": "v1", "resources": [
        resource("pods", "Pod", "Namespaced", &["po"], &["list"]),
        resource("persistentvolumes", "PersistentVolume", "Cluster", &["pv"], &["list"]),
        resource("bindings", "Binding", "Namespaced", &[], &["create"]),
    ] }] });
    let widgets = json!({ "metadata": { "name": "example.com" }, "versions": [
        { "version": "v1", "resources": [resource("widgets", "Widget", "Namespaced", &["wd"], &["list"])] },
        { "version": "v1beta1", "resources": [resource("widgets", "Widget", "Namespaced", &["wd"], &["list"])] },
    ] });
    let discovery = |groups: Value| json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups });
    api.has_at("/api", discovery(json!([core])))
        .has_at("/apis", discovery(json!([widgets])));
    api.has_at(
        "/api/v1/namespaces/shop",
        json!({ "metadata": { "name": "shop" } }),
    );
    let person = Person::at(&api);
    let mut all = String::new();
    for words in [
        "create --include-resources=",
        "create --include-resources pods,w",
        "create --include-cluster-scoped-resources=",
        "restore --status-include-resources=wd,p",
        "search ",
        "search shop/w",
        "search s",
        "cat nightly shop/",
        "ls nightly ",
        "ls nightly shop/po",
        "search shop/pods/",
        "restore --object=shop/po",
    ] {
        all = all + "[" + words + "]\n" + &completes(&person, words).await + "\n";
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn completion_does_not_wait_for_a_silent_cluster() {
    let api = FakeApi::start().await;
    api.on_get("/backups", Fault::Hang);
    let start = Instant::now();
    assert_eq!(
        completes(&Person::at(&api), "describe ").await,
        ":4\n--- exit 0\n"
    );
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        completes(&Person::without_cluster(), "describe ").await,
        ":4\n--- exit 0\n"
    );
}

#[tokio::test]
async fn every_shell_has_its_script() {
    let person = Person::without_cluster();
    for (shell, part) in [
        ("bash", "complete -F _kubectl_backup kubectl-backup"),
        ("zsh", "#compdef kubectl-backup"),
        ("fish", "complete -c kubectl-backup"),
        ("kubectl", "exec kubectl-backup __complete \"$@\""),
    ] {
        let seen = person.types(&format!("completion {shell}")).await;
        assert_says!(seen, part, "--- exit 0\n");
    }
}

/// The output of a real shell, in a home folder with a kubeconfig and a file, with our program on
/// its PATH; `None` if the shell is not installed.
async fn runs(person: &Person, shell: &[&str]) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-backup"));
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&rest));
    person.writes("hooks.yaml", "");
    let mut command = tokio::process::Command::new(shell[0]);
    command
        .args(&shell[1..])
        .current_dir(person.home.path())
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("HOME", person.home.path())
        .env("TERM", "dumb")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(Duration::from_mins(1), command.output()).await;
    match ran.unwrap_or_else(|_| panic!("{shell:?} does not end")) {
        Ok(ran) => {
            assert!(
                ran.status.success(),
                "{shell:?}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
            Some(String::from_utf8(ran.stdout).unwrap())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: there is no {}", shell[0]);
            None
        }
        Err(error) => panic!("{shell:?}: {error}"),
    }
}

async fn two_backups() -> FakeApi {
    FakeApi::with([
        completed_backup("nightly"),
        completed_backup("before-upgrade"),
    ])
    .await
}

#[tokio::test]
async fn a_real_bash_completes_words_also_where_it_takes_them_apart() {
    let api = two_backups().await;
    let person = Person::at(&api);
    // Words as bash passes them to completion functions.
    for (words, expected) in [
        ("de", "describe delete debug"),
        ("get -o js", "json"),
        ("get --output = js", "json"),
        ("get --output = ''", "table wide json yaml name"),
        ("get --outp", "--output="),
        ("completion ba", "bash"),
        ("describe ''", "before-upgrade nightly"),
        ("restore --from-backup = ni", "nightly"),
    ] {
        let script = format!(
            "source <(kubectl-backup completion bash)
            COMP_WORDS=(kubectl-backup {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _kubectl_backup 2>/dev/null
            echo \"${{COMPREPLY[*]}}\""
        );
        let Some(seen) = runs(&person, &["bash", "--norc", "-c", &script]).await else {
            return;
        };
        assert_eq!(seen.trim_end(), expected, "{words}");
    }
}

#[tokio::test]
async fn a_real_fish_offers_words_names_and_files() {
    let api = two_backups().await;
    let person = Person::at(&api);
    for (typed, expected) in [
        (
            "compl",
            "completion\tPrint the script that completes commands and names in a shell",
        ),
        ("get --output=js", "--output=json"),
        ("describe ", "before-upgrade\nnightly"),
        ("restore --from-backup=ni", "--from-backup=nightly"),
        ("create -f ho", "hooks.yaml"),
        ("create -f no-such", ""),
        ("get --kubeconfig=ho", "--kubeconfig=hooks.yaml"),
    ] {
        let script = "kubectl-backup completion fish | source; complete -C $argv[1]";
        let line = format!("kubectl-backup {typed}");
        let Some(seen) = runs(&person, &["fish", "--no-config", "-c", script, &line]).await else {
            return;
        };
        assert_eq!(seen.trim_end(), expected, "{typed}");
    }
}

/// Types a line and the tab key in an interactive zsh, and prints the resulting line.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty -b z 'zsh -f -i'
zpty -w z "PS1=; unsetopt beep; autoload -U compinit; compinit -D -u; source <(kubectl-backup completion zsh)
show() { print -r -- \"<\$BUFFER>\"; BUFFER= }; zle -N show; bindkey '^X' show; print rea''dy"
zpty -r z seen '*ready*'
zpty -w -n z "$1"$'\t\x18'
zpty -r z seen '*<*>*'
print -r -- "${${seen##*<}%>*}"
"#;

#[tokio::test]
async fn a_real_zsh_completes_words_names_and_files() {
    let api = two_backups().await;
    let person = Person::at(&api);
    person.writes("type", ZSH);
    for (typed, expected) in [
        ("compl", "completion "),
        ("ve", "ver"),
        ("get --outp", "--output="),
        ("get --output=ya", "--output=yaml "),
        ("describe ni", "nightly "),
        ("restore --from-backup=ni", "--from-backup=nightly "),
        ("create -f ho", "hooks.yaml "),
        ("get --kubeconfig=ho", "--kubeconfig=hooks.yaml "),
    ] {
        let line = format!("kubectl-backup {typed}");
        let Some(seen) = runs(&person, &["zsh", "-f", "type", &line]).await else {
            return;
        };
        let before = &line[..=line.rfind(' ').unwrap()];
        assert_eq!(seen, format!("{before}{expected}\n"), "{typed}");
    }
}
