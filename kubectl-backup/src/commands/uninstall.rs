//! `uninstall`: removes the registrations first, so that no creation waits for a webhook that is
//! gone; then policies, programs, and last their rights. Backups and other data stay, unless the
//! user requests their removal.

use std::collections::BTreeSet;

use backup_core::{
    api::{DataDownload, DataUpload, NamespacedKind},
    cluster::INSTALLATION,
    data_movement::{FINALIZER, PASSWORD_SECRET},
    labels::{BACKUP_WORK_FINALIZER, PART_OF, PROFILE_LABEL, RESTORE_WORK_FINALIZER},
    profile::published::CONFIG_MAP,
    text::counted,
};
use backup_deploy::{Kind, Mode, PROGRAMS, Stage, kind};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::api::Preconditions;
use tokio::time::{Instant, sleep};

use super::{
    install::objects::{self, Installation, InstalledObject, full_name, installed},
    poll::{Look, Polled, in_vain, poll},
    prelude::*,
    selection::no_terminal,
};
use crate::{
    backoff::pauses,
    cli::{Output, UninstallArgs},
};

/// The Secret with the webhook's certificate, and the Lease for the leader election of controllers.
const CERTIFICATE: &str = "backup-webhook-tls";
const LEADER: &str = "backup-controller";
/// Maximum number of retries of the removal of a finalizer.
const MAX_RETRIES: usize = 8;

pub(super) async fn run(args: UninstallArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let namespace = &session.namespace;
    objects::check_home(&session).await?;
    let before = installed(&session).await?;
    if let Some(before) = &before {
        before.check_tool(namespace)?;
    }
    let mode = before.as_ref().map(|before| before.mode);
    if mode == Some(Mode::Guard) && (args.with_definitions || args.with_namespace) {
        return Err(Problem::usage(
            "definitions and namespace of a guard belong to the Velero server beside it",
        )
        .with_remedy("Leave out --with-definitions and --with-namespace."));
    }
    let all = ours(&session).await?;
    if args.dry_run.is_some() {
        return show(&all, args.output, terminal);
    }
    let extras = args.with_ledgers || args.with_definitions || args.with_namespace;
    if all.is_empty() && !extras {
        terminal.say(&format!("Nothing is installed in namespace {namespace}."));
        return Ok(Exit::Done);
    }
    let running = running(&session).await;
    if !running.is_empty() && mode != Some(Mode::Guard) && !args.force {
        let message = format!(
            "{} in namespace {namespace}, and would stop until a controller is there again",
            running.join(", ")
        );
        return Err(Problem::other(message).with_remedy(
            "Wait until nothing runs (kubectl backup wait --for=free), cancel it (kubectl backup cancel NAME), or add --force.",
        ));
    }
    if args.with_namespace && has_password(&session).await {
        terminal.say(&lost_password(namespace));
    }
    if !confirmed(&args, all.len(), before.as_ref(), namespace, terminal)? {
        terminal.say("nothing was removed");
        return Ok(Exit::Failed);
    }
    let deadline = Instant::now() + args.timeout.as_std();
    for stage in Stage::REMOVAL {
        remove(&session, &all, stage, terminal).await?;
        // A controller that shuts down releases its lease and its work; for that it still needs its
        // rights.
        if stage == Stage::Programs
            && let Err(exit) = stopped(&session, deadline, terminal).await?
        {
            let text = in_vain(exit, "pods are still there", args.timeout);
            terminal.say(&format!(
                "{text}; their rights were left\n  See why they stay, and go on: kubectl backup uninstall"
            ));
            return Ok(exit);
        }
    }
    if args.with_ledgers {
        remove_ledgers(&session, terminal).await?;
    }
    if args.with_definitions || args.with_namespace {
        free::<Restore>(&session).await?;
        free::<Backup>(&session).await?;
        free::<DataUpload>(&session).await?;
        free::<DataDownload>(&session).await?;
    }
    for (wanted, name) in [
        (args.with_definitions, "CustomResourceDefinition"),
        (args.with_namespace, "Namespace"),
    ] {
        if let Some(kind) = kind(name).filter(|_| wanted) {
            let names = once(&session, kind)?;
            for name in &names {
                objects::delete(&session, kind, name).await?;
            }
            // In sequence: deleting a definition or the namespace also deletes its objects.
            if let Err(exit) = gone(&session, kind, &names, deadline, terminal).await? {
                let text = in_vain(
                    exit,
                    &format!("{} are still there", kind.plural),
                    args.timeout,
                );
                terminal.say(&format!(
                    "{text}\n  See what they wait for (kubectl describe), and go on: kubectl backup uninstall"
                ));
                return Ok(exit);
            }
            terminal.say(&format!("… removed: {} ({})", kind.plural, names.len()));
        }
    }
    terminal.data(&format!("uninstalled from namespace {namespace}\n"))?;
    if !args.with_namespace {
        terminal.say(&stayed(&session, &args, mode).await);
    }
    Ok(Exit::Done)
}

