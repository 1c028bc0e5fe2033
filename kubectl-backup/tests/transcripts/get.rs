use crate::prelude::*;

async fn cluster() -> FakeApi {
    FakeApi::with([
        completed_backup("nightly-20261102030000"),
        with(completed_backup("nightly-20261103030000"), &json!({"status": {"phase": "PartiallyFailed", "errors": 2, "warnings": 17}})),
        with(new_backup("before-upgrade"), &json!({"spec": {"labelSelector": {"matchLabels": {"app": "shop"}}}})),
        with(new_backup("running"), &json!({"status": {"phase": "InProgress", "startTimestamp": "2026-11-03T05:14:05Z", "progress": {"totalItems": 4812, "itemsBackedUp": 120}}})),
        with(completed_backup("newer-server"), &json!({"status": {"phase": "Compacting"}})),
        with(new_backup("by-another-hand"), &json!({"spec": {"ttl": "tomorrow\u{1b}[2J"}})),
        with(completed_backup("going"), &json!({"metadata": {"deletionTimestamp": "2026-11-03T05:14:00Z"}})),
    ])
    .await
}

#[tokio::test]
async fn backups_are_listed_and_one_bad_object_hides_no_other() {
    let person = Person::at(&cluster().await);
    transcript!("get" => person, "get");
    transcript!(
        person,
        "get -o wide",
        "get -o name -l velero.io/schedule-name=nightly",
        "get running gone before-upgrade --no-headers"
    );
}

#[tokio::test]
async fn objects_are_printed_as_they_are_stored() {
    let person = Person::at(&cluster().await);
    transcript!("get yaml" => person, "get by-another-hand -o yaml");
    let list = person.reads("get -o json").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 7);
    assert_eq!(
        list["items"][0]["spec"]["labelSelector"]["matchLabels"]["app"],
        "shop"
    );
    assert_eq!(list["items"][0]["apiVersion"], "velero.io/v1");
}

#[tokio::test]
async fn a_server_that_is_named_needs_no_kubeconfig() {
    let api = cluster().await;
    let person = Person::without_cluster();
    let line = format!("get running -o name --server={}", api.url);
    assert_says!(
        person.types(&line).await,
        "\nbackup.velero.io/running\n--- exit 0"
    );
    person.writes("empty", "");
    assert_says!(
        person.types(&format!("{line} --kubeconfig=~/empty")).await,
        "--- exit 0\n"
    );
}

#[tokio::test]
async fn a_long_list_is_read_in_pages() {
    let api = FakeApi::start().await;
    for n in 0..1201 {
        api.has(completed_backup(&format!("b-{n:04}")));
    }
    let seen = Person::at(&api).types("get --no-headers").await;
    assert_eq!(
        seen.lines().filter(|line| line.starts_with("b-")).count(),
        1201
    );
    // The fourth is a list of locations.
    assert_eq!(api.seen().len(), 4, "{:?}", api.seen());
}

#[tokio::test]
async fn a_list_that_expires_between_two_pages_is_read_anew_once() {
    let api = FakeApi::start().await;
    for n in 0..601 {
        api.has(completed_backup(&format!("b-{n:04}")));
    }
    api.has(with(
        new_backup("by-another-hand"),
        &json!({"spec": {"ttl": "tomorrow"}}),
    ));
    let expired = Fault::refused(410, "Expired", "The provided continue parameter is too old");
    api.meets(&Method::GET, "/backups", [Fault::None, expired.clone()]);
    let seen = Person::at(&api).types("get --no-headers").await;
    assert_eq!(
        seen.lines().filter(|line| line.starts_with("b-0")).count(),
        601
    );
    assert_eq!(
        seen.matches("warning: backup by-another-hand").count(),
        1,
        "{seen}"
    );
    assert_eq!(api.seen().len(), 5, "{:?}", api.seen());
    api.meets(
        &Method::GET,
        "/backups",
        [Fault::None, expired.clone(), Fault::None, expired],
    );
    let seen = Person::at(&api).types("get --no-headers").await;
    assert_says!(seen, "too old", "--- exit 1\n");
}

