//! `velero.io/change-storage-class`: gives volumes, claims and claim templates another StorageClass
//! (Velero `pkg/restore/actions/change_storageclass_action.go`, v1.18).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use backup_client::{errors::plain, retry};
use backup_core::resources::{CLAIMS, VOLUMES};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    json::{self, Object},
};
use crate::{ActionError, AppliesTo, ItemAction};

const TYPES: [&str; 3] = [CLAIMS, VOLUMES, "statefulsets.apps"];
/// Time limit for the request for a StorageClass, retries included.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// The replacement for each StorageClass of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassReplacements {
    /// The name of the ConfigMap that has them.
    pub(crate) config_map: String,
    /// By the class in the backup.
    pub(crate) classes: BTreeMap<String, String>,
}

pub(crate) struct ChangeStorageClass {
    replacements: ClassReplacements,
    client: Client,
    /// Classes found in the cluster; missing ones may be added by this restore.
    found: Mutex<BTreeSet<String>>,
}

impl ChangeStorageClass {
    pub(crate) const NAME: &'static str = "velero.io/change-storage-class";

    pub(crate) fn new(replacements: ClassReplacements, client: Client) -> Self {
        Self {
            replacements,
            client,
            found: Mutex::default(),
        }
    }

    /// Checks that a replacement class exists in the cluster.
    async fn check(&self, class: &str) -> Result<(), ActionError> {
        let mut found = self.found.lock().await;
        if found.contains(class) {
            return Ok(());
        }
        let action = Self::NAME.to_owned();
        let api: Api<StorageClass> = Api::all(self.client.clone());
        match retry::read(RETRY_BUDGET, || api.get_metadata_opt(class)).await {
            Ok(Some(_)) => {
                found.insert(class.to_owned());
                Ok(())
            }
            Ok(None) => {
                let reason = format!(
                    "ConfigMap {:?} names StorageClass {class:?}, which does not exist; create it, or correct the ConfigMap, and \
                     restore again",
                    self.replacements.config_map
                );
                Err(ActionError::Final { action, reason })
            }
            Err(error) => {
                let reason = format!(
                    "StorageClass {class:?} could not be looked for: {}",
                    plain(&error)
                );
                Err(ActionError::Retryable { action, reason })
            }
        }
    }
}

/// Changes the class of an item; returns the new classes.
fn change(item: &mut Object, classes: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut new = BTreeSet::new();
    if json::text(item, &[], "kind") == Some("StatefulSet") {
        let templates = json::list_mut(item, &["spec"], "volumeClaimTemplates")
            .into_iter()
            .flatten();
        templates
            .filter_map(Value::as_object_mut)
            .for_each(|template| change_claim(template, classes, &mut new));
    } else {
        change_claim(item, classes, &mut new);
    }
    new
}

/// Changes the class of a claim, and adds the new class to `new`.
fn change_claim(
    claim: &mut Object,
    classes: &BTreeMap<String, String>,
    new: &mut BTreeSet<String>,
) {
    let class =
        json::text(claim, &["spec"], "storageClassName").and_then(|class| classes.get(class));
    if let Some(class) = class {
        json::set(
            claim,
            &["spec"],
            "storageClassName",
            Value::from(class.as_str()),
        );
        new.insert(class.clone());
    }
}

impl ItemAction for ChangeStorageClass {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resources(&TYPES)
    }
}

#[async_trait]
impl RestoreItemAction for ChangeStorageClass {
    fn may_add_items(&self) -> bool {
        false
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let mut item = input.item.clone();
        for class in change(&mut item, &self.replacements.classes) {
            self.check(&class).await?;
        }
        Ok(RestoreActionOutput {
            item: Some(item),
            ..RestoreActionOutput::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{Restore, RestoreSpec};
    use backup_testkit::FakeApi;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn claims_volumes_and_templates_get_the_class_that_takes_the_place_of_theirs() {
        let classes = [("old".to_owned(), "new".to_owned())].into();
        let of = |class: &str| json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": class, "x": 1}});
        let set = |class: &str| {
            let templates = [of(class), of("other"), json!({"spec": {}}), json!(1)];
            json!({"kind": "StatefulSet", "spec": {"storageClassName": "old", "volumeClaimTemplates": templates}})
        };
        for make in [&of as &dyn Fn(&str) -> Value, &set] {
            let mut item = object(&make("old"));
            assert_eq!(change(&mut item, &classes), ["new".to_owned()].into());
            assert_eq!(Value::Object(item), make("new"));
        }
        for left in [
            of("other"),
            of(""),
            json!({"kind": "PersistentVolume", "spec": {}}),
        ] {
            let mut item = object(&left);
            assert_eq!(change(&mut item, &classes), BTreeSet::new());
            assert_eq!(Value::Object(item), left);
        }
    }

    #[tokio::test]
    async fn a_class_that_does_not_exist_is_an_error_that_names_it() {
        let fake = FakeApi::new();
        let replacements = ClassReplacements {
            config_map: "classes".to_owned(),
            classes: [("old".to_owned(), "new".to_owned())].into(),
        };
        let action = ChangeStorageClass::new(replacements, fake.client());
        let (item, restore) = (
            object(&json!({"spec": {"storageClassName": "old"}})),
            Restore::new("r", RestoreSpec::default()),
        );
        let input = RestoreActionInput {
            item: &item,
            from_backup: &item,
            restore: &restore,
            left_to_controller: None,
        };
        let error = action.execute(input).await.unwrap_err();
        assert!(matches!(error, ActionError::Final { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("\"classes\" names StorageClass \"new\""),
            "{error}"
        );
        // The restore may create it.
        let path = "/apis/storage.k8s.io/v1/storageclasses/new";
        fake.put(
            path,
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "new"}}),
        );
        for _ in 0..2 {
            let made = action.execute(input).await.unwrap().item.unwrap();
            assert_eq!(made["spec"]["storageClassName"], "new");
        }
        assert_eq!(
            fake.log().iter().filter(|line| line.contains(path)).count(),
            2,
            "asked for until it is there"
        );
    }
}
