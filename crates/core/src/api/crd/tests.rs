//! Compares our definitions with the facts about Velero's.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const VELERO: &str = include_str!("../../../tests/velero-crd-facts.txt");

/// Fields that Velero has only after 1.18.2, and those that it does not have: `copies` of Backups,
/// `includedObjects` and `prune` of Restores, `copies`, `keep` and `verify` of Schedules, `drill` of
/// Restores and Schedules.
const MORE_FIELDS: &[&str] = &[
    "backups spec.backupType",
    "backups spec.copies",
    "backups spec.copies[]",
    "backups spec.copies[].location",
    "backups spec.copies[].ttl",
    "backups spec.metadata.annotations",
    "backups spec.metadata.annotations{}",
    "backups status.copies",
    "backups status.copies[]",
    "backups status.copies[].bytes",
    "backups status.copies[].completionTimestamp",
    "backups status.copies[].expiration",
    "backups status.copies[].location",
    "backups status.copies[].message",
    "backups status.copies[].phase",
    "backups status.copies[].startTimestamp",
    "backups status.copies[].uid",
    "datadownloads spec.csiSnapshot",
    "datadownloads spec.csiSnapshot.driver",
    "datadownloads spec.csiSnapshot.snapshotClass",
    "datadownloads spec.csiSnapshot.storageClass",
    "datadownloads spec.csiSnapshot.volumeSnapshot",
    "datadownloads spec.restoreType",
    "datadownloads spec.targetVolume.fsType",
    "datauploads spec.parentSnapshot",
    "datauploads spec.sourceFSType",
    "downloadrequests status.message",
    "podvolumebackups spec.parentSnapshot",
    "podvolumerestores spec.restoreType",
    "restores spec.drill",
    "restores spec.drill.additionalResources",
    "restores spec.drill.additionalResources[]",
    "restores spec.drill.checks",
    "restores spec.drill.checks[]",
    "restores spec.drill.checks[].expression",
    "restores spec.drill.checks[].job",
    "restores spec.drill.checks[].name",
    "restores spec.drill.checks[].namespace",
    "restores spec.drill.checks[].resource",
    "restores spec.drill.checks[].timeout",
    "restores spec.drill.hooks",
    "restores spec.drill.quota",
    "restores spec.drill.quota{}",
    "restores spec.drill.readyTimeout",
    "restores spec.drill.requireReady",
    "restores spec.drill.volumes",
    "restores spec.existingVolumeDataPolicy",
    "restores spec.includedObjects",
    "restores spec.includedObjects[]",
    "restores spec.prune",
    "restores spec.resourcePolicy",
    "restores spec.resourcePolicy.apiGroup",
    "restores spec.resourcePolicy.kind",
    "restores spec.resourcePolicy.name",
    "restores spec.skipDefaultResourceModifier",
    "restores spec.uploaderConfig.deleteExtraFiles",
    "schedules spec.copies",
    "schedules spec.copies[]",
    "schedules spec.copies[].keep",
    "schedules spec.copies[].keep.daily",
    "schedules spec.copies[].keep.hourly",
    "schedules spec.copies[].keep.last",
    "schedules spec.copies[].keep.monthly",
    "schedules spec.copies[].keep.weekly",
    "schedules spec.copies[].keep.yearly",
    "schedules spec.copies[].location",
    "schedules spec.copies[].ttl",
    "schedules spec.drill",
    "schedules spec.drill.additionalResources",
    "schedules spec.drill.additionalResources[]",
    "schedules spec.drill.checks",
    "schedules spec.drill.checks[]",
    "schedules spec.drill.checks[].expression",
    "schedules spec.drill.checks[].job",
    "schedules spec.drill.checks[].name",
    "schedules spec.drill.checks[].namespace",
    "schedules spec.drill.checks[].resource",
    "schedules spec.drill.checks[].timeout",
    "schedules spec.drill.every",
    "schedules spec.drill.hooks",
    "schedules spec.drill.includedNamespaces",
    "schedules spec.drill.includedNamespaces[]",
    "schedules spec.drill.quota",
    "schedules spec.drill.quota{}",
    "schedules spec.drill.readyTimeout",
    "schedules spec.drill.requireReady",
    "schedules spec.drill.volumes",
    "schedules spec.drill.which",
    "schedules spec.keep",
    "schedules spec.keep.daily",
    "schedules spec.keep.hourly",
    "schedules spec.keep.last",
    "schedules spec.keep.monthly",
    "schedules spec.keep.weekly",
    "schedules spec.keep.yearly",
    "schedules spec.template.backupType",
    "schedules spec.template.copies",
    "schedules spec.template.copies[]",
    "schedules spec.template.copies[].location",
    "schedules spec.template.copies[].ttl",
    "schedules spec.template.metadata.annotations",
    "schedules spec.template.metadata.annotations{}",
    "schedules spec.verify",
    "schedules spec.verify.every",
    "schedules spec.verify.which",
];

