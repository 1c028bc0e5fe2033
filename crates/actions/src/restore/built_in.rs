//! The table of the built-in actions on items of a restore.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use backup_core::resources::{CLAIMS, PODS, VOLUMES};

use super::{
    account,
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    add_pvc_from_pod::AddClaimsOfPods,
    change_image_name::ChangeImageName,
    change_storage_class::ChangeStorageClass,
    cluster, endpoints,
    init_hooks::InitHooks,
    json::Object,
    owners,
    rules::RestoreRules,
    service, volume, webhooks, workload,
};
use crate::{
    ActionError, AppliesTo, ItemAction, ItemId,
    action::BuiltInAction as _,
    selector::{ActionSet, sort_by_name},
};

/// An action that skips or rewrites items of one type; each type has at most one.
struct BuiltIn {
    name: &'static str,
    group_resource: &'static str,
}

const ALL: [BuiltIn; 18] = [
    BuiltIn {
        name: "velero.io/pod",
        group_resource: PODS,
    },
    BuiltIn {
        name: "velero.io/job",
        group_resource: "jobs.batch",
    },
    BuiltIn {
        name: "velero.io/secret",
        group_resource: "secrets",
    },
    BuiltIn {
        name: "velero.io/service",
        group_resource: "services",
    },
    // Velero drops references to generated tokens; we restore these tokens, so this action changes
    // nothing.
    BuiltIn {
        name: "velero.io/service-account",
        group_resource: "serviceaccounts",
    },
    BuiltIn {
        name: "velero.io/pvc",
        group_resource: CLAIMS,
    },
    BuiltIn {
        name: "velero.io/role-bindings",
        group_resource: "rolebindings.rbac.authorization.k8s.io",
    },
    BuiltIn {
        name: "velero.io/cluster-role-bindings",
        group_resource: "clusterrolebindings.rbac.authorization.k8s.io",
    },
    BuiltIn {
        name: "velero.io/crd-preserve-fields",
        group_resource: "customresourcedefinitions.apiextensions.k8s.io",
    },
    BuiltIn {
        name: "velero.io/apiservice",
        group_resource: "apiservices.apiregistration.k8s.io",
    },
    BuiltIn {
        name: webhooks::NAME,
        group_resource: webhooks::TYPES[0],
    },
    BuiltIn {
        name: webhooks::NAME,
        group_resource: webhooks::TYPES[1],
    },
    // The following are no actions in Velero: it does this elsewhere, or not at all.
    BuiltIn {
        name: "backup-controller/volume",
        group_resource: VOLUMES,
    },
    BuiltIn {
        name: "backup-controller/namespace",
        group_resource: "namespaces",
    },
    BuiltIn {
        name: "backup-controller/root-ca",
        group_resource: "configmaps",
    },
    BuiltIn {
        name: "backup-controller/endpoints",
        group_resource: "endpoints",
    },
    BuiltIn {
        name: "backup-controller/endpoint-slices",
        group_resource: endpoints::SLICES,
    },
    BuiltIn {
        name: "backup-controller/resource-claim",
        group_resource: owners::RESOURCE_CLAIMS,
    },
];

/// Why an item of the backup is skipped.
pub fn skip_reason(
    item: &Object,
    group_resource: &str,
    rules: &RestoreRules,
) -> Option<&'static str> {
    match group_resource {
        PODS => workload::skip_pod(item),
        "jobs.batch" => workload::skip_job(item),
        "apiservices.apiregistration.k8s.io" => cluster::skip_api_service(item),
        VOLUMES => volume::skip_reason(item, rules),
        "configmaps" => cluster::skip_config_map(item),
        "endpoints" => endpoints::skip(item),
        endpoints::SLICES => endpoints::skip_slice(item),
        _ => None,
    }
}

