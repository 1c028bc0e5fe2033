use backup_core::profile::{
    Mode, Profile, ProfileSet, RefusedProfile,
    published::{CONFIG_MAP, KEY, PublishedProfile, PublishedProfiles, UnusableProfile},
};
use backup_lock::Ledger;

use crate::prelude::*;

fn kinds(plurals: [&str; 2]) -> Value {
    plurals.map(|plural| json!({"name": plural, "singularName": "", "kind": "Any", "namespaced": true, "verbs": ["list"]})).into()
}

/// The webhook's published profiles: the built-in ones and these, each modified by `change`.
fn published(own: &[&str], change: impl Fn(&mut PublishedProfile)) -> Value {
    let own = own.iter().map(|text| ("acme.yaml", *text));
    let ProfileSet { profiles, refused } = Profile::with_files(own);
    let known = |profile: Profile| {
        let mut one = PublishedProfile {
            guarded: profile.is_velero(),
            profile,
            over: Vec::new(),
        };
        change(&mut one);
        one
    };
    let unusable = |one: RefusedProfile| UnusableProfile {
        name: one.name,
        why: one.error.to_string(),
    };
    let all = PublishedProfiles {
        profiles: profiles.into_iter().map(known).collect(),
        unusable: refused.into_iter().map(unusable).collect(),
    };
    json!({ "kind": "ConfigMap", "metadata": { "name": CONFIG_MAP, "namespace": "velero" },
        "data": { KEY: serde_json::to_string(&all).unwrap() } })
}

async fn cluster(published: Value) -> FakeApi {
    let api = FakeApi::start().await;
    api.serves("velero.io/v1", &kinds(["backups", "restores"]))
        .has(published);
    api
}

#[tokio::test]
async fn profiles_are_listed_with_the_policy_in_force() {
    let api = cluster(published(&[], |_| ())).await;
    let mut all = Person::at(&api).types("profiles").await;
    let over = |one: &mut PublishedProfile| {
        one.guarded |= one.profile.name == "percona-ps";
        one.profile.policy.mode = Mode::Warn;
        one.profile.policy.intent = std::time::Duration::from_secs(30);
        one.over = ["--mode=warn", "--intent=30s"].map(str::to_owned).into();
    };
    let api = cluster(published(&[], over)).await;
    api.serves(
        "ps.percona.com/v1",
        &kinds(["perconaservermysqlbackups", "perconaservermysqlrestores"]),
    );
    let person = Person::at(&api);
    all += &person
        .types_all([
            "profiles",
            "profiles -o wide --no-headers",
            "profiles -o name",
            "profiles percona-ps",
            "profiles acme",
        ])
        .await;
    assert_snapshot!(all);
    let list = person.reads("profiles -o json").await;
    let profiles = list["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), Profile::builtin().len());
    for profile in profiles {
        assert_eq!(
            profile["policyFrom"],
            json!(["profile", "--mode=warn", "--intent=30s"])
        );
        assert_eq!(profile["policy"]["intentSeconds"], 30);
    }
}

/// A cluster whose webhook guards the profile of this file.
async fn with_own_profile(text: &str) -> FakeApi {
    let api = cluster(published(&[text], |one| {
        one.guarded |= one.profile.name == "acme";
    }))
    .await;
    api.serves("acme.example/v1", &kinds(["dumps", "loads"]));
    api
}

/// A profile that is not built in.
const ACME: &str = "
name: acme
group: acme.example
version: v1
scope: { field: { backup: spec.cluster, restore: spec.cluster } }
backup: { kind: Dump, plural: dumps, statusSubresource: true, phase: status.phase, active: [Dumping], over: { in: { path: status.phase, values: [Done] } } }
restore: { kind: Load, plural: loads, statusSubresource: true, phase: status.phase, active: [Loading], over: { in: { path: status.phase, values: [Done] } } }
";

#[tokio::test]
async fn profiles_that_the_webhook_publishes_are_known() {
    let api = with_own_profile(ACME).await;
    let dump = json!({"apiVersion": "acme.example/v1", "kind": "Dump", "metadata": {"name": "night", "namespace": "db", "uid": "u", "creationTimestamp": "2026-11-03T05:00:00Z"}, "spec": {"cluster": "main"}, "status": {"phase": "Dumping"}});
    let acme = Profile::with_files([("acme.yaml", ACME)])
        .profiles
        .into_iter()
        .find(|profile| profile.name == "acme")
        .unwrap();
    api.has(dump)
        .has(lease_of(acme, "acme/db/main", &Ledger::default()).await);
    transcript!(Person::at(&api), "profiles", "locks");
}

#[tokio::test]
async fn profiles_that_cannot_be_read_are_named() {
    let api = with_own_profile("name: acme\ncolour: blue\n").await;
    let seen = Person::at(&api).types("doctor").await;
    assert_says!(
        seen,
        "profiles               acme cannot be used, and what it is about is refused: acme.yaml"
    );
    let mut all = Person::at(&api)
        .types_all(["profiles -o name", "profiles acme"])
        .await;
    let newer = json!({ "kind": "ConfigMap", "metadata": { "name": CONFIG_MAP, "namespace": "velero" }, "data": { KEY: "[]" } });
    api.has(newer);
    all += &Person::at(&api).types("profiles -o name").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn profiles_are_checked_before_they_are_rolled_out() {
    let person = Person::without_cluster();
    person.writes("acme.yaml", ACME);
    person.writes("again.yml", ACME);
    person.writes("broken.yaml", "name: broken\ncolour: blue\n");
    transcript!(
        person,
        "profiles check ~/acme.yaml",
        "profiles check ~/acme.yaml ~/broken.yaml",
        "profiles check ~/acme.yaml ~/again.yml",
        "profiles check ~/nowhere.yaml",
        "profiles check",
    );
}

#[tokio::test]
async fn what_of_a_policy_cannot_be_known_says_so() {
    let api = FakeApi::start().await;
    let no = "configmaps \"backup-lock-profiles\" is forbidden: User \"jane\" cannot get resource";
    api.on_get("/configmaps/backup-lock-profiles", Fault::forbidden(no));
    let mut all = Person::at(&api).types("profiles").await;
    all += &Person::at(&api).types("profiles").await;
    let hidden = "forbidden: User \"jane\" cannot get path";
    api.on_get("/apis/ps.percona.com/v1", Fault::forbidden(hidden));
    all += &Person::at(&api).types("profiles percona-ps -o yaml").await;
    assert_snapshot!(all);
}
