//! Schedules: refused for errors in their spec alone, as the controller would refuse them later.
//! They claim nothing.

use backup_core::{
    api::Schedule,
    cron::Dialect,
    profile::Profile,
    validate::{self, Finding},
};
use kube::{
    Resource as _,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, Operation},
    },
};
use serde_json::Value;

use crate::admit::denial;

/// The kind of Schedules.
pub(crate) const KIND: &str = "Schedule";

/// Fields of the spec that namespace owners may set: the template is checked, and the others only
/// say when. Any other field is an operator's, also one of a later version.
const FIELDS_OF_OWNERS: [&str; 5] = [
    "template",
    "schedule",
    "useOwnerReferencesInBackup",
    "paused",
    "skipImmediately",
];

/// The first field of this spec that only operators set, as `spec.NAME`.
pub(crate) fn field_of_operators(spec: &Value) -> Option<String> {
    let mut fields = spec.as_object()?.keys();
    let field = fields.find(|field| !FIELDS_OF_OWNERS.contains(&field.as_str()))?;
    Some(format!("spec.{field}"))
}

pub(crate) fn is_schedule(request: &AdmissionRequest<DynamicObject>) -> bool {
    request.kind.kind == KIND && request.kind.group == Schedule::group(&())
}

/// Why a request about a Schedule is refused; `None` if it may pass. Old errors are not refused
/// again: an update that corrects one of two fields passes, and so does one that pauses a Schedule
/// stored while the webhook was down.
pub(crate) fn refusal(
    profile: &Profile,
    dialects: &[Dialect],
    request: &AdmissionRequest<DynamicObject>,
) -> Option<Status> {
    let object = request.object.as_ref()?;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let before = match request.operation {
        Operation::Create => Vec::new(),
        Operation::Update => request
            .old_object
            .as_ref()
            .map(|old| findings(profile, dialects, old, namespace))?,
        Operation::Delete | Operation::Connect => return None,
    };
    let mut found = findings(profile, dialects, object, namespace);
    found.retain(|finding| !before.contains(finding));
    (!found.is_empty())
        .then(|| denial::invalid_schedule(&profile.group, namespace, &request.name, &found))
}

