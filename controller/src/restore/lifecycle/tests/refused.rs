//! Restores that cannot run, or can no longer run.

use super::*;

#[tokio::test]
async fn a_restore_that_can_not_run_says_everything_that_is_wrong() {
    let (fake, _folder, ctx) = prepared(None).await;
    let spec =
        json!({"backupName": "missing", "resourceModifier": {"kind": "ConfigMap", "name": "x"}});
    fake.put(RESTORE, velero("Restore", "r", spec, json!({})));
    step(&mut worker(&ctx)).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "FailedValidation");
    let errors = status["validationErrors"].to_string();
    assert_says!(errors, "spec.backupName", "spec.resourceModifier");
    assert!(fake.get(ITEM).is_none());
}

/// No request is made with such a name: its path would lead elsewhere.
#[tokio::test]
async fn a_restore_from_a_name_that_no_backup_can_have_is_refused() {
    for name in [" ", "b c", "../backups/b", "b?watch=1", "*"] {
        let (fake, _folder, ctx) = prepared(None).await;
        let spec =
            json!({"backupName": name, "resourceModifier": {"kind": "ConfigMap", "name": name}});
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

/// A resumed restore needs its rules again, so it does not continue without them.
#[tokio::test]
async fn a_restore_whose_modifier_is_gone_when_it_is_resumed_fails() {
    let rules = "{version: v1, resourceModifierRules: [{conditions: {groupResource: configmaps}, mergePatches: [{patchData: 'data: {k: w}'}]}]}";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changes"}, "data": {"rules": rules}});
    for (phase, there) in [
        (None, true),
        (Some("InProgress"), true),
        (Some("InProgress"), false),
    ] {
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
            assert_says!(reason, "there is no ConfigMap \"changes\"");
        }
    }
}

/// `--default-resource-modifier-configmap` (Velero `pkg/controller/restore_controller.go`, after
/// 1.18).
#[rstest::rstest]
#[case::of_all_restores(json!({}), true, Some("all"))]
#[case::its_own_take_their_place(json!({"resourceModifier": {"kind": "ConfigMap", "name": "own"}}), true, Some("own"))]
#[case::left_alone(json!({"skipDefaultResourceModifier": true}), true, None)]
#[case::left_alone_by_one_that_is_gone(json!({"skipDefaultResourceModifier": true}), false, None)]
#[tokio::test]
async fn modifiers_for_all_restores_are_followed_where_a_restore_has_none(
    #[case] more: Value,
    #[case] there: bool,
    #[case] expected: Option<&str>,
) {
    let (fake, _folder, ctx) = prepared(None).await;
    for name in ["all", "own"]
        .into_iter()
        .filter(|name| there || *name != "all")
    {
        let rules = format!(
            "{{version: v1, resourceModifierRules: [{{conditions: {{groupResource: configmaps}}, mergePatches: [{{patchData: 'data: {{by: {name}}}'}}]}}]}}"
        );
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"rules": rules}});
        fake.put(&format!("/api/v1/namespaces/velero/configmaps/{name}"), map);
    }
    fake.edit(RESTORE, |restore| {
        json_patch::merge(&mut restore["spec"], &more);
    });
    step(&mut worker_with_default_modifier(&ctx, "all")).await;
    assert_eq!(status(&fake)["phase"], "Completed", "{}", status(&fake));
    assert_eq!(fake.get(ITEM).unwrap()["data"]["by"], json!(expected));
}

#[tokio::test]
async fn a_restore_without_the_modifiers_for_all_restores_is_refused() {
    let (fake, _folder, ctx) = prepared(None).await;
    step(&mut worker_with_default_modifier(&ctx, "gone")).await;
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], fake.get(ITEM)),
        (&json!("FailedValidation"), None)
    );
    let error = status["validationErrors"][0].as_str().unwrap();
    for part in [
        "--default-resource-modifier-configmap: ",
        "\"gone\"",
        "spec.skipDefaultResourceModifier",
    ] {
        assert_says!(error, part);
    }
}

fn worker_with_default_modifier(ctx: &JobContext, name: &str) -> Worker<Restores> {
    let mut kind = Restores::fake(ctx);
    Arc::get_mut(&mut kind).unwrap().default_modifier = Some(name.to_owned());
    let cancellation = Cancellation::new(Leadership::always(), ctx.stop.clone());
    Worker::new(
        ctx.clone(),
        kind,
        "r",
        "uid-r",
        cancellation,
        Arc::new(Semaphore::new(2)),
    )
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
        status["validationErrors"][0]
            .as_str()
            .unwrap()
            .starts_with("spec.itemOperationTimeout: "),
        "{status}"
    );
}
