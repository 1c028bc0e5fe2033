use crate::prelude::*;

const PATH: &str = "/api/v1/namespaces/velero/services/https:backup-controller:files/proxy/files/";

/// A cluster with a backup and a restore, whose controller answers the next request with this
/// status.
async fn cluster(number: usize, status: Value) -> FakeApi {
    let api = FakeApi::with([
        completed_backup("nightly"),
        completed_restore("back-again", "nightly"),
    ])
    .await;
    answers(&api, number, &status);
    api
}

fn answers(api: &FakeApi, number: usize, status: &Value) {
    let name = format!("read-{number}");
    let answered = json!({ "apiVersion": "velero.io/v1", "kind": "DownloadRequest", "metadata": { "name": name },
        "spec": { "target": { "kind": "BackupLog", "name": "nightly" } }, "status": status });
    api.on_get(
        &format!("downloadrequests/{name}"),
        Fault::Becomes(answered),
    );
}

fn granted(number: usize) -> Value {
    json!({ "phase": "Processed", "downloadURL": format!("{PATH}read-{number}") })
}

/// A refusal by the controller.
fn refusal(code: u16, message: &str) -> Fault {
    Fault::refused_with(code, "", message, json!({ "kind": "storedfiles" }))
}

/// The log in two answers: a connection that breaks, and the rest.
fn log_in_two() -> (Fault, Fault) {
    let (log, version) = (log(), ("etag", "\"v\"".to_owned()));
    let (head, tail) = log.split_at(10);
    let range = (
        "content-range",
        format!("bytes 10-{}/{}", log.len() - 1, log.len()),
    );
    let broken = Fault::Broken(vec![version.clone()], head.to_vec(), log.len());
    (
        broken,
        Fault::Bytes(206, vec![version, range], tail.to_vec()),
    )
}

fn log() -> Vec<u8> {
    packed(b"level=info msg=\"a\"\nlevel=error msg=\"\x1b[2Jb\"\n")
}

#[tokio::test]
async fn a_log_is_read_and_gone_on_with_where_it_broke_off() {
    let api = cluster(0, granted(0)).await;
    let ((head, tail), files) = (log_in_two(), format!("{PATH}read-0"));
    api.on_get(
        &files,
        refusal(
            503,
            "16 files are being read at the moment: try again in a moment",
        ),
    );
    api.on_get(&files, head);
    api.on_get(
        &files,
        refusal(403, "this is not a key of a request that stands"),
    );
    answers(&api, 1, &granted(1));
    api.on_get(&format!("{PATH}read-1"), tail);
    transcript!(Person::at(&api), "logs nightly");
    let asked = api.stored("downloadrequests", "read-0").unwrap();
    assert_eq!(
        asked["spec"]["target"],
        json!({ "kind": "BackupLog", "name": "nightly" })
    );
}

#[tokio::test]
async fn a_url_of_a_velero_server_is_followed_without_the_key() {
    let bucket = FakeApi::start().await;
    let api = cluster(0, json!({ "phase": "Processed", "downloadURL": format!("{}/bucket/nightly-logs.gz?signature=s", bucket.url) })).await;
    let (head, tail) = log_in_two();
    bucket
        .on_get("/nightly-logs.gz", head)
        .on_get("/nightly-logs.gz", tail);
    let person = Person::at(&api);
    transcript!(person, "logs nightly");
    assert_eq!(
        bucket.seen(),
        ["GET /bucket/nightly-logs.gz?signature=s"; 2]
    );
    assert!(
        !bucket.headers().contains("x-backup-read-key"),
        "{}",
        bucket.headers()
    );
    // Velero returns a URL even if the file does not exist.
    answers(
        &api,
        1,
        &json!({ "phase": "Processed", "downloadURL": format!("{}/bucket/none", bucket.url) }),
    );
    bucket.on_get("/none", Fault::Answer(404, json!({})));
    transcript!(person, "logs nightly");
}

#[tokio::test]
async fn of_a_log_errors_alone_can_be_shown() {
    let api = cluster(0, granted(0)).await;
    api.on_get(
        &format!("{PATH}read-0"),
        Fault::Bytes(200, Vec::new(), log()),
    );
    transcript!(Person::at(&api), "logs nightly --errors");
}

