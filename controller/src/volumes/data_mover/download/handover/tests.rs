use super::*;

fn claims(uid: Option<&str>) -> Claims {
    Claims {
        namespace: "velero".to_owned(),
        name: "d".to_owned(),
        uid: uid.map(str::to_owned),
        target_namespace: "shop".to_owned(),
        target: "data".to_owned(),
        target_uid: "uid-t".to_owned(),
        is_in_place: false,
        properties: None,
    }
}

/// For a volume of the target claim that is taken over.
fn in_place(uid: Option<&str>) -> Claims {
    Claims {
        is_in_place: true,
        ..claims(uid)
    }
}

fn volume(policy: &str, reference: &Value) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": {"name": "pv", "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"}},
        "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": reference},
    }))
    .unwrap()
}

fn reference(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"namespace": namespace, "name": name, "uid": uid, "resourceVersion": "7"})
}

fn patched(volume: &PersistentVolume, patch: &Value) -> PersistentVolume {
    let mut object = serde_json::to_value(volume).unwrap();
    json_patch::merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

#[test]
fn whose_a_volume_is_follows_from_names_and_uid() {
    let other = |name: &str| Holder::Other(name.to_owned());
    for (reference, own, expected) in [
        (
            reference("velero", "d", "uid-c"),
            Some("uid-c"),
            Holder::Ours,
        ),
        (reference("velero", "d", "uid-c"), None, Holder::Ours),
        (
            reference("velero", "d", "uid-old"),
            Some("uid-c"),
            other("velero/d"),
        ),
        (reference("velero", "e", "uid-c"), None, other("velero/e")),
        (reference("shop", "data", "uid-t"), None, Holder::Target),
        (reference("shop", "data", ""), None, Holder::Unclaimed),
        (
            reference("shop", "data", "uid-new"),
            None,
            other("shop/data"),
        ),
        (reference("shop", "d", "uid-c"), None, other("shop/d")),
        (Value::Null, None, Holder::Unclaimed),
    ] {
        let volume = volume(DELETE, &reference);
        assert_eq!(claims(own).holder(&volume), expected, "{reference} {own:?}");
    }
}

#[test]
fn a_volume_of_another_claim_is_never_patched() {
    for reference in [
        reference("shop", "data", "uid-new"),
        reference("shop", "other", "uid-t"),
        reference("velero", "d", "uid-old"),
    ] {
        let mut volume = volume(RETAIN, &reference);
        let mark = [(TRANSFER_LABEL.to_owned(), "d".to_owned())];
        volume.metadata.labels = Some(mark.into());
        let claims = claims(Some("uid-c"));
        for patch in [
            claims.retain(&volume),
            claims.take_over(&volume),
            claims.hand_over(&volume),
            claims.settle(&volume),
            claims.keep(&volume),
            claims.discard(&volume),
        ] {
            assert_eq!(patch, None, "{reference}");
        }
    }
}

#[rstest::rstest]
#[case(DELETE)]
#[case(RETAIN)]
fn a_volume_that_is_taken_over_is_given_back_and_never_discarded(#[case] class: &str) {
    let own = in_place(Some("uid-c"));
    let mut volume = volume(class, &reference("shop", "data", "uid-t"));
    assert_eq!(own.take_over(&volume), None, "it is not retained");
    assert_eq!(claims(Some("uid-c")).retain(&volume), None, "not in place");
    for _ in 0..2 {
        volume = patched(&volume, &own.retain(&volume).unwrap());
    }
    assert_eq!(in_place(None).take_over(&volume), None, "for no claim");
    volume = patched(&volume, &own.take_over(&volume).unwrap());
    assert_eq!(own.take_over(&volume), None, "it is taken over");
    assert_eq!(own.settle(&volume), None, "it is ours");
    for own in [&own, &in_place(None), &in_place(Some("uid-new"))] {
        assert_eq!(own.holder(&volume), Holder::Ours);
        assert_eq!(own.discard(&volume), None);
    }
    let gone = in_place(None);
    volume = patched(&volume, &gone.hand_over(&volume).unwrap());
    assert_eq!(HandedVolume::of(&volume, &gone).holder, Holder::Target);
    assert_eq!(gone.discard(&volume), None);
    let kept = patched(&volume, &gone.keep(&volume).unwrap());
    assert_eq!(policy(&kept), RETAIN, "its claim is gone");
    assert!(!HandedVolume::of(&kept, &gone).is_marked);
    volume = patched(&volume, &gone.settle(&volume).unwrap());
    assert_eq!(policy(&volume), class);
    assert!(!HandedVolume::of(&volume, &gone).is_marked);
    assert_eq!(gone.settle(&volume), None, "it is settled");
}

#[test]
fn a_volume_that_another_transfer_has_marked_is_not_taken_over() {
    let mut volume = volume(RETAIN, &reference("shop", "data", "uid-t"));
    let mark = [(TRANSFER_LABEL.to_owned(), "other".to_owned())];
    volume.metadata.labels = Some(mark.into());
    let own = in_place(Some("uid-c"));
    assert!(HandedVolume::of(&volume, &own).has_other_mark);
    assert_eq!(own.retain(&volume), None);
    assert_eq!(own.take_over(&volume), None);
}

#[rstest::rstest]
#[case::other_policy("Retain", RETAIN)]
#[case::the_same_policy("Delete", DELETE)]
#[case::unknown("", DELETE)]
#[case::outdated("Recycle", DELETE)]
fn the_volume_gets_the_properties_that_it_had_in_the_backup(
    #[case] reclaim_policy: &str,
    #[case] expected: &str,
) {
    let labels = [
        ("team", "shop"),
        ("class", "old"),
        ("topology.kubernetes.io/zone", "old"),
        (TRANSFER_LABEL, "old"),
    ];
    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
    let properties = VolumeProperties {
        labels: labels.into(),
        reclaim_policy: reclaim_policy.to_owned(),
        ..VolumeProperties::default()
    };
    let with_properties = |uid| Claims {
        properties: Some(properties.clone()),
        ..claims(uid)
    };
    let own = with_properties(Some("uid-c"));
    let mut volume = volume(DELETE, &reference("velero", "d", "uid-c"));
    let label = [("class".to_owned(), "new".to_owned())];
    volume.metadata.labels = Some(label.into());
    volume = patched(&volume, &own.retain(&volume).unwrap());
    let gone = with_properties(None);
    volume = patched(&volume, &gone.hand_over(&volume).unwrap());
    volume = patched(&volume, &gone.settle(&volume).unwrap());
    assert_eq!(policy(&volume), expected);
    let labels: Vec<_> = volume.labels().iter().collect();
    assert_eq!(
        labels,
        [
            (&"class".to_owned(), &"new".to_owned()),
            (&"team".to_owned(), &"shop".to_owned())
        ]
    );
    assert_eq!(gone.settle(&volume), None, "it is settled");
}

#[rstest::rstest]
#[case(DELETE)]
#[case(RETAIN)]
fn a_handover_keeps_the_volume_and_gives_it_its_policy_back(#[case] class: &str) {
    let own = claims(Some("uid-c"));
    let mut volume = volume(class, &reference("velero", "d", "uid-c"));
    assert_eq!(own.hand_over(&volume), None, "it is not retained");
    assert_eq!(own.settle(&volume), None, "it is ours");
    for _ in 0..2 {
        volume = patched(&volume, &own.retain(&volume).unwrap());
        assert!(HandedVolume::of(&volume, &own).is_retained);
        assert_eq!(volume.annotations()[RECLAIM_POLICY], class);
    }
    let gone = claims(None);
    volume = patched(&volume, &gone.hand_over(&volume).unwrap());
    let seen = HandedVolume::of(&volume, &gone);
    assert_eq!((seen.holder, seen.is_marked), (Holder::Target, true));
    let kept = volume.spec.clone().unwrap().claim_ref.unwrap();
    assert_eq!(kept.resource_version, None);
    assert_eq!(gone.hand_over(&volume), None, "it is handed over");
    assert_eq!(gone.discard(&volume), None, "it is handed over");
    volume = patched(&volume, &gone.settle(&volume).unwrap());
    assert_eq!(policy(&volume), class);
    assert!(!HandedVolume::of(&volume, &gone).is_marked);
    assert!(!volume.annotations().contains_key(RECLAIM_POLICY));
    assert_eq!(gone.settle(&volume), None, "it is settled");
}

#[rstest::rstest]
#[case(DELETE, true, DELETE)]
#[case(RETAIN, true, DELETE)]
#[case(RETAIN, false, RETAIN)]
fn a_volume_that_is_not_wanted_is_deleted_if_it_was_made_for_us(
    #[case] class: &str,
    #[case] is_provisioned: bool,
    #[case] expected: &str,
) {
    let own = claims(Some("uid-c"));
    let mut volume = volume(class, &reference("velero", "d", "uid-c"));
    if !is_provisioned {
        volume.metadata.annotations = None;
    }
    let retained = patched(&volume, &own.retain(&volume).unwrap());
    for volume in [volume, retained] {
        let discarded = patched(&volume, &own.discard(&volume).unwrap());
        assert_eq!(policy(&discarded), expected);
        assert!(HandedVolume::of(&discarded, &own).is_discarded);
    }
}
