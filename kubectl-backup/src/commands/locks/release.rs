//! `locks release`: releases an entry of a ledger in any state, with the user's own credentials.

use backup_core::event_reason::EventReason;
use backup_lock::{
    Ledger, LedgerStore, ObjectKey, ObjectKind, State,
    admission::REFUSAL_MEMORY,
    claim::{Claim, Entry},
    observe::{ObservedObject, reference},
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

use super::{
    BUDGET,
    fetch::{self, Ledgers, Within},
    problem, user_name,
};
use crate::{
    cli::{ReleaseArgs, Target},
    commands::{
        known_profiles::known_profiles,
        poll::{Look, poll},
        prelude::*,
        selection::no_terminal,
    },
    print::since,
    view::locks::{FoundLedger, few, named, touches},
};

/// How long the command waits for the worker: it stops writing within two seconds of the release,
/// and then records its end.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn run(args: ReleaseArgs, terminal: &mut Terminal) -> CommandResult {
    if !args.yes && !terminal.can_ask() {
        return Err(no_terminal("release", &args.target.to_string()));
    }
    let session = Session::connect(terminal).await?;
    let known = known_profiles(&session).await;
    let ledgers = Ledgers::read(&session, &known, Within::Installation).await?;
    let SelectedEntry {
        read,
        ledger,
        key,
        entry,
    } = pick(&ledgers.all, &args, &session.namespace)?;
    let store = fetch::store(&session, read.profile.clone());
    let object = if read.is_known {
        store
            .objects()
            .read(&key)
            .await
            .map_err(|error| error.to_string())
    } else {
        Err(known.misses(&read.profile.name))
    };
    for line in facts(&key, entry, ledger, &read.scope, &object, terminal.now()) {
        terminal.say(&line);
    }
    if !args.yes && terminal.confirm(&format!("Release {}?", handle(&key))) != Some(true) {
        terminal.say("nothing was released");
        return Ok(Exit::Failed);
    }
    let user = user_name(&session).await?;
    let uid = entry.uid.clone();
    let shown = entry.state;
    let by = format!("{user}: {}", args.reason);
    let mut done: Option<ReleaseOutcome> = None;
    let change = |ledger: &mut Ledger| {
        let Some(entry) = ledger.entry(&key, &uid) else {
            // An earlier try of this write may have succeeded although its answer was lost.
            return done.clone().ok_or_else(|| {
                Problem::other(format!(
                    "{} has left scope {} in the meantime: nothing was to be released",
                    named(&key),
                    plain(&read.scope)
                ))
            });
        };
        if entry.state == State::Released {
            // Released by an earlier try, or by another user: all that remains is to wait for the
            // worker.
            let before = ReleaseOutcome {
                was: State::Released,
                turns: Vec::new(),
            };
            return Ok(done.clone().unwrap_or(before));
        }
        if !args.yes && entry.state != shown {
            return Err(Problem::other(format!(
                "{} is {} by now, and was {shown} when you were asked",
                named(&key),
                entry.state
            ))
            .with_remedy("Look again, and decide again: kubectl backup locks"));
        }
        let was = entry.state;
        let released = ReleaseOutcome {
            was,
            turns: release(ledger, &key, &uid, &by),
        };
        done = Some(released.clone());
        Ok(released)
    };
    let written = store
        .update(&read.scope, Instant::now() + BUDGET, change)
        .await;
    let (ReleaseOutcome { was, turns }, stored) =
        written.map_err(|error| problem::of_update(error, &session))?;
    // Until then requests may still be refused because of it.
    tokio::time::sleep(REFUSAL_MEMORY).await;
    terminal.data(&format!("{} released\n", handle(&key)))?;
    let epoch = stored.ledger.epoch;
    terminal.say(&format!(
        "Scope {} is in epoch {epoch} now.",
        plain(&read.scope)
    ));
    if !turns.is_empty() {
        terminal.say(&format!("Its turn has come: {}.", few(&turns)));
    }
    let note = format!(
        "{user} released the claim of {} ({shown}) on scope {} by hand, epoch {epoch}: {}",
        named(&key),
        read.scope,
        args.reason
    );
    if was != State::Released
        && let Err(problem) = event(&session, read, &key, &uid, &note, terminal.now()).await
    {
        terminal.say(&format!(
            "warning: it was released, but leaves no Event: {problem}"
        ));
    }
    let (runs, has_begun) = match &object {
        Ok(Some(seen)) => (seen.uid == uid && !seen.over, !seen.new),
        Ok(None) => (false, false),
        Err(_) => (true, true),
    };
    if key.kind == ObjectKind::Deletion || !runs {
        return Ok(Exit::Done);
    }
    if !read.is_known || !read.profile.engine {
        terminal.say(&format!(
            "Whether its worker has stopped cannot be known: another operator runs {}, and does not look at the lock. It is not \
             claimed again. See that it has ended before you start what would collide with it.",
            handle(&key)
        ));
        return Ok(Exit::Done);
    }
    if !has_begun && matches!(was, State::Reserved | State::Waiting) {
        terminal.say("It had not begun, and will not begin.");
        return Ok(Exit::Done);
    }
    until_stopped(&session, &store, &key, &uid, terminal).await
}

