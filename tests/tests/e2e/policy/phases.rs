//! Only the controller may write the phase of an engine's object; users with the permission may
//! break the glass, for a reason.

use backup_tests::people::{
    BREAKER, CONTROLLER, EDITOR, OPERATOR, PLANNER, People, WEBHOOK, object, refused,
};
use kube::api::{Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    the_phase_of_an_object_is_its_controllers_to_move,
    objects_arrive_new_or_ended_and_never_at_work,
    what_arrives_ended_claims_nothing_that_the_controller_has_seen,
    a_request_for_a_deletion_is_answered_by_the_controller,
    everything_but_phase_and_work_finalizer_is_everybodys,
    a_work_finalizer_is_taken_off_by_the_controller,
    what_is_said_of_an_end_is_the_controllers_to_change,
    a_verification_by_hand_hides_nothing_that_digests_have_shown,
    rules_that_keep_a_backup_are_taken_off_and_never_forged,
    what_a_schedule_has_proven_is_recorded_by_the_controller,
    copies_are_recorded_by_the_controller,
    a_glass_is_broken_by_those_who_may_and_for_a_reason,
    the_reason_for_breaking_a_glass_is_written_by_those_who_may,
}

const KINDS: [&str; 2] = ["Backup", "Restore"];
const REASON: &str = "backup-lock/break-glass";

async fn the_phase_of_an_object_is_its_controllers_to_move(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    // From, to, and whether any user may.
    let table = [
        ("", "New", true),
        ("New", "", true),
        ("New", "InProgress", false),
        ("", "InProgress", false),
        ("", "Completed", false),
        ("New", "FailedValidation", false),
        ("InProgress", "Completed", false),
        ("InProgress", "Failed", false),
        ("InProgress", "Finalizing", false),
        ("InProgress", "New", false),
        ("InProgress", "", false),
        ("Finalizing", "PartiallyFailed", false),
        ("Completed", "InProgress", false),
        ("Completed", "", false),
        ("Completed", "Failed", false),
        ("Completed", "Completed", true),
        ("InProgress", "InProgress", true),
    ];
    for kind in KINDS {
        let ours = cast.objects(CONTROLLER, kind).await?;
        for (from, to, anybody) in table {
            let what = format!("{kind} from {from:?} to {to:?}");
            stored(&ours, kind, "moved", from)
                .await
                .with_context(|| what.clone())?;
            // Neither operators of the lock nor the webhook have the controller's rights.
            for who in [EDITOR, OPERATOR, BREAKER, WEBHOOK] {
                let theirs = cast.objects(who, kind).await?;
                let result = theirs.dry_patch("moved", phase(to)).await;
                match (who, anybody) {
                    (WEBHOOK, _) => refused(result, "cannot patch").map(|_| ()),
                    (_, true) => result.map(|_| ()).map_err(Into::into),
                    (_, false) => {
                        refused(result, "only backup-controller moves the phase").map(|_| ())
                    }
                }
                .with_context(|| format!("{who}: {what}"))?;
            }
            ours.dry_patch("moved", phase(to))
                .await
                .with_context(|| format!("the controller: {what}"))?;
            gone(&ours, "moved").await?;
        }
    }
    Ok(())
}

async fn objects_arrive_new_or_ended_and_never_at_work(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let dry = dry_run();
    for kind in KINDS {
        let theirs = cast.objects(EDITOR, kind).await?;
        for arrives in [
            "",
            "New",
            "Completed",
            "PartiallyFailed",
            "Failed",
            "FailedValidation",
        ] {
            let result = theirs
                .create(&dry, &with_phase(kind, "arrives", arrives)?)
                .await;
            result.with_context(|| format!("{kind} in {arrives}"))?;
        }
        for arrives in [
            "InProgress",
            "WaitingForPluginOperations",
            "Finalizing",
            "FinalizingPartiallyFailed",
        ] {
            let result = theirs
                .create(&dry, &with_phase(kind, "arrives", arrives)?)
                .await;
            refused(result, "only backup-controller moves the phase")
                .with_context(|| format!("{kind} in {arrives}"))?;
        }
        // Server-side apply creates and changes with the same verb.
        let apply = PatchParams {
            dry_run: true,
            ..PatchParams::apply("pipeline")
        };
        let running = with_phase(kind, "arrives", "InProgress")?;
        refused(
            theirs
                .patch("arrives", &apply, &Patch::Apply(&running))
                .await,
            "only backup-controller",
        )?;
        theirs
            .patch(
                "arrives",
                &apply,
                &Patch::Apply(&with_phase(kind, "arrives", "")?),
            )
            .await?;
    }
    Ok(())
}

