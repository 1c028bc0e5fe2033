use std::{collections::BTreeMap, io::Read as _, path::Path};

use flate2::read::GzDecoder;

use crate::prelude::*;

/// A secret that must not be in any file of an archive.
const PLANTED: &str = "correct-horse";

/// The files of an archive, by their path in its folder.
fn opened(file: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file).unwrap()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path.split_once('/').unwrap().1.to_owned(), text);
    }
    files
}

/// Removes the sizes: they depend on versions and ports in the texts.
fn without_sizes(seen: &str) -> String {
    let sizes = [" B", " KiB", " MiB"];
    let line = |line: &str| {
        let unit = sizes.iter().find_map(|unit| Some((line.find(unit)?, unit)));
        let Some((at, unit)) =
            unit.filter(|(at, _)| line[..*at].ends_with(|c: char| c.is_ascii_digit()))
        else {
            return line.to_owned();
        };
        let begin = line[..at].rfind([' ', '(']).map_or(0, |space| space + 1);
        format!("{}SIZE{}", &line[..begin], &line[at + unit.len()..])
    };
    seen.lines()
        .map(|one| line(one).trim_end().to_owned() + "\n")
        .collect()
}

fn pod(name: &str, program: &str, restarts: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "velero", "labels": {"app.kubernetes.io/name": program},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"env\": \"{PLANTED}\"}}")}},
        "spec": {"containers": [{"name": "main", "image": "x", "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": PLANTED}]}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "image": "x", "imageID": "", "ready": true, "restartCount": restarts}]},
    })
}

/// An installation with a secret in every place where one may be.
async fn installation() -> FakeApi {
    let api = FakeApi::start().await;
    let hooks = json!({"spec": {"hooks": {"resources": [{"name": "dump", "pre": [{"exec": {"command": ["mysql", format!("-p{PLANTED}")]}}]}]}}});
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "backup-webhook"},
        "webhooks": [{"name": "claims.backup-webhook.velero.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "backup-webhook", "namespace": "velero", "path": format!("/validate/{PLANTED}")}}}],
    });
    api.has(with(completed_backup("nightly"), &hooks))
        .has(with(
            location("Available", ""),
            &json!({"spec": {"config": {"region": "eu", "accountKey": PLANTED}}}),
        ))
        .has(event(
            1,
            "Backup",
            "nightly",
            "Warning",
            "Failed",
            &format!("GET https://s3/b?sig={PLANTED}: EOF"),
            "2026-11-03T03:00:00Z",
        ))
        .has_at(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backup-webhook",
            registration,
        )
        .has_at(
            "/api/v1/namespaces/velero/pods/backup-controller-1",
            pod("backup-controller-1", "backup-controller", 1),
        )
        .has_at(
            "/api/v1/namespaces/velero/pods/backup-webhook-1",
            pod("backup-webhook-1", "backup-webhook", 0),
        )
        .has_bytes(
            "BackupLog",
            "nightly",
            packed(format!("level=info msg=begun\nlevel=error token={PLANTED}\n").as_bytes()),
        )
        .has_file(
            "BackupResults",
            "nightly",
            &json!({"errors": {"cluster": ["no answer"]}}),
        );
    api
}

fn log(text: &str) -> Fault {
    Fault::Bytes(200, Vec::new(), text.as_bytes().to_vec())
}

#[tokio::test]
async fn the_archive_has_what_was_listed_and_no_secret() {
    let api = installation().await;
    api.on_get(
        "/backup-controller-1/log",
        log("level=info msg=\"leads\"\nAuthorization: Bearer correct-horse\n"),
    )
    .on_get("/backup-controller-1/log", log("panicked\n"))
    .on_get(
        "/backup-webhook-1/log",
        Fault::forbidden(
            "pods \"backup-webhook-1\" is forbidden: User \"jane\" cannot get resource \"pods/log\"",
        ),
    );
    let person = Person::at(&api);
    let seen = person
        .types("debug --backup=nightly -o ~/report.tar.gz --yes")
        .await;
    assert_snapshot!("debug", without_sizes(&seen));
    let files = opened(&person.home.path().join("report.tar.gz"));
    for (name, text) in &files {
        assert!(!text.contains(PLANTED), "{name}:\n{text}");
        assert!(
            name == "contents.txt" || seen.contains(&format!("  {name} ")),
            "{name} is not listed:\n{seen}"
        );
    }
    for (name, words) in [
        ("pods.yaml", "AWS_SECRET_ACCESS_KEY"),
        ("locations.yaml", "accountKey: REDACTED"),
        ("webhook-configuration.yaml", "path: REDACTED"),
        ("events.yaml", "https://s3/b?REDACTED"),
        ("backup/object.yaml", "command: REDACTED"),
        ("backup/log.txt", "level=error token=REDACTED"),
        ("backup/results.json", "no answer"),
        ("backup/describe.txt", "nightly   Completed"),
        ("backup/describe.yaml", "kind: BackupDescription"),
        ("doctor.txt", "webhook configuration"),
        ("contents.txt", "Not in it:"),
    ] {
        assert!(files[name].contains(words), "{name}:\n{}", files[name]);
    }
    // The two logs are requested at the same time.
    let logs = ["main", "main.previous"]
        .map(|log| files[&format!("logs/backup-controller-1/{log}.txt")].as_str());
    assert!(
        logs.concat().contains("Authorization: REDACTED") && logs.contains(&"panicked\n"),
        "{logs:?}"
    );
    let again = person.types("debug -o ~/report.tar.gz --yes").await;
    assert_says!(again, "report.tar.gz exists", "--- exit 1\n");
    let forced = person.types("debug -o ~/report.tar.gz --yes --force").await;
    assert!(forced.ends_with("--- exit 0\n"), "{forced}");
}

#[tokio::test]
async fn who_may_nothing_gets_an_archive_that_says_so() {
    let api = FakeApi::start().await;
    let forbidden = || Fault::forbidden("it is forbidden: User \"jane\" cannot do that");
    for method in [Method::GET, Method::POST] {
        api.meets(&method, "", vec![forbidden(); 300]);
    }
    let person = Person::at(&api);
    let seen = person
        .types("debug --restore=back-again -o ~/report.tar.gz --yes")
        .await;
    assert_snapshot!("debug without rights", without_sizes(&seen));
    assert!(opened(&person.home.path().join("report.tar.gz")).contains_key("contents.txt"));
}

#[tokio::test]
async fn nothing_is_written_without_a_yes() {
    let api = FakeApi::start().await;
    let there =
        |person: &Person| std::fs::exists(person.home.path().join("report.tar.gz")).unwrap();
    let person = Person::at(&api);
    transcript!("debug without a yes" => person, "debug -o ~/report.tar.gz");
    assert!(!there(&person));
    let person = Person::at(&api).at_terminal("n\n");
    let seen = person.types("debug -o ~/report.tar.gz").await;
    assert_says!(seen, "[y/N] nothing was written\n", "--- exit 1\n");
    assert!(!there(&person));
    let person = Person::at(&api).at_terminal("y\n");
    let seen = person.types("debug -o ~/report.tar.gz").await;
    assert!(there(&person) && seen.ends_with("--- exit 0\n"), "{seen}");
    transcript!("debug to a terminal" => person, "debug -o -");
}

#[tokio::test]
async fn without_an_api_server_there_is_no_archive() {
    let person = Person::at_url("http://127.0.0.1:1");
    let seen = person.types("debug -o ~/report.tar.gz --yes").await;
    assert_says!(seen, "cannot reach", "--- exit 1\n");
    assert!(!std::fs::exists(person.home.path().join("report.tar.gz")).unwrap());
}
