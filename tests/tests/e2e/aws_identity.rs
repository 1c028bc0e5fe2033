//! AWS credentials for pods, nodes and roles, without a Secret with keys.

use backup_tests::{
    aws_identity::{AwsIdentity, ROLE, TOKEN},
    install::ensure_secret,
    object_store::S3,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};

use crate::prelude::*;

crate::tests! {
    every_identity_that_aws_gives_can_store_a_backup,
}

const PLACE: &str = "aws-identity";

/// Backs up more than one part into a location without keys, with these variables for the
/// controller. Multipart uploads are completed on the condition that the key does not exist;
/// requests for credentials must not carry that condition.
async fn stores(
    world: &mut World,
    aws: &AwsIdentity,
    way: &str,
    variables: &[(&str, &str)],
    more: &Value,
) -> anyhow::Result<()> {
    world.controllers[0].restart_with(variables).await?;
    aws.given(way)?;
    let url = world.s3()?.url();
    let ca = ByteString(aws.ca_pem().as_bytes().to_vec());
    let mut spec = json!({
        "provider": "aws", "objectStorage": { "bucket": PLACE, "caCert": ca },
        "config": { "s3ForcePathStyle": "true", "s3Url": url },
    });
    json_patch::merge(&mut spec, more);
    world.apply_location(way, spec).await?;
    world.location_available(way).await?;
    let name = format!("{PLACE}-{way}");
    let ended = world.back_up(&name, into_location(way, &[PLACE])).await?;
    is_whole(world.s3()?, PLACE, &name, &ended).await?;
    ensure!(
        aws.given(way)? > 0,
        "credentials were not asked for by way of {way}"
    );
    world.remove_location(way).await
}

async fn every_identity_that_aws_gives_can_store_a_backup(world: &mut World) -> TestResult {
    let folder = tempfile::tempdir()?;
    let aws = AwsIdentity::start(folder.path()).await?;
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN)?;
    let token = token.to_str().context("a temporary path is not UTF-8")?;
    world.s3()?.create_bucket(PLACE).await?;
    world.noise(PLACE, 24).await?;

    let profiles = format!(
        "{}\n[role]\nrole_arn = {ROLE}\nsource_profile = default\n",
        S3::credentials()
    );
    ensure_secret(&world.client, NAMESPACE, "roles", "cloud", &profiles).await?;
    let (url, region) = (aws.url(), ("AWS_REGION", "us-east-1"));
    let sts = ("AWS_ENDPOINT_URL_STS", url.as_str());
    let profile = json!({ "credential": { "name": "roles", "key": "cloud" }, "config": { "profile": "role" } });
    stores(world, &aws, "role", &[sts, region], &profile).await?;

    // Locations without a Secret use the remaining sources of credentials.
    world.remove_location("default").await?;
    world
        .api::<Secret>()
        .delete_object("cloud-credentials")
        .await?;
    let none = json!({});
    stores(
        world,
        &aws,
        "instance",
        &[("AWS_METADATA_ENDPOINT", &url)],
        &none,
    )
    .await?;
    let agent = format!("{url}/v1/credentials");
    let of_pod = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token),
    ];
    stores(world, &aws, "pod", &of_pod, &none).await?;
    let web = [
        ("AWS_ROLE_ARN", ROLE),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
        sts,
    ];
    stores(world, &aws, "token", &web, &none).await
}
