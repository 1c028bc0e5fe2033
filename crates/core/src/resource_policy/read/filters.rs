//! Reading filter policies.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use crate::{
    config_map::{ConfigReader, join},
    resource_policy::{CLUSTER_SCOPED, FilterPolicies, KindFilter, NAMESPACED, NamespacePolicy},
    selection::{IncludesExcludes, LabelFilter},
    validate::namespace_pattern,
};

const FILTERS: &str = "resourceFilters";
const NAMESPACES: &str = "namespaces";
const ONE_SELECTOR: &str = "labelSelector";
const SELECTORS: &str = "orLabelSelectors";

impl ConfigReader {
    pub(super) fn filter_policies(&mut self, fields: &Map<String, Value>) -> FilterPolicies {
        let cluster_scoped = fields
            .get(CLUSTER_SCOPED)
            .filter(|policy| !policy.is_null());
        let cluster_scoped =
            cluster_scoped.and_then(|policy| self.fields(policy, CLUSTER_SCOPED, &[FILTERS]));
        let cluster_scoped =
            cluster_scoped.map(|policy| self.kind_filters(policy, CLUSTER_SCOPED, false));
        let mut seen = BTreeSet::new();
        let policies = self
            .list(fields, "", NAMESPACED)
            .into_iter()
            .flatten()
            .enumerate();
        let namespaced = policies.map(|(at, policy)| {
            let at = format!("{NAMESPACED}[{at}]");
            let known = [NAMESPACES, FILTERS];
            let Some(fields) = self.fields(policy, &at, &known) else {
                return NamespacePolicy::default();
            };
            let namespaces = self.texts(fields, &at, NAMESPACES);
            if namespaces.is_empty() {
                self.find(
                    &join(&at, NAMESPACES),
                    "is missing; name the namespaces that the filters are for",
                );
            }
            for (index, namespace) in namespaces.iter().enumerate() {
                let at = format!("{at}.{NAMESPACES}[{index}]");
                if let Err(message) = namespace_pattern(namespace) {
                    self.find(&at, format!("{namespace:?} {message}"));
                }
                if !seen.insert(namespace.clone()) {
                    self.find(
                        &at,
                        format!("{namespace:?} is given before; a namespace has one policy"),
                    );
                }
            }
            NamespacePolicy {
                namespaces,
                kinds: self.kind_filters(fields, &at, true),
            }
        });
        FilterPolicies {
            namespaced: namespaced.collect(),
            cluster_scoped: cluster_scoped.unwrap_or_default(),
        }
    }

    /// The filters of one policy. Only namespaced policies may have one for all kinds.
    fn kind_filters(
        &mut self,
        fields: &Map<String, Value>,
        at: &str,
        namespaced: bool,
    ) -> Vec<KindFilter> {
        let filters = self
            .list(fields, at, FILTERS)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if filters.is_empty() {
            self.find(
                &join(at, FILTERS),
                "has no filters; remove the policy, or say what it selects",
            );
        }
        let mut all = Vec::<KindFilter>::new();
        let mut seen = BTreeSet::new();
        for (index, filter) in filters.iter().enumerate() {
            let at = format!("{at}.{FILTERS}[{index}]");
            let filter = self.kind_filter(filter, &at);
            let kinds = join(&at, "kinds");
            if filter.is_catch_all() {
                if !namespaced {
                    self.find(
                        &kinds,
                        "names no kinds; those of the cluster are listed one by one",
                    );
                } else if all.iter().any(KindFilter::is_catch_all) {
                    self.find(&kinds, "is the second filter for all kinds; one is enough");
                }
                if filter.names != IncludesExcludes::default() {
                    let message =
                        "cannot be given for all kinds, nor can excludedNames; name the kinds";
                    self.find(&join(&at, "names"), message);
                }
            } else {
                for kind in &filter.kinds {
                    if kind == "*" {
                        self.find(
                            &kinds,
                            "\"*\" already means all; give it alone, or name the kinds",
                        );
                    } else if !seen.insert(kind.to_ascii_lowercase()) {
                        self.find(
                            &kinds,
                            format!("{kind:?} is given before; a kind has one filter"),
                        );
                    }
                }
            }
            all.push(filter);
        }
        all
    }

    fn kind_filter(&mut self, value: &Value, at: &str) -> KindFilter {
        let known = ["kinds", ONE_SELECTOR, SELECTORS, "names", "excludedNames"];
        let Some(fields) = self.fields(value, at, &known) else {
            return KindFilter::default();
        };
        let one = fields
            .get(ONE_SELECTOR)
            .and_then(|selector| self.label_selector(selector, &join(at, ONE_SELECTOR)));
        let one = one.filter(is_present);
        let any = self
            .list(fields, at, SELECTORS)
            .into_iter()
            .flatten()
            .enumerate();
        let any = any.filter_map(|(index, selector)| {
            self.label_selector(selector, &format!("{}[{index}]", join(at, SELECTORS)))
        });
        let any: Vec<LabelSelector> = any.filter(is_present).collect();
        if one.is_some() && !any.is_empty() {
            self.find(
                &join(at, SELECTORS),
                "can not be given together with labelSelector; move that into this list",
            );
        }
        let any = Some(any);
        let [kinds, names, excluded] =
            ["kinds", "names", "excludedNames"].map(|name| self.texts(fields, at, name));
        KindFilter {
            kinds,
            labels: LabelFilter::of(&one, &any),
            names: IncludesExcludes::new(&names, &excluded),
        }
    }
}

/// Whether a selector has a condition. As with Velero, an empty selector counts as none.
fn is_present(selector: &LabelSelector) -> bool {
    selector
        .match_labels
        .as_ref()
        .is_some_and(|labels| !labels.is_empty())
        || selector
            .match_expressions
            .as_ref()
            .is_some_and(|expressions| !expressions.is_empty())
}
