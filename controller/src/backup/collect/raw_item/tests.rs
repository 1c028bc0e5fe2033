use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn deployments() -> ResourceType {
    let (group, version, kind) = ("apps".to_owned(), "v1".to_owned(), "Deployment".to_owned());
    ResourceType {
        group,
        version,
        kind,
        ..ResourceType::default()
    }
}

fn completed(object: &Value) -> Value {
    let text = object.to_string();
    let item = RawItem::parse(&text).unwrap();
    serde_json::from_str(&TypeMeta::of(&deployments()).complete(&item)).unwrap()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_stored_item_is_the_listed_object_with_its_type(
        name in any::<String>(),
        spec in any_json(),
        labels in prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
        has_version in any::<bool>(),
        has_kind in any::<bool>(),
    ) {
        let mut object = json!({ "metadata": { "name": name, "labels": labels }, "spec": spec });
        if has_version {
            object["apiVersion"] = json!("apps/v1");
        }
        if has_kind {
            object["kind"] = json!("Deployment");
        }
        let stored = completed(&object);
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("Deployment");
        prop_assert_eq!(stored, object);
    }
}

#[test]
fn an_item_that_has_its_type_keeps_its_bytes() {
    let text = r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"},"spec":{"x":1.0}}"#;
    let item = RawItem::parse(text).unwrap();
    assert!(
        matches!(TypeMeta::of(&deployments()).complete(&item), Cow::Borrowed(same) if same == text)
    );
}

#[test]
fn numbers_keep_their_spelling() {
    let text = r#"{"metadata":{"name":"web"},"spec":{"big":12345678901234567890123,"float":1.50}}"#;
    let item = RawItem::parse(text).unwrap();
    let whole = TypeMeta::of(&deployments()).complete(&item);
    assert!(whole.contains(r#""big":12345678901234567890123,"float":1.50"#));
}

#[test]
fn only_the_value_true_excludes_an_object() {
    for (labels, excluded) in [
        (json!(null), false),
        (json!({}), false),
        (json!({ "velero.io/exclude-from-backup": "true" }), true),
        (json!({ "velero.io/exclude-from-backup": "false" }), false),
        (json!({ "app": "velero.io/exclude-from-backup" }), false),
    ] {
        let text = json!({ "metadata": { "name": "a", "labels": labels } }).to_string();
        assert_eq!(
            RawItem::parse(&text).unwrap().is_excluded(),
            excluded,
            "{text}"
        );
    }
}

#[test]
fn metadata_is_read_whatever_its_spelling() {
    let text = r#"{"metadata":{"name":"system:\"odd\"é","namespace":"ns","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
    let item = RawItem::parse(text).unwrap();
    assert_eq!(
        (item.name(), item.namespace()),
        ("system:\"odd\"é", Some("ns"))
    );
    assert!(item.is_being_deleted());
    let text = r#"{"metadata":{"name":"node-1","deletionTimestamp":null}}"#;
    let item = RawItem::parse(text).unwrap();
    assert_eq!(item.namespace(), None);
    assert!(!item.is_being_deleted());
}

#[test]
fn a_namespace_on_its_way_out_is_not_active() {
    for (status, active) in [
        (json!({ "phase": "Active" }), true),
        (json!({ "phase": "Terminating" }), false),
        (json!({}), true),
    ] {
        let text = json!({ "metadata": { "name": "a" }, "status": status }).to_string();
        assert_eq!(
            RawItem::parse(&text).unwrap().is_active_namespace(),
            active,
            "{text}"
        );
    }
}

#[test]
fn volumes_of_which_a_pod_wants_the_files_are_found() {
    for (annotations, volumes) in [
        (json!({}), None),
        (json!({ "pre.hook.backup.velero.io/command": "sync" }), None),
        (
            json!({ "backup.velero.io/backup-volumes": "data,logs" }),
            Some("data,logs"),
        ),
        (json!({ "backup.velero.io/backup-volumes": "" }), None),
        (
            json!({ "backup.velero.io/backup-volumes-excludes": "cache" }),
            None,
        ),
    ] {
        let text = json!({ "metadata": { "name": "a", "annotations": annotations } }).to_string();
        assert_eq!(
            RawItem::parse(&text).unwrap().volumes_to_copy().as_deref(),
            volumes,
            "{text}"
        );
    }
}