#[derive(Clone)]
struct ReleaseOutcome {
    /// The state before the release.
    was: State,
    /// Objects whose turn came with the release.
    turns: Vec<String>,
}

/// Waits until the worker of an object of our engine has stopped: that is certain once the object
/// has ended or is gone.
async fn until_stopped(
    session: &Session,
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    terminal: &mut Terminal,
) -> CommandResult {
    let seconds = WORKER_STOP_TIMEOUT.as_secs();
    terminal.say(&format!(
        "Waiting up to {seconds}s until its worker has stopped."
    ));
    let waited = poll(
        session,
        terminal,
        WORKER_STOP_TIMEOUT,
        async |_: &mut Terminal| {
            let Ok(found) = store.objects().read(key).await else {
                // The end is not certain.
                return Ok(Look::Same);
            };
            let Some(seen) = found.filter(|seen| seen.uid == uid) else {
                return Ok(Look::Found("it is gone".to_owned()));
            };
            Ok(if seen.over {
                Look::Found(format!("it is {}", plain(&seen.phase)))
            } else {
                Look::Same
            })
        },
    )
    .await?;
    match waited {
        Ok(end) => {
            terminal.say(&format!("Its worker has stopped: {end}."));
            Ok(Exit::Done)
        }
        Err(exit) => {
            terminal.say(&format!(
                "warning: {} was released, but it is not certain that its worker has stopped: it has not ended. A backup-controller \
                 that runs writes nothing for it later than 2s after the release, but for requests that are on their way\n  \
                 See how it ends with: kubectl backup locks",
                handle(key)
            ));
            Ok(exit)
        }
    }
}

/// The object, as this command's argument.
fn handle(key: &ObjectKey) -> String {
    format!(
        "{}/{}/{}",
        key.kind.as_str().to_lowercase(),
        plain(&key.namespace),
        plain(&key.name)
    )
}

/// Releases an entry. Returns the objects whose turn comes with the release.
fn release(ledger: &mut Ledger, key: &ObjectKey, uid: &str, by: &str) -> Vec<String> {
    let before = waiting_entries(ledger);
    ledger.force_release(key, uid, by);
    let after = waiting_entries(ledger);
    let others = before
        .iter()
        .filter(|(of, by)| (of, by.as_str()) != (key, uid));
    others
        .filter(|one| !after.contains(one))
        .map(|(key, _)| named(key))
        .collect()
}

/// Key and uid of each waiting entry.
fn waiting_entries(ledger: &Ledger) -> Vec<(ObjectKey, String)> {
    let all = ledger
        .claims
        .iter()
        .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)));
    all.filter(|(_, entry)| entry.state == State::Waiting)
        .map(|(claim, entry)| (claim.key.clone(), entry.uid.clone()))
        .collect()
}

/// The entry that the user means.
struct SelectedEntry<'a> {
    read: &'a FoundLedger,
    ledger: &'a Ledger,
    key: ObjectKey,
    entry: &'a Entry,
}

fn pick<'a>(
    all: &'a [FoundLedger],
    args: &ReleaseArgs,
    installation: &str,
) -> Result<SelectedEntry<'a>, Problem> {
    let mut found: Vec<(&FoundLedger, &Ledger, &Claim)> = Vec::new();
    for read in all {
        let is_wanted = args.scope.as_ref().is_none_or(|scope| read.scope == *scope);
        if is_wanted && let Ok(ledger) = &read.ledger {
            found.extend(
                ledger
                    .claims
                    .iter()
                    .filter(|claim| is_target(claim, args))
                    .map(|claim| (read, ledger, claim)),
            );
        }
    }
    let (read, ledger, claim) = match found.as_slice() {
        [one] => *one,
        [] => return Err(nothing(all, args, installation)),
        many => {
            let each: Vec<String> = many
                .iter()
                .map(|(read, _, claim)| {
                    format!("{} --scope={}", handle(&claim.key), plain(&read.scope))
                })
                .collect();
            let message = format!(
                "{} may be any of {}: {}",
                args.target,
                each.len(),
                each.join(", ")
            );
            return Err(Problem::usage(message).with_remedy("Name one of them."));
        }
    };
    let entries: Vec<&Entry> = claim
        .entries
        .iter()
        .filter(|entry| args.uid.as_ref().is_none_or(|uid| entry.uid == *uid))
        .collect();
    match entries.as_slice() {
        [entry] => Ok(SelectedEntry {
            read,
            ledger,
            key: claim.key.clone(),
            entry,
        }),
        several => {
            let each: Vec<String> = several
                .iter()
                .map(|e| format!("--uid={} ({})", plain(&e.uid), e.state))
                .collect();
            let key = handle(&claim.key);
            let count = several.len();
            Err(
                Problem::usage(format!("{key} has {count} entries: {}", each.join(", ")))
                    .with_remedy("Name one of them."),
            )
        }
    }
}