/// What is made here, verified, imported or copied counts for the retention of older backups: each is
/// the controller's word.
async fn what_arrives_ended_claims_nothing_that_the_controller_has_seen(
    world: &mut World,
) -> TestResult {
    let cast = People::of(world).await?;
    let theirs = cast.objects(EDITOR, "Backup").await?;
    let ours = cast.objects(CONTROLLER, "Backup").await?;
    let dry = dry_run();
    let times = |seconds: i64| {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        json!({ "status": { "startTimestamp": at.to_string(), "completionTimestamp": at.to_string() } })
    };
    let annotated = |name: &str| json!({ "metadata": { "annotations": { format!("backup-controller/{name}"): "{}" } } });
    let copied =
        json!({ "status": { "copies": [{ "location": "second", "phase": "Completed" }] } });
    for (phase, claim, needle) in [
        ("Completed", json!({}), ""),
        ("Completed", times(-3600), ""),
        ("Completed", times(1), "arrives with its phase"),
        ("PartiallyFailed", times(-20), "arrives with its phase"),
        (
            "Completed",
            annotated("verified"),
            "writes annotation backup-controller/verified",
        ),
        (
            "Completed",
            annotated("imported"),
            "writes annotation backup-controller/imported",
        ),
        // The controller removes it when the backup begins.
        ("New", annotated("stored-scope"), ""),
        ("", annotated("verified"), ""),
        (
            "Completed",
            copied.clone(),
            "only backup-controller records the copies",
        ),
        ("", copied, ""),
    ] {
        let what = format!("{phase} with {claim}");
        let mut object = with_phase("Backup", "claims", phase)?;
        object.metadata.annotations =
            serde_json::from_value(claim["metadata"]["annotations"].clone())?;
        for (field, value) in claim["status"].as_object().into_iter().flatten() {
            object.data["status"][field] = value.clone();
        }
        let created = theirs.create(&dry, &object).await;
        match needle {
            "" => _ = created.with_context(|| what.clone())?,
            _ => _ = refused(created, needle).with_context(|| what.clone())?,
        }
        ours.create(&dry, &object).await.with_context(|| what)?;
    }
    Ok(())
}

/// A forged answer would free the claim of the request late, and remove the other requests of that
/// backup.
async fn a_request_for_a_deletion_is_answered_by_the_controller(world: &mut World) -> TestResult {
    let (cast, kind) = (People::of(world).await?, "DeleteBackupRequest");
    let (ours, theirs) = (
        cast.objects(CONTROLLER, kind).await?,
        cast.objects(EDITOR, kind).await?,
    );
    let request = |phase: &str| {
        object(
            kind,
            "asks",
            &json!({ "spec": { "backupName": "some" }, "status": { "phase": phase } }),
        )
    };
    refused(
        theirs.create(&dry_run(), &request("Processed")?).await,
        "only backup-controller moves the phase",
    )?;
    theirs.create_object(&request("New")?).await?;
    for (from, to) in [
        ("New", "InProgress"),
        ("InProgress", "Processed"),
        ("Processed", "New"),
    ] {
        refused(
            theirs.dry_patch("asks", phase(to)).await,
            "only backup-controller moves the phase",
        )
        .with_context(|| format!("from {from} to {to}"))?;
        ours.merge_patch("asks", phase(to))
            .await
            .with_context(|| to.to_owned())?;
    }
    theirs.delete_object("asks").await?;
    Ok(())
}

