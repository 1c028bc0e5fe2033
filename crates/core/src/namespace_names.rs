//! Namespaces that a backup includes by name: of one that does not exist, nothing is saved. Pure.

use crate::{names::is_dns_label, text::listed};

/// Maximum number of names in a sentence; the others are counted.
const MAX_NAMES: usize = 3;

/// The namespaces that a list includes by name, sorted. None if it includes all; globs are left
/// out, as they may match a namespace that is created later.
pub fn included_by_name(included: &[String]) -> Vec<&str> {
    if included.iter().any(|name| name == "*") {
        return Vec::new();
    }
    let mut names: Vec<&str> = included
        .iter()
        .map(String::as_str)
        .filter(|name| is_dns_label(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The warning about namespaces that do not exist, after the object that includes them: "includes
/// namespace shp, which does not exist: nothing of it is saved". `None` if there are none.
pub fn absence(absent: &[String]) -> Option<String> {
    match absent {
        [] => None,
        [name] => Some(format!(
            "includes namespace {name}, which does not exist: nothing of it is saved"
        )),
        names => Some(format!(
            "includes namespaces {}, which do not exist: nothing of them is saved",
            listed(&names[..names.len().min(MAX_NAMES)], names.len())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_glob_is_no_name_of_a_namespace() {
        for (included, expected) in [
            (&[][..], &[][..]),
            (&["*"], &[]),
            (&["*", "shop"], &[]),
            (&["shop", "db", "shop"], &["db", "shop"]),
            (&["team-*", "team-?", "team-[ab]", "shop", ""], &["shop"]),
        ] {
            assert_eq!(
                included_by_name(&strings(included)),
                expected,
                "{included:?}"
            );
        }
    }

    #[test]
    fn namespaces_that_do_not_exist_are_named_and_bounded() {
        assert_eq!(absence(&[]), None);
        assert_eq!(
            absence(&strings(&["shp"])).unwrap(),
            "includes namespace shp, which does not exist: nothing of it is saved"
        );
        assert_eq!(
            absence(&strings(&["a", "b", "c", "d", "e"])).unwrap(),
            "includes namespaces a, b, c and 2 more, which do not exist: nothing of them is saved"
        );
    }
}
