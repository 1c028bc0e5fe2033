//! Policies that select the items of a namespace for backup and restore.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    filter_policies_select_items_of_backups_and_restores,
    namespaces_are_selected_by_their_labels,
}

fn map(namespace: &str, name: &str, app: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } } })
}

fn policy(name: &str, text: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": NAMESPACE },
        "data": { "policy.yaml": format!("version: v1\n{text}") } })
}

async fn filter_policies_select_items_of_backups_and_restores(world: &mut World) -> TestResult {
    let [one, two] = ["filtered-one", "filtered-two"];
    for namespace in [one, two] {
        ensure_namespace(&world.client, namespace).await?;
        let names = [("app-web", "web"), ("app-db", "db"), ("other", "web")];
        create_all(
            &world.client,
            names.map(|(name, app)| map(namespace, name, app)),
        )
        .await?;
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": namespace } });
        create_all(&world.client, [secret]).await?;
    }
    let of_backup = policy(
        "filters-of-backup",
        "namespacedFilterPolicies:\n- namespaces: [filtered-one]\n  resourceFilters: [{kinds: [ConfigMap], names: ['app-*']}]\n",
    );
    let of_restore = policy(
        "filters-of-restore",
        "namespacedFilterPolicies:\n- namespaces: ['filtered-*']\n  resourceFilters: [{kinds: [ConfigMap], labelSelector: {matchLabels: {app: web}}}]\n",
    );
    create_all(&world.client, [of_backup, of_restore]).await?;
    let config_map =
        |name: &str| serde_json::from_value(json!({ "kind": "configmap", "name": name }));

    let spec = BackupSpec {
        resource_policy: config_map("filters-of-backup")?,
        ..of_namespaces(&[one, two])
    };
    world.back_up("filtered", spec).await?;
    let entries = world.backup_entries("filtered").await?;
    let in_backup = |path: &str| entries.contains(&format!("resources/{path}.json"));
    for (path, expected) in [
        ("configmaps/namespaces/filtered-one/app-web", true),
        ("configmaps/namespaces/filtered-one/app-db", true),
        ("configmaps/namespaces/filtered-one/other", false),
        ("secrets/namespaces/filtered-one/s", false),
        ("namespaces/cluster/filtered-one", true),
        ("configmaps/namespaces/filtered-two/other", true),
        ("secrets/namespaces/filtered-two/s", true),
    ] {
        ensure!(in_backup(path) == expected, "{path}: {entries:?}");
    }

    let [to_one, to_two] = ["filtered-one-back", "filtered-two-back"];
    let spec = RestoreSpec {
        resource_policy: config_map("filters-of-restore")?,
        namespace_mapping: [(one, to_one), (two, to_two)]
            .map(|(from, to)| (from.to_owned(), to.to_owned()))
            .into(),
        ..from_backup("filtered")
    };
    let restored = world.restore("filtered", spec.clone()).await;
    let refused = RestoreSpec {
        resource_policy: config_map("no-such-filters")?,
        ..spec
    };
    let refused = world
        .run_restore("filtered-refused", refused, RestorePhase::FailedValidation)
        .await;
    let config_maps: Api<ConfigMap> = world.api();
    for name in ["filters-of-backup", "filters-of-restore"] {
        config_maps.delete_object(name).await?;
    }
    ensure!(restored?.status.warnings == 0);
    says(
        &refused?.status.validation_errors.join("; "),
        &["spec.resourcePolicy.name", "no-such-filters"],
    )?;
    for (namespace, expected) in [
        (to_one, vec!["app-web"]),
        (to_two, vec!["app-web", "other"]),
    ] {
        let maps = objects_in(&world.client, namespace, "v1", "ConfigMap")
            .list_all()
            .await?;
        let names: Vec<String> = maps.iter().map(ResourceExt::name_any).collect();
        let names: Vec<&String> = names
            .iter()
            .filter(|name| *name != "kube-root-ca.crt")
            .collect();
        ensure!(names == expected, "{namespace}: {names:?}");
        let secrets = objects_in(&world.client, namespace, "v1", "Secret")
            .list_all()
            .await?;
        ensure!(secrets.is_empty(), "{secrets:?}");
    }
    Ok(())
}

async fn namespaces_are_selected_by_their_labels(world: &mut World) -> TestResult {
    let namespaces = [
        ("labelled-one", "shop"),
        ("labelled-two", "shop"),
        ("labelled-other", "ops"),
    ];
    for (namespace, team) in namespaces {
        ensure_namespace(&world.client, namespace).await?;
        let scratch = if namespace == "labelled-two" {
            "yes"
        } else {
            "no"
        };
        let labels = json!({ "metadata": { "labels": { "labelled": team, "scratch": scratch } } });
        let api: Api<Namespace> = Api::all(world.client.clone());
        api.patch(namespace, &PatchParams::default(), &Patch::Merge(labels))
            .await?;
        create_all(&world.client, [map(namespace, "m", "web")]).await?;
    }
    let text = |included: &str| {
        format!(
            "includeExcludePolicy: {{ includedNamespacesByLabel: ['{included}'], excludedNamespacesByLabel: ['scratch=yes'] }}"
        )
    };
    let policies = [
        policy("by-label", &text("labelled=shop")),
        policy("by-no-label", &text("labelled=nothing")),
    ];
    create_all(&world.client, policies).await?;
    let spec = |name: &str| -> anyhow::Result<BackupSpec> {
        let resource_policy = serde_json::from_value(json!({ "kind": "configmap", "name": name }))?;
        Ok(BackupSpec {
            resource_policy,
            storage_location: Some("default".to_owned()),
            ..BackupSpec::default()
        })
    };
    let backup = world.back_up("by-label", spec("by-label")?).await?;
    ensure!(backup.spec.included_namespaces == ["labelled-one"]);
    let entries = world.backup_entries("by-label").await?;
    let of = |namespace: &str| format!("resources/configmaps/namespaces/{namespace}/m.json");
    for (namespace, _) in namespaces {
        ensure!(
            entries.contains(&of(namespace)) == (namespace == "labelled-one"),
            "{namespace}: {entries:?}"
        );
    }
    world
        .backups()
        .create_object(&Backup::new("by-no-label", spec("by-no-label")?))
        .await?;
    let refused = world
        .backup_ends("by-no-label", BackupPhase::FailedValidation)
        .await?;
    says(
        &refused.status.validation_errors.join("; "),
        &[
            "includedNamespacesByLabel",
            "no namespace",
            "nothing would be backed up",
        ],
    )
}
