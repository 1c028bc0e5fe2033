//! The rights of the roles for users, as in the table of docs/operate/access.md.

use backup_tests::binaries::root;
use k8s_openapi::api::{authorization::v1::SubjectAccessReview, rbac::v1::ClusterRoleBinding};

use crate::prelude::*;

crate::tests! {
    each_role_allows_what_its_row_says_and_nothing_else,
    who_is_on_call_is_told_which_role_is_missing_and_sees_all_with_it,
}

const ROLES: [&str; 6] = [
    "backup-viewer",
    "backup-operator",
    "backup-restorer",
    "backup-break-glass",
    "backup-reader",
    "backup-owner",
];

/// Verb, group, resource, subresource or name, and the roles with this right.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const SEEING: &[&str] = &[
    "backup-viewer",
    "backup-operator",
    "backup-restorer",
    "backup-reader",
];
const OPERATOR: &[&str] = &["backup-operator"];
const RESTORER: &[&str] = &["backup-restorer"];
const READER: &[&str] = &["backup-reader"];
const OWNER: &[&str] = &["backup-owner"];
const NONE: &[&str] = &[];

const TABLE: &[Row] = &[
    ("list", "velero.io", "backups", "", SEEING),
    ("watch", "velero.io", "restores", "", SEEING),
    ("get", "velero.io", "backupstoragelocations", "", SEEING),
    ("get", "velero.io", "schedules", "", SEEING),
    ("list", "coordination.k8s.io", "leases", "", SEEING),
    ("create", "velero.io", "serverstatusrequests", "", SEEING),
    (
        "create",
        "velero.io",
        "backups",
        "",
        &["backup-operator", "backup-owner"],
    ),
    ("patch", "velero.io", "backups", "", OPERATOR),
    ("delete", "velero.io", "backups", "", OPERATOR),
    (
        "create",
        "velero.io",
        "schedules",
        "",
        &["backup-operator", "backup-owner"],
    ),
    ("patch", "velero.io", "schedules", "", OPERATOR),
    ("create", "velero.io", "deletebackuprequests", "", OPERATOR),
    ("hold", "velero.io", "locks", "", OPERATOR),
    ("release", "velero.io", "locks", "", OPERATOR),
    ("update", "coordination.k8s.io", "leases", "", OPERATOR),
    (
        "create",
        "velero.io",
        "restores",
        "",
        &["backup-restorer", "backup-owner"],
    ),
    ("patch", "velero.io", "restores", "", RESTORER),
    ("delete", "velero.io", "restores", "", RESTORER),
    (
        "break-glass",
        "velero.io",
        "locks",
        "",
        &["backup-break-glass"],
    ),
    (
        "create",
        "velero.io",
        "downloadrequests",
        "",
        &["backup-reader", "backup-owner"],
    ),
    ("get", "velero.io", "downloadrequests", "", READER),
    // Of whom each object is checked, and of whom not.
    ("own-namespaces", "velero.io", "backups", "", OWNER),
    ("own-namespaces", "velero.io", "restores", "", OWNER),
    ("own-namespaces", "velero.io", "schedules", "", OWNER),
    ("own-namespaces", "velero.io", "downloadrequests", "", OWNER),
    ("all-namespaces", "velero.io", "backups", "", OPERATOR),
    ("all-namespaces", "velero.io", "schedules", "", OPERATOR),
    ("all-namespaces", "velero.io", "restores", "", RESTORER),
    (
        "all-namespaces",
        "velero.io",
        "downloadrequests",
        "",
        READER,
    ),
    ("list", "velero.io", "downloadrequests", "", NONE),
    ("list", "velero.io", "datauploads", "", SEEING),
    ("create", "velero.io", "datauploads", "", NONE),
    ("patch", "velero.io", "datauploads", "", NONE),
    ("create", "velero.io", "datadownloads", "", NONE),
    ("patch", "velero.io", "datadownloads", "", NONE),
    ("create", "velero.io", "backuprepositories", "", NONE),
    ("update", "velero.io", "backups", "status", NONE),
    ("update", "velero.io", "restores", "status", NONE),
    ("deletecollection", "velero.io", "backups", "", NONE),
    ("create", "velero.io", "backupstoragelocations", "", NONE),
    ("patch", "velero.io", "backupstoragelocations", "", NONE),
    ("patch", "coordination.k8s.io", "leases", "", NONE),
    ("delete", "coordination.k8s.io", "leases", "", NONE),
    ("get", "", "secrets", "", NONE),
    ("create", "", "configmaps", "", NONE),
    ("create", "", "pods", "exec", NONE),
];

