//! The plan of a Restore, as the controller sends it to clients ([`crate::reading`]): one JSON
//! value per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{results::Results, volume_data::MissingData};

/// A line of the answer. The last one is a plan, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlanLine {
    /// Number of processed items, and of all items.
    Progress {
        done: i64,
        total: i64,
    },
    Plan(Box<RestorePlan>),
    /// There is no plan: the restore would not start, or data it depends on is unreadable.
    Refused(String),
}

/// The effects of a Restore on each item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestorePlan {
    /// The errors and warnings of the Restore.
    pub results: Results,
    /// `namespace/name(created)` by `group/version/Kind`, as in the list of resources of a Restore.
    pub resource_list: BTreeMap<String, Vec<String>>,
    /// The volumes whose data would not be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_data: Option<MissingData>,
    /// Parts that would be left out on purpose, with reasons, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Steps that could not be tried, as sentences.
    pub notes: Vec<String>,
}
