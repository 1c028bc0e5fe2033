use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::*;

fn is(path: &str, values: &[&str]) -> Predicate {
    Predicate::In {
        path: path.into(),
        values: values.iter().map(ToString::to_string).collect(),
    }
}

fn set(path: &str) -> Predicate {
    Predicate::Set { path: path.into() }
}

fn not(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

#[test]
fn scalars_are_compared_as_they_are_printed() {
    for (value, text, same) in [
        (json!("Done"), "Done", true),
        (json!("done"), "Done", false),
        (json!("Done "), "Done", false),
        (json!(true), "true", true),
        (json!(true), "True", false),
        (json!(3), "3", true),
        (json!("3"), "3", true),
        (json!(null), "null", false),
        (json!(["Done"]), "Done", false),
        (json!({ "Done": 1 }), "Done", false),
    ] {
        let object = json!({ "status": { "state": value } });
        assert_eq!(
            is("status.state", &["Other", text]).holds(&object),
            same,
            "{value} and {text}"
        );
    }
    assert!(!is("status.state", &["Done"]).holds(&json!({})));
    assert!(!is("status.state", &[]).holds(&json!({ "status": { "state": "Done" } })));
}

#[test]
fn zero_values_of_go_do_not_count_as_set() {
    for (value, counts) in [
        (json!(null), false),
        (json!(""), false),
        (json!(false), false),
        (json!(0), false),
        (json!(0.0), false),
        (json!([]), false),
        (json!({}), false),
        (json!("x"), true),
        (json!(true), true),
        (json!(-1), true),
        (json!([null]), true),
        (json!({ "a": null }), true),
        (json!("2026-01-01T00:00:00Z"), true),
    ] {
        assert_eq!(
            set("status.end").holds(&json!({ "status": { "end": value } })),
            counts,
            "{value}"
        );
    }
    assert!(!set("status.end").holds(&json!({ "status": {} })));
}

#[test]
fn a_condition_must_have_type_status_and_reason_itself() {
    let wanted = |reasons: &[&str]| Predicate::Condition {
        path: "status.conditions".into(),
        type_: "Completed".into(),
        status: "True".into(),
        reasons: reasons.iter().map(ToString::to_string).collect(),
    };
    let object = json!({ "status": { "conditions": [
        { "type": "Completed", "status": "False", "reason": "Good" },
        { "type": "Other", "status": "True", "reason": "Good" },
        "no condition", null, 7,
    ] } });
    assert!(!wanted(&[]).holds(&object));
    let object = json!({ "status": { "conditions": [{ "type": "Completed", "status": "True" }] } });
    assert!(wanted(&[]).holds(&object));
    assert!(!wanted(&["Good"]).holds(&object));
    let object = json!({ "status": { "conditions": { "type": "Completed", "status": "True" } } });
    assert!(!wanted(&[]).holds(&object));
}

/// Conditions on a few fields of [`objects`].
fn predicates() -> impl Strategy<Value = Predicate> {
    let path = || select(vec!["a", "b.c", "b", "status.conditions"]).prop_map(str::to_owned);
    let text = || select(vec!["x", "y", "True", "False", "1"]).prop_map(str::to_owned);
    let leaf = prop_oneof![
        (path(), vec(text(), 0..3)).prop_map(|(path, values)| Predicate::In { path, values }),
        path().prop_map(|path| Predicate::Set { path }),
        (path(), text(), text(), vec(text(), 0..2)).prop_map(|(path, type_, status, reasons)| {
            Predicate::Condition {
                path,
                type_,
                status,
                reasons,
            }
        }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Predicate::All),
            vec(inner.clone(), 0..4).prop_map(Predicate::Any),
            inner.prop_map(not),
        ]
    })
}

fn objects() -> impl Strategy<Value = Value> {
    let scalar = || {
        prop_oneof![
            Just(json!(null)),
            Just(json!("")),
            select(vec!["x", "y", "True", "False", "1"]).prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            (0..2_i64).prop_map(Value::from),
        ]
    };
    let condition = (scalar(), scalar(), scalar()).prop_map(
        |(type_, status, reason)| json!({ "type": type_, "status": status, "reason": reason }),
    );
    (scalar(), scalar(), vec(condition, 0..3)).prop_map(
        |(a, c, conditions)| json!({ "a": a, "b": { "c": c }, "status": { "conditions": conditions } }),
    )
}

proptest! {
    #[test]
    fn twice_not_is_nothing(p in predicates(), object in objects()) {
        prop_assert_eq!(not(not(p.clone())).holds(&object), p.holds(&object));
        prop_assert_ne!(not(p.clone()).holds(&object), p.holds(&object));
    }

    #[test]
    fn not_all_is_any_not(parts in vec(predicates(), 0..4), object in objects()) {
        let each_not: Vec<Predicate> = parts.iter().cloned().map(not).collect();
        prop_assert_eq!(
            not(Predicate::All(parts.clone())).holds(&object),
            Predicate::Any(each_not.clone()).holds(&object)
        );
        prop_assert_eq!(not(Predicate::Any(parts)).holds(&object), Predicate::All(each_not).holds(&object));
    }

    #[test]
    fn order_does_not_matter(parts in vec(predicates(), 0..4), object in objects()) {
        let turned: Vec<Predicate> = parts.iter().rev().cloned().collect();
        prop_assert_eq!(
            Predicate::All(parts.clone()).holds(&object),
            Predicate::All(turned.clone()).holds(&object)
        );
        prop_assert_eq!(Predicate::Any(parts).holds(&object), Predicate::Any(turned).holds(&object));
    }

    #[test]
    fn what_is_written_is_read_back(p in predicates()) {
        let yaml = serde_saphyr::to_string(&p).unwrap();
        prop_assert_eq!(&serde_saphyr::from_str::<Predicate>(&yaml).unwrap(), &p, "{}", yaml);
        let json = serde_json::to_string(&p).unwrap();
        prop_assert_eq!(serde_json::from_str::<Predicate>(&json).unwrap(), p);
    }

    #[test]
    fn no_object_is_too_odd_to_be_judged(p in predicates(), text in "\\PC{0,20}") {
        for object in [json!(text), json!([text]), json!({ "a": [text], "b": text, "status": null }), json!(null)] {
            let _ = p.holds(&object);
        }
    }
}
