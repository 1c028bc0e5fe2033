//! `get -w`: prints the existing objects, then a row for each change, until interrupted. Rows are
//! only appended.

use std::{collections::HashMap, pin::pin};

use futures::StreamExt as _;
use kube::runtime::{
    WatchStreamExt as _,
    watcher::{self, Event, watcher},
};

use super::lines::Lines;
use crate::{commands::prelude::*, session::PAGE_SIZE};

/// Follows a kind. If the API server is away, waits for it, then shows the changes since.
pub(crate) async fn run(
    session: &Session,
    api: &Api<DynamicObject>,
    mut lines: Lines<'_>,
    terminal: &mut Terminal,
) -> CommandResult {
    let args = lines.args();
    let config = watcher::Config {
        label_selector: args.selector.clone(),
        // Clap allows one name at most.
        field_selector: args
            .names
            .first()
            .map(|name| format!("metadata.name={name}"))
            .or(args.field_selector.clone()),
        page_size: Some(PAGE_SIZE),
        ..watcher::Config::default()
    };
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    // Versions shown last: objects that did not change during an interruption are not shown again.
    let mut shown: HashMap<String, String> = HashMap::new();
    let mut seen_now: HashMap<String, String> = HashMap::new();
    let mut begun = false;
    let mut away = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = &mut interrupted => return Ok(Exit::Interrupted),
        };
        let problem = match event {
            None => return Ok(Exit::Done),
            Some(Err(
                watcher::Error::InitialListFailed(error)
                | watcher::Error::WatchStartFailed(error)
                | watcher::Error::WatchFailed(error),
            )) => session.explain(&lines.table().about("watch", ""), error),
            // The required history is gone, or the stream ended without a bookmark: the watcher
            // lists again.
            Some(Err(_)) => continue,
            Some(Ok(event)) => {
                if std::mem::take(&mut away) {
                    terminal.say(&format!("{} answers again", session.server));
                }
                match event {
                    Event::Init => seen_now.clear(),
                    Event::InitApply(object) => {
                        let (uid, version) = version_of(&object);
                        let is_new = shown.get(&uid) != Some(&version);
                        seen_now.insert(uid, version);
                        if !begun {
                            lines.take(object);
                        } else if is_new {
                            append(&mut lines, object, None, terminal)?;
                        }
                    }
                    Event::InitDone => {
                        shown = std::mem::take(&mut seen_now);
                        if !std::mem::replace(&mut begun, true) {
                            lines.warn(terminal);
                            let text = lines.begin()?;
                            terminal.data(&text)?;
                        }
                    }
                    Event::Apply(object) => {
                        shown.extend([version_of(&object)]);
                        append(&mut lines, object, None, terminal)?;
                    }
                    Event::Delete(object) => {
                        shown.remove(&object.uid().unwrap_or_default());
                        append(&mut lines, object, Some("Deleted"), terminal)?;
                    }
                }
                continue;
            }
        };
        let may_pass = problem.is_transient() || begun && problem.is_of_start();
        if !may_pass || !begun && problem.kind == ProblemKind::Unreachable {
            return Err(problem);
        }
        if !std::mem::replace(&mut away, true) {
            terminal.say(&format!("{problem}; still watching"));
        }
    }
}

/// The object's uid and version.
fn version_of(object: &DynamicObject) -> (String, String) {
    (
        object.uid().unwrap_or_default(),
        object.resource_version().unwrap_or_default(),
    )
}

fn append(
    lines: &mut Lines<'_>,
    object: DynamicObject,
    status: Option<&str>,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let text = lines.next(object, status)?;
    lines.warn(terminal);
    Ok(terminal.data(&text)?)
}
