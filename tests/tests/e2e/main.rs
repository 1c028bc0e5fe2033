//! The end-to-end tests, on a real control plane and a real S3 server.

mod api_outages;
mod api_versions;
mod aws_identity;
mod backup_item_plugins;
mod bad_input;
mod broken_profile;
mod callers;
mod certificates;
mod changing_lists;
mod claims;
mod clients;
mod collection;
mod collisions;
mod copies;
mod crash_points;
mod csi;
mod debug_command;
mod deleted_halfway;
mod deletion;
mod deploy;
mod describe;
mod disaster_recovery;
mod drills;
mod existing_objects;
mod failing_webhooks;
mod file_access;
mod filter_policies;
mod forced_release;
mod from_velero;
mod full_ledger;
mod gitops;
mod guarded_operators;
mod guarded_traffic;
mod histories;
mod hooks;
mod hostile_archives;
mod idle;
mod incomplete_backups;
mod incomplete_restores;
mod install_command;
mod item_blocks;
mod item_plugins;
mod kubectl_backup;
mod large_journal;
mod links_of_restores;
mod locations;
mod locks_command;
mod main_job;
mod many_operations;
mod metrics;
mod migrate_command;
mod modified_restores;
mod moved_clocks;
mod nothing_selected;
mod object_store_plugins;
mod operation_crashes;
mod orphaned_claims;
mod other_operators;
mod owners;
mod percona;
mod policy;
mod prelude;
mod pruned_namespaces;
mod readme;
mod repository_data;
mod requests;
mod restore_hooks;
mod restore_item_plugins;
mod restore_plans;
mod restore_rights;
mod retention;
mod runner;
mod schedules;
mod store_faults;
mod stored_fields;
mod sync;
mod sync_removal;
mod takeover;
mod two_clusters;
mod two_installations;
mod verify;
mod volume_snapshot_plugins;

use std::process::ExitCode;

use backup_tests::{Skip, World, WorldBuilder, world::controllers::ALONE};
use runner::{Suite, Test};

/// A list of tests, `TESTS` or with a given name, over functions `async fn(&mut World) ->
/// TestResult`.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        crate::tests!(TESTS: $($name),*);
    };
    ($list:ident: $($name:ident),* $(,)?) => {
        pub const $list: &[crate::Test] = &[$((stringify!($name), |world| Box::pin($name(world)))),*];
    };
}
pub(crate) use tests;

#[tokio::main]
async fn main() -> ExitCode {
    runner::run(suites())
}