async fn each_role_allows_what_its_row_says_and_nothing_else(world: &mut World) -> TestResult {
    let page = std::fs::read_to_string(root().join("docs/operate/access.md"))?;
    let reviews = Api::<SubjectAccessReview>::all(world.client.clone());
    ensure_namespace(&world.client, "elsewhere").await?;
    for role in ROLES {
        ensure!(
            page.contains(&format!("| `{role}` |")),
            "docs/operate/access.md has no row of {role}"
        );
        world.person(role, Some(role)).await?;
        let may = async |namespace: &str, (verb, group, resource, subresource, _): &Row| {
            let review = serde_json::from_value(json!({ "spec": {
                "user": format!("system:serviceaccount:{NAMESPACE}:{role}"), "resourceAttributes": {
                    "namespace": namespace, "verb": verb, "group": group, "resource": resource,
                    "subresource": subresource } } }))?;
            let status = reviews.create_object(&review).await?.status;
            anyhow::Ok(status.is_some_and(|status| status.allowed))
        };
        // The API server sees bindings by a watch.
        let granted = TABLE
            .iter()
            .find(|row| row.4.contains(&role))
            .context("it grants nothing")?;
        eventually(
            "the binding is in force",
            Duration::from_mins(1),
            async || anyhow::Ok(when(may(NAMESPACE, granted).await?, "not yet")),
        )
        .await?;
        for row in TABLE {
            let (verb, group, resource, subresource, who) = row;
            let what = format!("{role}: {verb} {group}/{resource} {subresource}");
            ensure!(
                may(NAMESPACE, row).await? == who.contains(&role),
                "{what}: not as the table says"
            );
            ensure!(!may("elsewhere", row).await?, "{what} in another namespace");
        }
    }
    Ok(())
}

async fn who_is_on_call_is_told_which_role_is_missing_and_sees_all_with_it(
    world: &mut World,
) -> TestResult {
    const ROLE: &str = "backup-cluster-viewer";
    let stranger = world.kubectl_backup_as("on-call-stranger", None).await?;
    let refused = stranger.fails(1, &["get"]).await?.stderr;
    let given = format!(
        "kubectl -n {NAMESPACE} create rolebinding backup-viewer-NAME --clusterrole=backup-viewer --user=NAME"
    );
    says(&refused, &[&given])?;

    let plugin = world
        .kubectl_backup_as("on-call", Some("backup-viewer"))
        .await?;
    let said = async || {
        let ran = plugin.run(&["status"]).await?;
        anyhow::Ok(format!("{}{}", ran.stdout, ran.stderr))
    };
    let given =
        format!("kubectl create clusterrolebinding {ROLE}-NAME --clusterrole={ROLE} --user=NAME");
    eventually(
        "the binding is in force",
        Duration::from_mins(1),
        async || {
            let said = said().await?;
            anyhow::Ok(when(
                said.contains(&given) && !said.contains("cannot list backups"),
                said,
            ))
        },
    )
    .await?;
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "on-call" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE },
        "subjects": [{ "kind": "ServiceAccount", "name": "on-call", "namespace": NAMESPACE }] });
    Api::<ClusterRoleBinding>::all(world.client.clone())
        .create_object(&serde_json::from_value(binding)?)
        .await?;
    eventually("namespaces are seen", Duration::from_mins(1), async || {
        let said = said().await?;
        anyhow::Ok(when(!said.contains("forbidden"), said))
    })
    .await
}
