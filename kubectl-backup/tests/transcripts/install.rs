use crate::prelude::*;

pub const REFUSED: &str = "admission webhook \"claims.backup-webhook.velero.io\" denied the request: Backup velero/kubectl-backup-doctor is not valid: spec.ttl: \"tomorrow\" is not a duration";
const OURS: &str = "app.kubernetes.io/part-of";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn has_version(api: &FakeApi, minor: &str, git_version: &str) {
    let version = json!({
        "major": "1", "minor": minor, "gitVersion": git_version, "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    api.has_at("/version", version);
}

fn has_node(api: &FakeApi, name: &str, labels: &Value) {
    let mut node =
        json!({ "metadata": { "name": name, "labels": { "kubernetes.io/os": "linux" } } });
    json_patch::merge(&mut node["metadata"]["labels"], labels);
    api.has_at(&format!("/api/v1/nodes/{name}"), node);
}

/// An empty cluster of this version, with two nodes.
pub async fn empty(minor: &str) -> FakeApi {
    let api = FakeApi::start().await;
    has_version(&api, minor, &format!("v1.{minor}.4"));
    has_node(
        &api,
        "a",
        &json!({ "node-role.kubernetes.io/control-plane": "" }),
    );
    has_node(&api, "b", &json!({}));
    api
}

/// A program's Deployment, as stored in a cluster.
pub fn deployment(program: &str, over: &Value) -> Value {
    let base = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": program, "namespace": "velero", "generation": 1, "labels": { OURS: "backup" } },
        "spec": { "replicas": 2, "selector": {}, "template": { "spec": { "containers": [
            { "name": "x", "image": format!("registry.example.com/backup/{program}:v0.0.9"), "args": [] }] } } },
        "status": { "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 },
    });
    with(base, over)
}

fn ready(available: u32) -> Value {
    json!({ "status": { "availableReplicas": available } })
}

/// The states of a program's rollout, after `other_looks` reads of its Deployment.
fn rolls_out(api: &FakeApi, program: &str, other_looks: usize, states: &[Value]) {
    let end = format!("/deployments/{program}");
    api.meets(&Method::GET, &end, vec![Fault::None; other_looks]);
    api.becomes(&end, states.iter().map(|state| deployment(program, state)));
}

#[tokio::test]
async fn an_installation_checks_applies_and_waits() {
    let api = empty("34").await;
    rolls_out(&api, "backup-webhook", 2, &[ready(0), ready(1), ready(2)]);
    rolls_out(&api, "backup-controller", 2, &[ready(2)]);
    api.has_at("/api/v1/namespaces/velero/pods/backup-webhook-1", json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "backup-webhook-1", "labels": { "app.kubernetes.io/name": "backup-webhook" } },
        "status": { "phase": "Running" },
    }));
    api.on_post("/backups", Fault::forbidden(REFUSED));
    transcript!(
        Person::at(&api),
        "install --registry=registry.example.com/backup"
    );
    // The registration is applied only when a webhook can answer.
    let seen = api.seen();
    let at = |what: &str| seen.iter().position(|line| line.contains(what)).unwrap();
    let registered = at(
        "PATCH /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backup-webhook?",
    );
    let last_look = seen
        .iter()
        .rposition(|line| line == "GET /apis/apps/v1/namespaces/velero/deployments/backup-webhook");
    assert!(last_look.unwrap() < registered, "{seen:#?}");
    let patched: Vec<_> = seen
        .iter()
        .filter(|line| line.starts_with("PATCH"))
        .collect();
    assert!(
        patched
            .iter()
            .all(|line| line.contains("fieldManager=kubectl-backup")),
        "{patched:#?}"
    );
}

