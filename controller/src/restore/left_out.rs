//! Items that a restore leaves out on purpose, by kind and reason.

use std::collections::BTreeMap;

use backup_core::{
    left_items::{LeftItems, LeftOutItems},
    text::{listed, shortened},
};

use super::about::About;

/// Maximum number of groups (kind and reason): plugins may give any reason.
const MAX_GROUPS: usize = 64;
/// Maximum number of names per group; further items are counted.
const MAX_NAMES: usize = 8;
/// Maximum number of groups in the annotation of the Restore.
const MAX_ANNOTATED_GROUPS: usize = 16;
/// Maximum length of a reason in the annotation (characters).
const MAX_REASON_CHARS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct LeftOut {
    groups: BTreeMap<(String, String), Group>,
    /// Number of items beyond `MAX_GROUPS`.
    others: usize,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    names: Vec<String>,
}

impl LeftOut {
    pub(super) fn add(&mut self, about: About<'_>, why: &str) {
        let key = (about.kind.to_owned(), why.to_owned());
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            self.others += 1;
            return;
        }
        let group = self.groups.entry(key).or_default();
        group.count += 1;
        if group.names.len() < MAX_NAMES {
            let namespace = about
                .namespace
                .map_or_else(String::new, |namespace| format!("{namespace}/"));
            group.names.push(format!("{namespace}{}", about.name));
        }
    }

    /// One message per group: "Pod shop/a, shop/b: the pod had ended".
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for ((kind, why), group) in &self.groups {
            let names = listed(&group.names, group.count);
            sentences.push(format!("{kind} {names}: {why}"));
        }
        if self.others > 0 {
            sentences.push(format!("and {} more for other reasons", self.others));
        }
        sentences
    }

    /// Sets the counts of items for the annotation of the Restore.
    pub(super) fn count_in(&self, left: &mut LeftItems) {
        left.left_out = self
            .groups
            .iter()
            .take(MAX_ANNOTATED_GROUPS)
            .map(|((kind, why), group)| LeftOutItems {
                kind: kind.clone(),
                count: group.count,
                reason: shortened(why, MAX_REASON_CHARS),
            })
            .collect();
        let further = self.groups.values().skip(MAX_ANNOTATED_GROUPS);
        left.left_out_otherwise = self.others + further.map(|group| group.count).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_by_its_reason_and_bounded() {
        let mut left_out = LeftOut::default();
        for number in 0..20 {
            let name = format!("p-{number:02}");
            let pod = About {
                api_version: "v1",
                kind: "Pod",
                namespace: Some("shop"),
                name: &name,
            };
            left_out.add(pod, "the pod had ended");
        }
        let sentences = left_out.sentences();
        assert_eq!(sentences.len(), 1);
        assert!(
            sentences[0].starts_with("Pod shop/p-00, ") && sentences[0].contains("12 more"),
            "{sentences:?}"
        );
        for number in 0..200 {
            let volume = About {
                api_version: "v1",
                kind: "PersistentVolume",
                namespace: None,
                name: "pv",
            };
            left_out.add(volume, &format!("reason {number}"));
        }
        assert_eq!(left_out.sentences().len(), MAX_GROUPS + 1);
        let mut left = LeftItems::default();
        left_out.count_in(&mut left);
        assert_eq!(left.left_out.len(), MAX_ANNOTATED_GROUPS);
        assert_eq!(
            left.left_out.iter().map(|one| one.count).sum::<usize>() + left.left_out_otherwise,
            220
        );
        assert!(!left.differs());
    }

    #[test]
    fn items_that_are_left_out_are_counted_by_reason_for_the_restore() {
        let mut left_out = LeftOut::default();
        for (kind, name, why) in [
            ("Job", "import", "the job had completed"),
            ("Job", "report", "the job had completed"),
            ("Pod", "import-x", "the pod had ended"),
        ] {
            let about = About {
                api_version: "v1",
                kind,
                namespace: Some("shop"),
                name,
            };
            left_out.add(about, why);
        }
        let mut left = LeftItems::default();
        left_out.count_in(&mut left);
        assert_eq!(
            left.left_out_lines(),
            ["2 Job: the job had completed", "1 Pod: the pod had ended"]
        );
    }
}