/// Every world with the tests that share it; the longest come first, so that no long one is left at
/// the end.
fn suites() -> Vec<Suite> {
    let suite = |name, tests: &[&[Test]], world: WorldBuilder| {
        let world = world.controller_args(&["--store-validation-frequency=2s"]);
        Suite {
            name,
            tests: tests.concat(),
            world,
        }
    };
    let csi = ["--features=EnableCSI", "--item-operation-sync-frequency=1s"];
    let with_plugins = || {
        let args = [
            "--item-operation-sync-frequency=1s",
            "--plugin-timeout=15s",
            ALONE,
            "--concurrent-backups=2",
        ];
        World::builder()
            .webhooks(1)
            .plugins()
            .controller_args(&args)
    };
    vec![
        suite(
            "plugins of Velero's kind",
            &[
                object_store_plugins::TESTS,
                item_plugins::TESTS,
                backup_item_plugins::TESTS,
                restore_item_plugins::TESTS,
                item_blocks::TESTS,
                requests::WITH_PLUGINS,
                volume_snapshot_plugins::TESTS,
            ],
            with_plugins(),
        ),
        suite(
            "a store that misbehaves",
            &[store_faults::TESTS],
            World::builder()
                .webhooks(1)
                .controller_args(&["--concurrent-backups=2"]),
        ),
        suite(
            "our webhook",
            &[
                deploy::TESTS,
                deploy::chart::TESTS,
                deploy::image::TESTS,
                deploy::monitoring::TESTS,
                deploy::programs::TESTS,
                deploy::release::TESTS,
                main_job::TESTS,
                bad_input::TESTS,
                hostile_archives::TESTS,
                callers::TESTS,
                collection::TESTS,
                filter_policies::TESTS,
                incomplete_restores::TESTS,
                failing_webhooks::TESTS,
                links_of_restores::TESTS,
                stored_fields::TESTS,
                existing_objects::TESTS,
                metrics::TESTS,
                modified_restores::TESTS,
                repository_data::TESTS,
                kubectl_backup::TESTS,
                requests::TESTS,
                collisions::TESTS,
                clients::TESTS,
                locks_command::TESTS,
            ],
            World::builder(),
        ),
        suite(
            "a full ledger",
            &[full_ledger::TESTS],
            World::builder()
                .webhook_args(&[full_ledger::LONG_GRACE])
                .controller_args(&[full_ledger::LONG_GRACE]),
        ),
        suite(
            "plugins with many operations",
            &[many_operations::TESTS],
            with_plugins(),
        ),
        suite(
            "schedules, and backups that expire",
            &[
                schedules::TESTS,
                retention::TESTS,
                deletion::TESTS,
                gitops::TESTS,
                copies::TESTS,
            ],
            World::builder().webhooks(1).controller_args(&[
                "--garbage-collection-frequency=2s",
                "--concurrent-backups=4",
                ALONE,
            ]),
        ),
        suite(
            "certificates that replicas make",
            &[certificates::TESTS],
            World::builder()
                .webhooks(2)
                .controllers(0)
                .peers()
                .own_certificates()
                .webhook_args(&["--certificate-lifetime=12s"]),
        ),
        suite(
            "programs whose clocks are wrong",
            &[moved_clocks::TESTS],
            World::builder()
                .peers()
                .own_certificates()
                .webhook_args(&["--certificate-lifetime=12s"]),
        ),
        suite("the demo", &[readme::TESTS], WorldBuilder::of_demo()),
        suite(
            "readers who reach nothing but the API server",
            &[
                file_access::TESTS,
                owners::TESTS,
                describe::TESTS,
                verify::TESTS,
                drills::TESTS,
                restore_plans::TESTS,
                pruned_namespaces::TESTS,
                nothing_selected::TESTS,
                disaster_recovery::TESTS,
                debug_command::TESTS,
            ],
            World::builder()
                .webhooks(1)
                .files()
                .plugins()
                .controller_args(&["--item-operation-sync-frequency=1s", ALONE]),
        ),
        suite(
            "a controller that is killed",
            &[
                crash_points::TESTS,
                copies::KILLED,
                drills::KILLED,
                operation_crashes::TESTS,
                changing_lists::TESTS,
            ],
            World::builder()
                .webhooks(1)
                .api_server_args(changing_lists::FROM_ETCD)
                .controller_args(&[&csi[..], &[ALONE]].concat()),
        ),
        suite(
            "an API server that is stopped",
            &[api_outages::TESTS],
            World::builder().webhooks(1).controller_args(
                &[&csi[..], &["--concurrent-backups=4", api_outages::BUDGET]].concat(),
            ),
        ),
        suite(
            "backups that are deleted before their end",
            &[deleted_halfway::TESTS, large_journal::TESTS],
            World::builder().webhooks(1).controller_args(&[
                "--features=EnableCSI",
                "--item-operation-sync-frequency=1s",
                "--resource-timeout=5s",
                ALONE,
            ]),
        ),
        suite(
            "snapshots of CSI volumes, and all versions of items",
            &[csi::TESTS, api_versions::TESTS],
            World::builder().files().controller_args(&[
                "--features=EnableCSI,EnableAPIGroupVersions",
                "--item-operation-sync-frequency=1s",
                csi::PATIENCE,
            ]),
        ),
        suite(
            "buckets that other clusters have filled",
            &[
                sync::TESTS,
                sync_removal::TESTS,
                incomplete_backups::TESTS,
                locations::TESTS,
                two_clusters::TESTS,
                from_velero::TESTS,
            ],
            World::builder(),
        ),
        suite(
            "a grace of one second",
            &[orphaned_claims::TESTS, clients::BESIDE_A_SIBLING],
            World::builder()
                .webhook_args(&[orphaned_claims::GRACE])
                .controller_args(&[orphaned_claims::GRACE]),
        ),
        suite(
            "two controllers, and the leader is paused",
            &[file_access::BESIDE_A_LEADER, takeover::TESTS],
            World::builder()
                .webhooks(1)
                .controllers(2)
                .files()
                .controller_args(&[&csi[..], &["--concurrent-backups=8"]].concat()),
        ),
        suite(
            "two API servers, for histories",
            &[histories::TESTS],
            World::builder().api_servers(2).webhooks(0).controllers(0),
        ),
        suite(
            "a guard beside a Velero server",
            &[deploy::guard::TESTS],
            World::builder()
                .webhooks(1)
                .webhook_args(&["--guard=velero"])
                .controllers(0),
        ),
        suite(
            "every policy, and no programs",
            &[
                policy::TESTS,
                policy::roles::TESTS,
                policy::owners::TESTS,
                policy::drills::TESTS,
                policy::phases::TESTS,
                policy::read_keys::TESTS,
                policy::volume_data::TESTS,
                policy::registration::TESTS,
                install_command::TESTS,
                migrate_command::TESTS,
            ],
            World::builder().webhooks(0).controllers(0),
        ),
        // As installed, with the default periods.
        Suite {
            name: "nothing to do",
            tests: idle::TESTS.to_vec(),
            world: World::builder()
                .controllers(2)
                .controller_args(&["--backup-sync-period=1m"])
                .audited(),
        },
        suite(
            "identities that AWS gives",
            &[aws_identity::TESTS],
            World::builder().webhooks(1).controller_args(&[ALONE]),
        ),
        suite(
            "a node with scripted commands",
            &[hooks::TESTS, restore_hooks::TESTS],
            World::builder().webhooks(1),
        ),
        suite(
            "a ledger that is lost and found",
            &[
                claims::TESTS,
                full_ledger::WITH_A_SHORT_GRACE,
                two_installations::TESTS,
            ],
            World::builder()
                .webhook_args(&[orphaned_claims::GRACE])
                .controller_args(&[orphaned_claims::GRACE]),
        ),
        suite(
            "another operator's databases, and replicas that know one another",
            &[percona::TESTS, restore_rights::TESTS],
            World::builder()
                .peers()
                .webhook_args(&["--guard=percona-ps", "--check-restore-rights"])
                .controllers(0),
        ),
        suite(
            "databases of four more operators",
            &[other_operators::TESTS],
            World::builder()
                .peers()
                .webhook_args(&[
                    "--guard=percona-pxc",
                    "--guard=percona-psmdb",
                    "--guard=percona-pg",
                    "--guard=cloudnative-pg",
                ])
                .controllers(0),
        ),
        suite(
            "live operators, and two API servers",
            &[guarded_traffic::TESTS],
            World::builder()
                .api_servers(2)
                .peers()
                .webhook_args(guarded_traffic::WEBHOOK)
                .controllers(0),
        ),
        suite(
            "a profile that is broken while it is used",
            &[broken_profile::TESTS],
            World::builder()
                .peers()
                .own_profile(broken_profile::FILE, broken_profile::FINE)
                .webhook_args(&["--guard=percona-ps"])
                .controller_args(&["--guard=percona-ps", ALONE]),
        ),
        suite(
            "claims that are released by force",
            &[
                forced_release::TESTS,
                incomplete_restores::BESIDE_ANOTHER_OPERATOR,
            ],
            World::builder()
                .webhooks(1)
                .webhook_args(&["--guard=percona-ps"])
                .controller_args(&["--guard=percona-ps", ALONE]),
        ),
        suite(
            "the naive webhook",
            &[collisions::CONTROL],
            World::builder().naive_webhook().controllers(0),
        ),
    ]
}
