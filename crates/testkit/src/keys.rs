//! Lists of known keys: settings, annotations.

use std::fmt::Display;

/// Sets each known key to a value: the outcome has to differ from the one without it, or be an
/// error; except for those that are `excused`, which change nothing. A key that is added to the
/// list without a reader fails here. `outcome` gets the key that is set, and describes the result.
pub fn assert_each_key_counts<'a, E: Display>(
    keys: impl IntoIterator<Item = &'a str>,
    excused: &[&str],
    outcome: impl Fn(Option<&str>) -> Result<String, E>,
) {
    let show = |key: Option<&str>| outcome(key).map_err(|error| error.to_string());
    let plain = show(None).unwrap();
    assert_eq!(
        Ok(&plain),
        show(None).as_ref(),
        "an outcome is not shown the same way twice"
    );
    for key in keys {
        let found = show(Some(key));
        let has_effect = found.as_ref() != Ok(&plain);
        assert_eq!(has_effect, !excused.contains(&key), "{key}: {found:?}");
    }
}
