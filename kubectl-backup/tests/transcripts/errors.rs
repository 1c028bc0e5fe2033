use crate::prelude::*;

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_told_with_its_remedy() {
    let mut all = Person::without_cluster().types("get").await;
    all += &Person::without_cluster()
        .types("get --kubeconfig=~/nowhere")
        .await;
    all += &Person::without_cluster()
        .with_var("KUBECONFIG", "~/gone")
        .types("get")
        .await;
    let person = Person::at_url("https://127.0.0.1:1");
    person.writes(
        "broken",
        "apiVersion: v1\nclusters: [{name: one, cluster: {server: }\n  token: c2VjcmV0\n",
    );
    all += &person.types("get --kubeconfig=~/broken").await;
    person.writes("empty", "");
    for flag in [
        "kubeconfig=~/empty",
        "context=there",
        "cluster=two",
        "user=joe",
        "as-group=admins",
    ] {
        all += &person.types(&format!("get --{flag}")).await;
    }
    assert!(!all.contains("c2VjcmV0"), "{all}");
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_told_with_its_remedy() {
    transcript!(Person::at_url("http://127.0.0.1:1"), "get");
    let api = FakeApi::start().await;
    api.on_get("/backups", Fault::Hang);
    transcript!(Person::at(&api), "get --request-timeout=50ms");
}

#[tokio::test]
async fn every_answer_of_the_api_server_is_told_with_its_remedy() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let mut all = String::new();
    let no_kind = Fault::refused(
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    let forbidden = Fault::refused_with(
        403,
        "Forbidden",
        "backups.velero.io is forbidden: User \"jane\" cannot list resource \"backups\" in API group \"velero.io\" in the namespace \"velero\"",
        json!({"group": "velero.io", "kind": "backups"}),
    );
    for fault in [
        no_kind,
        forbidden,
        Fault::refused(401, "Unauthorized", "Unauthorized"),
    ] {
        api.on_get("/backups", fault);
        all += &person.types("get").await;
    }
    for line in [
        "get nightly",
        "describe nightly",
        "delete nightly --yes",
        "restore --from-backup=nightly",
        "restore describe back-again",
        "create --from-schedule=nightly",
    ] {
        all += &person.types(line).await;
    }
    api.has(new_backup("nightly"));
    all += &person.types("create nightly").await;
    let details = json!({"name": "velero", "kind": "namespaces"});
    let no_namespace =
        Fault::refused_with(404, "NotFound", "namespaces \"velero\" not found", details);
    api.on_post("/backups", no_namespace);
    all += &person.types("create other").await;
    api.has(with(
        new_backup("by-another-hand"),
        &json!({"spec": {"ttl": "tomorrow"}}),
    ));
    all += &person.types("describe by-another-hand").await;
    all += &person.types("delete by-another-hand --yes").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn the_installations_namespace_is_found_as_velero_finds_it() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    person.types("get").await;
    let person = person.with_var("VELERO_NAMESPACE", "from-env");
    person.types("get").await;
    person.writes(
        ".config/velero/config.json",
        r#"{"namespace": "from-file"}"#,
    );
    person.types("get").await;
    person.types("-n from-flag get").await;
    person.types("get -n from-flag").await;
    // The lists in one namespace; other requests look for a hint in all namespaces.
    let seen = api.seen();
    let lists = seen.iter().filter(|line| line.contains("/backups?"));
    let namespaces: Vec<&str> = lists.map(|line| line.split('/').nth(5).unwrap()).collect();
    assert_eq!(
        namespaces,
        ["velero", "from-env", "from-file", "from-flag", "from-flag"]
    );
}

#[tokio::test]
async fn what_is_no_api_server_does_not_count_as_one_without_definitions() {
    let api = FakeApi::start().await;
    let html = b"<html>404 Not Found</html>".to_vec();
    api.on_get(
        "/backups",
        Fault::Bytes(404, vec![("content-type", "text/html".to_owned())], html),
    );
    api.on_get(
        "/backups",
        Fault::Bytes(404, Vec::new(), b"404 page not found\n".to_vec()),
    );
    transcript!(
        Person::at(&api),
        "get",
        "get",
        "get --request-timeout=30",
        "get --request-timeout=soon"
    );
}

/// Only on Unix, where a path may contain any bytes.
#[cfg(unix)]
#[tokio::test]
async fn a_kubeconfig_whose_path_is_no_text_is_not_passed_over() {
    use std::os::unix::ffi::OsStrExt as _;
    let api = FakeApi::with([completed_backup("b")]).await;
    let person = Person::at(&api);
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-backup"))
        .arg("get")
        .env("HOME", person.home.path())
        .env("KUBECONFIG", std::ffi::OsStr::from_bytes(b"/nowhere/\xff"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        ran.stdout.is_empty()
            && String::from_utf8(ran.stderr)
                .unwrap()
                .contains("does not exist")
    );
}

/// Starts a proxy that connects every client to this API server.
async fn proxy(api: &FakeApi) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = api.url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            assert!(
                head.starts_with(b"CONNECT cluster.example:80 "),
                "{}",
                String::from_utf8_lossy(&head)
            );
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = tokio::net::TcpStream::connect(&target).await.unwrap();
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut server).await },
            );
        }
    });
    url
}