/// Objects of the installation: those that this version can install, and those that this command
/// installed in any version. The label alone does not suffice: other programs may use it, too.
async fn ours(session: &Session) -> Result<Vec<InstalledObject>, Problem> {
    let known = backup_deploy::everything(&session.namespace)
        .map_err(|error| Problem::other(error.to_string()))?;
    let known: BTreeSet<(&str, &str)> = known.iter().map(backup_deploy::id).collect();
    let mut all = objects::labelled(session).await?;
    // The ConfigMap that the webhook has published is removed, too.
    all.retain(|found| {
        found.is_applied
            || known.contains(&(found.kind.kind, found.name.as_str()))
            || found.kind.kind == "ConfigMap" && found.name == CONFIG_MAP
    });
    Ok(all)
}

/// Prints the objects that would be removed, in the order of their removal.
fn show(all: &[InstalledObject], output: Option<Output>, terminal: &mut Terminal) -> CommandResult {
    let in_order: Vec<&InstalledObject> = Stage::REMOVAL
        .into_iter()
        .flat_map(|stage| all.iter().filter(move |found| found.kind.stage == stage))
        .collect();
    let text = match output {
        None => names(&in_order, " (dry run)"),
        Some(Output::Name) => names(&in_order, ""),
        Some(form) => {
            let items: Vec<Value> = in_order
                .iter()
                .map(|InstalledObject { kind, name, .. }| {
                    let slash = if kind.group.is_empty() { "" } else { "/" };
                    json!({ "apiVersion": format!("{}{slash}{}", kind.group, kind.version), "kind": kind.kind,
                        "metadata": { "name": name } })
                })
                .collect();
            json::object(&json::Document::list(&json!({ "items": items })), form)?
        }
    };
    terminal.data(&text)?;
    Ok(Exit::Done)
}

/// The full names of the objects, each with this suffix on a line of its own.
fn names(objects: &[&InstalledObject], suffix: &str) -> String {
    objects
        .iter()
        .map(|object| full_name(object.kind, &object.name) + suffix + "\n")
        .collect()
}

/// Whether the namespace holds the password of repositories of volume data, as far as the user may
/// know.
async fn has_password(session: &Session) -> bool {
    let found = session.get_metadata::<Secret>(PASSWORD_SECRET).await;
    found.is_ok()
}

fn lost_password(namespace: &str) -> String {
    format!(
        "The namespace holds the password of the volume data in buckets (Secret {PASSWORD_SECRET}): without a copy nobody can \
         read that data again.\n  Keep one: kubectl -n {namespace} get secret {PASSWORD_SECRET} -o yaml"
    )
}

fn confirmed(
    args: &UninstallArgs,
    count: usize,
    before: Option<&Installation>,
    namespace: &str,
    terminal: &mut Terminal,
) -> Result<bool, Problem> {
    if args.yes {
        return Ok(true);
    }
    let version = before.map_or_else(String::new, |before| format!(" {}", before.version));
    let more = [
        (args.with_ledgers, "ledgers"),
        (
            args.with_definitions,
            "DEFINITIONS WITH ALL BACKUPS, RESTORES AND SCHEDULES",
        ),
        (args.with_namespace, "THE NAMESPACE WITH ALL THAT IS IN IT"),
    ];
    let more: String = more
        .iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, what)| format!(", and {what}"))
        .collect();
    let what = format!(
        "the installation{version} in namespace {namespace} ({}){more}",
        counted(count, "object")
    );
    terminal
        .confirm(&format!("Remove {what}?"))
        .ok_or_else(|| no_terminal("remove", &what))
}

