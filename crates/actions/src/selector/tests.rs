use async_trait::async_trait;
use backup_core::api::Backup;
use serde_json::Value;

use super::*;
use crate::{
    ActionError,
    backup::{BackupActionOutput, BackupItemAction, ordered},
};

struct Named(&'static str, AppliesTo);

impl ItemAction for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn applies_to(&self) -> AppliesTo {
        self.1.clone()
    }
}

#[async_trait]
impl BackupItemAction for Named {
    async fn execute(&self, _: &Value, _: &Backup) -> Result<BackupActionOutput, ActionError> {
        Ok(BackupActionOutput::default())
    }
}

fn of(wishes: Vec<(&'static str, AppliesTo)>) -> ActionSet<dyn BackupItemAction> {
    let actions = wishes
        .into_iter()
        .map(|(name, wish)| Arc::new(Named(name, wish)) as _)
        .collect();
    ordered(actions, Vec::new(), &|name| {
        (name == "deploy").then(|| "deployments.apps".to_owned())
    })
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn actions_come_in_the_order_of_their_names_and_see_their_types_only() {
    let resources = |list: &[&str]| AppliesTo {
        included_resources: strings(list),
        ..AppliesTo::default()
    };
    let all_but = AppliesTo {
        excluded_resources: strings(&["secrets"]),
        ..AppliesTo::default()
    };
    let actions = of(vec![
        ("c", resources(&["deploy"])),
        ("a", all_but),
        ("b", resources(&["*.apps"])),
    ]);
    let names = |resource: &str| -> Vec<String> {
        actions
            .for_type(resource)
            .map(|one| one.action.name().to_owned())
            .collect()
    };
    assert_eq!(names("deployments.apps"), ["a", "b", "c"]);
    assert_eq!(names("pods"), ["a"]);
    assert!(names("secrets").is_empty());
}

#[test]
fn actions_of_plugins_come_after_those_that_are_built_in() {
    let all = |names: &[&'static str]| -> Vec<Arc<dyn BackupItemAction>> {
        names
            .iter()
            .map(|name| Arc::new(Named(name, AppliesTo::default())) as _)
            .collect()
    };
    let built_in = all(&["velero.io/csi-pvc-backupper", "velero.io/pv"]);
    let actions = ordered(built_in, all(&["b.io/b", "a.io/a"]), &|_| None);
    let found = actions.for_type("persistentvolumeclaims");
    let names: Vec<_> = found.map(|one| one.action.name()).collect();
    assert_eq!(
        names,
        [
            "velero.io/pv",
            "velero.io/csi-pvc-backupper",
            "a.io/a",
            "b.io/b"
        ]
    );
}

#[test]
fn an_action_chooses_by_namespace_and_labels() {
    let wish = AppliesTo {
        included_namespaces: strings(&["shop-*"]),
        excluded_namespaces: strings(&["shop-test"]),
        label_selector: "app=web".to_owned(),
        ..AppliesTo::default()
    };
    let actions = of(vec![("a", wish)]);
    let one = actions.for_type("pods").next().unwrap();
    let web = || BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    assert!(one.applies_to(Some("shop-1"), web));
    assert!(
        one.applies_to(None, web),
        "what has no namespace is not filtered by it"
    );
    assert!(!one.applies_to(Some("shop-test"), web) && !one.applies_to(Some("other"), web));
    assert!(!one.applies_to(Some("shop-1"), BTreeMap::new));
}

#[test]
fn an_action_whose_selector_can_not_be_read_is_told_and_not_run() {
    let wish = AppliesTo {
        label_selector: "a b c".to_owned(),
        ..AppliesTo::default()
    };
    let actions = of(vec![("x/bad", wish)]);
    assert!(actions.for_type("pods").next().is_none());
    assert_says!(actions.unusable[0], "x/bad");
}
