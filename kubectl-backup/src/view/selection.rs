//! The selection of a spec, in words. Pure.

use backup_core::stored_scope::{self, Scoped};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Fact;
use crate::{cli::selector, print::plain};

/// The fact that the spec was edited after the work was done with another one; `asks` describes a
/// spec.
pub(super) fn edited<O: Scoped>(
    object: &O,
    since: &str,
    asks: impl FnOnce(&O::Spec) -> String,
) -> Option<Fact> {
    stored_scope::is_edited(object).then(|| Fact {
        title: "Edited",
        text: format!(
            "since {since}; now the object asks for {}",
            asks(object.spec())
        ),
    })
}

/// "all namespaces except kube-system".
pub(super) fn namespaces(included: &[String], excluded: &[String]) -> String {
    let base = if is_everything(included) {
        "all namespaces".to_owned()
    } else if let [one] = included {
        format!("namespace {}", plain(one))
    } else {
        format!("namespaces {}", list(included))
    };
    if excluded.is_empty() {
        base
    } else {
        format!("{base} except {}", list(excluded))
    }
}

pub(super) fn is_everything(included: &[String]) -> bool {
    included.is_empty() || included.iter().any(|one| one == "*")
}

/// The last parts of a scope: cluster-scoped resources and labels.
pub(super) fn filters(
    cluster_resources: Option<bool>,
    selector: Option<&LabelSelector>,
    or: Option<&[LabelSelector]>,
) -> impl Iterator<Item = String> {
    let cluster = cluster_resources.map(|with| {
        format!(
            "{} cluster-scoped resources",
            if with { "with" } else { "without" }
        )
    });
    let labels = selectors(selector, or).map(|labels| format!("labels {labels}"));
    cluster.into_iter().chain(labels)
}

/// "app=shop", "app=shop or app=db"; `None` if labels do not matter.
pub(super) fn selectors(
    selector: Option<&LabelSelector>,
    or: Option<&[LabelSelector]>,
) -> Option<String> {
    let all = selector
        .into_iter()
        .chain(or.into_iter().flatten())
        .map(selector::show);
    let all: Vec<String> = all.filter(|text| !text.is_empty()).collect();
    (!all.is_empty()).then(|| plain(&all.join(" or ")))
}

/// The first names, and the number of the others, so that a screen remains readable.
pub(super) fn list(names: &[String]) -> String {
    const MAX_NAMES: usize = 8;
    let shown = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| plain(name))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MAX_NAMES {
        format!("{shown} and {} more", names.len() - MAX_NAMES)
    } else {
        shown
    }
}