async fn remove(
    session: &Session,
    all: &[InstalledObject],
    stage: Stage,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let mut of_stage: Vec<&InstalledObject> = all
        .iter()
        .filter(|found| found.kind.stage == stage)
        .collect();
    // A binding activates a policy, so the binding is deleted before the policy.
    of_stage.sort_by_key(|found| std::cmp::Reverse(found.kind.kind));
    for InstalledObject { kind, name, .. } in &of_stage {
        objects::delete(session, kind, name).await?;
    }
    if !of_stage.is_empty() {
        terminal.say(&format!(
            "… {:<23}{} removed",
            stage.as_str(),
            of_stage.len()
        ));
    }
    Ok(())
}

/// Waits until all pods of the programs are gone.
async fn stopped(
    session: &Session,
    deadline: Instant,
    terminal: &mut Terminal,
) -> Result<Polled<()>, Problem> {
    let left = deadline.saturating_duration_since(Instant::now());
    let resource = ApiResource::erase::<Pod>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &resource);
    let params = ListParams::default().labels(&format!("{PART_OF}={INSTALLATION}"));
    poll(session, terminal, left, async |_: &mut Terminal| {
        let about = About::of::<Pod>("list", "");
        let pods = session
            .list(about, &api, params.clone(), |pod| {
                is_of_program(&pod).then_some(())
            })
            .await?;
        Ok(if pods.is_empty() {
            Look::Found(())
        } else {
            Look::Same
        })
    })
    .await
}

/// Whether a pod runs the controller or the webhook.
fn is_of_program(pod: &DynamicObject) -> bool {
    let name = pod
        .labels()
        .get("app.kubernetes.io/name")
        .map(String::as_str);
    name.is_some_and(|name| PROGRAMS.contains(&name))
}

/// Waits until all these objects are gone.
async fn gone(
    session: &Session,
    kind: &Kind,
    names: &[String],
    deadline: Instant,
    terminal: &mut Terminal,
) -> Result<Polled<()>, Problem> {
    let left = deadline.saturating_duration_since(Instant::now());
    poll(session, terminal, left, async |_: &mut Terminal| {
        for name in names {
            if objects::metadata(session, kind, name).await?.is_some() {
                return Ok(Look::Same);
            }
        }
        Ok(Look::Found(()))
    })
    .await
}

/// Work in progress: a finalizer shows that a controller has it. A transfer of volume data may still
/// have to give a volume back to its claim after its Restore has ended.
async fn running(session: &Session) -> Vec<String> {
    let backups = with_finalizer::<Backup>(session, BACKUP_WORK_FINALIZER).await;
    let restores = with_finalizer::<Restore>(session, RESTORE_WORK_FINALIZER).await;
    let uploads = with_finalizer::<DataUpload>(session, FINALIZER).await;
    let downloads = with_finalizer::<DataDownload>(session, FINALIZER).await;
    let words = [
        ("backup", backups),
        ("restore", restores),
        ("data transfer", uploads + downloads),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0);
    words
        .map(|(what, count)| {
            let verb = if count == 1 { "runs" } else { "run" };
            format!("{} {verb}", counted(count, what))
        })
        .collect()
}

/// Number of objects with this finalizer; 0 if they cannot be listed (the definition is gone).
async fn with_finalizer<K: NamespacedKind>(session: &Session, finalizer: &str) -> usize {
    let api: Api<DeserializeGuard<K>> = session.api();
    let found = session
        .list(
            About::of::<K>("list", ""),
            &api,
            ListParams::default(),
            |item| {
                let is_held = item.finalizers().iter().any(|one| one == finalizer);
                is_held.then_some(())
            },
        )
        .await;
    found.map_or(0, |found| found.len())
}

