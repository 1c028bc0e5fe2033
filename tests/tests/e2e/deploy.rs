//! The manifests that users apply to a cluster.

pub mod chart;
pub mod guard;
pub mod image;
pub mod monitoring;
pub mod programs;
pub mod release;

use backup_core::profile::Profile;
use backup_tests::{binaries::root, install};
use kube::{
    Discovery,
    api::{Patch, PatchParams, ValidationDirective},
};

use crate::prelude::*;

crate::tests! {
    everything_in_deploy_is_accepted_without_unknown_fields,
    an_overlay_sets_namespace_mode_and_profile_everywhere,
    health_checks_are_patched_into_what_argocd_and_flux_read,
}

async fn everything_in_deploy_is_accepted_without_unknown_fields(world: &mut World) -> TestResult {
    let discovery = Discovery::new(world.client.clone())
        .run_aggregated()
        .await?;
    let strict = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("another-pipeline").force()
    };
    let profiles = Profile::builtin()
        .into_iter()
        .filter(|profile| !profile.is_velero());
    let profiles = profiles.map(|profile| format!("deploy/profiles/{}", profile.name));
    let folders = [
        "deploy/crds",
        "deploy/once",
        "deploy/base",
        "deploy/network-policies",
    ]
    .map(str::to_owned)
    .into_iter();
    for folder in folders.chain(profiles) {
        for mut object in install::documents(&root().join(&folder))? {
            let types = object.types.clone().context("no kind")?;
            if types.kind == "ValidatingWebhookConfiguration" {
                // The kit has registered the webhook under a URL, which must not be merged with the
                // Service.
                object.metadata.name = Some("another".to_owned());
            }
            let api = install::api_of(&world.client, &discovery, &object)?;
            let name = object.name_any();
            api.patch(&name, &strict, &Patch::Apply(&object))
                .await
                .with_context(|| format!("{} {name} in {folder}", types.kind))?;
        }
    }
    Ok(())
}

async fn an_overlay_sets_namespace_mode_and_profile_everywhere(world: &mut World) -> TestResult {
    let objects = render(
        world,
        "namespace: vault\nresources: [DEPLOY/once, DEPLOY]\ntransformers: [DEPLOY/namespace]\n\
         components: [DEPLOY/platforms/host-network, DEPLOY/modes/guard, DEPLOY/profiles/percona-ps, DEPLOY/profiles/own, \
         DEPLOY/monitoring]\n",
    )
    .await?;

    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == *kind);
    for object in objects
        .iter()
        .filter(|object| object["kind"] != "CustomResourceDefinition")
    {
        let mut old = Vec::new();
        strings(object, &mut |text| {
            if text == "velero" {
                old.push(text.to_owned());
            }
        });
        ensure!(
            old.is_empty(),
            "the old namespace is left in {} {}",
            object["kind"],
            object["metadata"]["name"]
        );
    }
    let bindings: Vec<_> = of("ValidatingAdmissionPolicyBinding")
        .map(|binding| {
            let selector = &binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"];
            (
                binding["metadata"]["name"].as_str(),
                selector["kubernetes.io/metadata.name"].as_str(),
            )
        })
        .collect();
    ensure!(
        bindings
            == [
                (Some("backup-controller-drills"), None),
                (Some("backup-guard-ends"), None),
                (Some("backup-lock-break-glass"), None),
                (Some("backup-lock-ledger"), Some("vault")),
                (Some("backup-lock-writers"), Some("vault")),
                (Some("backup-owners"), Some("vault")),
                (Some("backup-percona-ps-ends"), None),
            ]
    );
    for webhook in of("ValidatingWebhookConfiguration")
        .filter_map(|one| one["webhooks"].as_array())
        .flatten()
    {
        ensure!(
            webhook["clientConfig"]["service"]["namespace"] == "vault",
            "{webhook}"
        );
    }
    let pods = || of("Deployment").map(|one| &one["spec"]["template"]["spec"]);
    let args: Vec<String> = pods()
        .map(|pod| pod["containers"][0]["args"].to_string())
        .collect();
    ensure!(
        args.len() == 2 && args.iter().all(|args| args.contains("--guard=percona-ps")),
        "{args:?}"
    );
    ensure!(
        args.iter().any(|args| args.contains("--guard=velero")),
        "{args:?}"
    );
    ensure!(
        args.iter()
            .all(|args| args.contains("--profiles=/etc/backup-profiles")),
        "{args:?}"
    );
    for pod in pods() {
        let mounts = pod["containers"][0]["volumeMounts"]
            .as_array()
            .into_iter()
            .flatten();
        let mount = mounts
            .into_iter()
            .find(|mount| mount["mountPath"] == "/etc/backup-profiles");
        let volume = mount.and_then(|mount| {
            pod["volumes"]
                .as_array()?
                .iter()
                .find(|volume| volume["name"] == mount["name"])
        });
        ensure!(
            volume.is_some_and(|volume| volume["configMap"]["name"] == "backup-profiles"),
            "{pod}"
        );
    }
    Ok(())
}

