//! `status`: one page for a cluster.

use backup_core::api::download_request::DownloadTargetKind;
use backup_lock::{State, ledger::Status};
use futures::{future::join_all, try_join};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use tokio::time::Instant;

use super::{
    describe::read_ledger,
    poll::{LONGEST, Look, poll},
    prelude::*,
};
use crate::{
    cli::StatusArgs,
    print::page,
    stored::{StoredFile, document},
    view::{
        locks::named,
        status::{
            self as view, Asked, BackupFacts, ClusterStatus, Created, Held, HeldByBackup, Observed, WorkLine,
        },
        stored::ResourceList,
    },
};

/// Between two pages of `-w`: each takes lists of everything.
const PERIOD: Duration = Duration::from_secs(10);

pub(super) async fn run(args: StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.watch {
        return watch(&session, &args, terminal).await;
    }
    let status = Box::pin(read(&session, &args, terminal.now())).await?;
    let text = text(&status, &args, terminal)?;
    terminal.data(&text)?;
    Ok(if status.protected { Exit::Done } else { Exit::Failed })
}

async fn watch(session: &Session, args: &StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let mut due = Instant::now();
    let watched = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        if Instant::now() < due {
            return Ok(Look::<()>::Same);
        }
        let status = Box::pin(read(session, args, terminal.now())).await?;
        let text = text(&status, args, terminal)?;
        let size = (terminal.size)().filter(|_| args.output.form.is_table());
        terminal.data(&if terminal.out_is_terminal { page(&text, "", size) } else { text })?;
        due = Instant::now() + PERIOD;
        Ok(Look::Same)
    });
    Ok(watched.await?.err().unwrap_or(Exit::Done))
}

fn text(status: &ClusterStatus, args: &StatusArgs, terminal: &Terminal) -> Result<String, Problem> {
    let output = &args.output;
    // Those that are not protected: what a script wants to go through.
    let names = || {
        let bad = status.namespaces.iter().filter(|one| !one.protected);
        bad.fold(String::new(), |all, one| all + "namespace/" + &one.name + "\n")
    };
    json::list_text("ClusterStatus", ("namespaces", status), output, terminal, names, |now, style| {
        Ok(view::text(status, now, style, output.is_wide())?)
    })
}

/// Lists everything side by side, and keeps little of it.
async fn read(session: &Session, args: &StatusArgs, now: Timestamp) -> Result<ClusterStatus, Problem> {
    let all = ListParams::default;
    let backups = session.list_readable(all(), |one: Backup| Some(BackupFacts::of(&one, now)));
    let restores = session.list_readable(all(), |one: Restore| WorkLine::of(&one, now));
    let schedules = session.list_readable(all(), Some::<Schedule>);
    let locations = session.list_readable(all(), Some::<BackupStorageLocation>);
    let namespaces =
        async { Ok(fetched(session, created::<Namespace>(session, "namespace", "namespaces")).await) };
    let claims = created::<PersistentVolumeClaim>(session, "claim", "persistentvolumeclaims");
    let claims = async { Ok(fetched(session, claims).await) };
    let types = created::<CustomResourceDefinition>(session, "definition", "customresourcedefinitions");
    let types = async { Ok(fetched(session, types).await) };
    let lock = async { Ok(fetched(session, lock(session)).await) };
    let (backups, restores, schedules, locations, namespaces, claims, types, lock) =
        try_join!(backups, restores, schedules, locations, namespaces, claims, types, lock)?;
    let held = HeldByBackup::new();
    let mut seen =
        Observed { namespaces, claims, types, held, backups, restores, schedules, locations, lock };
    seen.held = held_by(session, view::lists_to_read(&seen)).await;
    let asked =
        Asked { rpo: args.rpo.and_then(|rpo| rpo.as_std().try_into().ok()), except: &args.except_namespaces };
    Ok(view::status(&session.namespace, seen, &asked, now))
}

/// Reads the lists of items of these backups side by side.
async fn held_by(session: &Session, lists: Vec<view::ListOf>) -> HeldByBackup {
    let read = lists.into_iter().map(async |view::ListOf { name, uid }| {
        let meta = ObjectMeta { name: Some(name.clone()), uid: Some(uid), ..ObjectMeta::default() };
        let file = StoredFile::of(DownloadTargetKind::BackupResourceList, &meta);
        let read = async {
            match Box::pin(document::<ResourceList>(session, &file)).await {
                // A backup without its list holds nothing that is known.
                Err(problem) if problem.kind == ProblemKind::NoFile => Ok(ResourceList::new()),
                other => other,
            }
        };
        (name, fetched(session, read).await.map(Held::from))
    });
    join_all(read).await.into_iter().collect()
}

/// All objects of a kind, by their metadata.
async fn created<K>(session: &Session, word: &str, plural: &str) -> Result<Vec<Created>, Problem>
where
    K: kube::Resource<DynamicType = ()>,
{
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &ApiResource::erase::<K>(&()));
    let about = About::called("list", word, plural, "");
    let keep = |one: DynamicObject| {
        let at = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
        Some(Created { namespace: one.namespace().unwrap_or_default(), name: one.name_any(), at })
    };
    session.list(about, &api, ListParams::default(), keep).await
}

/// Who holds the lock between backups and restores, and who waits, in words.
async fn lock(session: &Session) -> Result<Vec<String>, Problem> {
    let Some(ledger) = read_ledger(session).await? else { return Ok(Vec::new()) };
    let mut held: Vec<String> = ledger
        .claims
        .iter()
        .map(|claim| {
            let holds = claim.entries.iter().any(|entry| entry.state > State::Waiting);
            let how = if holds { "holds it" } else { "waits" };
            format!("{} {how}", named(&claim.key))
        })
        .collect();
    if ledger.status == Status::Rebuilding {
        held.push("its ledger is being rebuilt".to_owned());
    }
    Ok(held)
}
