//! Chooses the version in which an item is restored, if the backup holds several.

use std::collections::BTreeMap;

use backup_core::resources::{TypeVersions, VersionPriorities, VersionRule};
use backup_store::{Contents, ItemRef, StoreError};

use crate::{discovery::ServedTypes, restore::report::Report};

/// Types that are not restored in the preferred version of the backup's cluster.
#[derive(Debug, Default)]
pub(super) struct ItemVersions {
    types: BTreeMap<String, Choice>,
}

#[derive(Debug)]
struct Choice {
    /// The version at the plain paths of the tarball.
    preferred: String,
    /// Versions by preference: the first one that the backup holds is used.
    order: Vec<String>,
    reason: String,
}

impl ItemVersions {
    /// `priorities` are only set with `--features=EnableAPIGroupVersions`.
    pub(super) fn new(
        contents: &Contents,
        served: &ServedTypes,
        priorities: Option<&VersionPriorities>,
    ) -> Self {
        let mut types = BTreeMap::new();
        for group_resource in contents.types() {
            let others = contents.other_versions(&group_resource);
            let preferred = contents.preferred_version(&group_resource);
            let Some(preferred) = preferred.filter(|_| !others.is_empty()) else {
                continue;
            };
            let rule = priorities.map_or(VersionRule::Stored, |priorities| VersionRule::Served {
                asked: priorities.of(&group_resource),
            });
            let served = served.versions(&group_resource);
            let versions = TypeVersions {
                preferred,
                others: &others,
                served: &served,
            };
            let order = versions.order(rule);
            if let Some(first) = order.first().filter(|first| **first != preferred) {
                let reason = versions.reason(first, rule);
                let order = order.iter().map(|version| (*version).to_owned()).collect();
                types.insert(
                    group_resource,
                    Choice {
                        preferred: preferred.to_owned(),
                        order,
                        reason,
                    },
                );
            }
        }
        Self { types }
    }

    /// Reports the version in which a type is restored, if it is not the backup's preferred one.
    pub(super) fn report_version(&self, group_resource: &str, report: &Report) {
        if let Some(Choice {
            preferred,
            order,
            reason,
        }) = self.types.get(group_resource)
        {
            let version = order.first().map_or("", String::as_str);
            let notice = format!(
                "{group_resource} are restored in {version} and not in {preferred}: {reason}"
            );
            report.info(&notice);
        }
    }

    /// The item in the version to restore. Fails if the local disk fails.
    pub(super) fn in_version(
        &self,
        group_resource: &str,
        item: ItemRef,
        contents: &Contents,
        report: &Report,
    ) -> Result<ItemRef, StoreError> {
        let Some(choice) = self.types.get(group_resource) else {
            return Ok(item);
        };
        for version in &choice.order {
            if *version == choice.preferred {
                break;
            }
            if let Some(found) = contents.in_version(&item, group_resource, version)? {
                return Ok(found);
            }
            let path = contents.path_of(&item)?;
            report.info(&format!(
                "{path}: the backup does not hold this item in {version}"
            ));
        }
        Ok(item)
    }
}
