//! The controller may delete namespaces for drills, and deletes only those that it has made for one.

use backup_core::labels::{DRILL_LABEL, SCRATCH_UID_ANNOTATION};
use backup_tests::people::{CONTROLLER, People, refused};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;

use crate::prelude::*;

crate::tests! {
    the_controller_deletes_scratch_namespaces_alone,
    nobody_makes_an_existing_namespace_a_scratch_one,
}

const NOT_MADE: &str = "deletes no namespaces but those that it has created for drills";

fn dry_deletion() -> DeleteParams {
    DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    }
}

async fn the_controller_deletes_scratch_namespaces_alone(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let ours: Api<Namespace> = Api::all(cast.client(CONTROLLER).await?);
    let admins: Api<Namespace> = Api::all(world.client.clone());
    let plain = "no-drill";
    let copied = "drill-0123abcd-copied";
    let made = "drill-0123abcd-made";
    ensure_namespace(&world.client, plain).await?;
    let labels = json!({ DRILL_LABEL: "uid-of-a-restore" });
    let of_another = json!({ SCRATCH_UID_ANNOTATION: "uid-of-the-original" });
    ours.create_json(
        json!({ "metadata": { "name": copied, "labels": labels, "annotations": of_another } }),
    )
    .await?;
    for name in [plain, copied] {
        eventually("the policy is in force", TIMEOUT, async || {
            refused(ours.delete(name, &dry_deletion()).await, NOT_MADE).map(Probe::Ready)
        })
        .await?;
        admins.delete(name, &dry_deletion()).await?;
    }
    // Before its uid is noted, and after that.
    let scratch = ours
        .create_json(json!({ "metadata": { "name": made, "labels": labels } }))
        .await?;
    ours.delete(made, &dry_deletion()).await?;
    let noted = json!({ SCRATCH_UID_ANNOTATION: scratch.uid() });
    ours.merge_patch(made, json!({ "metadata": { "annotations": noted } }))
        .await?;
    ours.delete_object(made).await?;
    admins.delete_object(copied).await?;
    Ok(admins.delete_object(plain).await?)
}

async fn nobody_makes_an_existing_namespace_a_scratch_one(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let name = "no-drill-either";
    ensure_namespace(&world.client, name).await?;
    let ours: Api<Namespace> = Api::all(cast.client(CONTROLLER).await?);
    let admins: Api<Namespace> = Api::all(world.client.clone());
    let label = json!({ "metadata": { "labels": { DRILL_LABEL: "uid-of-a-restore" } } });
    for namespaces in [&ours, &admins] {
        eventually("the policy is in force", TIMEOUT, async || {
            let labelled = namespaces.dry_patch(name, label.clone()).await;
            refused(labelled, "never on a namespace that exists").map(Probe::Ready)
        })
        .await?;
    }
    let other = json!({ "metadata": { "labels": { "team": "shop" } } });
    admins.dry_patch(name, other).await?;
    Ok(admins.delete_object(name).await?)
}
