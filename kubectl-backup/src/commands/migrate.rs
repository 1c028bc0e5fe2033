//! `migrate`: the consequences of a move from a Velero server, and the files for it. The command only
//! reads the cluster; the user runs the commands that it writes.

mod consequence;
mod decide;
mod fields;
mod flags;
mod installation;
mod observe;
mod plan;
mod server;

use std::path::Path;

use self::{consequence::MigrationReport, flags::Translation, plan::MigrationFile};
use super::prelude::*;
use crate::{
    cli::{DocumentArgs, MigrateArgs},
    new_file::NewFile,
};

pub(crate) async fn run(args: MigrateArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let installation = observe::observe(&session).await?;
    let translation = Translation::of(&installation.server, &installation.namespace);
    let consequences = decide::consequences(&installation, &translation, terminal.now());
    let version = installation.server.version.clone();
    let report = MigrationReport::of(&installation.namespace, version, consequences);
    if args.check {
        let document = DocumentArgs {
            output: args.output,
        };
        json::show(
            "MigrationReport",
            &report,
            document,
            terminal,
            |_, style| Ok(report.text(style)),
        )?;
        return Ok(if report.lossless {
            Exit::Done
        } else {
            Exit::Failed
        });
    }
    let mut files = plan::files(&installation, &translation, args.registry.as_deref())?;
    for file in &mut files {
        file.text = terminal.pasteable(&file.text);
    }
    if args.dry_run {
        for file in &files {
            terminal.data(&format!("# {}\n{}\n", file.name, file.text))?;
        }
    } else {
        write(&files, &args.output_dir)?;
        for file in &files {
            let path = args.output_dir.join(file.name);
            terminal.data(&format!("{}\n", path.display()))?;
        }
    }
    terminal.say(&report.verdict());
    if !report.lossless {
        terminal.say("See what: kubectl backup migrate --check");
    }
    if !args.dry_run {
        let shown = args.output_dir.display();
        terminal.say(&format!(
            "Nothing was changed. Read {shown}/{}, and run it; the way back is {shown}/{}.",
            plan::MIGRATE,
            plan::BACK
        ));
    }
    Ok(Exit::Done)
}

/// Writes the files; an existing file is never overwritten.
fn write(files: &[MigrationFile], folder: &Path) -> Result<(), Problem> {
    for name in plan::NAMES {
        NewFile::check(&folder.join(name), false).map_err(elsewhere)?;
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        Problem::other(format!("cannot create {}: {error}", folder.display()))
            .with_remedy("Choose another folder with --output-dir.")
    })?;
    for file in files {
        let mut new = NewFile::create(folder.join(file.name), false).map_err(elsewhere)?;
        new.write(file.text.as_bytes()).map_err(elsewhere)?;
        new.keep().map_err(elsewhere)?;
    }
    Ok(())
}

fn elsewhere(problem: Problem) -> Problem {
    problem.with_remedy("Choose another folder with --output-dir.")
}
