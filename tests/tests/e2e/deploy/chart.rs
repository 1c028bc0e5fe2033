//! The Helm chart and `kubectl backup install` make the same objects as the overlays of kustomize.

use std::collections::BTreeMap;

use backup_deploy::kind;
use backup_tests::helm::Helm;

use super::render;
use crate::prelude::*;

crate::tests! {
    the_chart_makes_what_kustomize_makes,
    the_command_makes_what_kustomize_makes,
    a_value_that_the_chart_does_not_know_is_refused,
}

/// One choice of options: as an overlay, as values of the chart, and as flags of the command.
struct Choice {
    namespace: &'static str,
    overlay: &'static str,
    values: &'static str,
    flags: &'static [&'static str],
}

const CHOICES: [Choice; 4] = [
    Choice {
        namespace: "velero",
        overlay: "resources: [DEPLOY/once, DEPLOY]\n",
        values: "",
        flags: &[],
    },
    Choice {
        namespace: "vault",
        overlay: "namespace: vault\nresources: [DEPLOY]\ntransformers: [DEPLOY/namespace]\n\
                  components: [DEPLOY/platforms/host-network, DEPLOY/modes/guard, DEPLOY/monitoring, \
                  DEPLOY/profiles/percona-ps, DEPLOY/profiles/cloudnative-pg]\n",
        values: "{mode: guard, hostNetwork: true, monitoring: true, profiles: [percona-ps, cloudnative-pg]}",
        flags: &[
            "--mode=guard",
            "--host-network",
            "--monitoring",
            "--profile=percona-ps",
            "--profile=cloudnative-pg",
        ],
    },
    Choice {
        namespace: "vault",
        overlay: "namespace: vault\nresources: [DEPLOY/once, DEPLOY]\ntransformers: [DEPLOY/namespace]\n\
                  components: [DEPLOY/platforms/host-network, DEPLOY/network-policies, DEPLOY/profiles/percona-pxc]\n\
                  patches:\n- target: {kind: Deployment, name: backup-controller}\n  patch: |-\n    \
                  - {op: remove, path: /spec/template/spec/containers/0/args/3}\n    \
                  - {op: remove, path: /spec/template/spec/containers/0/env/2}\n",
        values: "{hostNetwork: true, profiles: [percona-pxc], mover: {enabled: false}, networkPolicies: {enabled: true}}",
        flags: &[
            "--host-network",
            "--network-policies",
            "--profile=percona-pxc",
            "--data-mover=false",
        ],
    },
    Choice {
        namespace: "velero",
        overlay: "resources: [DEPLOY/once, DEPLOY]\n\
                  images: [{name: backup-webhook, newName: r.example/b/backup-webhook, newTag: v9}, \
                  {name: backup-controller, newName: r.example/b/backup-controller, newTag: v9}]\n\
                  replicas: [{name: backup-webhook, count: 3}, {name: backup-controller, count: 3}]\n\
                  patches:\n- target: {kind: Deployment, name: backup-controller}\n  patch: |-\n    \
                  - {op: replace, path: /spec/template/spec/containers/0/env/2/value, value: 'r.example/b/backup-mover:v9'}\n    \
                  - {op: add, path: /spec/template/spec/containers/0/args/-, value: --features=EnableCSI}\n    \
                  - {op: add, path: /spec/template/spec/containers/0/args/-, value: --log-level=debug}\n    \
                  - {op: add, path: /spec/template/spec/containers/0/args/-, value: --cron-dialect=netresearch}\n\
                  - target: {kind: Deployment, name: backup-webhook}\n  patch: |-\n    \
                  - {op: add, path: /spec/template/spec/containers/0/args/-, value: --cron-dialect=netresearch}\n",
        values: "{image: {registry: r.example/b, tag: v9}, webhook: {replicas: 3}, \
                 controller: {replicas: 3, features: [EnableCSI], extraArgs: [--log-level=debug, --cron-dialect=netresearch]}}",
        flags: &[
            "--registry=r.example/b",
            "--tag=v9",
            "--replicas=3",
            "--features=EnableCSI",
            "--controller-arg=--log-level=debug",
            "--controller-arg=--cron-dialect=netresearch",
        ],
    },
];

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = objects
        .into_iter()
        .filter(|object| !object.is_null())
        .map(|mut object| {
            // Kustomize sets a namespace on kinds that it does not know, and kubectl does not send
            // it.
            if !kind(&text(&object["kind"])).is_some_and(|kind| kind.namespaced)
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                metadata.remove("namespace");
            }
            object
        });
    let key = |object: &Value| {
        let meta = &object["metadata"];
        (
            text(&object["kind"]),
            text(&meta["namespace"]),
            text(&meta["name"]),
        )
    };
    objects.map(|object| (key(&object), object)).collect()
}