/// Enum values that Velero has only after 1.18.2.
const NEWER_VALUES: &[&str] = &["downloadrequests status.phase Failed"];

/// The one column of Velero that shows nothing; ours shows `spec.node`.
const COLUMN_WITHOUT_FIELD: &str = "podvolumebackups column .status.node string 0 Node";

/// What the definitions say of each path, in the notation of the facts: `backups spec.ttl` to
/// `string`, `nullable`, ….
type Facts = BTreeMap<String, BTreeSet<String>>;

fn velero() -> Facts {
    let lines = VELERO.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.splitn(3, ' ').collect::<Vec<_>>())
        .filter(|line| line[1] != "names" && line[1] != "column")
        .map(|line| {
            (
                format!("{} {}", line[0], line[1]),
                line[2].split(' ').map(str::to_owned).collect(),
            )
        })
        .collect()
}

fn ours() -> Facts {
    let mut facts = Facts::new();
    for definition in all() {
        let schema = definition.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref();
        let schema = serde_json::to_value(schema.unwrap()).unwrap();
        walk(
            &definition.spec.names.plural,
            "",
            &schema,
            false,
            &mut facts,
        );
    }
    facts
}

fn walk(plural: &str, path: &str, schema: &Value, required: bool, facts: &mut Facts) {
    let text = |key: &str| schema[key].as_str();
    let mut said = BTreeSet::from([text("type").unwrap_or("any").to_owned()]);
    let mut say = |when: bool, what: String| {
        if when {
            said.insert(what);
        }
    };
    say(required, "required".into());
    say(schema["nullable"] == true, "nullable".into());
    say(
        text("format").is_some() && text("type") != Some("integer"),
        format!("format={}", text("format").unwrap_or_default()),
    );
    if let Some(values) = schema["enum"].as_array() {
        let mut values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        say(true, format!("enum={}", values.join("|")));
    }
    say(
        !schema["minItems"].is_null(),
        format!("min={}", schema["minItems"]),
    );
    say(
        !schema["default"].is_null(),
        format!("default={}", schema["default"]),
    );
    say(
        schema["x-kubernetes-preserve-unknown-fields"] == true,
        "open".into(),
    );
    let atomic = ["x-kubernetes-map-type", "x-kubernetes-list-type"]
        .iter()
        .any(|key| schema[key] == "atomic");
    say(atomic, "atomic".into());
    if !path.is_empty() {
        facts.insert(format!("{plural} {path}"), said);
    }
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        walk(
            plural,
            &path,
            inner,
            required.contains(&key.as_str()),
            facts,
        );
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            walk(plural, &format!("{path}{mark}"), &schema[key], false, facts);
        }
    }
}

fn enum_values(facts: &BTreeSet<String>) -> BTreeSet<&str> {
    facts
        .iter()
        .filter_map(|fact| fact.strip_prefix("enum="))
        .flat_map(|values| values.split('|'))
        .collect()
}

#[test]
fn names_and_versions_are_those_of_velero() {
    for line in VELERO.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [
            plural,
            "names",
            kind,
            list_kind,
            singular,
            version,
            short @ ..,
        ] = words.as_slice()
        else {
            continue;
        };
        let all = all();
        let definition = all
            .iter()
            .find(|one| one.spec.names.plural == *plural)
            .expect(plural);
        let names = &definition.spec.names;
        assert_eq!(
            definition.metadata.name.as_deref(),
            Some(format!("{plural}.velero.io").as_str())
        );
        assert_eq!(
            (
                names.kind.as_str(),
                names.list_kind.as_deref(),
                names.singular.as_deref()
            ),
            (*kind, Some(*list_kind), Some(*singular))
        );
        let versions = &definition.spec.versions;
        assert_eq!((versions.len(), versions[0].name.as_str()), (1, *version));
        assert!(versions[0].served && versions[0].storage);
        assert!(
            versions[0].subresources.is_none(),
            "status is written with the object"
        );
        let own = names.short_names.clone().unwrap_or_default();
        assert!(
            short.iter().all(|name| own.iter().any(|own| own == name)),
            "{plural} {own:?}"
        );
    }
}

#[test]
fn every_kind_of_velero_is_defined_and_no_other() {
    let velero: BTreeSet<&str> = VELERO
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let ours = all();
    assert_eq!(
        ours.iter()
            .map(|one| one.spec.names.plural.as_str())
            .collect::<BTreeSet<_>>(),
        velero
    );
}

