//! Restores definitions of custom resources first, and waits for them: objects of their kinds
//! cannot be created before.

use std::time::Duration;

use backup_actions::restore::json::{self, Object};
use backup_core::resources::{DEFINITIONS, ResourceType};
use backup_store::{Contents, ItemRef, Scope};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    MAX_CONCURRENT_ITEMS, RestoreError, Restoring,
    item::{InclusionReason, ItemRestorer, ResourceKind},
};
use crate::{discovery::ServedTypes, job::cancellation::StopReason, restore::calls::Calls};

const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// First interval between reads of a definition; it grows by half each time. Most are established
/// within 100 ms.
const FIRST_INTERVAL: Duration = Duration::from_millis(30);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

impl ItemRestorer<'_> {
    /// Restores definitions and waits until they are served. Returns the types served then.
    pub(super) async fn definitions(
        &self,
        items: Vec<ItemRef>,
    ) -> Result<ServedTypes, RestoreError> {
        let Restoring {
            contents,
            calls,
            report,
            ..
        } = self.restoring;
        let resource = ResourceType {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            ..ResourceType::default()
        };
        let kind = ResourceKind {
            group_resource: DEFINITIONS,
            resource: &resource,
        };
        self.versions.report_version(DEFINITIONS, report);
        let created = stream::iter(items.iter().copied()).map(|item| async move {
            calls.cancellation().check_new_work()?;
            let there = self
                .item(kind, item, InclusionReason::Selected, None)
                .await?;
            Ok::<_, RestoreError>(if there {
                stored_name(contents, &item)
            } else {
                None
            })
        });
        // Definitions in flight are completed before work stops.
        let names: Vec<Result<Option<String>, RestoreError>> = created
            .buffer_unordered(MAX_CONCURRENT_ITEMS)
            .collect()
            .await;
        let names = names.into_iter().collect::<Result<Vec<_>, _>>()?;
        if calls.is_dry_run() {
            let mut served = (self.restoring.discover)()
                .await
                .map_err(RestoreError::Discovery)?;
            for item in items {
                served.add_definition(&contents.object(&item).unwrap_or_default());
            }
            return Ok(served);
        }
        let deadline = Instant::now() + self.restoring.patience;
        let waits = stream::iter(names.into_iter().flatten()).map(|name| async move {
            let result = wait(calls, &name, deadline).await?;
            Ok::<_, StopReason>((name, result))
        });
        let waited: Vec<_> = waits
            .buffer_unordered(MAX_CONCURRENT_ITEMS)
            .try_collect()
            .await?;
        let mut pending = Vec::new();
        for (name, result) in waited {
            match result {
                Ok(versions) => pending.push((name, versions)),
                Err(error) => report.error(Scope::Cluster, error),
            }
        }
        // Established resources appear in discovery a moment later.
        self.restoring
            .await_served(|served| {
                pending
                    .iter()
                    .filter(|(name, versions)| !serves_all(served, name, versions))
                    .map(|(name, _)| name.clone())
                    .collect()
            })
            .await
    }
}

/// The name of an item; `None` if it cannot be read.
fn stored_name(contents: &Contents, item: &ItemRef) -> Option<String> {
    let object = contents.object(item).ok()?;
    json::text(&object, &["metadata"], "name").map(str::to_owned)
}

/// Whether a type is served in all these versions.
fn serves_all(served: &ServedTypes, name: &str, versions: &[String]) -> bool {
    let served = served.versions(name);
    !served.is_empty()
        && versions
            .iter()
            .all(|version| served.contains(&version.as_str()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Its resources are served.
    Established,
    Pending,
    /// Another definition has its names, so it is never served; the reason.
    Refused(String),
}

fn served_versions(definition: &Object) -> Vec<String> {
    let versions = json::object(definition, &["spec"])
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array);
    let served = versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true);
    served
        .filter_map(|version| version["name"].as_str().map(str::to_owned))
        .collect()
}

fn stage(definition: &Object) -> Stage {
    let conditions = json::object(definition, &["status"])
        .and_then(|s| s.get("conditions"))
        .and_then(Value::as_array);
    let mut stage = Stage::Pending;
    for condition in conditions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
    {
        let of_type = json::text(condition, &[], "type");
        let status = json::text(condition, &[], "status");
        match (of_type, status) {
            (Some("Established"), Some("True")) => stage = Stage::Established,
            (Some("NamesAccepted"), Some("False")) => {
                let message = json::text(condition, &[], "message").unwrap_or_default();
                return Stage::Refused(message.to_owned());
            }
            _ => {}
        }
    }
    stage
}

/// Waits until a definition is established, and returns the versions that it serves. The error is
/// for the results of the restore.
async fn wait(
    calls: &Calls,
    name: &str,
    deadline: Instant,
) -> Result<Result<Vec<String>, String>, StopReason> {
    let mut pause = FIRST_INTERVAL;
    let subject = format!("the API server to establish definition {name:?}");
    let _wait = calls.cancellation().waits().begin(subject);
    loop {
        let last = match calls.get(COLLECTION, name).await {
            Ok(Some(definition)) => match stage(&definition) {
                Stage::Established => return Ok(Ok(served_versions(&definition))),
                Stage::Refused(why) => {
                    return Ok(Err(format!(
                        "definition {name:?} was refused by the API server: {why}"
                    )));
                }
                Stage::Pending => "it is not Established".to_owned(),
            },
            Ok(None) => "it was deleted".to_owned(),
            Err(error) => error.unless_stopped()?.to_string(),
        };
        if Instant::now() >= deadline {
            return Ok(Err(format!(
                "definition {name:?} was not ready within --resource-timeout ({last}); its resources may be missing"
            )));
        }
        calls.cancellation().wait(pause).await?;
        pause = (pause * 3 / 2).min(MAX_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::restore::tests::fake;

    fn stage_of(conditions: &Value) -> Stage {
        let definition = json!({"status": {"conditions": conditions}});
        stage(definition.as_object().unwrap())
    }

    #[test]
    fn a_definition_is_ready_once_established() {
        assert_eq!(stage(&Object::new()), Stage::Pending);
        assert_eq!(
            stage_of(&json!([{"type": "Established", "status": "False"}])),
            Stage::Pending
        );
        let both = json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
        assert_eq!(stage_of(&both), Stage::Established);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_is_never_ready_is_an_error_that_says_so() {
        let fake = fake::server();
        let name = "widgets.example.com";
        // The fake server establishes definitions that are created, not those that are put.
        fake.put(
            &format!("{COLLECTION}/{name}"),
            json!({"metadata": {"name": name}}),
        );
        let deadline = Instant::now() + Duration::from_mins(10);
        let why = wait(&fake::calls(&fake), name, deadline)
            .await
            .unwrap()
            .unwrap_err();
        assert_says!(
            why,
            "not ready within --resource-timeout (it is not Established)"
        );
        assert!(Instant::now() >= deadline && Instant::now() < deadline + Duration::from_mins(1));
    }

    #[test]
    fn a_definition_whose_names_are_taken_is_not_waited_for() {
        let taken = json!([{"type": "NamesAccepted", "status": "False", "message": "in use"}]);
        assert_eq!(stage_of(&taken), Stage::Refused("in use".to_owned()));
    }
}