async fn everything_but_phase_and_work_finalizer_is_everybodys(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    for kind in KINDS {
        let (ours, theirs) = (
            cast.objects(CONTROLLER, kind).await?,
            cast.objects(EDITOR, kind).await?,
        );
        for at in ["", "InProgress", "Completed"] {
            stored(&ours, kind, "touched", at).await?;
            for (what, patch) in [
                ("a label", json!({ "metadata": { "labels": { "a": "b" } } })),
                (
                    "another finalizer",
                    json!({ "metadata": { "finalizers": [finalizer(kind), "a/b"] } }),
                ),
                (
                    "no other finalizer",
                    json!({ "metadata": { "finalizers": [finalizer(kind)] } }),
                ),
                (
                    "spec",
                    json!({ "spec": { "includedNamespaces": ["another"] } }),
                ),
                (
                    "progress",
                    json!({ "status": { "progress": { "totalItems": 5 } } }),
                ),
            ] {
                let result = theirs.merge_patch("touched", patch).await;
                result.with_context(|| format!("{what} of a {kind} in {at:?}"))?;
            }
            theirs
                .delete_object("touched")
                .await
                .context("an editor deletes")?;
            gone(&ours, "touched").await?;
        }
    }
    Ok(())
}

/// Without these annotations, a backup that lacks data would seem complete.
async fn what_is_said_of_an_end_is_the_controllers_to_change(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let annotate = |name: &str, value: Value| {
        let name = format!("backup-controller/{name}");
        json!({ "metadata": { "annotations": { name: value } } })
    };
    let names = [
        "missing-data",
        "data-elsewhere",
        "left-items",
        "stored-scope",
        "files-missing",
        "imported",
        "copy-of",
        "read-from",
        "notified",
        "drilled",
        "drill-state",
    ];
    for kind in KINDS {
        let ours = cast.objects(CONTROLLER, kind).await?;
        let theirs = cast.objects(EDITOR, kind).await?;
        for at in ["InProgress", "Completed"] {
            stored(&ours, kind, "said", at).await?;
            for name in names {
                let what = || format!("{name} of a {kind} in {at}");
                ours.merge_patch("said", annotate(name, json!("x")))
                    .await
                    .with_context(what)?;
                for value in [Value::Null, json!("y")] {
                    let result = theirs.dry_patch("said", annotate(name, value)).await;
                    let part = format!(
                        "only backup-controller writes annotation backup-controller/{name}"
                    );
                    refused(result, &part).with_context(what)?;
                }
            }
            // All at once, including one that any user may change.
            let none = json!({ "metadata": { "annotations": null } });
            refused(
                theirs.dry_patch("said", none.clone()).await,
                "only backup-controller writes annotation",
            )?;
            theirs
                .merge_patch("said", annotate("cancel", json!("yes")))
                .await?;
            ours.merge_patch("said", none).await?;
            gone(&ours, "said").await?;
        }
        // A copy has the annotations of its original.
        let mut copy = with_phase(kind, "copied", "")?;
        copy.metadata.annotations =
            Some([("backup-controller/missing-data".to_owned(), "x".to_owned())].into());
        theirs.create(&dry_run(), &copy).await?;
    }
    Ok(())
}

