//! Checks of a drill that are expressions over the objects that it has restored.

use std::{thread, time::Duration};

use backup_client::{discovery::ServedTypes, page, paging};
use backup_core::{
    api::{Restore, drill::DrillCheck},
    drill::Expression,
    labels::{RESTORE_NAME, valid_value},
    resources::ResourceType,
    text::counted,
};
use backup_runtime::Cluster;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};

use super::decide::{self, CheckState};
use crate::error::ReconcileError;

/// Maximum number of objects of one check.
const MAX_OBJECTS: usize = 500;
/// Maximum size of the objects of one check, as JSON (bytes).
const MAX_OBJECT_BYTES: usize = 4 << 20;
/// Number of objects in one page of a list.
const PAGE_SIZE: u32 = 50;
/// Time limit for the evaluation of an expression, and for an earlier one to end.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(10);

/// One expression is evaluated at a time: of those that do not end in time, at most one uses a
/// processor.
static EVALUATIONS: Semaphore = Semaphore::const_new(1);

/// Evaluates the expression of a check.
pub(super) async fn run(
    cluster: &Cluster,
    restore: &Restore,
    check: &DrillCheck,
) -> Result<CheckState, ReconcileError> {
    let Some(namespace) = restore.spec.namespace_mapping.get(&check.namespace) else {
        return Ok(decide::not_restored(check));
    };
    let resource = check.resource.as_deref().unwrap_or_default();
    let served = ServedTypes::load(&cluster.client).await?;
    let of_type = served
        .by_group_resource(resource)
        .filter(|of_type| of_type.namespaced);
    let Some(of_type) = of_type else {
        let why = format!("the cluster serves no type {resource} of objects in namespaces");
        return Ok(CheckState::Failed(why));
    };
    let Some(objects) = objects(cluster, restore, namespace, of_type).await? else {
        let mib = MAX_OBJECT_BYTES >> 20;
        let why = format!("its objects are more than {MAX_OBJECTS}, or larger than {mib} MiB");
        return Ok(CheckState::Failed(why));
    };
    let expression = check.expression.clone().unwrap_or_default();
    Ok(evaluate(expression, objects).await)
}

/// The restored objects of a type in a scratch namespace; `None` if they are too many or too large.
async fn objects(
    cluster: &Cluster,
    restore: &Restore,
    namespace: &str,
    of_type: &ResourceType,
) -> Result<Option<Vec<Value>>, ReconcileError> {
    let client = cluster.client.clone();
    let kind = page::api_resource(of_type);
    let api: &Api<DynamicObject> = &Api::namespaced_with(client, namespace, &kind);
    let label = format!("{RESTORE_NAME}={}", valid_value(&restore.name_any()));
    let params = ListParams::default().labels(&label).limit(PAGE_SIZE);
    let mut count = 0;
    let mut bytes = 0;
    let objects = paging::collect(
        params,
        |page| async move { api.list(&page).await },
        |object: DynamicObject| {
            let object = serde_json::to_value(object).unwrap_or_default();
            count += 1;
            bytes += object.to_string().len();
            (count <= MAX_OBJECTS && bytes <= MAX_OBJECT_BYTES).then_some(object)
        },
    )
    .await?;
    Ok((objects.len() == count).then_some(objects))
}

/// Evaluates an expression in a thread of its own, which is left to its end if that takes too long.
/// The process does not wait for it when it ends.
async fn evaluate(expression: String, objects: Vec<Value>) -> CheckState {
    let failed = |why: &str| CheckState::Failed(why.to_owned());
    let Ok(Ok(turn)) = timeout(EVALUATION_TIMEOUT, EVALUATIONS.acquire()).await else {
        return failed("an earlier expression is still being evaluated");
    };
    let count = objects.len();
    let (done, outcome) = oneshot::channel();
    let thread = thread::Builder::new().name("expression".to_owned());
    let started = thread.spawn(move || {
        let _turn = turn;
        let parsed = Expression::parse(&expression);
        let holds = parsed.and_then(|expression| expression.holds(&objects));
        // A late answer is not read.
        drop(done.send(holds));
    });
    if let Err(error) = started {
        return failed(&format!("no thread could be started: {error}"));
    }
    match timeout(EVALUATION_TIMEOUT, outcome).await {
        Ok(Ok(Ok(true))) => CheckState::Passed,
        Ok(Ok(Ok(false))) => {
            let count = counted(count, "object");
            failed(&format!("its expression is not true of {count}"))
        }
        Ok(Ok(Err(why))) => failed(&why),
        // The thread has panicked.
        Ok(Err(_)) => failed("its expression cannot be evaluated"),
        Err(_) => {
            let seconds = EVALUATION_TIMEOUT.as_secs();
            failed(&format!("its expression has no value after {seconds}s"))
        }
    }
}
