//! Schedules that include namespaces which do not exist. Pure.

use std::{collections::HashSet, fmt};

use backup_core::namespace_names::{absence, included_by_name};
use kube::ResourceExt as _;
use serde::Serialize;

use super::ClusterData;

/// The namespaces that a schedule includes by name, and that do not exist.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ScheduleAbsence {
    pub(crate) schedule: String,
    pub(crate) namespaces: Vec<String>,
}

impl fmt::Display for ScheduleAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absence = absence(&self.namespaces).unwrap_or_default();
        write!(f, "{} {absence}", self.schedule)
    }
}

/// Empty if the namespaces of the cluster are not known.
pub(super) fn absences(seen: &ClusterData) -> Vec<ScheduleAbsence> {
    let Some(live) = seen.namespaces.known() else {
        return Vec::new();
    };
    let live: HashSet<&str> = live.iter().map(|one| one.name.as_str()).collect();
    let mut absences = Vec::new();
    for schedule in &seen.schedules {
        let included = &schedule.spec.template.included_namespaces;
        let namespaces: Vec<String> = included_by_name(included)
            .into_iter()
            .filter(|name| !live.contains(name))
            .map(str::to_owned)
            .collect();
        if !namespaces.is_empty() {
            absences.push(ScheduleAbsence {
                schedule: schedule.name_any(),
                namespaces,
            });
        }
    }
    absences
}
