//! `status`: an overview of a cluster on one page.

use std::pin::pin;

use backup_core::{api::download_request::DownloadTargetKind, labels::DRILL_LABEL};
use backup_lock::State;
use futures::{StreamExt as _, join, stream, try_join};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use tokio::time::{Instant, timeout_at};

use super::{
    damage::damaged_repositories,
    locks::velero::found_ledger,
    poll::{Look, MAX_WAIT, poll},
    prelude::*,
};
use crate::{
    cli::StatusArgs,
    owned,
    print::page,
    stored::{StoredFile, document},
    view::{
        locks::named,
        status::{
            self as view, BackupFacts, ClusterData, ClusterObject, ClusterStatus, HeldByBackup,
            HeldItems, Requirements, WorkLine,
        },
        stored::ResourceList,
    },
};

/// Interval between two pages of `-w`: each page needs lists of all objects.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Time limit for reading the item lists of backups. Lists that are not read by then are not
/// checked.
const LISTS_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_CONCURRENT_READS: usize = 8;

pub(super) async fn run(args: StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.watch {
        return watch(&session, &args, terminal).await;
    }
    let status = Box::pin(read(&session, &args, terminal.now())).await?;
    let text = text(&status, &args, terminal)?;
    terminal.data(&text)?;
    let is_good = status.protected && status.lock_problem.is_none();
    Ok(if is_good { Exit::Done } else { Exit::Failed })
}

async fn watch(session: &Session, args: &StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let mut due = Instant::now();
    let watched = poll(
        session,
        terminal,
        MAX_WAIT,
        async |terminal: &mut Terminal| {
            if Instant::now() < due {
                return Ok(Look::<()>::Same);
            }
            let status = Box::pin(read(session, args, terminal.now())).await?;
            let text = text(&status, args, terminal)?;
            let size = (terminal.size)().filter(|_| args.output.form.is_table());
            terminal.data(&if terminal.out_is_terminal {
                page(&text, "", size)
            } else {
                text
            })?;
            due = Instant::now() + REFRESH_INTERVAL;
            Ok(Look::Same)
        },
    );
    Ok(watched.await?.err().unwrap_or(Exit::Done))
}

fn text(status: &ClusterStatus, args: &StatusArgs, terminal: &Terminal) -> Result<String, Problem> {
    let output = &args.output;
    json::list_text(
        "ClusterStatus",
        status,
        output,
        terminal,
        || unprotected_names(status),
        |now, style| Ok(view::text(status, now, style, output.is_wide())?),
    )
}

/// Names of the namespaces that are not protected, for use in scripts.
fn unprotected_names(status: &ClusterStatus) -> String {
    status
        .namespaces
        .iter()
        .filter(|one| !one.protected)
        .fold(String::new(), |all, one| {
            all + "namespace/" + &one.name + "\n"
        })
}

async fn read(
    session: &Session,
    args: &StatusArgs,
    now: Timestamp,
) -> Result<ClusterStatus, Problem> {
    let mut seen = match Box::pin(everything(session, now)).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            Box::pin(of_own_namespace(session, problem, now)).await?
        }
        seen => seen?,
    };
    let asked = Requirements {
        rpo: args.rpo.and_then(|rpo| rpo.as_std().try_into().ok()),
        except: &args.except_namespaces,
    };
    let deadline = Instant::now() + LISTS_TIMEOUT;
    // If a backup contains nothing of a namespace, the previous backup is checked next.
    loop {
        let lists = view::lists_to_read(&seen, &session.namespace, &asked);
        if lists.is_empty() || Instant::now() >= deadline {
            break;
        }
        read_lists(session, lists, deadline, &mut seen.held).await;
    }
    Ok(view::status(&session.namespace, seen, &asked, now))
}