/// `kubectl backup verify` records its result with the rights of its user.
async fn a_verification_by_hand_hides_nothing_that_digests_have_shown(
    world: &mut World,
) -> TestResult {
    let kind = "Backup";
    let cast = People::of(world).await?;
    let ours = cast.objects(CONTROLLER, kind).await?;
    let record = |value: &str| json!({ "metadata": { "annotations": { "backup-controller/verified": value } } });
    let by_hand = r#"{"at":"2026-11-03T05:14:12Z","findings":0}"#;
    let damage = r#"{"at":"2026-11-03T05:14:12Z","findings":2,"first":"a \"b\": c"}"#;
    let compared = r#"{"at":"2026-11-03T05:14:12Z","findings":0,"compared":true}"#;
    let shown =
        r#"{"at":"2026-11-03T05:14:12Z","findings":1,"first":"it is missing","compared":true}"#;
    stored(&ours, kind, "verified", "Completed").await?;
    let editor = cast.objects(EDITOR, kind).await?;
    let planner = cast.objects(PLANNER, kind).await?;
    let none = json!({ "metadata": { "annotations": { "backup-controller/verified": null } } });
    let needle = "only backup-controller writes annotation backup-controller/verified";
    // The record so far, the new one, and whether who may read the files may write it.
    for (before, after, passes) in [
        (None, by_hand, true),
        (None, damage, true),
        (Some(by_hand), damage, true),
        (Some(compared), by_hand, true),
        (Some(compared), damage, true),
        (None, compared, false),
        (
            None,
            r#"{"at":"2026-11-03T05:14:12Z","findings":0,"compared": true}"#,
            false,
        ),
        (Some(by_hand), "unreadable", false),
        (Some(shown), by_hand, false),
        (Some(shown), damage, false),
    ] {
        let what = || format!("from {before:?} to {after}");
        ours.merge_patch("verified", before.map_or_else(|| none.clone(), record))
            .await?;
        let result = editor.dry_patch("verified", record(after)).await;
        if passes {
            result.with_context(what)?;
        } else {
            refused(result, needle).with_context(what)?;
        }
        refused(planner.dry_patch("verified", record(after)).await, needle).with_context(what)?;
    }
    refused(editor.dry_patch("verified", none).await, needle)?;
    gone(&ours, "verified").await?;
    Ok(())
}

