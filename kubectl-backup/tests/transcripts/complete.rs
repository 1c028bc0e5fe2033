use std::time::{Duration, Instant};

use axum::http::Method;
use insta::assert_snapshot;

use crate::{
    fake_api::{FakeApi, Fault},
    person::Person,
    samples::{completed_backup, completed_restore, location},
};

/// What is asked of us, the last word empty where the line ends with a space.
async fn completes(person: &Person, words: &str) -> String {
    person.types_words(&std::iter::once("__complete").chain(words.split(' ')).collect::<Vec<_>>()).await
}

#[tokio::test]
async fn names_and_commands_are_completed_as_kubectl_asks_for_it() {
    let api = FakeApi::start().await;
    api.has("backups", completed_backup("nightly-20261102030000"))
        .has("backups", completed_backup("nightly-20261103030000"))
        .has("backups", completed_backup("before-upgrade"))
        .has("restores", completed_restore("back-again", "before-upgrade"))
        .has("backupstoragelocations", location("Available", ""));
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
async fn a_cluster_that_does_not_answer_is_not_waited_for_and_not_talked_about() {
    let api = FakeApi::start().await;
    api.next(Method::GET, "/backups", Fault::Hang);
    let start = Instant::now();
    assert_eq!(completes(&Person::at(&api), "describe ").await, ":4\n--- exit 0\n");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(completes(&Person::without_cluster(), "describe ").await, ":4\n--- exit 0\n");
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
        let seen = person.types(&format!("kubectl backup completion {shell}")).await;
        assert!(seen.contains(part) && seen.ends_with("--- exit 0\n"), "{seen}");
    }
}

#[test]
fn a_real_bash_completes_words_also_where_it_takes_them_apart() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_kubectl-backup"));
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&rest));
    let path = std::env::join_paths(path).unwrap();
    // As bash hands the words over.
    for (words, expected) in [
        ("de", "describe delete"),
        ("get -o js", "json jsonpath="),
        ("get --output = js", "json jsonpath="),
        ("get --output = ''", "wide json yaml name jsonpath= custom-columns="),
        ("get --outp", "--output="),
        ("completion ba", "bash"),
    ] {
        let script = format!(
            "source <(kubectl-backup completion bash)
            COMP_WORDS=(kubectl-backup {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _kubectl_backup 2>/dev/null
            echo \"${{COMPREPLY[*]}}\""
        );
        let bash =
            std::process::Command::new("bash").args(["--norc", "-c", &script]).env("PATH", &path).output();
        let Ok(ran) = bash else { return println!("skipped: there is no bash") };
        let seen = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(seen.trim_end(), expected, "{words}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
