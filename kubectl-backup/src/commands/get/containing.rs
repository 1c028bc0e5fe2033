//! `get --containing`: the backups that hold a namespace, newest first.

use std::cmp::Reverse;

use backup_core::{selection::IncludesExcludes, stored_scope, text::counted};
use futures::StreamExt as _;

use super::{chosen, lines::Lines};
use crate::{
    cli::GetArgs,
    commands::{items::search::look_into, prelude::*},
    view::{KindTable, ResourceList, related::began, unreadable_warning},
};

pub(crate) async fn run(namespace: &str, args: &GetArgs, terminal: &mut Terminal) -> CommandResult {
    tokio::select! {
        done = find(namespace, args, terminal) => done,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

async fn find(namespace: &str, args: &GetArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let table = KindTable::of::<Backup>();
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &table.resource);
    let mut exit = Exit::Done;
    let about = table.about("list", "");
    let mut found = session
        .list(
            about,
            &api,
            chosen(args),
            |object: DynamicObject| match decoded(&object) {
                Ok(backup) => may_hold(&backup, namespace).then_some((backup, object)),
                Err(error) => {
                    let why = error.to_string();
                    let warning = unreadable_warning(
                        Backup::KIND,
                        &table.resource,
                        &session.namespace,
                        &object.name_any(),
                        &why,
                    );
                    terminal.say(&warning);
                    exit = Exit::Failed;
                    None
                }
            },
        )
        .await?;
    found.sort_by_key(|(backup, _)| Reverse(began(backup)));
    let (backups, objects): (Vec<Backup>, Vec<DynamicObject>) = found.into_iter().unzip();
    let mut lines = Lines::new(args, &table, terminal).in_order();
    let looked_into: Vec<_> = look_into(&session, &backups, |list| holds(list, namespace))
        .collect()
        .await;
    let all = backups.len();
    let mut unknown = 0;
    for (object, (backup, held)) in objects.into_iter().zip(looked_into) {
        match held {
            Ok(true) => lines.take(object),
            Ok(false) => {}
            Err(problem) => {
                let name = backup.name_any();
                terminal.say(&format!(
                    "warning: whether backup {name} holds it is not known: {problem}"
                ));
                exit = Exit::Failed;
                unknown += 1;
            }
        }
    }
    if unknown > 0 {
        let all = counted(all, "backup");
        terminal.say(&format!(
            "{unknown} of {all} could not be searched: whether they hold it is not known."
        ));
    }
    if unknown > 0 && lines.is_empty() && args.output.form.is_table() {
        return Ok(exit);
    }
    if lines.is_empty() && args.output.form.is_table() {
        terminal.say(&format!("No backups hold namespace {}.", plain(namespace)));
        return Ok(exit);
    }
    let text = lines.text()?;
    terminal.data(&text)?;
    Ok(exit)
}

fn decoded(object: &DynamicObject) -> Result<Backup, serde_json::Error> {
    serde_json::to_value(object).and_then(serde_json::from_value)
}

/// Whether a backup can hold a namespace, judged by its spec and its status.
fn may_hold(backup: &Backup, namespace: &str) -> bool {
    let spec = stored_scope::scope(backup);
    let namespaces = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
    backup.status().is_whole() && namespaces.includes(namespace)
}

/// Whether the list, which has names by `group/version/Kind`, contains the namespace or an item in
/// it.
fn holds(list: &ResourceList, namespace: &str) -> bool {
    list.iter().any(|(kind, names)| {
        names.iter().any(|name| is_inside(name, namespace))
            || kind == "v1/Namespace" && names.iter().any(|name| name == namespace)
    })
}

/// Whether an item, named by `namespace/name`, is in the namespace.
fn is_inside(item: &str, namespace: &str) -> bool {
    item.split_once('/')
        .is_some_and(|(place, _)| place == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_holds_the_namespaces_of_its_items_and_those_that_are_items() {
        let list: ResourceList = [
            ("apps/v1/Deployment".to_owned(), vec!["shop/web".to_owned()]),
            ("v1/Namespace".to_owned(), vec!["empty".to_owned()]),
            ("v1/PersistentVolume".to_owned(), vec!["pv".to_owned()]),
        ]
        .into();
        for (namespace, expected) in [
            ("shop", true),
            ("empty", true),
            ("pv", false),
            ("sho", false),
            ("web", false),
        ] {
            assert_eq!(holds(&list, namespace), expected, "{namespace}");
        }
    }

    #[test]
    fn what_cannot_hold_a_namespace_is_known_by_spec_and_status() {
        for (spec, phase, expected) in [
            (json!({}), "Completed", true),
            (
                json!({"includedNamespaces": ["sh*"]}),
                "PartiallyFailed",
                true,
            ),
            (json!({"includedNamespaces": ["db"]}), "Completed", false),
            (json!({"excludedNamespaces": ["shop"]}), "Completed", false),
            (json!({}), "InProgress", false),
            (json!({}), "Failed", false),
        ] {
            let backup =
                json!({"metadata": {"name": "b"}, "spec": spec, "status": {"phase": phase}});
            let backup: Backup = serde_json::from_value(backup).unwrap();
            assert_eq!(may_hold(&backup, "shop"), expected, "{spec} {phase}");
        }
    }
}