#[tokio::test]
async fn nothing_found_is_no_error() {
    transcript!(
        Person::at(&FakeApi::start().await),
        "get",
        "restore get -n elsewhere"
    );
}

#[tokio::test]
async fn an_installation_elsewhere_is_hinted_at() {
    let api = FakeApi::with([location("Available", "")]).await;
    transcript!(Person::at(&api), "get -n backups");
}

#[tokio::test]
async fn backups_of_all_namespaces_are_judged_by_the_locations_of_their_own() {
    let api = FakeApi::with([
        completed_backup("here"),
        with(
            completed_backup("there"),
            &json!({"metadata": {"namespace": "team-b"}}),
        ),
        with(
            completed_backup("lost"),
            &json!({"metadata": {"namespace": "team-b"}, "spec": {"storageLocation": "gone"}}),
        ),
        with(
            completed_backup("nowhere"),
            &json!({"metadata": {"namespace": "team-c"}}),
        ),
        with(
            location("Unavailable", "403 AccessDenied"),
            &json!({"metadata": {"namespace": "team-b"}}),
        ),
    ])
    .await;
    let person = Person::at(&api);
    let all = person.types("get -A").await;
    let forbidden = "backupstoragelocations.velero.io is forbidden: User \"jane\" cannot list it at the cluster scope";
    api.on_get(
        "/velero.io/v1/backupstoragelocations",
        Fault::forbidden(forbidden),
    );
    let unread = person.types("get -A").await;
    assert_snapshot!(format!(
        "{all}\n{unread}\n{}",
        person.types("get here team-b/there team-b/lost").await
    ));
}

#[tokio::test]
async fn restores_are_listed() {
    let api = FakeApi::with([
        completed_restore("back-again", "nightly-20261103030000"),
        with(
            completed_restore("half", "nightly-20261103030000"),
            &json!({"status": {"phase": "PartiallyFailed", "errors": 1}}),
        ),
    ])
    .await;
    let person = Person::at(&api);
    let listed = person.types("restore get").await;
    for same in ["restores", "restores get"] {
        assert_eq!(
            person.types(same).await,
            listed.replace("restore get", same)
        );
    }
    assert_snapshot!("restore get", listed);
    transcript!("restore get wide" => person, "restore get -o wide");
}

#[tokio::test]
async fn a_person_sees_colours_unless_they_do_not_want_them() {
    let api = cluster().await;
    let plain = Person::at(&api).types("get").await;
    let coloured = Person::at(&api).at_terminal("").types("get").await;
    assert_says!(coloured, "␛[31mPartiallyFailed␛[0m");
    for (person, line) in [
        (
            Person::at(&api).at_terminal("").with_var("NO_COLOR", "1"),
            "get",
        ),
        (
            Person::at(&api).at_terminal("").with_var("TERM", "dumb"),
            "get",
        ),
        (Person::at(&api).at_terminal(""), "get --color=never"),
    ] {
        let seen = person.types(line).await;
        assert_eq!(
            seen.lines().skip(1).collect::<Vec<_>>(),
            plain.lines().skip(1).collect::<Vec<_>>()
        );
    }
    assert_says!(Person::at(&api).types("get --color=always").await, "␛[31m");
}

#[tokio::test]
async fn watched_objects_come_one_after_the_other() {
    let api = FakeApi::with([new_backup("a"), new_backup("b")]).await;
    let person = Person::at(&api);
    let seen = person.watches("get -w -o name", "backup.velero.io/b").await;
    assert_says!(seen, "\nbackup.velero.io/a\nbackup.velero.io/b\n");
    let seen = person.watches("get -w -o json", "\"b\"").await;
    assert!(!seen.contains("\"items\""), "{seen}");
}
