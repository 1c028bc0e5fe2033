//! What a person applies to a cluster.

use anyhow::Context as _;
use backup_tests::{World, binaries::root, install};
use kube::{
    Discovery, ResourceExt as _,
    api::{Patch, PatchParams, ValidationDirective},
};

crate::tests! {
    everything_in_deploy_is_accepted_without_a_field_that_is_unknown,
}

async fn everything_in_deploy_is_accepted_without_a_field_that_is_unknown(
    world: &mut World,
) -> anyhow::Result<()> {
    let discovery = Discovery::new(world.client.clone()).run_aggregated().await?;
    let strict = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("another-pipeline").force()
    };
    for folder in ["deploy/crds", "deploy/base"] {
        for mut object in install::documents(&root().join(folder))? {
            let types = object.types.clone().context("no kind")?;
            if types.kind == "ValidatingWebhookConfiguration" {
                // The kit has registered the webhook under a URL, which must not be merged with the Service.
                object.metadata.name = Some("another".to_owned());
            }
            let api = install::api_of(&world.client, &discovery, &object)?;
            let name = object.name_any();
            api.patch(&name, &strict, &Patch::Apply(&object))
                .await
                .with_context(|| format!("{} {name} in {folder}", types.kind))?;
        }
    }
    Ok(())
}