#[tokio::test]
async fn whatever_stands_in_the_way_is_named_before_anything_is_changed() {
    let api = empty("29").await;
    let foreign =
        json!({ "metadata": { "name": "backups.velero.io", "labels": { "component": "velero" } } });
    api.has_at(&format!("{CRDS}/backups.velero.io"), foreign);
    let enforced = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    api.has_at(
        "/api/v1/namespaces/velero",
        json!({ "metadata": { "name": "velero", "labels": enforced } }),
    );
    let velero = json!({ "metadata": { "name": "velero", "namespace": "velero" }, "spec": { "replicas": 1, "template": {
        "spec": { "containers": [{ "image": "velero/velero:v1.18.0", "args": ["server"] }] } } } });
    api.has_at("/apis/apps/v1/namespaces/velero/deployments/velero", velero);
    let other = json!({ "metadata": { "name": "backup-webhook" } });
    api.has_at(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/backup-webhook",
        other,
    );
    api.forbids("clusterroles").forbids("*");
    transcript!(Person::at(&api), "install --host-network --monitoring");
    assert!(
        !api.seen().iter().any(|line| line.starts_with("PATCH")),
        "{:?}",
        api.seen()
    );
}

#[tokio::test]
async fn a_namespace_that_refuses_the_pods_of_the_mover_is_told_and_taken() {
    let api = empty("34").await;
    let enforced = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    api.has_at(
        "/api/v1/namespaces/velero",
        json!({ "metadata": { "name": "velero", "labels": enforced } }),
    );
    // Ends after the checks.
    api.forbids("*");
    let person = Person::at(&api);
    let seen = person.types("install").await;
    let refused = "! namespace              velero admits our programs, and not the pods that move volume data";
    assert_says!(seen, refused, "pod-security.kubernetes.io/enforce=baseline");
    let seen = person.types("install --data-mover=false").await;
    let admitted =
        "✓ namespace              velero is there, and admits our pods (Pod Security restricted)";
    assert_says!(seen, admitted);
}

#[tokio::test]
async fn a_guard_needs_a_velero_server_and_leaves_its_definitions() {
    let api = empty("34").await;
    let person = Person::at(&api);
    let mut all = person.types("install --mode=guard").await;
    for name in ["backups", "restores"] {
        let foreign = json!({ "metadata": { "name": format!("{name}.velero.io") } });
        api.has_at(&format!("{CRDS}/{name}.velero.io"), foreign);
    }
    api.has_at(
        "/api/v1/namespaces/velero",
        json!({ "metadata": { "name": "velero" } }),
    );
    all += "\n";
    all += &person.types("install --mode=guard --wait=false").await;
    assert_snapshot!(all);
    let patched = |what: &str| {
        api.seen()
            .iter()
            .any(|line| line.starts_with("PATCH") && line.contains(what))
    };
    assert!(
        patched("/deployments/")
            && !patched("/customresourcedefinitions/")
            && !patched("/namespaces/velero?")
    );
}

#[tokio::test]
async fn what_keeps_a_program_from_being_ready_is_told_when_time_is_over() {
    let api = empty("34").await;
    rolls_out(&api, "backup-webhook", 2, &[ready(0)]);
    let pulls = json!({ "reason": "ImagePullBackOff", "message": "Back-off pulling image \"backup-webhook:v0.1.0\"" });
    api.has_at("/api/v1/namespaces/velero/pods/backup-webhook-1", json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "backup-webhook-1", "labels": { "app.kubernetes.io/name": "backup-webhook" } },
        "status": { "phase": "Pending", "containerStatuses": [{ "state": { "waiting": pulls } }] },
    }));
    transcript!(Person::at(&api), "install --timeout=1s");
    let registered = |line: &String| {
        line.starts_with("PATCH") && line.contains("validatingwebhookconfigurations")
    };
    assert!(!api.seen().iter().any(registered));
}

