use super::*;

#[test]
fn a_state_is_shown_as_it_is_stored() {
    for state in State::ALL {
        assert_eq!(serde_json::to_value(state).unwrap(), state.to_string());
    }
}

#[test]
fn a_claim_is_as_old_as_its_first_entry() {
    let entry = |uid, since| Entry::new(uid, Footprint::everything(), State::Reserved, since);
    let key = ObjectKey::backup("velero", "nightly");
    let entries = vec![
        entry("one", "2026-01-01T00:00:00Z"),
        entry("two", "2026-01-02T00:00:00Z"),
    ];
    assert_eq!(Claim { key, entries }.since(), "2026-01-01T00:00:00Z");
}

#[test]
fn a_key_is_told_in_words() {
    for (kind, namespace, words) in [
        (ObjectKind::Backup, "velero", "Backup velero/n"),
        (ObjectKind::Hold, "", "Hold n"),
        (
            ObjectKind::Deletion,
            "velero",
            "deletion of Backup velero/n",
        ),
    ] {
        let key = ObjectKey::new(kind, namespace, "n");
        assert_eq!(key.to_string(), words);
    }
}
