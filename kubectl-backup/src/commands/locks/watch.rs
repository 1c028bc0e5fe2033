//! `locks -w`: the ledgers as they are, and then a line for every change, until interrupted.

use serde_json::json;

use super::{fetch::Ledgers, within};
use crate::{
    Terminal,
    cli::{ListArgs, Output, output::Form},
    client::Session,
    commands::{
        known::known,
        wait::{LONGEST, Look, Waited, poll},
    },
    error::{Exit, Problem},
    print::{form, locks as print},
    view::locks::{
        self as view,
        changes::{LockChange, changes, lines},
    },
};

/// Reads the ledgers again and again. What runs without a claim is left out: to find it takes lists of all objects.
pub async fn run(session: &Session, args: &ListArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let known = known(session).await;
    let mut told: Option<Vec<LockChange>> = None;
    let watched = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        let found = Ledgers::read(session, &known, within(args)).await?.found();
        let now = lines(&view::locks(&session.namespace, &found, &[], Vec::new(), args.scope.as_deref()));
        let new = changes(told.as_deref().unwrap_or_default(), &now);
        let is_first = told.is_none();
        if is_first || !new.is_empty() {
            show(&new, &now, is_first, args, terminal)?;
        }
        told = Some(now);
        Ok::<_, Problem>(if new.is_empty() { Look::Same } else { Look::<()>::Changed })
    });
    Ok(match watched.await? {
        Waited::Over(()) => Exit::Done,
        Waited::TimedOut => Exit::TimedOut,
        Waited::Interrupted => Exit::Interrupted,
    })
}

/// Those that are new; rows are as wide as all need that are there now.
fn show(
    new: &[LockChange],
    now: &[LockChange],
    is_first: bool,
    args: &ListArgs,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let output = &args.output;
    let header = is_first && !output.no_headers;
    let text = match &output.form {
        Form::Plain(Output::Table | Output::Wide) => {
            let how = print::How {
                wide: output.form == Form::Plain(Output::Wide),
                headers: header,
                namespaces: args.list.all_namespaces,
            };
            print::changes(new, now, how, terminal.now(), terminal.out_style())?
        }
        Form::Plain(Output::Name) => {
            new.iter().fold(String::new(), |text, line| text + &line.handle() + "\n")
        }
        Form::Columns(_) => {
            form::document(&json!({ "items": new }), "items", &output.form, !header)?.unwrap_or_default()
        }
        Form::Plain(_) | Form::JsonPath(_) => new.iter().try_fold(String::new(), |text, line| {
            let mark = if output.form == Form::Plain(Output::Yaml) { "---\n" } else { "" };
            let document = form::document(line, "", &output.form, true)?.unwrap_or_default();
            Ok::<_, Problem>(text + mark + &document)
        })?,
    };
    Ok(terminal.data(&text)?)
}
