//! Checks that alerts and dashboard use only declared metrics and labels.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::{ControllerMetrics, Description, WebhookMetrics};

/// Prefixes of the names of our metrics.
const PREFIXES: [&str; 3] = ["velero_", "podVolume_", "backup_webhook_"];
/// Labels that a scrape adds.
const OF_TARGETS: [&str; 4] = ["namespace", "pod", "job", "instance"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/alerts.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap()
}

/// The texts of all fields with this name.
fn fields<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| fields(item, name, found)),
        Value::Object(object) => {
            found.extend(object.get(name).and_then(Value::as_str));
            object.values().for_each(|value| fields(value, name, found));
        }
        _ => {}
    }
}

/// The selectors of our metrics in a query: name and labels.
fn selectors(query: &str) -> Vec<(&str, Vec<&str>)> {
    let part_of_name =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut selectors = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(part_of_name) {
        let (name, after) = rest[start..].split_at(
            rest[start..]
                .find(|letter| !part_of_name(letter))
                .unwrap_or(rest.len() - start),
        );
        rest = after;
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let matchers = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        if let Some((_, after)) = matchers {
            rest = after;
        }
        let matchers = matchers.map_or("", |(matchers, _)| matchers).split(',');
        let labels = matchers.filter_map(|matcher| Some(matcher.split(['=', '!']).next()?.trim()));
        selectors.push((name, labels.filter(|label| !label.is_empty()).collect()));
    }
    selectors
}

/// Undeclared names and labels in a query.
fn undeclared(query: &str, declared: &[Description]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, labels) in selectors(query) {
        let series = |one: &&Description| {
            let suffixes: &[&str] = if one.kind == "histogram" {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            suffixes
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(&one.name))
        };
        let Some(metric) = declared.iter().find(series) else {
            problems.push(format!("{name} does not exist, in {query}"));
            continue;
        };
        let known = |label: &&str| metric.labels.contains(label) || OF_TARGETS.contains(label);
        problems.extend(
            labels
                .iter()
                .filter(|label| !known(label))
                .map(|label| format!("{name} has no label {label}")),
        );
    }
    problems
}

fn all() -> Vec<Description> {
    [ControllerMetrics::reference(), WebhookMetrics::reference()].concat()
}

#[test]
fn every_query_asks_for_what_is_declared() {
    let (alerts, dashboard, declared) = (alerts(), dashboard(), all());
    let mut queries = Vec::new();
    for alert in &alerts {
        fields(alert, "expr", &mut queries);
    }
    assert_eq!(queries.len(), alerts.len());
    fields(&dashboard, "expr", &mut queries);
    assert!(
        queries.len() > alerts.len() + 10,
        "the dashboard has no queries"
    );
    let problems: Vec<String> = queries
        .iter()
        .flat_map(|query| undeclared(query, &declared))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(
        queries.iter().all(|query| !selectors(query).is_empty()),
        "{queries:?}"
    );
}

#[test]
fn a_query_with_a_name_or_a_label_that_is_gone_is_found() {
    let declared = all();
    for (query, expected) in [
        (
            "sum by (kind) (rate(backup_webhook_admissions_total{kind=\"Backup\", namespace=~\"$n\"}[5m]))",
            "",
        ),
        (
            "histogram_quantile(0.9, rate(backup_webhook_admission_seconds_bucket[5m]))",
            "",
        ),
        (
            "backup_webhook_admission_seconds",
            "backup_webhook_admission_seconds does not exist",
        ),
        (
            "rate(backup_webhook_admissions[5m])",
            "backup_webhook_admissions does not exist",
        ),
        (
            "1 - velero_backup_last_state",
            "velero_backup_last_state does not exist",
        ),
        (
            "podVolume_data_upload_success",
            "podVolume_data_upload_success does not exist",
        ),
        (
            "velero_leader{schedule!=\"\"} == 0",
            "velero_leader has no label schedule",
        ),
    ] {
        let problems = undeclared(query, &declared).join("; ");
        assert_eq!(
            problems.is_empty(),
            expected.is_empty(),
            "{query}: {problems}"
        );
        assert!(problems.contains(expected), "{query}: {problems}");
    }
}

/// Each alert has a runbook entry for the user who gets it, and a test.
#[test]
fn every_alert_has_its_runbook_and_a_test_in_which_it_fires() {
    let page = read("docs/operate/monitoring.md");
    let tests: Value = serde_saphyr::from_str(&read("deploy/monitoring/alerts_test.yaml")).unwrap();
    let tests = tests["tests"].as_array().unwrap().iter();
    let fired: BTreeSet<&str> = tests
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .filter(|expected| {
            expected["exp_alerts"]
                .as_array()
                .is_some_and(|alerts| !alerts.is_empty())
        })
        .filter_map(|expected| expected["alertname"].as_str())
        .collect();
    let alerts = alerts();
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(
            page.contains(&format!("\n### {name}\n")),
            "{name} has no chapter in the page"
        );
        assert!(fired.contains(name), "{name} fires in no test");
        let runbook = format!("docs/operate/monitoring.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], runbook.as_str(), "{name}");
        assert!(
            ["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()),
            "{name}"
        );
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
    }
    assert_eq!(
        page.matches("\n### Backup").count(),
        alerts.len(),
        "a chapter is about an alert that is gone"
    );
}