#[tokio::test]
async fn an_upgrade_keeps_what_was_chosen_and_removes_what_is_gone() {
    let api = empty("34").await;
    let noted = json!({ "metadata": { "annotations": {
        "kubectl-backup/options": "{\"mode\":\"engine\",\"registry\":\"registry.example.com/backup\",\"features\":[\"EnableCSI\"]}" } } });
    for program in ["backup-webhook", "backup-controller"] {
        api.has(deployment(program, &noted));
    }
    let old = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
        "name": "backup-of-old", "labels": { OURS: "backup" },
        "managedFields": [{ "manager": "kubectl-backup", "operation": "Apply" }] } });
    api.has_at(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/backup-of-old",
        old,
    );
    let somebodys =
        json!({ "metadata": { "name": "backup-of-somebody", "labels": { OURS: "backup" } } });
    api.has_at(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/backup-of-somebody",
        somebodys,
    );
    api.on_post("/backups", Fault::forbidden(REFUSED));
    transcript!(Person::at(&api), "upgrade --profile=percona-ps");
    let applied = api.stored("deployments", "backup-controller").unwrap();
    let container = &applied["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["image"],
        "registry.example.com/backup/backup-controller:v0.1.0"
    );
    let args = container["args"].to_string();
    assert_says!(args, "--guard=percona-ps", "--features=EnableCSI");
    assert_eq!(
        container["env"][2]["value"],
        "registry.example.com/backup/backup-mover:v0.1.0"
    );
}