#[test]
fn short_names_are_unique() {
    let names: Vec<String> = all()
        .into_iter()
        .flat_map(|one| one.spec.names.short_names.unwrap_or_default())
        .collect();
    assert_eq!(
        names.iter().collect::<BTreeSet<_>>().len(),
        names.len(),
        "{names:?}"
    );
}

#[test]
fn every_column_of_velero_is_shown() {
    let all = all();
    for line in VELERO.lines() {
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        let [plural, "column", path, kind, priority, name] = words.as_slice() else {
            continue;
        };
        let definition = all
            .iter()
            .find(|one| one.spec.names.plural == *plural)
            .expect(plural);
        let columns = definition.spec.versions[0]
            .additional_printer_columns
            .as_deref()
            .unwrap_or_default();
        let found = columns.iter().any(|column| {
            column.json_path == *path
                && column.type_ == *kind
                && column.name == *name
                && column.priority.unwrap_or(0).to_string() == *priority
        });
        assert!(found || line == COLUMN_WITHOUT_FIELD, "{line}");
    }
}

#[test]
fn columns_show_fields_that_exist() {
    let facts = ours();
    for definition in all() {
        for column in definition.spec.versions[0]
            .additional_printer_columns
            .iter()
            .flatten()
        {
            let path = column.json_path.trim_start_matches('.');
            let known = path == "metadata.creationTimestamp"
                || facts.contains_key(&format!("{} {path}", definition.spec.names.plural));
            assert!(known, "{} {path}", definition.spec.names.plural);
        }
    }
}

#[test]
fn every_field_of_velero_is_ours_and_more_only_where_listed() {
    let (velero, ours) = (velero(), ours());
    assert!(velero.len() > 500, "the facts are there");
    let missing: Vec<&String> = velero
        .keys()
        .filter(|path| !ours.contains_key(*path))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let more: Vec<&str> = ours
        .keys()
        .filter(|path| !velero.contains_key(*path))
        .map(String::as_str)
        .collect();
    assert_eq!(more, MORE_FIELDS);
}

#[test]
fn what_velero_says_of_a_field_holds_for_ours_and_nothing_stricter() {
    let ours = ours();
    let mut wrong = Vec::new();
    for (path, velero) in velero() {
        let Some(own) = ours.get(&path) else { continue };
        let plain = |facts: &BTreeSet<String>| -> BTreeSet<String> {
            facts
                .iter()
                .filter(|fact| !fact.starts_with("enum="))
                .cloned()
                .collect()
        };
        let (velero, own) = (plain(&velero), plain(own));
        // `null` may be taken where Velero does not; everything else must be the same.
        let lost: Vec<_> = velero.difference(&own).collect();
        let added: Vec<_> = own
            .difference(&velero)
            .filter(|fact| *fact != "nullable")
            .collect();
        if !lost.is_empty() || !added.is_empty() {
            wrong.push(format!("{path}: lost {lost:?}, added {added:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn enum_values_are_those_of_velero_and_more_only_where_listed() {
    let ours = ours();
    let mut more = Vec::new();
    for (path, velero) in velero() {
        let (velero, own) = (enum_values(&velero), enum_values(&ours[&path]));
        assert!(velero.is_subset(&own), "{path}: {velero:?} but {own:?}");
        more.extend(
            own.difference(&velero)
                .map(|value| format!("{path} {value}")),
        );
    }
    assert_eq!(more, NEWER_VALUES);
}

#[test]
fn nothing_in_a_schema_is_refused_by_the_api_server() {
    fn check(path: &str, schema: &Value) {
        for banned in [
            "$ref",
            "definitions",
            "anyOf",
            "oneOf",
            "allOf",
            "not",
            "title",
            "uniqueItems",
        ] {
            assert!(schema.get(banned).is_none(), "{path} has {banned}");
        }
        assert!(schema["type"].is_string(), "{path} has no type");
        assert!(
            schema["enum"]
                .as_array()
                .is_none_or(|values| values.iter().all(Value::is_string)),
            "{path}"
        );
        if let Some(format) = schema["format"].as_str() {
            assert!(
                ["date-time", "byte", "int64"].contains(&format),
                "{path} has format {format}"
            );
        }
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            check(&format!("{path}.{key}"), inner);
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(key) {
                check(&format!("{path}.{key}"), inner);
            }
        }
    }
    for definition in all() {
        let schema = definition.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref();
        let schema = serde_json::to_value(schema.unwrap()).unwrap();
        assert_eq!(
            schema["properties"]["metadata"],
            json!({ "type": "object" })
        );
        assert!(
            schema.get("required").is_none(),
            "spec is required of no kind"
        );
        check(&definition.spec.names.plural, &schema);
    }
}
