//! The offers of binaries, and the choice of those that are used. Pure.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::AppliesTo;
use backup_core::names::is_dns_label;
use serde::{Deserialize, de::value::StrDeserializer};

/// A kind of plugin that is used here, with Velero's name
/// (`pkg/plugin/framework/common/plugin_kinds.go`, v1.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Kind {
    BackupItemAction,
    /// Can also start operations.
    BackupItemActionV2,
    RestoreItemAction,
    /// Can also start operations, and can have the restore wait for its additional items.
    RestoreItemActionV2,
    /// Sees the items of a backup that is being deleted.
    DeleteItemAction,
    ItemBlockAction,
    ObjectStore,
    VolumeSnapshotter,
}

impl Kind {
    pub const BACKUP_ITEM: [Self; 2] = [Self::BackupItemAction, Self::BackupItemActionV2];
    pub const RESTORE_ITEM: [Self; 2] = [Self::RestoreItemAction, Self::RestoreItemActionV2];

    /// Parses Velero's name of a kind; `None` for kinds that are not used.
    pub fn parse(kind: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<serde::de::value::Error>::new(kind)).ok()
    }

    /// The gRPC method `AppliesTo`; `None` for kinds that see no items.
    pub fn applies_to(self) -> Option<&'static str> {
        match self {
            Self::BackupItemAction => Some("/generated.BackupItemAction/AppliesTo"),
            Self::BackupItemActionV2 => Some("/v2.BackupItemAction/AppliesTo"),
            Self::RestoreItemAction => Some("/generated.RestoreItemAction/AppliesTo"),
            Self::RestoreItemActionV2 => Some("/v2.RestoreItemAction/AppliesTo"),
            Self::DeleteItemAction => Some("/generated.DeleteItemAction/AppliesTo"),
            Self::ItemBlockAction => Some("/v1.ItemBlockAction/AppliesTo"),
            Self::ObjectStore | Self::VolumeSnapshotter => None,
        }
    }

    /// The gRPC method for one item: `Execute`, or for item blocks the query of related items.
    /// `Init` for kinds with settings.
    pub fn execute(self) -> &'static str {
        match self {
            Self::BackupItemAction => "/generated.BackupItemAction/Execute",
            Self::BackupItemActionV2 => "/v2.BackupItemAction/Execute",
            Self::RestoreItemAction => "/generated.RestoreItemAction/Execute",
            Self::RestoreItemActionV2 => "/v2.RestoreItemAction/Execute",
            Self::DeleteItemAction => "/generated.DeleteItemAction/Execute",
            Self::ItemBlockAction => "/v1.ItemBlockAction/GetRelatedItems",
            Self::ObjectStore => "/generated.ObjectStore/Init",
            Self::VolumeSnapshotter => "/generated.VolumeSnapshotter/Init",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub kind: Kind,
    pub name: String,
    /// The items it applies to; the error says why they are unknown.
    pub applies_to: Result<AppliesTo, String>,
}

/// Whether a name is `domain/name` (`pkg/plugin/framework/common/server_mux.go`, v1.18).
pub fn is_name(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else {
        return false;
    };
    domain.len() <= 253
        && domain.split('.').all(is_dns_label)
        && !rest.is_empty()
        && !rest.contains('/')
}

/// The offers that are used, sorted by name: for each the index of its binary, and the offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferChoice {
    pub used: Vec<(usize, Offer)>,
    pub problems: Vec<String>,
}

/// Chooses among the offers of binaries (by their paths). A name that two of them offer, or that a
/// built-in action has, is ambiguous and not used. If a binary offers one name in both versions,
/// the newer is used.
pub fn choose(binaries: &[(String, Vec<Offer>)], built_in: &BTreeSet<String>) -> OfferChoice {
    let mut by_name: BTreeMap<&str, Vec<(usize, &Offer)>> = BTreeMap::new();
    for (index, (_, offers)) in binaries.iter().enumerate() {
        for offer in offers {
            let all = by_name.entry(&offer.name).or_default();
            match all.iter_mut().find(|(binary, _)| *binary == index) {
                Some((_, known)) => {
                    if known.kind < offer.kind {
                        *known = offer;
                    }
                }
                None => all.push((index, offer)),
            }
        }
    }
    let mut chosen = OfferChoice::default();
    for (name, offers) in by_name {
        match offers.as_slice() {
            [(index, _), ..] if built_in.contains(name) => chosen.problems.push(format!(
                "the plugin binary {} offers {name}, which is built in: the plugin is not run",
                path_of(binaries, *index)
            )),
            [(index, offer)] => match &offer.applies_to {
                Ok(_) => chosen.used.push((*index, (*offer).clone())),
                Err(reason) => chosen
                    .problems
                    .push(format!("the action {name} is not run: {reason}")),
            },
            many => {
                let paths: Vec<_> = many
                    .iter()
                    .map(|(index, _)| path_of(binaries, *index))
                    .collect();
                chosen.problems.push(format!(
                    "{name} is offered by more than one plugin binary, so none of them is run: {}. Remove all but one",
                    paths.join(", ")
                ));
            }
        }
    }
    chosen
}

fn path_of(binaries: &[(String, Vec<Offer>)], index: usize) -> &str {
    binaries.get(index).map_or("", |(path, _)| path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(kind: Kind, name: &str) -> Offer {
        Offer {
            kind,
            name: name.to_owned(),
            applies_to: Ok(AppliesTo::default()),
        }
    }

    #[rstest::rstest]
    #[case("example.io/p", true)]
    #[case("a-b.c1/p.q_r", true)]
    #[case("velero/p", true)]
    #[case("p", false)]
    #[case("/p", false)]
    #[case("example.io/", false)]
    #[case("example.io/p/q", false)]
    #[case("Example.io/p", false)]
    #[case("-a/p", false)]
    #[case("a..b/p", false)]
    fn names_have_a_domain(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_name(name), expected);
    }

    #[test]
    fn a_name_that_two_binaries_offer_is_run_by_none_and_both_are_named() {
        use Kind::{BackupItemAction as V1, BackupItemActionV2 as V2};
        let binaries = [
            (
                "/plugins/a".to_owned(),
                vec![offer(V1, "x/z"), offer(V2, "x/twice"), offer(V1, "x/both")],
            ),
            (
                "/plugins/b".to_owned(),
                vec![
                    offer(V2, "x/y"),
                    offer(V1, "x/twice"),
                    offer(V2, "velero.io/pod"),
                ],
            ),
            (
                "/plugins/c".to_owned(),
                vec![Offer {
                    applies_to: Err("why".into()),
                    ..offer(V2, "x/odd")
                }],
            ),
            (
                "/plugins/d".to_owned(),
                vec![offer(V1, "x/versions"), offer(V2, "x/versions")],
            ),
        ];
        let chosen = choose(&binaries, &BTreeSet::from(["velero.io/pod".to_owned()]));
        let used: Vec<_> = chosen
            .used
            .iter()
            .map(|(index, offer)| (*index, offer.name.as_str(), offer.kind))
            .collect();
        assert_eq!(
            used,
            [
                (0, "x/both", V1),
                (3, "x/versions", V2),
                (1, "x/y", V2),
                (0, "x/z", V1)
            ]
        );
        let [built_in, odd, twice] = chosen.problems.as_slice() else {
            panic!("{:?}", chosen.problems)
        };
        assert_says!(built_in, "/plugins/b", "built in");
        assert!(odd.ends_with("x/odd is not run: why"), "{odd}");
        assert_says!(twice, "/plugins/a, /plugins/b");
    }
}
