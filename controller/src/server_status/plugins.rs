//! What there is of plugins: those that are built in, by the names that Velero gives them, and those of binaries.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backup_actions::{backup, restore};
use backup_core::api::server_status_request::PluginInfo;

use crate::context::Context;
use backup_plugins::catalog::Kind;

/// How long binaries may take to say what they offer. Velero's command line waits five seconds for the whole answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// All of them, by kind and name.
pub(super) async fn all(ctx: &Context) -> Vec<PluginInfo> {
    let mut all = built_in(ctx);
    all.extend(ctx.plugins.installed(PATIENCE).await);
    let info = |(kind, name): (Kind, String)| PluginInfo {
        name,
        kind: kind.as_str().to_owned(),
        ..PluginInfo::default()
    };
    let mut infos: Vec<_> = all.into_iter().map(info).collect();
    infos.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    infos
}

fn built_in(ctx: &Context) -> BTreeSet<(Kind, String)> {
    let of_items =
        backup::built_in(&ctx.cluster, ctx.args.csi(), &Arc::default()).into_iter().map(|action| {
            let v2 = action.name().starts_with(backup::CSI_PREFIX);
            (if v2 { Kind::BackupItemActionV2 } else { Kind::BackupItemAction }, action.name().to_owned())
        });
    let of_blocks = backup::built_in_blocks(&ctx.cluster.client)
        .into_iter()
        .map(|action| (Kind::ItemBlockAction, action.name().to_owned()));
    let of_restores = restore::names().map(|name| (Kind::RestoreItemAction, name.to_owned()));
    let by_plugin: Vec<String> =
        ctx.args.object_store_plugins.iter().map(|name| backup_store::plugin_of(name.trim())).collect();
    let of_restores =
        of_restores.chain(restore::CSI_NAMES.map(|name| (Kind::RestoreItemActionV2, name.to_owned())));
    let stores = backup_store::BUILT_IN.into_iter().map(backup_store::plugin_of);
    let stores = stores.filter(|name| !by_plugin.contains(name)).map(|name| (Kind::ObjectStore, name));
    of_items.chain(of_blocks).chain(of_restores).chain(stores).collect()
}