/// Applies the changes specific to a type. `from` is the item in the backup. Also applied to
/// existing objects, so that these changes do not count as differences between the object and the
/// item.
pub(super) fn rewrite(
    item: &mut Object,
    from: &Object,
    group_resource: &str,
    rules: &RestoreRules,
) {
    match group_resource {
        PODS => workload::rewrite_pod(item),
        "jobs.batch" => workload::rewrite_job(item),
        "secrets" => account::rewrite_secret(item),
        "services" => service::rewrite(item, from, rules.preserve_node_ports),
        CLAIMS => volume::rewrite_claim(item, from, rules),
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => {
            account::rewrite_binding(item, rules);
        }
        "customresourcedefinitions.apiextensions.k8s.io" => {
            cluster::rewrite_definition(item, rules);
        }
        "apiservices.apiregistration.k8s.io" => cluster::rewrite_api_service(item, rules),
        of_webhooks if webhooks::TYPES.contains(&of_webhooks) => webhooks::rewrite(item, rules),
        "endpoints" => endpoints::rewrite(item, rules),
        endpoints::SLICES => endpoints::rewrite_slice(item, rules),
        VOLUMES => volume::rewrite_volume(item, rules),
        "namespaces" => cluster::rewrite_namespace(item, rules),
        _ => {}
    }
}

/// Names of the built-in actions that Velero also has, as Velero lists them; the CSI ones are
/// [`super::CSI_NAMES`].
pub fn names() -> impl Iterator<Item = &'static str> {
    let rewriting = ALL
        .iter()
        .map(|of| of.name)
        .filter(|name| name.starts_with("velero.io/"));
    let others = [
        AddClaimsOfPods::NAME,
        InitHooks::NAME,
        ChangeStorageClass::NAME,
        ChangeImageName::NAME,
    ];
    let names: BTreeSet<&str> = rewriting.chain(others).collect();
    names.into_iter()
}

pub fn built_in(rules: &Arc<RestoreRules>) -> Vec<Arc<dyn RestoreItemAction>> {
    let init_hooks: Arc<dyn RestoreItemAction> = Arc::new(InitHooks(Arc::clone(rules)));
    ALL.iter()
        .map(|of| {
            Arc::new(InProcess {
                of,
                rules: Arc::clone(rules),
            }) as Arc<dyn RestoreItemAction>
        })
        .chain([init_hooks])
        .collect()
}

/// The actions of one restore, by name, first built-in ones, then plugins'. (Velero also has its
/// own first, and then sorts by binary.) `resolve` completes the name of a resource as users write
/// it.
pub fn ordered(
    mut built_in: Vec<Arc<dyn RestoreItemAction>>,
    plugins: &[Arc<dyn RestoreItemAction>],
    resolve: &dyn Fn(&str) -> Option<String>,
) -> ActionSet<dyn RestoreItemAction> {
    let mut plugins = plugins.to_vec();
    sort_by_name(&mut built_in);
    sort_by_name(&mut plugins);
    ActionSet::new("action", built_in.into_iter().chain(plugins), resolve)
}

struct InProcess {
    of: &'static BuiltIn,
    rules: Arc<RestoreRules>,
}

impl ItemAction for InProcess {
    fn name(&self) -> &str {
        self.of.name
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resource(self.of.group_resource)
    }
}

#[async_trait]
impl RestoreItemAction for InProcess {
    fn may_add_items(&self) -> bool {
        self.of.group_resource == CLAIMS && !self.rules.kept_volumes.is_empty()
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let group_resource = self.of.group_resource;
        let reason = skip_reason(input.from_backup, group_resource, &self.rules);
        if let Some(reason) = reason.or(input.left_to_controller) {
            return Ok(RestoreActionOutput::skipped(reason));
        }
        let mut item = input.item.clone();
        rewrite(&mut item, input.from_backup, group_resource, &self.rules);
        let volume = if group_resource == CLAIMS {
            volume::volume_of_claim(&item)
        } else {
            None
        };
        let additional = volume.map(|volume| ItemId::new(VOLUMES, None, volume));
        let additional = additional.into_iter().collect();
        Ok(RestoreActionOutput {
            item: Some(item),
            additional,
            ..RestoreActionOutput::default()
        })
    }
}
