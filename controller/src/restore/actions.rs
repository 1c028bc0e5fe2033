//! Built-in actions on items of a restore: one file per topic. Source: Velero `pkg/restore/actions`, v1.18, whose names those
//! have that it has, too.

mod binding;
mod cluster;
pub mod csi;
mod job;
mod pod;
mod secret;
mod service;
mod service_account;
mod volume;

use std::{future::ready, sync::Arc};

use futures::future::BoxFuture;

use super::{
    action::{Executed, Given, RestoreItemAction},
    json::Object,
    transform::Rules,
};
use crate::backup::action::{ActionError, AppliesTo};

/// What is done with items of one type. Both functions get the item as the backup has it.
struct BuiltIn {
    name: &'static str,
    group_resource: &'static str,
    /// Why an item is left out, or none.
    skip: fn(&Object, &Rules) -> Option<&'static str>,
    /// Rewrites what is particular to the type.
    rewrite: fn(&mut Object, &Object, &Rules),
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

/// Names of the built-in actions that Velero has, too, as it lists them; those for CSI are [`csi::NAMES`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|of| of.name).filter(|name| name.starts_with("velero.io/"))
}

/// The built-in actions of one restore.
pub fn all(rules: &Arc<Rules>) -> Vec<Arc<dyn RestoreItemAction>> {
    let action = |of: &'static BuiltIn| {
        let included_resources = vec![of.group_resource.to_owned()];
        let applies_to = AppliesTo { included_resources, ..AppliesTo::default() };
        Arc::new(InProcess { of, applies_to, rules: Arc::clone(rules) }) as Arc<dyn RestoreItemAction>
    };
    ALL.iter().map(action).collect()
}

/// What the built-in actions make of an object that is there already, so that what they change is no difference to what they
/// make of the item.
pub fn rewrite(object: &mut Object, from: &Object, group_resource: &str, rules: &Rules) {
    for of in ALL.iter().filter(|of| of.group_resource == group_resource) {
        (of.rewrite)(object, from, rules);
    }
}

/// A built-in action, as an item meets it.
struct InProcess {
    of: &'static BuiltIn,
    applies_to: AppliesTo,
    rules: Arc<Rules>,
}

impl RestoreItemAction for InProcess {
    fn name(&self) -> &str {
        self.of.name
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.applies_to
    }

    fn execute<'a>(&'a self, given: Given<'a>) -> BoxFuture<'a, Result<Executed, ActionError>> {
        let mut executed = Executed::default();
        if let Some(why) = (self.of.skip)(given.from_backup, &self.rules) {
            executed.skip = Some(why.to_owned());
        } else {
            let mut item = given.item.clone();
            (self.of.rewrite)(&mut item, given.from_backup, &self.rules);
            executed.item = Some(item);
        }
        Box::pin(ready(Ok(executed)))
    }
}

pub use volume::{is_kept as volume_is_kept, volume_of_claim};
