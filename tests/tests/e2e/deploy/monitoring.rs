//! The files shipped for Prometheus and Grafana, and the metrics of both programs.

use std::{collections::BTreeSet, io::ErrorKind};

use backup_metrics::{CONTENT_TYPE, ControllerMetrics, Description, WebhookMetrics};
use backup_tests::binaries::root;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};

use super::{of_kind, render};
use crate::prelude::*;

crate::tests! {
    alerts_fire_when_they_should_and_not_otherwise,
    the_component_for_operators_brings_alerts_and_dashboard,
    what_is_served_is_what_the_reference_says,
    a_registration_that_lets_requests_pass_is_measured_and_told,
}

/// Checked by promtool with deploy/monitoring/alerts_test.yaml.
async fn alerts_fire_when_they_should_and_not_otherwise(_: &mut World) -> anyhow::Result<()> {
    for args in [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts_test.yaml"],
    ] {
        let mut promtool = tokio::process::Command::new("promtool");
        let ran = match promtool
            .current_dir(root().join("deploy/monitoring"))
            .args(args)
            .output()
            .await
        {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Skip("promtool is not installed (Debian: prometheus)").into());
            }
            ran => ran.context("run promtool")?,
        };
        let said =
            [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        ensure!(
            ran.status.success(),
            "promtool {}: {}",
            args.join(" "),
            said.concat()
        );
    }
    Ok(())
}

async fn the_component_for_operators_brings_alerts_and_dashboard(world: &mut World) -> TestResult {
    let objects = render(
        world,
        "resources: [DEPLOY]\ncomponents: [DEPLOY/monitoring]\n",
    )
    .await?;
    let folder = root().join("deploy/monitoring");
    let alerts: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(folder.join("alerts.yaml"))?)?;
    let rules: Vec<_> = of_kind(&objects, "PrometheusRule")
        .map(|rule| &rule["spec"])
        .collect();
    ensure!(rules == [&alerts], "{rules:?}");
    let dashboard =
        of_kind(&objects, "ConfigMap").find(|one| one["metadata"]["name"] == "backup-dashboard");
    let dashboard = dashboard.context("no dashboard")?;
    ensure!(
        dashboard["metadata"]["labels"]["grafana_dashboard"] == "1",
        "{}",
        dashboard["metadata"]
    );
    let stored = std::fs::read_to_string(folder.join("dashboard.json"))?;
    ensure!(
        dashboard["data"]["dashboard.json"] == stored,
        "another dashboard"
    );
    Ok(())
}

async fn what_is_served_is_what_the_reference_says(world: &mut World) -> TestResult {
    world.config_maps("scraped", 1).await?;
    world
        .back_up("scraped", of_namespaces(&["scraped"]))
        .await?;
    let webhook = *world.webhook_health.first().context("no webhook")?;
    let controller = *world.controller_health.first().context("no controller")?;
    // A replica checks every ten seconds, and was started before the registration existed.
    eventually(
        "the webhook has seen its registration",
        Duration::from_secs(15),
        async || {
            let text = reqwest::get(format!("http://{webhook}/metrics"))
                .await?
                .text()
                .await?;
            let seen =
                text.contains("backup_webhook_registered{registration=\"backup-webhook\"} 1");
            anyhow::Ok(when(seen, text))
        },
    )
    .await?;
    let mut values = Vec::new();
    for (address, reference) in [
        (controller, ControllerMetrics::reference()),
        (webhook, WebhookMetrics::reference()),
    ] {
        let answer = reqwest::get(format!("http://{address}/metrics")).await?;
        let served = answer.headers()["content-type"].to_str()?.to_owned();
        ensure!(served == CONTENT_TYPE, "{address} serves {served}");
        let text = answer.text().await?;
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for sample in &samples {
            ensure!(
                reference.iter().any(|metric| is_of(sample, metric)),
                "{sample} is not in the reference"
            );
        }
        for metric in reference.iter().filter(|metric| metric.labels.is_empty()) {
            ensure!(
                samples.iter().any(|sample| is_of(sample, metric)),
                "{} is not served",
                metric.name
            );
        }
        values.extend(samples.into_iter().map(str::to_owned));
    }
    let value = |series: &str| {
        let found = values
            .iter()
            .find_map(|line| line.strip_prefix(series)?.trim().parse::<i64>().ok());
        found.with_context(|| format!("{series} is not served"))
    };
    let version = format!("build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    for series in [
        "velero_leader",
        &format!("velero_{version}"),
        &format!("backup_webhook_{version}"),
        "backup_webhook_ready",
        "velero_backup_location_status_gauge{backup_location_name=\"default\"}",
    ] {
        ensure!(value(series)? == 1, "{series} {}", value(series)?);
    }
    value("velero_queue_length{kind=\"Backup\"}")?;
    let now = jiff::Timestamp::now().as_second();
    let end = value("backup_webhook_certificate_end_timestamp_seconds")?;
    ensure!(end > now, "the certificate from a file ends at {end}");
    // The kit has disabled synchronisation.
    ensure!(value("velero_backup_sync_period_seconds{backup_location_name=\"default\"}").is_err());
    Ok(())
}

