//! `restore create --plan`: shows what the restore would do with each item. The controller finds
//! out by requests that change nothing.

use backup_core::{
    restore_plan::{PlanLine, RestorePlan},
    text::counted,
};

use super::prelude::*;
use crate::{
    cli::Output,
    fetched::FetchResult,
    print::{Screen, Tone, describe::sections},
    stored::{self, StoredFile},
    view::{
        FileContents,
        stored::{Contents, FilesState, Messages},
        troubles,
    },
};

/// Maximum line length (bytes): the plan of some 500,000 items. A line is held in memory.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Shows the plan of a restore, as a screen or as a document. Exits with 3 if the restore would not
/// be Completed.
pub(crate) async fn run(
    session: &Session,
    restore: &Restore,
    output: Option<Output>,
    terminal: &mut Terminal,
) -> CommandResult {
    let name = restore.name_any();
    let spec =
        serde_json::to_string(&restore.spec).map_err(|error| Problem::other(error.to_string()))?;
    let file = StoredFile::plan(&name, &spec);
    let plan = tokio::select! {
        plan = read(session, &file, terminal) => plan?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    let completed = plan.results.errors() == 0;
    let text = match output {
        Some(form) => json::object(&json::Document::of("RestorePlan", &plan), form)?,
        None => screen(&name, plan, terminal),
    };
    terminal.data(&text)?;
    Ok(if completed { Exit::Done } else { Exit::NotGood })
}

async fn read(
    session: &Session,
    file: &StoredFile<'_>,
    terminal: &mut Terminal,
) -> Result<RestorePlan, Problem> {
    let mut line = Vec::new();
    let mut end = None;
    let shows_progress = terminal.err_is_terminal;
    stored::read(
        session,
        file,
        |bytes| {
            for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if !piece.ends_with(b"\n") {
                    break;
                }
                let read = serde_json::from_slice(&line)
                    .map_err(|error| unreadable(file.name, &error.to_string()))?;
                if let PlanLine::Progress { done, total } = read {
                    if shows_progress {
                        terminal.say(&format!("{done} of {} checked", counted(total, "item")));
                    }
                } else {
                    end = Some(read);
                }
                line.clear();
            }
            if line.len() > MAX_LINE_BYTES {
                Err(unreadable(file.name, "it is too large"))
            } else {
                Ok(())
            }
        },
        |_| (),
    )
    .await?;
    match end {
        Some(PlanLine::Plan(plan)) => Ok(*plan),
        Some(PlanLine::Refused(why)) => {
            let message = format!("restore {:?} would not start: {}", file.name, plain(&why));
            Err(Problem::new(ProblemKind::WouldNotStart, message))
        }
        _ => Err(unreadable(
            file.name,
            "it ended before it was complete; try again",
        )),
    }
}

fn unreadable(name: &str, why: &str) -> Problem {
    Problem::other(format!("the plan of {name} cannot be read: {why}"))
}

fn screen(name: &str, plan: RestorePlan, terminal: &Terminal) -> String {
    let RestorePlan {
        results,
        resource_list,
        missing_data,
        left_out,
        notes,
    } = plan;
    let errors = results.errors();
    let warnings = results.warnings();
    let (tone, phase) = match (errors, warnings) {
        (0, 0) if missing_data.is_none() => (Tone::Good, "Completed"),
        (0, _) => (Tone::Warn, "Completed"),
        _ => (Tone::Bad, "PartiallyFailed"),
    };
    let troubles = Some(troubles(errors, warnings)).filter(|troubles| !troubles.is_empty());
    let with = troubles.map_or_else(String::new, |troubles| format!(", with {troubles}"));
    let gap =
        missing_data.map(|data| format!(", but {}", plain(&data.sentence("would not come back"))));
    let verdict = format!("It would be {phase}{with}{}.", gap.unwrap_or_default());
    let contents = Contents::from(resource_list);
    let mut screen = Screen::of(
        terminal.out_style(),
        tone,
        name,
        &["dry run: nothing was written"],
    );
    screen.lines([&verdict]);
    screen.line("");
    let items: usize = contents.kinds.iter().map(|kind| kind.count).sum();
    screen.facts(
        12,
        [(
            "Items",
            format!("{items}: {} ({})", contents.summary(4), contents.outcomes()),
        )],
    );
    let stored = FileContents {
        messages: FetchResult::Known(Some(Messages::from(results))),
        contents: FetchResult::Known(Some(contents)),
        item_operations: FetchResult::Known(None),
        volumes: FetchResult::Known(None),
        files: FilesState::Unread,
    };
    sections(&mut screen, &stored, &[], terminal.now(), true);
    for (title, sentences) in [("LEFT OUT", left_out), ("NOT TRIED", notes)] {
        if !sentences.is_empty() {
            screen.section(title);
            screen.lines(sentences.iter().map(|sentence| plain(sentence)));
        }
    }
    screen.text
}