/// Lists everything concurrently, and keeps only the needed fields.
async fn everything(session: &Session, now: Timestamp) -> Result<ClusterData, Problem> {
    let all = ListParams::default;
    let backups = session.list_readable(all(), |one: Backup| Some(BackupFacts::of(&one, now)));
    let restores = session.list_readable(all(), |one: Restore| WorkLine::of(&one, now));
    let schedules = session.list_readable(all(), Some::<Schedule>);
    let locations = session.list_readable(all(), Some::<BackupStorageLocation>);
    let namespaces = async {
        Ok(fetched(
            session,
            created::<Namespace>(session, None, "namespace", "namespaces"),
        )
        .await)
    };
    let claims = async { Ok(claims(session, None).await) };
    let types = created::<CustomResourceDefinition>(
        session,
        None,
        "definition",
        "customresourcedefinitions",
    );
    let types = async { Ok(fetched(session, types).await) };
    let damaged = async { Ok(damaged_repositories(session).await) };
    let lock = async { Ok(lock(session).await) };
    let all = try_join!(
        backups, restores, schedules, locations, damaged, namespaces, claims, types, lock
    )?;
    let (backups, restores, schedules, locations, damaged, namespaces, claims, types, lock) = all;
    let (lock, lock_problem) = lock;
    Ok(ClusterData {
        namespaces,
        claims,
        types,
        held: FetchResult::Known(HeldByBackup::new()),
        backups,
        restores,
        schedules,
        locations: FetchResult::Known(locations),
        damaged,
        restriction: None,
        lock,
        lock_problem,
    })
}

/// Reads what namespace owners see, in place of lists that the user may not have: backups,
/// restores and schedules that are about the namespace of the kubeconfig's context alone. Fails
/// with `problem` if the user is no owner.
async fn of_own_namespace(
    session: &Session,
    problem: Problem,
    now: Timestamp,
) -> Result<ClusterData, Problem> {
    // One after the other: the controller makes few lists at a time.
    let backups = Box::pin(owned::list_readable::<Backup>(session)).await;
    let backups = backups.unwrap_or(Err(problem))?;
    let restores = Box::pin(owned::list_readable::<Restore>(session)).await;
    let restores = restores.unwrap_or(Ok(Vec::new()))?;
    let schedules = Box::pin(owned::list_readable::<Schedule>(session)).await;
    let own = session.own_namespace.as_str();
    let locations = session.list_readable(ListParams::default(), Some::<BackupStorageLocation>);
    let (namespace, claims, locations, (lock, lock_problem)) = join!(
        fetched(session, namespace(session, own)),
        claims(session, Some(own)),
        fetched(session, locations),
        lock(session)
    );
    Ok(ClusterData {
        namespaces: namespace.map(|one| vec![one]),
        claims,
        // Types belong to no namespace.
        types: FetchResult::Known(Vec::new()),
        held: FetchResult::Known(HeldByBackup::new()),
        backups: backups
            .iter()
            .map(|one| BackupFacts::of(one, now))
            .collect(),
        restores: restores
            .iter()
            .filter_map(|one| WorkLine::of(one, now))
            .collect(),
        schedules: schedules.unwrap_or(Ok(Vec::new()))?,
        locations,
        // A namespace owner may not read repositories.
        damaged: Vec::new(),
        restriction: Some(format!(
            "you may not list all backups: these are about no other namespace than {own}, which is that of the \
             kubeconfig's context; backups of more namespaces may hold it, too"
        )),
        lock,
        lock_problem,
    })
}

/// Reads the item lists of these backups, several concurrently, until the deadline, or until one
/// shows that the user may not read them.
async fn read_lists(
    session: &Session,
    lists: Vec<view::UnreadBackup>,
    deadline: Instant,
    held: &mut FetchResult<HeldByBackup>,
) {
    let mut all = pin!(
        stream::iter(lists)
            .map(|backup| read_list(session, backup))
            .buffer_unordered(MAX_CONCURRENT_READS)
    );
    while let Ok(Some((name, list, is_forbidden))) = timeout_at(deadline, all.next()).await {
        match (list, &mut *held) {
            (FetchResult::Missing { unavailable }, held) if is_forbidden => {
                *held = FetchResult::Missing { unavailable };
                return;
            }
            (list, FetchResult::Known(held)) => _ = held.insert(name, list),
            (_, FetchResult::Missing { .. }) => return,
        }
    }
}