async fn health_checks_are_patched_into_what_argocd_and_flux_read(world: &mut World) -> TestResult {
    let flux = "kustomize.toolkit.fluxcd.io/v1";
    let of_flux = |name: &str| {
        json!({ "apiVersion": flux, "kind": "Kustomization", "metadata": { "name": name, "namespace": "flux-system" },
            "spec": { "path": "./backups" } })
    };
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "argocd-cm", "namespace": "argocd" },
        "data": { "url": "https://argocd.example.com" } });
    let overlay =
        "resources: [objects.yaml]\ncomponents: [DEPLOY/gitops/argocd, DEPLOY/gitops/flux]\n";
    let objects = render_with(
        world,
        overlay,
        &json!([settings, of_flux("one"), of_flux("two")]),
    )
    .await?;

    let settings = of_kind(&objects, "ConfigMap")
        .next()
        .context("no ConfigMap")?;
    let data = settings["data"].as_object().context("no data")?;
    ensure!(
        data["url"] == "https://argocd.example.com" && data.len() == 9,
        "{data:?}"
    );
    ensure!(
        data["resource.customizations.health.velero.io_Backup"].is_string(),
        "{data:?}"
    );
    let kustomizations: Vec<_> = of_kind(&objects, "Kustomization").collect();
    ensure!(kustomizations.len() == 2, "{objects:?}");
    for one in kustomizations {
        let checks = one["spec"]["healthCheckExprs"]
            .as_array()
            .context("no expressions")?;
        ensure!(
            one["spec"]["path"] == "./backups" && checks.len() == 7,
            "{one}"
        );
    }
    Ok(())
}

/// The output of kustomize for an overlay; DEPLOY is replaced by the folder `deploy`.
async fn render(world: &World, overlay: &str) -> anyhow::Result<Vec<Value>> {
    render_with(world, overlay, &json!([])).await
}

/// The same for an overlay with an additional file, `objects.yaml`, with these objects.
async fn render_with(world: &World, overlay: &str, objects: &Value) -> anyhow::Result<Vec<Value>> {
    let folder = tempfile::tempdir_in(world.folder())?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(folder.path().join("objects.yaml"), list.to_string())?;
    let path = folder.path().canonicalize()?;
    // Kustomize takes no absolute paths.
    let up = "../".repeat(path.components().count() - 1);
    let deploy = root().join("deploy").canonicalize()?.display().to_string();
    let overlay = overlay.replace("DEPLOY", &format!("{up}{}", deploy.trim_start_matches('/')));
    let header = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
    std::fs::write(
        path.join("kustomization.yaml"),
        format!("{header}{overlay}"),
    )?;
    let ran = world
        .kubectl()?
        .succeeds(&["kustomize", &path.display().to_string()])
        .await?;
    serde_saphyr::from_multiple(&ran.stdout).with_context(|| ran.stderr.clone())
}

/// The objects of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// All strings in a value.
fn strings(value: &Value, tell: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => tell(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, tell)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, tell)),
        _ => {}
    }
}