/// Whether the user may mean this claim: kind, name, namespace and uid match as far as given.
fn is_target(claim: &Claim, args: &ReleaseArgs) -> bool {
    let Target {
        kind,
        namespace,
        name,
    } = &args.target;
    claim.key.kind == *kind
        && claim.key.name == *name
        && namespace
            .as_ref()
            .is_none_or(|namespace| claim.key.namespace == *namespace)
        && claim
            .entries
            .iter()
            .any(|entry| args.uid.as_ref().is_none_or(|uid| entry.uid == *uid))
}

fn nothing(all: &[FoundLedger], args: &ReleaseArgs, installation: &str) -> Problem {
    let unread = all
        .iter()
        .filter(|read| read.ledger.is_err())
        .map(|read| plain(&read.lease));
    let unread: Vec<String> = unread.collect();
    let unread = if unread.is_empty() {
        String::new()
    } else {
        format!(" (unreadable: {})", few(&unread))
    };
    Problem::other(format!(
        "{} holds nothing and waits for nothing in the ledgers of namespace {installation}{unread}",
        args.target
    ))
    .with_remedy(
        "`kubectl backup locks -o name` lists what can be released; -n chooses another installation.",
    )
}

/// Facts for the user's decision, one line each.
fn facts(
    key: &ObjectKey,
    entry: &Entry,
    ledger: &Ledger,
    scope: &str,
    object: &Result<Option<ObservedObject>, String>,
    now: Timestamp,
) -> Vec<String> {
    let touched = touches(&entry.footprint, scope);
    let age = since(&entry.since, now);
    let note = if entry.note.is_empty() {
        String::new()
    } else {
        format!(" ({})", plain(&entry.note))
    };
    let mut lines = vec![format!(
        "{} is {} in scope {} for {age}{note}, and touches {touched}.",
        named(key),
        entry.state,
        plain(scope)
    )];
    lines.extend(object_fact(key, entry, object));
    if entry.state == State::Released {
        return lines;
    }
    let turns = release(&mut ledger.clone(), key, &entry.uid, "");
    let others = match key.kind {
        ObjectKind::Backup | ObjectKind::DeleteBackupRequest | ObjectKind::Deletion => "restores",
        ObjectKind::Restore | ObjectKind::Hold => "backups and restores",
    };
    lines.push(match turns.as_slice() {
        [] => format!(
            "After it, new {others} of {touched} can start where nothing else is in their way."
        ),
        turns => format!("After it, it is the turn of {}.", few(turns)),
    });
    lines
}

/// Whether the object of the entry exists and runs; `None` for a hold, which has no object.
fn object_fact(
    key: &ObjectKey,
    entry: &Entry,
    object: &Result<Option<ObservedObject>, String>,
) -> Option<String> {
    if key.kind == ObjectKind::Hold {
        return None;
    }
    let may_write = "its worker may go on writing for a moment";
    let seen = match object {
        Err(why) => {
            return Some(format!(
                "Whether it runs is not known: {}. If it does, {may_write}.",
                plain(why)
            ));
        }
        Ok(None) => return Some("There is no such object.".to_owned()),
        Ok(Some(seen)) => seen,
    };
    Some(if seen.uid != entry.uid {
        "The object of that name is another one: this one is gone, or never came.".to_owned()
    } else if key.kind == ObjectKind::Deletion {
        let deleting = if seen.deleting {
            "is being deleted"
        } else {
            "is not being deleted"
        };
        format!("The backup is there, and {deleting}.")
    } else if seen.over && seen.deleting {
        "It is being deleted, and nothing works on it.".to_owned()
    } else if seen.over {
        format!("It has ended: {}.", plain(&seen.phase))
    } else if seen.new && entry.state < State::Active {
        format!("It has not begun: {}.", plain(&seen.phase))
    } else {
        format!("It runs: {}; {may_write}.", plain(&seen.phase))
    })
}

/// Maximum size of an Event's note (bytes).
const MAX_NOTE_BYTES: usize = 1000;

/// Creates an Event about the object, or about the ledger if the entry is a hold.
async fn event(
    session: &Session,
    read: &FoundLedger,
    key: &ObjectKey,
    uid: &str,
    note: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    let object = event_object(session, read, key, uid);
    let namespace = object.namespace.clone().unwrap_or_default();
    let event = Event {
        metadata: ObjectMeta {
            generate_name: Some("forced-release-".to_owned()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Release".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note[..note.floor_char_boundary(MAX_NOTE_BYTES)].to_owned()),
        reason: Some(EventReason::ForcedRelease.as_str().to_owned()),
        regarding: Some(object),
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(FIELD_MANAGER.to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(session.client.clone(), &namespace);
    session
        .call(
            About::of::<Event>("create", ""),
            api.create(&PostParams::default(), &event),
        )
        .await
        .map(|_| ())
}

/// A reference to the object, or to the ledger if there is no object or its kind is unknown.
fn event_object(
    session: &Session,
    read: &FoundLedger,
    key: &ObjectKey,
    uid: &str,
) -> ObjectReference {
    let object = reference(&read.profile, key, uid).filter(|_| read.is_known);
    object.unwrap_or_else(|| ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(session.namespace.clone()),
        name: Some(read.lease.clone()),
        uid: Some(read.lease_uid.clone()),
        ..ObjectReference::default()
    })
}
