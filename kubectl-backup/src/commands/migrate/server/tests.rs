use super::*;

#[test]
fn flags_are_read_in_all_their_forms() {
    let line = "/velero server --log-level debug --restore-only -n velero --features=EnableCSI \
                --client-qps=20 --features A --client-qps=30 --metrics-address=";
    let read: Vec<String> = flags(line.split_whitespace())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        read,
        [
            "--log-level=debug",
            "--restore-only",
            "--namespace=velero",
            "--features=EnableCSI,A",
            "--client-qps=30",
            "--metrics-address=",
        ]
    );
}

#[test]
fn a_switch_is_on_as_go_reads_it() {
    for (value, on) in [
        (None, true),
        (Some("true"), true),
        (Some("1"), true),
        (Some("false"), false),
        (Some("0"), false),
    ] {
        let flag = Flag {
            name: "x".to_owned(),
            value: value.map(str::to_owned),
        };
        assert_eq!(flag.is_on(), on, "{value:?}");
    }
}

#[test]
fn the_version_gives_the_library_of_cron_expressions() {
    let (robfig, netresearch) = (Some(Dialect::Robfig), Some(Dialect::Netresearch));
    for (image, tag, dialect) in [
        ("velero/velero:v1.18.2", Some("v1.18.2"), robfig),
        ("velero/velero:v1.18.3", Some("v1.18.3"), netresearch),
        ("r:5000/velero:1.9.0-debian", Some("1.9.0-debian"), robfig),
        (
            "velero/velero:v1.19.0-rc.1",
            Some("v1.19.0-rc.1"),
            netresearch,
        ),
        ("velero/velero:v2.0", Some("v2.0"), netresearch),
        ("velero/velero:v1.18", Some("v1.18"), None),
        ("velero/velero:v1.17", Some("v1.17"), robfig),
        ("velero/velero:main", None, None),
        ("velero/velero:v1.18.2@sha256:00", Some("v1.18.2"), robfig),
        ("velero/velero@sha256:00", None, None),
        ("velero/velero", None, None),
    ] {
        let server = Server {
            version: version(image),
            ..Server::default()
        };
        assert_eq!(server.version.as_deref(), tag, "{image}");
        assert_eq!(server.dialect(), dialect, "{image}");
    }
}

#[test]
fn who_keeps_a_deployment_is_read_from_its_metadata() {
    let helm = json!({ "meta.helm.sh/release-name": "backups" });
    for (metadata, expected) in [
        (json!({}), None),
        (
            json!({ "annotations": helm }),
            Some("the release backups of Helm"),
        ),
        (
            json!({ "annotations": helm, "labels": { "helm.toolkit.fluxcd.io/name": "v" } }),
            Some("Flux"),
        ),
        (
            json!({ "labels": { "argocd.argoproj.io/instance": "v" } }),
            Some("Argo CD"),
        ),
        (
            json!({ "ownerReferences": [{ "kind": "DataProtectionApplication", "name": "dpa" }] }),
            Some("DataProtectionApplication dpa"),
        ),
    ] {
        let manager = Manager::of(&metadata).map(|manager| manager.to_string());
        assert_eq!(manager.as_deref(), expected, "{metadata}");
    }
}

#[test]
fn the_mounted_credentials_are_found() {
    let container = json!({
        "env": [{ "name": "AWS_SHARED_CREDENTIALS_FILE", "value": "/credentials/cloud" }],
        "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }, { "name": "c", "mountPath": "/credentials" }],
    });
    let pod = json!({ "volumes": [{ "name": "c", "secret": { "secretName": "s3" } }] });
    let entry = SecretEntry {
        secret: "s3".to_owned(),
        key: "cloud".to_owned(),
    };
    assert_eq!(credentials(&pod, &container), Some(entry));
    assert_eq!(credentials(&json!({}), &container), None);
}

#[test]
fn only_what_velero_install_does_not_make_is_an_extra() {
    let usual = json!({ "affinity": usual_affinity(), "dnsPolicy": "ClusterFirst", "tolerations": [],
        "volumes": [{ "name": "plugins" }, { "name": "scratch" }], "containers": [{ "name": "velero" }] });
    let velero = json!({ "name": "velero" });
    assert_eq!(extras(&usual, &velero), [""; 0]);
    let own = json!({ "affinity": { "podAffinity": {} }, "nodeSelector": { "a": "b" }, "hostNetwork": true,
        "volumes": [{ "name": "ca" }], "containers": [{ "name": "velero" }, { "name": "proxy" }] });
    assert_eq!(
        extras(&own, &velero),
        [
            "hostNetwork",
            "nodeSelector",
            "affinity",
            "volume ca",
            "container proxy"
        ]
    );
}
