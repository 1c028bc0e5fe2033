//! `velero.io/change-image-name`: replaces parts of image names in pods and pod templates, such as
//! the registry (Velero `pkg/restore/actions/change_image_name_action.go`, v1.18).

use async_trait::async_trait;
use serde_json::Value;

use super::{
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    json::{self, Object},
};
use crate::{ActionError, AppliesTo, ItemAction};

const TYPES: [&str; 8] = [
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "jobs.batch",
    "cronjobs.batch",
    "pods",
];

/// Replaces a part of the name of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageRule {
    old: String,
    new: String,
}

impl ImageRule {
    /// From `old,new`; neither may be empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (old, new) = text.split_once(',')?;
        let old = old.trim();
        let new = new.trim();
        (!old.is_empty() && !new.is_empty()).then(|| Self {
            old: old.to_owned(),
            new: new.to_owned(),
        })
    }
}

/// The first rule that matches an image is applied, in the order of their keys in the ConfigMap.
/// (Velero uses any order.)
pub(crate) struct ChangeImageName(pub(crate) Vec<ImageRule>);

impl ChangeImageName {
    pub(crate) const NAME: &'static str = "velero.io/change-image-name";

    fn change(&self, item: &mut Object) {
        let pod: &[&str] = match json::text(item, &[], "kind") {
            Some("Pod") => &["spec"],
            Some("CronJob") => &["spec", "jobTemplate", "spec", "template", "spec"],
            _ => &["spec", "template", "spec"],
        };
        for kind in ["containers", "initContainers"] {
            let containers = json::list_mut(item, pod, kind).into_iter().flatten();
            for container in containers.filter_map(Value::as_object_mut) {
                let Some(image) = json::text(container, &[], "image") else {
                    continue;
                };
                if let Some(rule) = self.0.iter().find(|rule| image.contains(&rule.old)) {
                    let image = image.replace(&rule.old, &rule.new);
                    container.insert("image".to_owned(), Value::from(image));
                }
            }
        }
    }
}

impl ItemAction for ChangeImageName {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resources(&TYPES)
    }
}

#[async_trait]
impl RestoreItemAction for ChangeImageName {
    fn may_add_items(&self) -> bool {
        false
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let mut item = input.item.clone();
        self.change(&mut item);
        Ok(RestoreActionOutput {
            item: Some(item),
            ..RestoreActionOutput::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::registry(
        "1.1.1.1:5000,2.2.2.2:3000",
        "1.1.1.1:5000/abc:test",
        "2.2.2.2:3000/abc:test"
    )]
    #[case::port("5000, 3000", "1.1.1.1:5000/abc:test", "1.1.1.1:3000/abc:test")]
    #[case::name_and_tag("abc:test,edf:test", "1.1.1.1:5000/abc:test", "1.1.1.1:5000/edf:test")]
    #[case::every_place("a,b", "a/a:a", "b/b:b")]
    #[case::elsewhere("x,y", "a:1", "a:1")]
    fn a_part_of_an_image_is_replaced(
        #[case] rule: &str,
        #[case] image: &str,
        #[case] expected: &str,
    ) {
        let action = ChangeImageName(vec![ImageRule::parse(rule).unwrap()]);
        let container = |image: &str| json!({"containers": [{"image": image}], "initContainers": [{"image": image}, {}]});
        let pod = |image: &str| json!({"kind": "Pod", "spec": container(image)});
        let deployment = |image: &str| json!({"kind": "Deployment", "spec": {"template": {"spec": container(image)}}});
        let job = |image: &str| json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": container(image)}}}}});
        for of in [&pod as &dyn Fn(&str) -> Value, &deployment, &job] {
            let mut item = of(image).as_object().unwrap().clone();
            action.change(&mut item);
            assert_eq!(Value::Object(item), of(expected));
        }
    }

    #[test]
    fn the_first_rule_that_fits_is_followed() {
        let rules = ["x,y", "old,first", "old,second"].map(|rule| ImageRule::parse(rule).unwrap());
        let mut item = json!({"kind": "Pod", "spec": {"containers": [{"image": "old"}]}})
            .as_object()
            .unwrap()
            .clone();
        ChangeImageName(rules.into()).change(&mut item);
        assert_eq!(item["spec"]["containers"][0]["image"], "first");
    }
}