/// Reads the item list of a backup. Returns the backup's name, its items, and whether the user may
/// not read the list.
async fn read_list(
    session: &Session,
    view::UnreadBackup { name, uid }: view::UnreadBackup,
) -> (String, FetchResult<HeldItems>, bool) {
    let meta = ObjectMeta {
        name: Some(name.clone()),
        uid: Some(uid),
        ..ObjectMeta::default()
    };
    let file = StoredFile::of(DownloadTargetKind::BackupResourceList, &meta);
    let mut is_forbidden = false;
    let read = async {
        match Box::pin(document::<ResourceList>(session, &file)).await {
            Ok(list) => Ok(HeldItems::from(list)),
            Err(problem) if problem.kind == ProblemKind::NoFile => Ok(HeldItems::default()),
            Err(problem) => {
                is_forbidden = problem.kind == ProblemKind::Forbidden;
                Err(problem)
            }
        }
    };
    let list = fetched(session, read).await;
    (name, list, is_forbidden)
}

/// The claims of a namespace, or of all.
async fn claims(session: &Session, within: Option<&str>) -> FetchResult<Vec<ClusterObject>> {
    let (word, plural) = ("claim", "persistentvolumeclaims");
    let claims = created::<PersistentVolumeClaim>(session, within, word, plural);
    fetched(session, claims).await
}

/// Reads a namespace.
async fn namespace(session: &Session, name: &str) -> Result<ClusterObject, Problem> {
    let kind = ApiResource::erase::<Namespace>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &kind);
    let about = About::called("get", "namespace", "namespaces", name);
    let found = session.call(about, api.get(name)).await?;
    Ok(cluster_object(&found))
}

/// Reads the metadata of all objects of a kind, in this namespace if one is given. The namespaces of
/// drills are removed again, and need no backups.
async fn created<K>(
    session: &Session,
    within: Option<&str>,
    word: &str,
    plural: &str,
) -> Result<Vec<ClusterObject>, Problem>
where
    K: kube::Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let client = session.client.clone();
    let api: Api<DynamicObject> = match within {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let about = About::called("list", word, plural, "");
    session
        .list(about, &api, ListParams::default(), |one| {
            let is_of_drill = one.labels().contains_key(DRILL_LABEL);
            (!is_of_drill).then(|| cluster_object(&one))
        })
        .await
}

fn cluster_object(object: &DynamicObject) -> ClusterObject {
    let created = object.metadata.creation_timestamp.as_ref();
    let status_changed = object
        .managed_fields()
        .iter()
        .filter(|entry| entry.subresource.as_deref() == Some("status"))
        .filter_map(|entry| Some(entry.time.as_ref()?.0))
        .max();
    ClusterObject {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        at: created.map(|created| created.0),
        status_changed,
    }
}

/// Describes the holders of the lock, the waiting objects, and the refused restores that keep
/// backups out; and why the lock grants nothing, if so.
async fn lock(session: &Session) -> (FetchResult<Vec<String>>, Option<String>) {
    match fetched(session, Box::pin(ledger(session))).await {
        FetchResult::Known((held, problem)) => (FetchResult::Known(held), problem),
        FetchResult::Missing { unavailable } => (FetchResult::Missing { unavailable }, None),
    }
}

/// The same, read from the ledger.
async fn ledger(session: &Session) -> Result<(Vec<String>, Option<String>), Problem> {
    let Some(found) = found_ledger(session).await? else {
        return Ok((Vec::new(), None));
    };
    let problem = found
        .grants_nothing()
        .map(|(problem, remedy)| format!("{problem}. {remedy}"));
    let ledger = found.ledger.map(|ledger| ledger.without_lapsed());
    let held: Vec<String> = ledger
        .iter()
        .flat_map(|ledger| &ledger.claims)
        .map(|claim| {
            let how = match claim.state() {
                State::Released => "was released by force",
                State::Intent => "was refused, and keeps new backups out for a while",
                State::Collected => "was never stored, and keeps restores out for a while",
                State::Waiting => "waits",
                State::Reserved | State::Settling | State::Active => "holds it",
            };
            format!("{} {how}", named(&claim.key))
        })
        .collect();
    Ok((held, problem))
}