#[tokio::test]
async fn what_is_installed_is_known_before_it_is_changed() {
    let person = |api: &FakeApi| Person::at(api);
    let nothing = FakeApi::start().await;
    let mut all = person(&nothing).types("upgrade").await;
    for (over, lines) in [
        (json!({}), &["install", "upgrade"][..]),
        (
            json!({ "metadata": { "annotations": { "kubectl-backup/options": "{}" } } }),
            &["upgrade --mode=guard"],
        ),
        (
            json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "Helm" } } }),
            &["upgrade --mode=engine", "uninstall --yes"],
        ),
    ] {
        for line in lines {
            let api = empty("34").await;
            api.has(deployment("backup-webhook", &over));
            all += "\n";
            all += &person(&api).types(line).await;
        }
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_dry_run_of_the_client_asks_no_cluster() {
    let person = Person::without_cluster();
    transcript!(person, "install --dry-run=client --mode=guard");
    let yaml = person
        .types("install --dry-run=client -o yaml -n vault")
        .await;
    assert_says!(yaml, "\n---\n", "namespace: vault\n");
    let list = person.reads("install --dry-run=client -o json").await;
    assert_eq!(list["kind"], "List");
    assert!(list["items"].as_array().unwrap().len() > 40);
    let apart = person.types("install --dry-run client -o name").await;
    assert_says!(apart, "No cluster was asked.", "--- exit 0");
    for line in ["install --dry-run -o yaml", "install --dry-run server"] {
        let seen = person.types(line).await;
        assert_says!(seen, "there is no kubeconfig", "--- exit 1");
    }
}

/// A cluster of EKS with three nodes, all that snapshots need, Prometheus' operator and Argo CD.
async fn eks() -> FakeApi {
    let api = FakeApi::start().await;
    has_version(&api, "33", "v1.33.4-eks-ba24e9c");
    for name in ["a", "b", "c"] {
        has_node(&api, name, &json!({}));
    }
    has_snapshots(&api, &[("fast", "disk.example.com")]);
    has_storage_class(&api);
    for name in [
        "applications.argoproj.io",
        "podmonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
    ] {
        api.has_at(
            &format!("{CRDS}/{name}"),
            json!({ "metadata": { "name": name } }),
        );
    }
    api.has_at(
        "/apis/apps/v1/namespaces/kube-system/daemonsets/aws-node",
        json!({ "metadata": { "name": "aws-node" } }),
    );
    api
}

fn has_storage_class(api: &FakeApi) {
    api.has_at(
        "/apis/storage.k8s.io/v1/storageclasses/fast",
        json!({ "metadata": { "name": "fast" }, "provisioner": "disk.example.com" }),
    );
}

#[tokio::test]
async fn a_dry_run_says_what_it_chooses_and_why() {
    let api = eks().await;
    let person = Person::at(&api);
    let seen = person.types("install --dry-run -o name").await;
    let (names, reasons) = seen.split_once("--- stderr\n").unwrap();
    assert_says!(names, "podmonitor.monitoring.coreos.com/backup-webhook\n");
    assert_snapshot!(reasons);
    // The manifests alone go to stdout.
    let list = person.reads("install --dry-run=server -o json").await;
    assert_says!(list, "--features=EnableCSI");
    let writes =
        |line: &String| !line.starts_with("GET") && !line.contains("selfsubjectaccessreviews");
    assert!(!api.seen().iter().any(writes), "{:#?}", api.seen());
}

#[tokio::test]
async fn a_dry_run_fails_where_the_installation_would() {
    let api = empty("29").await;
    let seen = Person::at(&api).types("install --dry-run -o name").await;
    assert_says!(
        seen,
        "deployment.apps/backup-webhook\n",
        "✗ API server             Kubernetes v1.29.4",
        "--- exit 1",
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_not_guessed() {
    let api = eks().await;
    api.on_get("/api/v1/nodes", Fault::forbidden("nodes is forbidden"));
    let seen = Person::at(&api).types("install --dry-run -o name").await;
    assert_says!(
        seen,
        "? platform               not known: the nodes (cannot list nodes: nodes is forbidden); taken: EKS\n",
        "? replicas               not known: the number of nodes (cannot list nodes: nodes is forbidden); taken: 2 of each program\n",
        "✓ host network           off: pods have addresses of the VPC",
        "--- exit 0",
    );
}

#[tokio::test]
async fn one_node_gets_one_replica_of_each_program() {
    let api = FakeApi::start().await;
    has_version(&api, "33", "v1.33.1+k3s1");
    has_node(
        &api,
        "a",
        &json!({ "node-role.kubernetes.io/control-plane": "true" }),
    );
    let seen = Person::at(&api).types("install --wait=false").await;
    assert_says!(
        seen,
        "✓ platform               k3s (Kubernetes v1.33.1+k3s1), pods can run on 1 node\n",
        "✓ replicas               1 of each program, for 1 node; with more: kubectl backup upgrade --replicas=2\n",
    );
    for program in ["backup-webhook", "backup-controller"] {
        let applied = api.stored("deployments", program).unwrap();
        assert_eq!(applied["spec"]["replicas"], 1, "{program}");
    }
}

#[tokio::test]
async fn a_limit_that_no_pod_of_the_data_mover_can_use_is_refused_before_anything_is_applied() {
    let api = empty("34").await;
    let person = Person::at(&api);
    for rollout in ["", " --dry-run=client"] {
        let line = format!("install --controller-arg=--mover-upload-limit=20{rollout}");
        let seen = person.types(&line).await;
        assert_says!(
            seen,
            "--mover-upload-limit is \"20\": it has to be a number of bytes per second such as 20Mi, at least 64Ki",
            "nothing was changed",
            "--- exit 1\n"
        );
    }
    let requests = api.seen();
    let writes = requests.iter().filter(|line| line.starts_with("PATCH"));
    assert_eq!(writes.count(), 0, "{requests:?}");
}

#[tokio::test]
async fn an_installation_in_another_namespace_is_left_alone() {
    let api = FakeApi::start().await;
    let service = json!({ "service": { "name": "backup-webhook", "namespace": "vault" } });
    let metadata = json!({ "name": "backup-webhook", "labels": { OURS: "backup" } });
    let registration = json!({ "metadata": metadata, "webhooks": [{ "name": "claims", "clientConfig": service }] });
    let path =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backup-webhook";
    api.has_at(path, registration);
    transcript!(
        Person::at(&api),
        "install",
        "upgrade",
        "uninstall --yes --with-namespace"
    );
    // If an installation was removed halfway, its rights remain.
    let halfway = FakeApi::start().await;
    let rights = json!({ "metadata": metadata, "subjects": [{ "kind": "ServiceAccount", "namespace": "vault" }] });
    halfway.has_at(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/backup-webhook",
        rights,
    );
    let seen = Person::at(&halfway).types("uninstall --yes").await;
    assert_says!(seen, "is in namespace vault, not in velero");
    let writes = |api: &FakeApi| api.seen().iter().any(|line| !line.starts_with("GET"));
    assert!(!writes(&api) && !writes(&halfway));
}

/// Resources that snapshots need: the types, a driver, and classes for drivers.
pub fn has_snapshots(api: &FakeApi, classes: &[(&str, &str)]) {
    let types = [
        "volumesnapshotclasses",
        "volumesnapshotcontents",
        "volumesnapshots",
    ];
    let types = types.map(|plural| json!({ "name": plural, "singularName": "", "namespaced": false, "kind": "X", "verbs": ["list"] }));
    api.serves("snapshot.storage.k8s.io/v1", &json!(types));
    api.has_at(
        "/apis/storage.k8s.io/v1/csidrivers/disk.example.com",
        json!({ "metadata": { "name": "disk.example.com" }, "spec": {} }),
    );
    api.has_at(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/snapshot-controller-leader",
        json!({ "metadata": { "name": "snapshot-controller-leader", "namespace": "kube-system" },
            "spec": { "renewTime": "2026-11-03T05:14:10.000000Z" } }),
    );
    for (name, driver) in classes {
        let class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": name }, "driver": driver, "deletionPolicy": "Delete" });
        api.has_at(
            &format!("/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/{name}"),
            class,
        );
    }
}

/// A claim bound to a volume of this kind.
pub fn has_claim(api: &FakeApi, namespace: &str, name: &str, source: &Value) {
    let volume = format!("pv-{namespace}-{name}");
    let mut spec = json!({ "claimRef": { "namespace": namespace, "name": name } });
    json_patch::merge(&mut spec, source);
    api.has_at(
        &format!("/api/v1/persistentvolumes/{volume}"),
        json!({ "metadata": { "name": volume }, "spec": spec }),
    );
    api.has_at(&format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"), json!({
        "metadata": { "name": name, "namespace": namespace }, "spec": { "volumeName": volume }, "status": { "phase": "Bound" } }));
}

pub fn of_driver(driver: &str) -> Value {
    json!({ "csi": { "driver": driver, "volumeHandle": "handle" } })
}

fn controller_args(api: &FakeApi) -> String {
    let applied = api.stored("deployments", "backup-controller").unwrap();
    applied["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
}

#[tokio::test]
async fn snapshots_are_turned_on_where_they_can_be_taken_and_what_nothing_saves_is_named() {
    let api = empty("34").await;
    has_snapshots(&api, &[("fast", "disk.example.com")]);
    has_claim(&api, "shop", "data", &of_driver("disk.example.com"));
    has_claim(
        &api,
        "shop",
        "files",
        &json!({ "nfs": { "server": "nfs", "path": "/" } }),
    );
    for at in 1..=7 {
        has_claim(
            &api,
            "db",
            &format!("data-{at}"),
            &of_driver("other.example.com"),
        );
    }
    has_storage_class(&api);
    transcript!(Person::at(&api), "install --wait=false");
    assert_says!(controller_args(&api), "--features=EnableCSI");
}

#[tokio::test]
async fn why_snapshots_stay_off_is_said_and_a_flag_wins() {
    let mut all = String::new();
    let unmarked = [("fast", "disk.example.com"), ("slow", "disk.example.com")];
    for (classes, line, is_on) in [
        (None, "install --wait=false", false),
        (Some(&[][..]), "install --wait=false", false),
        (Some(&unmarked[..]), "install --wait=false", false),
        (
            Some(&unmarked[..1]),
            "install --wait=false --snapshots=false",
            false,
        ),
        (
            Some(&unmarked[..1]),
            "install --wait=false --features=none",
            false,
        ),
        (None, "install --wait=false --snapshots", true),
    ] {
        let api = empty("34").await;
        if let Some(classes) = classes {
            has_snapshots(&api, classes);
        }
        has_claim(&api, "shop", "data", &of_driver("disk.example.com"));
        let seen = Person::at(&api).types(line).await;
        let said = seen.lines().filter(|line| {
            line.starts_with('$') || line.contains(" volumes ") || line.starts_with("      ")
        });
        all += &said.map(|line| format!("{line}\n")).collect::<String>();
        let args = controller_args(&api);
        assert_eq!(args.contains("EnableCSI"), is_on, "{line}: {args}");
    }
    assert_snapshot!(all);
}