/// Removes the finalizers of our controller, and those by which the files of an ended Restore are
/// deleted, and pod and claim of a transfer of data. Without a controller they would never be
/// removed, and the definition and the namespace would remain.
async fn free<K: NamespacedKind>(session: &Session) -> Result<(), Problem> {
    let api: Api<DeserializeGuard<K>> = session.api();
    let listed = session
        .list(
            About::of::<K>("list", ""),
            &api,
            ListParams::default(),
            |item| (!item.finalizers().is_empty()).then(|| (item.name_any(), item.uid())),
        )
        .await;
    let held = match listed {
        // The definition is already gone.
        Err(problem) if problem.kind == ProblemKind::NotServed => return Ok(()),
        listed => listed?,
    };
    for (name, uid) in held {
        // The API server enforces a deleted policy for a short time.
        let mut pauses = pauses().take(MAX_RETRIES);
        loop {
            let patch = json!({ "metadata": { "finalizers": null } });
            let Err(problem) = session.patch::<K>(&name, uid.as_ref(), patch).await else {
                break;
            };
            if problem.is_not_found() {
                break;
            }
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return Err(problem),
            }
        }
    }
    Ok(())
}

/// Deletes the ledgers and their markers, the Lease of the leader election, and the certificate.
async fn remove_ledgers(session: &Session, terminal: &mut Terminal) -> Result<(), Problem> {
    let leases = remove_labelled::<Lease>(session).await?;
    remove_labelled::<ConfigMap>(session).await?;
    session
        .delete::<Lease>(LEADER, Preconditions::default())
        .await?;
    session
        .delete::<Secret>(CERTIFICATE, Preconditions::default())
        .await?;
    terminal.say(&format!(
        "… removed: {} with the markers, and the webhook's certificate",
        counted(leases, "ledger")
    ));
    Ok(())
}

async fn remove_labelled<K: NamespacedKind>(session: &Session) -> Result<usize, Problem> {
    let params = ListParams::default().labels(PROFILE_LABEL);
    let names = session
        .list(
            About::of::<K>("list", ""),
            &session.api::<K>(),
            params,
            |item| Some(item.name_any()),
        )
        .await?;
    for name in &names {
        session.delete::<K>(name, Preconditions::default()).await?;
    }
    Ok(names.len())
}

/// Names of the objects of this kind that belong to [`Stage::Once`]: our definitions, or the
/// namespace.
fn once(session: &Session, kind: &Kind) -> Result<Vec<String>, Problem> {
    let all = backup_deploy::once(&session.namespace)
        .map_err(|error| Problem::other(error.to_string()))?;
    let names = all
        .iter()
        .map(backup_deploy::id)
        .filter(|(found, _)| *found == kind.kind);
    Ok(names.map(|(_, name)| name.to_owned()).collect())
}

/// What remains, and how to remove it.
async fn stayed(session: &Session, args: &UninstallArgs, mode: Option<Mode>) -> String {
    let namespace = &session.namespace;
    let mut stays = vec![format!("namespace {namespace} with its Secrets")];
    if !args.with_definitions {
        stays.push("the definitions".to_owned());
        for (what, count) in [
            ("backup", count::<Backup>(session).await),
            ("restore", count::<Restore>(session).await),
            ("schedule", count::<Schedule>(session).await),
            ("location", count::<BackupStorageLocation>(session).await),
        ] {
            stays.extend(count.map(|count| counted(count, what)));
        }
    }
    if !args.with_ledgers {
        stays.push("the ledgers".to_owned());
    }
    let text = format!("Stayed: {}, and all that is in buckets.", stays.join(", "));
    match mode {
        Some(Mode::Guard) => {
            format!("{text}\n  Definitions, objects and namespace are the Velero server's.")
        }
        _ => format!(
            "{text}\n  Installed again, the programs go on with it. To remove it, too: --with-ledgers, --with-definitions, --with-namespace"
        ),
    }
}

/// Number of objects in the namespace; `None` if they cannot be listed.
async fn count<K: NamespacedKind>(session: &Session) -> Option<usize> {
    let api: Api<DeserializeGuard<K>> = session.api();
    let found = session
        .list(
            About::of::<K>("list", ""),
            &api,
            ListParams::default(),
            |_| Some(()),
        )
        .await;
    found.ok().map(|found| found.len())
}
