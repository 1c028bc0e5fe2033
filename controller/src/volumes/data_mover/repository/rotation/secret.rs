//! The stages of a rotation, as the Secret shows them, and the writes to the Secret. Pure.
//!
//! | entries of the Secret | stage |
//! | --- | --- |
//! | a password | none |
//! | and a next one | all repositories get a key of the next password |
//! | and a previous one | the next password has become the current one; a user copies it |
//! | the same, and the copy is confirmed | the keys of the previous password are removed |
//!
//! Each write is one update of the Secret, so there is always a current password. It, or the
//! previous one, opens every repository.

use backup_core::{
    data_movement::PASSWORD_KEY,
    repository_records::{
        NEXT_PASSWORD_KEY, PASSWORD_COPIED_ANNOTATION, PREVIOUS_PASSWORD_KEY, PasswordRotation,
        ROTATION_ANNOTATION, ROTATION_REQUEST_ANNOTATION, RotationStage,
    },
};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// The next step that the Secret asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretPlan {
    /// No rotation is under way.
    Nothing,
    /// A user has asked for another password.
    Begin,
    /// The annotation does not say the stage yet.
    Note(RotationStage),
    Follow(PasswordRotation),
}

pub(super) fn plan(secret: &Secret) -> SecretPlan {
    let Some(stage) = stage(secret) else {
        let is_requested = secret
            .annotations()
            .contains_key(ROTATION_REQUEST_ANNOTATION);
        return if is_requested && password(secret, PASSWORD_KEY).is_some() {
            SecretPlan::Begin
        } else {
            SecretPlan::Nothing
        };
    };
    match PasswordRotation::of(secret.annotations()) {
        Some(rotation) if rotation.stage == stage => SecretPlan::Follow(rotation),
        _ => SecretPlan::Note(stage),
    }
}

/// `None` without a rotation, or without the current password.
fn stage(secret: &Secret) -> Option<RotationStage> {
    password(secret, PASSWORD_KEY)?;
    if password(secret, PREVIOUS_PASSWORD_KEY).is_some() {
        let is_copied = secret
            .annotations()
            .contains_key(PASSWORD_COPIED_ANNOTATION);
        return Some(if is_copied {
            RotationStage::Removing
        } else {
            RotationStage::Switched
        });
    }
    password(secret, NEXT_PASSWORD_KEY).map(|_| RotationStage::Adding)
}

fn password<'a>(secret: &'a Secret, key: &str) -> Option<&'a ByteString> {
    let password = secret.data.as_ref()?.get(key)?;
    (!password.0.is_empty()).then_some(password)
}

/// Adds the next password.
pub(super) fn begun(secret: &Secret, next: &str, now: Timestamp) -> Option<Value> {
    (plan(secret) == SecretPlan::Begin).then(|| {
        let next = ByteString(next.as_bytes().to_vec());
        json!({
            "metadata": {"annotations": annotations(Some(RotationStage::Adding), now)},
            "data": {NEXT_PASSWORD_KEY: next},
        })
    })
}

/// Writes the stage into the annotation.
pub(super) fn noted(secret: &Secret, now: Timestamp) -> Option<Value> {
    match plan(secret) {
        SecretPlan::Note(stage) => {
            let rotation = PasswordRotation { stage, since: now };
            Some(json!({"metadata": {"annotations": {ROTATION_ANNOTATION: rotation.annotation()}}}))
        }
        SecretPlan::Nothing | SecretPlan::Begin | SecretPlan::Follow(_) => None,
    }
}

/// Makes the next password the current one.
pub(super) fn switched(secret: &Secret, now: Timestamp) -> Option<Value> {
    if stage(secret) != Some(RotationStage::Adding) {
        return None;
    }
    let current = password(secret, PASSWORD_KEY)?;
    let next = password(secret, NEXT_PASSWORD_KEY)?;
    Some(json!({
        "metadata": {"annotations": annotations(Some(RotationStage::Switched), now)},
        "data": {
            PASSWORD_KEY: next,
            PREVIOUS_PASSWORD_KEY: current,
            NEXT_PASSWORD_KEY: null,
        },
    }))
}

/// Removes the previous password.
pub(super) fn finished(secret: &Secret, now: Timestamp) -> Option<Value> {
    (stage(secret) == Some(RotationStage::Removing)).then(|| {
        json!({
            "metadata": {"annotations": annotations(None, now)},
            "data": {PREVIOUS_PASSWORD_KEY: null},
        })
    })
}