async fn a_registration_that_lets_requests_pass_is_measured_and_told(
    world: &mut World,
) -> TestResult {
    const NAME: &str = "backup-webhook";
    let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let health = *world.webhook_health.first().context("no webhook")?;
    let measured = async |value: u8| {
        eventually(
            &format!("the registration is measured as {value}"),
            Duration::from_secs(25),
            async || {
                let text = reqwest::get(format!("http://{health}/metrics"))
                    .await?
                    .text()
                    .await?;
                let line =
                    format!("backup_webhook_registered{{registration=\"{NAME}\"}} {value}\n");
                anyhow::Ok(when(text.contains(&line), text))
            },
        )
        .await
    };
    measured(1).await?;
    let told = async |at: &str, value: Value, expected: &str| {
        let patch = |op: &str, value: &Value| {
            let path = format!("/webhooks/0/{at}");
            let operations = json!([{ "op": op, "path": path, "value": value }]);
            anyhow::Ok(Patch::Json::<()>(serde_json::from_value(operations)?))
        };
        let before = serde_json::to_value(api.get(NAME).await?)?["webhooks"][0][at].clone();
        api.patch(NAME, &PatchParams::default(), &patch("replace", &value)?)
            .await?;
        let doctor = world.kubectl_backup().run(&["doctor"]).await;
        let seen = if at == "failurePolicy" {
            measured(0).await
        } else {
            Ok(())
        };
        api.patch(NAME, &PatchParams::default(), &patch("replace", &before)?)
            .await?;
        seen?;
        let doctor = doctor?.expect_code(1)?.stdout;
        ensure!(
            doctor.contains(expected),
            "{at}: {expected} is not in\n{doctor}"
        );
        anyhow::Ok(())
    };
    let nobody = json!({ "matchLabels": { "nobody": "has-it" } });
    told(
        "failurePolicy",
        json!("Ignore"),
        "is Ignore: while the webhook is away, everything passes",
    )
    .await?;
    told(
        "namespaceSelector",
        nobody.clone(),
        "leaves out namespace velero: there everything passes",
    )
    .await?;
    told(
        "objectSelector",
        nobody,
        "leaves out objects by labels, which their author sets",
    )
    .await?;
    measured(1).await
}

/// Whether a line of the metrics is a series of this metric: its name, and exactly its labels.
fn is_of(sample: &str, metric: &Description) -> bool {
    let (series, _value) = sample.rsplit_once(' ').unwrap_or((sample, ""));
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let of_histogram = ["_bucket", "_sum", "_count"].iter().any(|suffix| {
        metric.kind == "histogram" && name.strip_suffix(suffix) == Some(metric.name.as_str())
    });
    let labels: BTreeSet<&str> = labels
        .split("\",")
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .collect();
    let labels: BTreeSet<&str> = labels.into_iter().filter(|label| *label != "le").collect();
    (name == metric.name || of_histogram)
        && labels
            .into_iter()
            .eq(metric.labels.iter().copied().collect::<BTreeSet<_>>())
}