#[tokio::test]
async fn a_log_is_followed_until_the_end_and_nothing_is_shown_twice() {
    let not_yet = "there is no BackupLog of nightly yet: it is InProgress, and its files are stored once its items are through";
    let api = cluster(0, json!({ "phase": "Failed", "message": not_yet })).await;
    let so_far = "level=info msg=\"a\"\n";
    for (number, text) in [
        (1, so_far.to_owned()),
        (2, so_far.to_owned() + "level=error msg=\"b\"\n"),
    ] {
        answers(&api, number, &granted(number));
        api.on_get(
            &format!("{PATH}read-{number}"),
            Fault::Bytes(200, Vec::new(), packed(text.as_bytes())),
        );
    }
    let becomes = |phases: [&str; 2]| {
        api.becomes(
            "/backups/nightly",
            phases.map(|phase| backup_in(phase, "nightly")),
        );
    };
    becomes(["InProgress", "WaitingForPluginOperations"]);
    api.on_get(
        "/backups/nightly",
        Fault::unavailable("the server is not ready"),
    );
    becomes(["WaitingForPluginOperations", "PartiallyFailed"]);
    let mut all = Person::at(&api).types("logs nightly -f").await;
    // If the object has already ended, the log is shown once.
    api.has(completed_backup("nightly"));
    answers(&api, 3, &granted(3));
    api.on_get(
        &format!("{PATH}read-3"),
        Fault::Bytes(200, Vec::new(), log()),
    );
    all += &Person::at(&api)
        .types("logs nightly --follow --errors")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_log_that_grows_is_followed_and_begins_again_with_the_work() {
    let api = cluster(0, granted(0)).await;
    let line = |at: &str, text: &str| {
        format!("time=\"2026-11-03T03:00:{at}Z\" level=info msg=\"{text}\"\n")
    };
    let first = line("01", "collecting items") + &line("02", "of the first try");
    let again = line("31", "collecting items") + &line("32", "of the second");
    let texts = [
        line("01", "collecting items"),
        first.clone(),
        first,
        again.clone(),
        again + &line("33", "collected 2 items"),
    ];
    for (number, text) in texts.iter().enumerate() {
        answers(&api, number, &granted(number));
        api.on_get(
            &format!("{PATH}read-{number}"),
            Fault::Bytes(200, Vec::new(), packed(text.as_bytes())),
        );
    }
    let phases = [
        "InProgress",
        "InProgress",
        "InProgress",
        "InProgress",
        "Completed",
    ];
    api.becomes(
        "/backups/nightly",
        phases.map(|phase| backup_in(phase, "nightly")),
    );
    transcript!(Person::at(&api), "logs nightly -f");
}

#[tokio::test]
async fn on_a_terminal_a_log_moves_no_cursor() {
    let api = cluster(0, granted(0)).await;
    api.on_get(
        &format!("{PATH}read-0"),
        Fault::Bytes(200, Vec::new(), log()),
    );
    transcript!(Person::at(&api).at_terminal(""), "restore logs back-again");
}

#[tokio::test]
async fn what_cannot_be_read_is_told_with_its_remedy() {
    let mut all = String::new();
    let details = json!({ "kind": "services" });
    let no_service = Fault::refused_with(
        404,
        "NotFound",
        "services \"backup-controller\" not found",
        details,
    );
    for (status, answer) in [
        (
            json!({ "phase": "Failed", "message": "backup nightly is gone" }),
            None,
        ),
        (
            json!({ "phase": "Processed", "downloadURL": "folder/key" }),
            None,
        ),
        (
            granted(0),
            Some(refusal(
                404,
                "there is no BackupLog of nightly yet: it is InProgress",
            )),
        ),
        (granted(0), Some(no_service)),
        (
            granted(0),
            Some(Fault::forbidden(
                "services \"https:backup-controller:files\" is forbidden",
            )),
        ),
    ] {
        let api = cluster(0, status).await;
        if let Some(fault) = answer {
            api.on_get(&format!("{PATH}read-0"), fault);
        }
        all += &Person::at(&api).types("logs nightly").await;
        all += "\n";
    }
    let api = cluster(0, granted(0)).await;
    api.on_get(
        &format!("{PATH}read-0"),
        Fault::Bytes(200, Vec::new(), log()[..20].to_vec()),
    );
    all += &Person::at(&api).types("logs nightly").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_tarball_is_written_whole_or_not_at_all() {
    let api = cluster(0, granted(0)).await;
    let person = Person::at(&api);
    api.on_get(
        &format!("{PATH}read-0"),
        Fault::Bytes(200, Vec::new(), b"tarball".to_vec()),
    );
    let mut all = person.types("download nightly -o ~/n.tar.gz").await;
    assert_eq!(
        std::fs::read(person.home.path().join("n.tar.gz")).unwrap(),
        b"tarball"
    );
    all += &person.types("download nightly -o ~/n.tar.gz").await;
    answers(&api, 1, &json!({ "phase": "Failed", "message": "no" }));
    all += &person.types("download nightly -o ~/n.tar.gz --force").await;
    assert_eq!(
        std::fs::read(person.home.path().join("n.tar.gz")).unwrap(),
        b"tarball"
    );
    all += &person.types("download nightly -o ~/no/n.tar.gz").await;
    let left = std::fs::read_dir(person.home.path()).unwrap().count();
    assert_eq!(left, 2, "something is left beside .kube and n.tar.gz");
    all += &person.at_terminal("").types("download nightly -o -").await;
    assert_snapshot!(all);
}
