//! What a Restore would do, as the controller tells it to who asks ([`crate::reading`]): one line of JSON after the other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{results::Results, volume_data::MissingData};

/// A line of the answer. The last one is a plan, or says why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlanLine {
    /// So many of so many items were looked at.
    Progress {
        done: i64,
        total: i64,
    },
    Plan(Box<RestorePlan>),
    /// There is no plan: the restore would not start, or what it depends on cannot be read.
    Refused(String),
}

/// What a Restore would do with each item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestorePlan {
    /// The errors and warnings that it would end with.
    pub results: Results,
    /// `namespace/name(created)` by `group/version/Kind`, as the list of resources of a Restore has it.
    pub resource_list: BTreeMap<String, Vec<String>>,
    /// The volumes whose data would not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_data: Option<MissingData>,
    /// What would be left out on purpose, and why, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What could not be tried, as sentences.
    pub notes: Vec<String>,
}