async fn rules_that_keep_a_backup_are_taken_off_and_never_forged(world: &mut World) -> TestResult {
    let kind = "Backup";
    let cast = People::of(world).await?;
    let ours = cast.objects(CONTROLLER, kind).await?;
    let theirs = cast.objects(EDITOR, kind).await?;
    let rules = |value: Value| json!({ "metadata": { "annotations": { "backup-controller/keep": value } } });
    let needle = "only backup-controller writes annotation backup-controller/keep";
    stored(&ours, kind, "kept", "Completed").await?;
    let daily = json!(r#"{"rules":{"daily":7}}"#);
    refused(theirs.dry_patch("kept", rules(daily.clone())).await, needle)?;
    ours.merge_patch("kept", rules(daily)).await?;
    let others = json!(r#"{"rules":{"daily":700}}"#);
    refused(theirs.dry_patch("kept", rules(others)).await, needle)?;
    theirs.merge_patch("kept", rules(Value::Null)).await?;
    gone(&ours, "kept").await?;
    Ok(())
}

async fn what_a_schedule_has_proven_is_recorded_by_the_controller(world: &mut World) -> TestResult {
    let kind = "Schedule";
    let cast = People::of(world).await?;
    let ours = cast.objects(CONTROLLER, kind).await?;
    let theirs = cast.objects(PLANNER, kind).await?;
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": kind,
        "metadata": { "name": "proven", "namespace": "velero" },
        "spec": { "schedule": "@yearly", "paused": true, "template": {} } });
    theirs.create_json(schedule).await?;
    for name in ["last-drill", "verification"] {
        let annotation = format!("backup-controller/{name}");
        let record =
            |value: Value| json!({ "metadata": { "annotations": { &annotation: value } } });
        let needle = format!("only backup-controller writes annotation {annotation}");
        let forged = json!(r#"{"at":"2030-01-01T00:00:00Z"}"#);
        refused(
            theirs.dry_patch("proven", record(forged.clone())).await,
            &needle,
        )?;
        ours.merge_patch("proven", record(forged)).await?;
        let other = record(json!(r#"{"at":"2031-01-01T00:00:00Z"}"#));
        refused(theirs.dry_patch("proven", other).await, &needle)?;
        let pause = json!({ "spec": { "paused": true, "schedule": "@monthly" } });
        theirs.merge_patch("proven", pause).await?;
        theirs.merge_patch("proven", record(Value::Null)).await?;
    }
    gone(&theirs, "proven").await?;
    Ok(())
}

async fn copies_are_recorded_by_the_controller(world: &mut World) -> TestResult {
    let kind = "Backup";
    let cast = People::of(world).await?;
    let ours = cast.objects(CONTROLLER, kind).await?;
    let theirs = cast.objects(EDITOR, kind).await?;
    let copies = |all: Value| json!({ "status": { "copies": all } });
    let failed = json!({ "location": "second", "phase": "Failed" });
    let complete = json!({ "location": "third", "phase": "Completed" });
    stored(&ours, kind, "copied", "Completed").await?;
    for (before, after, passes) in [
        (json!([]), json!([complete]), false),
        (
            json!([failed]),
            json!([{ "location": "second", "phase": "Completed" }]),
            false,
        ),
        (json!([failed, complete]), json!([complete]), true),
    ] {
        let what = || format!("from {before} to {after}");
        ours.merge_patch("copied", copies(before.clone())).await?;
        let result = theirs.dry_patch("copied", copies(after.clone())).await;
        if passes {
            result.with_context(what)?;
        } else {
            refused(result, "only backup-controller records the copies").with_context(what)?;
        }
    }
    gone(&ours, "copied").await?;
    Ok(())
}

async fn a_work_finalizer_is_taken_off_by_the_controller(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let off = json!({ "metadata": { "finalizers": null } });
    for kind in KINDS {
        let ours = cast.objects(CONTROLLER, kind).await?;
        for (at, free) in [
            ("", false),
            ("InProgress", false),
            ("Finalizing", false),
            ("Completed", true),
        ] {
            stored(&ours, kind, "worked-on", at).await?;
            for who in [EDITOR, OPERATOR, BREAKER] {
                let theirs = cast.objects(who, kind).await?;
                let result = theirs.dry_patch("worked-on", off.clone()).await;
                if free {
                    result.with_context(|| format!("{who}: {kind} in {at:?}"))?;
                } else {
                    refused(result, "only backup-controller takes its finalizer off")
                        .with_context(|| format!("{who}: {kind} in {at:?}"))?;
                }
            }
            ours.dry_patch("worked-on", off.clone())
                .await
                .context("the controller")?;
            gone(&ours, "worked-on").await?;
        }
    }
    Ok(())
}

async fn a_glass_is_broken_by_those_who_may_and_for_a_reason(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    for kind in KINDS {
        let ours = cast.objects(CONTROLLER, kind).await?;
        stored(&ours, kind, "broken", "InProgress").await?;
        let breaker = cast.objects(BREAKER, kind).await?;
        let editor = cast.objects(EDITOR, kind).await?;
        for (what, change) in [
            ("an end", json!({ "status": { "phase": "Failed" } })),
            (
                "another phase",
                json!({ "status": { "phase": "Finalizing" } }),
            ),
            (
                "no finalizer",
                json!({ "metadata": { "finalizers": null } }),
            ),
        ] {
            let with = |reason: &str| {
                let mut change = change.clone();
                change["metadata"]["annotations"] = json!({ REASON: reason });
                change
            };
            for nothing in ["", "  "] {
                refused(
                    breaker.dry_patch("broken", with(nothing)).await,
                    "only backup-controller",
                )
                .with_context(|| format!("{what} for {nothing:?}"))?;
            }
            breaker
                .dry_patch("broken", with("the worker is gone"))
                .await
                .context(what)?;
            refused(
                editor.dry_patch("broken", with("the worker is gone")).await,
                REASON,
            )
            .with_context(|| format!("{what} by an editor"))?;
        }
        let deletes = json!({ "status": { "phase": "Deleting" }, "metadata": { "annotations": { REASON: "why" } } });
        if kind == "Backup" {
            let result = breaker.dry_patch("broken", deletes).await;
            refused(result, "Ask for the deletion with")?;
        }
        // The reason alone, left by a user with the permission, lets no other user pass.
        let reason = json!({ "metadata": { "annotations": { REASON: "for later" } } });
        breaker.merge_patch("broken", reason).await?;
        refused(
            editor.dry_patch("broken", phase("Failed")).await,
            "only backup-controller",
        )?;
        breaker.merge_patch("broken", phase("Failed")).await?;
        gone(&ours, "broken").await?;
        // At creation, too.
        let post = dry_run();
        let arrives = annotated(
            with_phase(kind, "arrives", "InProgress")?,
            REASON,
            "moved by hand",
        );
        breaker.create(&post, &arrives).await?;
        refused(editor.create(&post, &arrives).await, REASON)?;
    }
    Ok(())
}

async fn the_reason_for_breaking_a_glass_is_written_by_those_who_may(
    world: &mut World,
) -> TestResult {
    let cast = People::of(world).await?;
    let needle = "set, changed and removed only by those";
    let reason = |text: Value| json!({ "metadata": { "annotations": { REASON: text } } });
    let post = dry_run();
    for kind in KINDS {
        let (breaker, editor) = (
            cast.objects(BREAKER, kind).await?,
            cast.objects(EDITOR, kind).await?,
        );
        stored(&cast.objects(CONTROLLER, kind).await?, kind, "reasoned", "").await?;
        refused(
            editor.dry_patch("reasoned", reason(json!("mine"))).await,
            needle,
        )?;
        breaker
            .merge_patch("reasoned", reason(json!("hers")))
            .await?;
        refused(
            editor.dry_patch("reasoned", reason(json!("mine"))).await,
            needle,
        )?;
        refused(
            editor.dry_patch("reasoned", reason(Value::Null)).await,
            needle,
        )?;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        editor
            .dry_patch("reasoned", label)
            .await
            .context("what else is there is everybody's")?;
        breaker.dry_patch("reasoned", reason(Value::Null)).await?;
        gone(&cast.objects(CONTROLLER, kind).await?, "reasoned").await?;

        let mut new = annotated(with_phase(kind, "reasoned", "")?, REASON, "mine");
        refused(editor.create(&post, &new).await, needle)?;
        breaker.create(&post, &new).await?;
        // Synchronisation creates the backups of a bucket with their phases.
        new.data["status"] = json!({ "phase": "Completed" });
        editor.create(&post, &new).await.context("arrives ended")?;
    }
    // The same in other namespaces: their Backups are guarded, too.
    let elsewhere: Api<DynamicObject> = Api::namespaced_with(
        cast.client(OPERATOR).await?,
        "elsewhere",
        &backup_tests::people::velero("Backup"),
    );
    let new = annotated(with_phase("Backup", "reasoned", "")?, REASON, "mine");
    cast.grant("elsewhere", &[OPERATOR]).await?;
    refused(elsewhere.create(&post, &new).await, needle)?;
    Ok(())
}

fn phase(name: &str) -> Value {
    json!({ "status": { "phase": if name.is_empty() { Value::Null } else { json!(name) } } })
}

fn finalizer(kind: &str) -> &'static str {
    if kind == "Backup" {
        "backup-controller.velero.io/work"
    } else {
        "backup-controller/work"
    }
}

fn with_phase(kind: &str, name: &str, phase: &str) -> anyhow::Result<DynamicObject> {
    let status = if phase.is_empty() {
        json!({})
    } else {
        json!({ "phase": phase })
    };
    let spec = if kind == "Restore" {
        json!({ "backupName": "some" })
    } else {
        json!({})
    };
    object(kind, name, &json!({ "spec": spec, "status": status }))
}

/// An object in this phase, as the controller would have left it.
async fn stored(
    api: &Api<DynamicObject>,
    kind: &str,
    name: &str,
    phase: &str,
) -> anyhow::Result<()> {
    let mut object = with_phase(kind, name, phase)?;
    object.metadata.finalizers = Some(vec![finalizer(kind).to_owned()]);
    let stored = api.create_object(&object).await?;
    ensure!(
        stored.data["status"]["phase"].as_str().unwrap_or_default() == phase,
        "{:?}",
        stored.data
    );
    Ok(())
}

async fn gone(api: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let off = json!({ "metadata": { "finalizers": null } });
    api.merge_patch(name, off).await?;
    if api.get_opt(name).await?.is_some() {
        api.delete_object(name).await?;
    }
    Ok(())
}
