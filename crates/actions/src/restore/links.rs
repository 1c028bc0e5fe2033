//! Links from a restored object to another object, and their treatment, depending on who uses the
//! other object. Pure.
//!
//! A name in a backup may refer to another application's object by now. Taking over such a link
//! would break that application, whatever the policy for existing objects says.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::resources::{NAMESPACES, VOLUMES};

use super::{equality, json::Object, rules::RestoreRules, transform};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// `claimRef` of an existing PersistentVolume.
    ClaimOfVolume,
    /// `volumeName` of a claim that will be created.
    VolumeOfClaim,
    /// The controller in `ownerReferences` of an object that will be created.
    Owner,
    /// A namespace in an existing cluster-scoped object: of the Service of a webhook, an APIService
    /// or a conversion, or of the subject of a ClusterRoleBinding.
    Namespace,
}

/// Who uses the object at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// It is not in the cluster, or unused.
    None,
    /// An object that the restore has created, or has found equal.
    Ours,
    Anothers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// The link is written as in the backup, after the namespace mapping.
    Write,
    /// The object is created without the link, and a warning says so.
    Drop,
    /// The existing object is left unchanged. A warning says that the policy `update` would change
    /// it.
    AdviseUpdate,
    /// The existing object is left unchanged, without advice to change it.
    Leave,
    /// The object is not created. An error says who uses the other end, and what to do.
    Refuse,
}

/// The treatment of a link; `update` is the policy for existing objects, `mapped` says whether the
/// link leads into a namespace of the backup that is restored under another name.
pub fn action(link: Link, other_end: OtherEnd, update: bool, mapped: bool) -> LinkAction {
    let by_policy = if update {
        LinkAction::Write
    } else {
        LinkAction::AdviseUpdate
    };
    match (link, other_end) {
        (Link::VolumeOfClaim, OtherEnd::Anothers) => LinkAction::Refuse,
        (Link::Owner, OtherEnd::None | OtherEnd::Anothers) => LinkAction::Drop,
        (Link::ClaimOfVolume, OtherEnd::Anothers) => LinkAction::Leave,
        (Link::Namespace, OtherEnd::Anothers) if mapped => LinkAction::Leave,
        (Link::ClaimOfVolume, OtherEnd::None)
        | (Link::Namespace, OtherEnd::None | OtherEnd::Anothers) => by_policy,
        (_, OtherEnd::Ours) | (Link::VolumeOfClaim, OtherEnd::None) => LinkAction::Write,
    }
}

/// The namespaces of the backup that an existing cluster-scoped object links to, and that are
/// restored under another name: the existing object serves the original. Not for volumes, which
/// name their claim themselves.
pub fn mapped_namespaces(
    in_cluster: &Object,
    group_resource: &str,
    rules: &RestoreRules,
) -> Vec<String> {
    if [NAMESPACES, VOLUMES].contains(&group_resource) {
        return Vec::new();
    }
    let renamed = rules
        .namespaces
        .iter()
        .filter(|(source, target)| source != target);
    let mut here = None;
    renamed
        .filter(|(source, target)| {
            let here = here.get_or_insert_with(|| {
                transform::rewritten(in_cluster, group_resource, None, &rules.in_place())
            });
            let only = BTreeMap::from([((*source).clone(), (*target).clone())]);
            let only = RestoreRules {
                namespaces: Arc::new(only),
                ..rules.clone()
            };
            !equality::same_objects(
                here,
                &transform::rewritten(in_cluster, group_resource, None, &only),
            )
        })
        .map(|(source, _)| source.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Link::*, LinkAction::*, OtherEnd::*, *};

    const UPDATE: bool = true;
    const LEAVE: bool = false;

    #[rstest]
    #[case::a_free_volume_that_differs(ClaimOfVolume, OtherEnd::None, LEAVE, AdviseUpdate)]
    #[case::a_free_volume_that_may_be_changed(ClaimOfVolume, OtherEnd::None, UPDATE, Write)]
    #[case::the_volume_of_this_claim(ClaimOfVolume, Ours, LEAVE, Write)]
    #[case::the_volume_of_this_claim_that_may_be_changed(ClaimOfVolume, Ours, UPDATE, Write)]
    #[case::a_volume_in_use(ClaimOfVolume, Anothers, LEAVE, Leave)]
    #[case::a_volume_in_use_whatever_the_policy(ClaimOfVolume, Anothers, UPDATE, Leave)]
    #[case::a_claim_before_its_volume(VolumeOfClaim, OtherEnd::None, LEAVE, Write)]
    #[case::a_claim_before_its_volume_whatever_the_policy(
        VolumeOfClaim,
        OtherEnd::None,
        UPDATE,
        Write
    )]
    #[case::a_claim_of_its_volume(VolumeOfClaim, Ours, LEAVE, Write)]
    #[case::a_claim_of_its_volume_whatever_the_policy(VolumeOfClaim, Ours, UPDATE, Write)]
    #[case::a_claim_of_a_volume_in_use(VolumeOfClaim, Anothers, LEAVE, Refuse)]
    #[case::a_claim_of_a_volume_in_use_whatever_the_policy(VolumeOfClaim, Anothers, UPDATE, Refuse)]
    #[case::an_owner_that_is_gone(Owner, OtherEnd::None, LEAVE, Drop)]
    #[case::an_owner_that_is_gone_whatever_the_policy(Owner, OtherEnd::None, UPDATE, Drop)]
    #[case::an_owner_that_came_back(Owner, Ours, LEAVE, Write)]
    #[case::an_owner_that_came_back_whatever_the_policy(Owner, Ours, UPDATE, Write)]
    #[case::another_owner_of_that_name(Owner, Anothers, LEAVE, Drop)]
    #[case::another_owner_of_that_name_whatever_the_policy(Owner, Anothers, UPDATE, Drop)]
    #[case::of_a_namespace_that_is_gone(Namespace, OtherEnd::None, LEAVE, AdviseUpdate)]
    #[case::of_a_namespace_that_is_gone_and_may_be_changed(
        Namespace,
        OtherEnd::None,
        UPDATE,
        Write
    )]
    #[case::of_the_namespace_that_is_restored(Namespace, Ours, LEAVE, Write)]
    #[case::of_the_namespace_that_is_restored_and_may_be_changed(Namespace, Ours, UPDATE, Write)]
    fn a_link_is_followed_by_who_holds_the_other_end(
        #[case] link: Link,
        #[case] other_end: OtherEnd,
        #[case] update: bool,
        #[case] expected: LinkAction,
    ) {
        for mapped in [false, true] {
            assert_eq!(
                action(link, other_end, update, mapped),
                expected,
                "mapped: {mapped}"
            );
        }
    }

    #[rstest]
    #[case::of_the_original(LEAVE, true, Leave)]
    #[case::of_the_original_whatever_the_policy(UPDATE, true, Leave)]
    #[case::moved_since(LEAVE, false, AdviseUpdate)]
    #[case::moved_since_and_may_be_changed(UPDATE, false, Write)]
    fn an_object_that_serves_the_original_of_a_copy_stays_with_it(
        #[case] update: bool,
        #[case] mapped: bool,
        #[case] expected: LinkAction,
    ) {
        assert_eq!(action(Namespace, Anothers, update, mapped), expected);
    }
}
