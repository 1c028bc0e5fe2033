//! `locks`: reads every ledger, and finds objects without a claim.

pub(crate) mod fetch;
pub(crate) mod hold;
pub(crate) mod problem;
pub(crate) mod release;
pub(crate) mod velero;

use std::collections::BTreeSet;

use backup_lock::{VELERO_SCOPE, observe::ObservedObject};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;

use self::fetch::{Ledgers, Within};
use super::{
    known_profiles::{KnownProfiles, known_profiles},
    poll::{Look, MAX_WAIT, poll},
    prelude::*,
};
use crate::{
    cli::{ListArgs, Output, TableParts},
    print::json::Document,
    view::locks::{
        self as view, LockList, UnendedObject,
        changes::{LockChange, changes, lines},
        screen,
    },
};

/// Time limit for a write to a ledger, including retries.
const BUDGET: Duration = Duration::from_secs(20);

/// All ledgers, and running objects without a claim.
pub(crate) struct UnclaimedObjects {
    pub(crate) ledgers: Ledgers,
    pub(crate) objects: Vec<ObservedObject>,
    /// Checks that could not be made, one sentence each.
    pub(crate) unchecked: Vec<String>,
}

pub(crate) async fn unclaimed(
    session: &Session,
    known: &KnownProfiles,
    within: Within,
) -> Result<UnclaimedObjects, Problem> {
    let mut ledgers = Ledgers::read(session, known, within).await?;
    let profiles: BTreeSet<String> = ledgers
        .all
        .iter()
        .map(|ledger| ledger.profile.name.clone())
        .collect();
    let (mut objects, unchecked) = fetch::unended(session, known, &profiles, &ledgers).await;
    objects.retain(|object| !ledgers.claims(object));
    if !objects.is_empty() {
        // The object may have been claimed after the ledgers were read.
        ledgers = Ledgers::read(session, known, within).await?;
        objects.retain(|object| !ledgers.claims(object));
    }
    Ok(UnclaimedObjects {
        ledgers,
        objects,
        unchecked,
    })
}

pub(crate) async fn list(args: ListArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.list.watch {
        return watch(&session, &args, terminal).await;
    }
    let list = read(&session, &args).await?;
    show(&list, &args, terminal)?;
    Ok(Exit::Done)
}

const fn within(args: &ListArgs) -> Within {
    if args.list.all_namespaces {
        Within::Cluster
    } else {
        Within::Installation
    }
}

/// The requested ledgers, and running objects without a claim.
async fn read(session: &Session, args: &ListArgs) -> Result<LockList, Problem> {
    let known = known_profiles(session).await;
    let UnclaimedObjects {
        ledgers,
        objects,
        unchecked,
    } = unclaimed(session, &known, within(args)).await?;
    let mut seen = Vec::new();
    for object in objects {
        let scope = object.scope.as_deref().unwrap_or(VELERO_SCOPE);
        let profile = known.get_or_stand_in(view::profile_of(scope));
        let store = fetch::store(session, profile);
        let footprint = store.objects().footprint(&object.key, &object.spec).await;
        let footprint = footprint.unwrap_or_else(|_| backup_lock::Footprint::everything());
        seen.push(UnendedObject { object, footprint });
    }
    Ok(view::locks(
        &session.namespace,
        &ledgers.all,
        &seen,
        unchecked,
        args.scope.as_deref(),
    ))
}

fn show(list: &LockList, args: &ListArgs, terminal: &mut Terminal) -> Result<(), Problem> {
    let output = &args.output;
    json::show_list(
        "LockList",
        list,
        output,
        terminal,
        || screen::names(list),
        |now, style| Ok(screen::text(list, output.shown(&args.list), now, style)?),
    )?;
    if matches!(output.form, Output::Json | Output::Yaml) {
        return Ok(()); // the document says it
    }
    if list.scopes.is_empty() {
        let place = match within(args) {
            Within::Installation => format!("in namespace {}", list.namespace),
            Within::Cluster => "in any namespace".to_owned(),
        };
        terminal.say(&match &args.scope {
            Some(scope) => {
                format!(
                    "Nothing holds or waits in scope {}: it has no ledger {place}.",
                    plain(scope)
                )
            }
            None => format!("Nothing holds or waits: there is no ledger {place}."),
        });
    }
    for sentence in &list.unchecked {
        terminal.say(&format!("note: {sentence}"));
    }
    Ok(())
}

/// The user's name, as the API server knows it. The request stores nothing.
async fn user_name(session: &Session) -> Result<String, Problem> {
    let about = About::called("ask", "selfsubjectreview", "selfsubjectreviews", "");
    let api: Api<SelfSubjectReview> = Api::all(session.client.clone());
    let post = PostParams::default();
    let review = session
        .call(about, api.create(&post, &SelfSubjectReview::default()))
        .await?;
    let name = review
        .status
        .and_then(|status| status.user_info)
        .and_then(|user| user.username);
    Ok(name.map_or_else(|| "an unknown user".to_owned(), |name| plain(&name)))
}

/// Reads the ledgers repeatedly. Objects without a claim are left out: finding them takes lists of
/// all objects.
async fn watch(session: &Session, args: &ListArgs, terminal: &mut Terminal) -> CommandResult {
    let known = known_profiles(session).await;
    let mut shown: Option<Vec<LockChange>> = None;
    let watched = poll(
        session,
        terminal,
        MAX_WAIT,
        async |terminal: &mut Terminal| {
            let found = Ledgers::read(session, &known, within(args)).await?.all;
            let now = lines(&view::locks(
                &session.namespace,
                &found,
                &[],
                Vec::new(),
                args.scope.as_deref(),
            ));
            let new = changes(shown.as_deref().unwrap_or_default(), &now);
            let is_first = shown.is_none();
            if is_first || !new.is_empty() {
                show_changes(&new, &now, is_first, args, terminal)?;
            }
            shown = Some(now);
            Ok::<_, Problem>(if new.is_empty() {
                Look::Same
            } else {
                Look::<()>::Changed
            })
        },
    );
    Ok(watched.await?.err().unwrap_or(Exit::Done))
}

/// Prints the new rows; the columns are wide enough for all current rows.
fn show_changes(
    new: &[LockChange],
    now: &[LockChange],
    is_first: bool,
    args: &ListArgs,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let output = &args.output;
    let header = is_first && !output.no_headers;
    let text = match output.form {
        Output::Table | Output::Wide => {
            let how = TableParts {
                headers: header,
                ..output.shown(&args.list)
            };
            screen::changes(new, now, how, terminal.now(), terminal.out_style())?
        }
        Output::Name => new
            .iter()
            .fold(String::new(), |text, line| text + &line.handle() + "\n"),
        form @ (Output::Json | Output::Yaml) => {
            let mark = if form == Output::Yaml { "---\n" } else { "" };
            new.iter().try_fold(String::new(), |text, line| {
                let document = json::object(&Document::of("LockChange", line), form)?;
                Ok::<_, Problem>(text + mark + &document)
            })?
        }
    };
    Ok(terminal.data(&text)?)
}
