//! The table of the built-in actions on items of a restore.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    binding, cluster, job,
    json::Object,
    pod,
    rules::RestoreRules,
    secret, service, service_account, volume,
};
use crate::{
    ActionError, AppliesTo, ItemAction,
    selector::{ActionSet, sort_by_name},
};

/// What is done with items of one type. Both functions get the item as the backup has it.
struct BuiltIn {
    name: &'static str,
    group_resource: &'static str,
    /// Why an item is left out, or none.
    skip: fn(&Object, &RestoreRules) -> Option<&'static str>,
    /// Rewrites what is particular to the type.
    rewrite: fn(&mut Object, &Object, &RestoreRules),
}

const ALL: [BuiltIn; 13] = [
    BuiltIn {
        name: "velero.io/pod",
        group_resource: "pods",
        skip: |item, _| pod::skip_reason(item),
        rewrite: |item, _, _| pod::rewrite(item),
    },
    BuiltIn {
        name: "velero.io/job",
        group_resource: "jobs.batch",
        skip: |item, _| job::skip_reason(item),
        rewrite: |item, _, _| job::rewrite(item),
    },
    BuiltIn {
        name: "velero.io/secret",
        group_resource: "secrets",
        skip: |item, _| secret::skip_reason(item),
        rewrite: |item, _, _| secret::rewrite(item),
    },
    BuiltIn {
        name: "velero.io/service",
        group_resource: "services",
        skip: |_, _| None,
        rewrite: |item, from, rules| service::rewrite(item, from, rules.preserve_node_ports),
    },
    BuiltIn {
        name: "velero.io/service-account",
        group_resource: "serviceaccounts",
        skip: |_, _| None,
        rewrite: |item, _, _| service_account::rewrite(item),
    },
    BuiltIn {
        name: "velero.io/pvc",
        group_resource: "persistentvolumeclaims",
        skip: |_, _| None,
        rewrite: |item, _, rules| volume::rewrite_claim(item, rules),
    },
    BuiltIn {
        name: "velero.io/role-bindings",
        group_resource: "rolebindings.rbac.authorization.k8s.io",
        skip: |_, _| None,
        rewrite: |item, _, rules| binding::rewrite(item, rules),
    },
    BuiltIn {
        name: "velero.io/cluster-role-bindings",
        group_resource: "clusterrolebindings.rbac.authorization.k8s.io",
        skip: |_, _| None,
        rewrite: |item, _, rules| binding::rewrite(item, rules),
    },
    BuiltIn {
        name: "velero.io/crd-preserve-fields",
        group_resource: "customresourcedefinitions.apiextensions.k8s.io",
        skip: |_, _| None,
        rewrite: |item, _, _| cluster::rewrite_definition(item),
    },
    BuiltIn {
        name: "velero.io/apiservice",
        group_resource: "apiservices.apiregistration.k8s.io",
        skip: |item, _| cluster::skip_api_service(item),
        rewrite: |_, _, _| {},
    },
    // What follows is no action with Velero: it does this elsewhere, or not at all.
    BuiltIn {
        name: "backup-controller/volume",
        group_resource: "persistentvolumes",
        skip: volume::skip_reason,
        rewrite: |item, _, rules| volume::rewrite_volume(item, rules),
    },
    BuiltIn {
        name: "backup-controller/namespace",
        group_resource: "namespaces",
        skip: |_, _| None,
        rewrite: |item, _, rules| cluster::rewrite_namespace(item, rules),
    },
    BuiltIn {
        name: "backup-controller/root-ca",
        group_resource: "configmaps",
        skip: |item, _| cluster::skip_config_map(item),
        rewrite: |_, _, _| {},
    },
];

/// Names of the built-in actions that Velero has, too, as it lists them; those for CSI are [`super::CSI_NAMES`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|of| of.name).filter(|name| name.starts_with("velero.io/"))
}

pub fn built_in(rules: &Arc<RestoreRules>) -> Vec<Arc<dyn RestoreItemAction>> {
    let action = |of: &'static BuiltIn| {
        Arc::new(InProcess { of, rules: Arc::clone(rules) }) as Arc<dyn RestoreItemAction>
    };
    ALL.iter().map(action).collect()
}

/// The actions of one restore, by name, first those that are built in, then those of plugins. (Velero has its own first, too,
/// and then goes binary by binary.) `resolve` completes the name of a resource as people write it.
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

/// What the built-in actions make of an object that is there already, so that what they change is no difference to what they
/// make of the item.
pub(super) fn rewrite(object: &mut Object, from: &Object, group_resource: &str, rules: &RestoreRules) {
    for of in ALL.iter().filter(|of| of.group_resource == group_resource) {
        (of.rewrite)(object, from, rules);
    }
}

/// A built-in action, as an item meets it.
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
    async fn execute(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        let mut executed = RestoreActionOutput::default();
        if let Some(why) = (self.of.skip)(input.from_backup, &self.rules) {
            executed.skip = Some(why.to_owned());
        } else {
            let mut item = input.item.clone();
            (self.of.rewrite)(&mut item, input.from_backup, &self.rules);
            executed.item = Some(item);
        }
        Ok(executed)
    }
}