#[tokio::test]
async fn a_cluster_is_reached_by_the_proxy_that_kubectl_would_take() {
    let api = FakeApi::with([completed_backup("b")]).await;
    let url = proxy(&api).await;
    let reached = |seen: String| seen.ends_with("b\n--- exit 0\n");
    let person = || Person::at_url("http://cluster.example:80");
    assert!(!reached(person().types("get -o name").await));
    let by_environment = |no_proxy: &str| {
        person()
            .with_var("HTTP_PROXY", &url)
            .with_var("NO_PROXY", no_proxy)
    };
    for (no_proxy, expected) in [
        ("", true),
        ("other.example,", true),
        (".example", false),
        ("*", false),
    ] {
        let seen = by_environment(no_proxy).types("get -o name").await;
        assert_eq!(reached(seen.clone()), expected, "{no_proxy:?}: {seen}");
    }
    // HTTPS_PROXY applies only to HTTPS; NO_PROXY does not apply to the kubeconfig's proxy.
    assert!(!reached(
        person()
            .with_var("HTTPS_PROXY", &url)
            .types("get -o name")
            .await
    ));
    let by_kubeconfig = by_environment("*");
    let path = by_kubeconfig.home.path().join(".kube/config");
    let kubeconfig = std::fs::read_to_string(&path).unwrap();
    let cluster = format!("\"http://cluster.example:80\", proxy-url: \"{url}\"");
    std::fs::write(
        path,
        kubeconfig.replace("\"http://cluster.example:80\"", &cluster),
    )
    .unwrap();
    assert!(reached(by_kubeconfig.types("get -o name").await));
}

#[tokio::test]
async fn an_exec_plugin_that_is_missing_is_told_as_that() {
    let person = Person::at_url("https://cluster");
    let path = person.home.path().join(".kube/config");
    let kubeconfig = std::fs::read_to_string(&path).unwrap();
    let exec = "user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}";
    std::fs::write(path, kubeconfig.replace("user: {}", exec)).unwrap();
    transcript!(person, "get");
}

#[tokio::test]
async fn words_of_velero_and_kubectl_are_answered_with_ours() {
    let api = FakeApi::start().await;
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "nightly", "namespace": "velero" },
        "spec": { "schedule": "@daily", "template": {} } });
    api.has(schedule);
    transcript!(
        Person::at(&api),
        "backup get",
        "backup-location get",
        "list",
        "get restores",
        "describe schedule nightly",
        "describe nightly",
        "restore nightly",
        "create x --ttl=30days --dry-run=client",
        "create x --ttl=30d --dry-run=client -o yaml"
    );
}

#[tokio::test]
async fn a_name_of_another_kind_is_answered_with_the_command_that_works() {
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "nightly", "namespace": "velero" },
        "spec": { "schedule": "@daily", "template": {} } });
    let restore = completed_restore("r", "b");
    let api = FakeApi::with([completed_backup("b"), restore, schedule]).await;
    let person = Person::at(&api);
    for (line, command) in [
        ("describe r", "restore describe r"),
        ("describe r --watch", "restore describe r"),
        ("logs r", "restore logs r"),
        ("logs r --follow", "restore logs r"),
        ("logs nightly", "schedules describe nightly"),
        ("delete r --yes", "restore delete r"),
        ("delete nightly --yes", "schedules delete nightly"),
        ("ls r", "restore describe r --details"),
        ("ls nightly", "schedules describe nightly"),
        ("cancel r", "restore cancel r"),
        ("wait r", "restore wait r"),
        ("download r", "restore describe r"),
        ("restore describe b", "describe b"),
        ("restore logs b", "logs b"),
        ("restore logs nightly", "schedules describe nightly"),
        ("restore delete b --yes", "delete b"),
        ("schedules describe b", "describe b"),
        ("schedules delete r --yes", "restore delete r"),
        ("schedules pause b", "describe b"),
        ("schedules trigger b", "describe b"),
    ] {
        let seen = person.types(line).await;
        let hint = format!("of this name: kubectl backup {command}\n");
        assert_says!(seen, hint.as_str(), "--- exit 1\n");
    }
    assert_eq!(
        [
            api.all("backups").len(),
            api.all("restores").len(),
            api.all("schedules").len()
        ],
        [1, 1, 1]
    );
}