fn same(wanted: &Objects, found: &Objects) -> anyhow::Result<()> {
    ensure!(
        wanted.keys().eq(found.keys()),
        "other objects: {:?}\nand not {:?}",
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (key, object) in found {
        ensure!(
            wanted[key] == *object,
            "{key:?} is\n{object}\nand not\n{}",
            wanted[key]
        );
    }
    Ok(())
}

async fn the_chart_makes_what_kustomize_makes(world: &mut World) -> TestResult {
    let helm = world.helm()?;
    for Choice {
        namespace,
        overlay,
        values,
        ..
    } in &CHOICES
    {
        let mut wanted = by_name(render(world, overlay).await?);
        // Helm creates the namespace, if requested.
        wanted.retain(|(kind, ..), _| kind != "Namespace");
        let values = helm.values(values)?;
        let chart = Helm::chart();
        let args = [
            "template",
            "backup",
            &chart,
            "--namespace",
            namespace,
            "--values",
            &values,
        ];
        let args = [&args[..], &["--kube-version", "1.34.0"]].concat();
        let made = helm.succeeds(&args).await?;
        let mut found = by_name(serde_saphyr::from_multiple(&made.stdout)?);
        for ((kind, ..), object) in &mut found {
            let annotations = object
                .pointer_mut("/metadata/annotations")
                .and_then(Value::as_object_mut);
            let kept =
                annotations.and_then(|annotations| annotations.remove("helm.sh/resource-policy"));
            ensure!(
                (kept == Some(json!("keep"))) == (kind == "CustomResourceDefinition"),
                "{kind}: {kept:?}"
            );
        }
        same(&wanted, &found).with_context(|| format!("values {values}"))?;
    }
    Ok(())
}

async fn the_command_makes_what_kustomize_makes(world: &mut World) -> TestResult {
    for Choice {
        namespace,
        overlay,
        flags,
        ..
    } in &CHOICES
    {
        let wanted = by_name(render(world, overlay).await?);
        let args = [
            "install",
            "--dry-run=client",
            "-o",
            "yaml",
            "--namespace",
            namespace,
        ];
        let made = world
            .kubectl_backup()
            .succeeds(&[&args[..], flags].concat())
            .await?;
        let mut found = by_name(serde_saphyr::from_multiple(&made.stdout)?);
        for ((kind, _, name), object) in &mut found {
            // The options of the installation, for the next upgrade.
            let annotations = object
                .pointer_mut("/metadata/annotations")
                .and_then(Value::as_object_mut);
            let options =
                annotations.and_then(|annotations| annotations.remove("kubectl-backup/options"));
            ensure!(
                options.is_some() == (kind == "Deployment" && name == "backup-webhook"),
                "{kind} {name}"
            );
            if object.pointer("/metadata/annotations") == Some(&json!({})) {
                object["metadata"]
                    .as_object_mut()
                    .context("no metadata")?
                    .remove("annotations");
            }
        }
        same(&wanted, &found).with_context(|| format!("flags {flags:?}"))?;
    }
    Ok(())
}

async fn a_value_that_the_chart_does_not_know_is_refused(world: &mut World) -> TestResult {
    let helm = world.helm()?;
    let chart = Helm::chart();
    helm.succeeds(&["lint", "--strict", &chart]).await?;
    for (wrong, field) in [
        ("mode=both", "mode"),
        ("controler.replicas=3", "controler"),
        ("webhook.replicas=0", "replicas"),
        ("profiles={acme}", "profiles"),
        ("controller.scratchSize=big", "scratchSize"),
        ("mover.enabled=maybe", "enabled"),
        ("networkPolicies.storePorts={https}", "storePorts"),
    ] {
        let ran = helm
            .run(&["template", "backup", &chart, "--set", wrong])
            .await?;
        ensure!(
            ran.code != 0 && ran.stderr.contains(field),
            "{wrong} is taken: {ran:?}"
        );
    }
    Ok(())
}