/// Where another server makes the backups, only what that server cannot decode.
fn findings(
    profile: &Profile,
    dialects: &[Dialect],
    object: &DynamicObject,
    namespace: &str,
) -> Vec<Finding> {
    if profile.engine {
        let mut found = validate::raw_schedule(&object.data, dialects);
        found.extend(validate::drill_of_installation(&object.data, namespace));
        found
    } else {
        validate::undecodable_schedule(&object.data)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn message(engine: bool, new: &Value, old: Option<&Value>) -> String {
        message_of(engine, &Dialect::ALL, new, old)
    }

    fn message_of(engine: bool, dialects: &[Dialect], new: &Value, old: Option<&Value>) -> String {
        let object = |spec: &Value| json!({ "metadata": { "name": "nightly" }, "spec": spec });
        let mut request = json!({
            "uid": "1", "operation": "CREATE", "name": "nightly", "namespace": "velero", "object": object(new),
            "kind": { "group": "velero.io", "version": "v1", "kind": "Schedule" },
            "resource": { "group": "velero.io", "version": "v1", "resource": "schedules" }, "userInfo": {},
        });
        if let Some(old) = old {
            request["operation"] = json!("UPDATE");
            request["oldObject"] = object(old);
        }
        let request = serde_json::from_value(request).unwrap();
        assert!(is_schedule(&request));
        let profile = Profile {
            engine,
            ..Profile::velero()
        };
        refusal(&profile, dialects, &request)
            .map(|status| status.message)
            .unwrap_or_default()
    }

    #[rstest]
    #[case::valid(json!({ "schedule": "0 3 * * *", "template": { "ttl": "24h" } }), &[])]
    #[case::read_by_one_library(json!({ "schedule": "0 3 * * 7", "template": {} }), &[])]
    #[case::read_by_the_other(json!({ "schedule": "*/70 * * * *", "template": {} }), &[])]
    #[case::no_expression(json!({ "template": {} }), &["spec.schedule: \"\" is no cron expression"])]
    #[case::an_unknown_zone(json!({ "schedule": "TZ=Mars/Base @daily" }), &["spec.schedule: ", "Mars/Base"])]
    #[case::everything_at_once(
        json!({ "schedule": "61 * * * *", "template": { "ttl": "-1h", "csiSnapshotTimeout": "soon", "datamover": "other" } }),
        &["Schedule velero/nightly is not valid: spec.schedule: ", "; spec.template.csiSnapshotTimeout: ",
          "; spec.template.ttl: ", "; spec.template.datamover: "],
    )]
    #[case::verified_by_nonsense(
        json!({ "schedule": "@daily", "template": {}, "verify": { "every": "1s", "which": "oldest" } }),
        &["Schedule velero/nightly is not valid: spec.verify.every: ", "; spec.verify.which: "],
    )]
    #[case::protected_by_nonsense(
        json!({ "schedule": "@daily", "template": { "storageLocation": "first" }, "keep": { "daily": -1, "last": "x" },
            "verify": { "every": "7d" }, "copies": [{ "location": "first" }, { "location": 7 }, { "location": "a", "ttl": "soon" }] }),
        &["Schedule velero/nightly is not valid: spec.keep.last: ", "; spec.keep.daily: -1 is negative", "; spec.verify.every: ",
          "; spec.copies[0].location: \"first\" is the location of the backup itself", "; spec.copies[1].location: ",
          "; spec.copies[2].ttl: "],
    )]
    #[case::drilled_by_nonsense(
        json!({ "schedule": "@daily", "template": {}, "drill": { "every": "1s", "checks": [{ "name": "a", "namespace": "b" }] } }),
        &["Schedule velero/nightly is not valid: spec.drill.every: ", "; spec.drill.checks[0].job: "],
    )]
    #[case::drilled_where_no_backup_is(
        json!({ "schedule": "@daily", "template": { "includedNamespaces": ["team-*"], "excludedNamespaces": ["team-b"] },
            "drill": { "every": "24h", "includedNamespaces": ["team-a", "team-b", "kube-system", "drill-0123abcd-shop"] } }),
        &["spec.drill.includedNamespaces: \"team-b\" is not among the namespaces of spec.template", "\"kube-system\" is not among",
          "\"drill-0123abcd-shop\" is a scratch namespace"],
    )]
    #[case::drills_of_the_installation(
        json!({ "schedule": "@daily", "template": {}, "drill": { "every": "24h", "includedNamespaces": ["shop", "velero"] } }),
        &["spec.drill.includedNamespaces: \"velero\" is the namespace of the installation, which would run twice"],
    )]
    #[case::drills_of_what_backups_hold(
        json!({ "schedule": "@daily", "template": { "includedNamespaces": ["*"] },
            "drill": { "every": "24h", "includedNamespaces": ["shop", "kube-system"] } }),
        &[],
    )]
    fn a_schedule_is_refused_for_its_spec(#[case] spec: Value, #[case] expected: &[&str]) {
        let message = message(true, &spec, None);
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
        for part in expected {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
    }

    #[test]
    fn what_was_wrong_before_is_not_refused_again() {
        let (cron, valid) = ("61 * * * *", "@daily");
        let spec = |schedule: &str, ttl: &str, paused: bool| json!({ "schedule": schedule, "paused": paused, "template": { "ttl": ttl } });
        let wrong = spec(cron, "-1h", false);
        for (new, passes) in [
            (spec(cron, "-1h", true), true),
            (spec(valid, "-1h", false), true),
            (spec("62 * * * *", "-1h", false), false),
            (spec(valid, "-2h", false), false),
        ] {
            let message = message(true, &new, Some(&wrong));
            assert_eq!(message.is_empty(), passes, "{new}: {message}");
        }
        let message = message(true, &wrong, Some(&spec(valid, "1h", false)));
        assert_says!(message, "spec.schedule: ", "spec.template.ttl: ");
    }

    #[test]
    fn beside_another_server_only_what_it_cannot_read_is_refused() {
        let takes =
            json!({ "schedule": "61 * * * *", "template": { "ttl": "-1h", "datamover": "other" } });
        assert_eq!(message(false, &takes, None), "");
        let message = message(
            false,
            &json!({ "schedule": "@daily", "template": { "ttl": "soon" } }),
            None,
        );
        assert_says!(message, "spec.template.ttl: ");
    }

    #[test]
    fn where_the_library_is_known_a_schedule_is_refused_for_what_that_one_does_not_read() {
        for (schedule, robfig, netresearch) in [
            ("0 3 * * *", false, false),
            ("0 3 * * 7", true, false),
            ("*/70 * * * *", false, true),
            ("61 * * * *", true, true),
        ] {
            let spec = json!({ "schedule": schedule, "template": {} });
            for (dialect, refused) in [
                (Dialect::Robfig, robfig),
                (Dialect::Netresearch, netresearch),
            ] {
                let message = message_of(true, &[dialect], &spec, None);
                assert_eq!(
                    message.contains("spec.schedule: "),
                    refused,
                    "{schedule} {dialect}: {message}"
                );
            }
        }
    }
}
