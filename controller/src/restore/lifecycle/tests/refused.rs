//! Restores that cannot run as they are, or not any more.

use super::*;

#[tokio::test]
async fn a_restore_that_can_not_run_says_everything_that_is_wrong() {
    let (fake, _folder, ctx) = prepared(None).await;
    let spec = json!({"backupName": "missing", "resourceModifier": {"kind": "ConfigMap", "name": "x"}});
    fake.put(RESTORE, velero("Restore", "r", spec, json!({})));
    step(&mut worker(&ctx)).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "FailedValidation");
    let errors = status["validationErrors"].to_string();
    assert!(errors.contains("spec.backupName") && errors.contains("spec.resourceModifier"), "{errors}");
    assert!(fake.get(ITEM).is_none());
}

/// Of such a name nothing is asked for: a path made of it would lead elsewhere.
#[tokio::test]
async fn a_restore_from_a_name_that_no_backup_can_have_is_refused() {
    for name in [" ", "b c", "../backups/b", "b?watch=1", "*"] {
        let (fake, _folder, ctx) = prepared(None).await;
        let spec = json!({"backupName": name, "resourceModifier": {"kind": "ConfigMap", "name": name}});
        fake.put(RESTORE, velero("Restore", "r", spec, json!({})));
        assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{name}");
        let errors = status(&fake)["validationErrors"].clone();
        let expected = [
            format!("spec.backupName: {name:?} cannot be the name of a Backup"),
            format!("spec.resourceModifier.name: {name:?} cannot be the name of a ConfigMap"),
        ];
        assert_eq!(errors, json!(expected));
        assert!(
            !fake
                .log()
                .iter()
                .any(|line| line.starts_with("GET /apis/velero.io/v1/namespaces/velero/backups"))
        );
    }
}

/// Its rules are followed again by who takes it up, so it does not go on without them.
#[tokio::test]
async fn a_restore_whose_modifier_is_gone_when_it_is_resumed_fails() {
    let rules = "{version: v1, resourceModifierRules: [{conditions: {groupResource: configmaps}, mergePatches: [{patchData: 'data: {k: w}'}]}]}";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changes"}, "data": {"rules": rules}});
    for (phase, there) in [(None, true), (Some("InProgress"), true), (Some("InProgress"), false)] {
        let (fake, _folder, ctx) = prepared(phase).await;
        let spec = json!({"backupName": "b", "resourceModifier": {"kind": "configmap", "name": "changes"}});
        fake.edit(RESTORE, |restore| restore["spec"] = spec);
        if there {
            fake.put("/api/v1/namespaces/velero/configmaps/changes", map.clone());
        }
        run(&ctx).await;
        let status = status(&fake);
        if there {
            assert_eq!(status["phase"], "Completed", "{status}");
            assert_eq!(fake.get(ITEM).unwrap()["data"]["k"], "w");
        } else {
            assert_eq!((&status["phase"], fake.get(ITEM)), (&json!("Failed"), None));
            let reason = status["failureReason"].as_str().unwrap();
            assert!(reason.contains("there is no ConfigMap \"changes\""), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_restore_that_can_not_be_decoded_is_refused_by_field() {
    let (fake, _folder, ctx) = prepared(None).await;
    let spec = json!({"backupName": "b", "itemOperationTimeout": "tomorrow"});
    fake.put(RESTORE, velero("Restore", "r", spec, json!({})));
    refuse(&ctx).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "FailedValidation");
    assert!(
        status["validationErrors"][0].as_str().unwrap().starts_with("spec.itemOperationTimeout: "),
        "{status}"
    );
}