/// Annotations of a rotation in this stage. Those of the user are used up.
fn annotations(stage: Option<RotationStage>, now: Timestamp) -> Value {
    let rotation = stage.map(|stage| PasswordRotation { stage, since: now }.annotation());
    json!({
        ROTATION_ANNOTATION: rotation,
        ROTATION_REQUEST_ANNOTATION: null,
        PASSWORD_COPIED_ANNOTATION: null,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-01T12:00:00Z".parse().unwrap()
    }

    /// A Secret with these entries and annotations.
    fn secret(entries: &[(&str, &str)], annotations: &[&str]) -> Secret {
        let data: Map<String, Value> = entries
            .iter()
            .map(|(key, text)| {
                (
                    (*key).to_owned(),
                    json!(ByteString(text.as_bytes().to_vec())),
                )
            })
            .collect();
        let annotations: Map<String, Value> = annotations
            .iter()
            .map(|name| ((*name).to_owned(), json!("yes")))
            .collect();
        let metadata = json!({"name": "s", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
    }

    fn patched(secret: &Secret, patch: &Value) -> Secret {
        let mut value = serde_json::to_value(secret).unwrap();
        json_patch::merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    fn text(secret: &Secret, key: &str) -> Option<String> {
        let password = password(secret, key)?;
        Some(String::from_utf8(password.0.clone()).unwrap())
    }

    #[test]
    fn a_password_is_replaced_in_stages_and_there_is_always_one() {
        let asked = secret(
            &[(PASSWORD_KEY, "old")],
            &[ROTATION_REQUEST_ANNOTATION, PASSWORD_COPIED_ANNOTATION],
        );
        assert_eq!(plan(&asked), SecretPlan::Begin);
        let adding = patched(&asked, &begun(&asked, "new", now()).unwrap());
        let follow = |stage: RotationStage| {
            SecretPlan::Follow(PasswordRotation {
                stage,
                since: now(),
            })
        };
        assert_eq!(plan(&adding), follow(RotationStage::Adding));
        assert_eq!(text(&adding, PASSWORD_KEY).as_deref(), Some("old"));
        assert_eq!(text(&adding, NEXT_PASSWORD_KEY).as_deref(), Some("new"));

        let switched = patched(&adding, &switched(&adding, now()).unwrap());
        assert_eq!(plan(&switched), follow(RotationStage::Switched));
        assert_eq!(text(&switched, PASSWORD_KEY).as_deref(), Some("new"));
        assert_eq!(
            text(&switched, PREVIOUS_PASSWORD_KEY).as_deref(),
            Some("old")
        );
        assert_eq!(text(&switched, NEXT_PASSWORD_KEY), None);
        assert_eq!(finished(&switched, now()), None, "not before it is copied");

        let copy = json!({"metadata": {"annotations": {PASSWORD_COPIED_ANNOTATION: "yes"}}});
        let copied = patched(&switched, &copy);
        assert_eq!(plan(&copied), SecretPlan::Note(RotationStage::Removing));
        let removing = patched(&copied, &noted(&copied, now()).unwrap());
        assert_eq!(plan(&removing), follow(RotationStage::Removing));
        let done = patched(&removing, &finished(&removing, now()).unwrap());
        assert_eq!(plan(&done), SecretPlan::Nothing);
        assert_eq!(done.data.unwrap().len(), 1);
        assert!(done.metadata.annotations.unwrap_or_default().is_empty());
    }

    #[test]
    fn a_next_password_by_a_user_begins_a_rotation() {
        let given = secret(&[(PASSWORD_KEY, "old"), (NEXT_PASSWORD_KEY, "mine")], &[]);
        assert_eq!(plan(&given), SecretPlan::Note(RotationStage::Adding));
        let noted = patched(&given, &noted(&given, now()).unwrap());
        assert!(matches!(plan(&noted), SecretPlan::Follow(_)));
        let switched = patched(&noted, &switched(&noted, now()).unwrap());
        assert_eq!(text(&switched, PASSWORD_KEY).as_deref(), Some("mine"));
    }

    #[test]
    fn a_previous_password_is_dealt_with_before_a_next_one() {
        let entries = [
            (PASSWORD_KEY, "b"),
            (PREVIOUS_PASSWORD_KEY, "a"),
            (NEXT_PASSWORD_KEY, "c"),
        ];
        let both = secret(&entries, &[ROTATION_REQUEST_ANNOTATION]);
        assert_eq!(plan(&both), SecretPlan::Note(RotationStage::Switched));
        assert_eq!(switched(&both, now()), None);
        assert_eq!(begun(&both, "d", now()), None);
    }

    #[test]
    fn without_a_current_password_nothing_is_replaced() {
        for entries in [
            &[(NEXT_PASSWORD_KEY, "new")][..],
            &[(PASSWORD_KEY, ""), (NEXT_PASSWORD_KEY, "new")],
            &[],
        ] {
            let secret = secret(entries, &[ROTATION_REQUEST_ANNOTATION]);
            assert_eq!(plan(&secret), SecretPlan::Nothing);
            assert_eq!(switched(&secret, now()), None);
            assert_eq!(begun(&secret, "x", now()), None);
        }
    }
}
