//! The plan of an installation: its objects and options.

use backup_core::mover_flags;
use backup_deploy::{DeployError, Mode, Options, Stage, id, kind};

use super::objects::{OPTIONS_ANNOTATION, full_name_of};
use crate::{cli::Output, commands::prelude::*};

/// The Deployment whose annotation records the options.
const NOTED_ON: (&str, &str) = ("Deployment", "backup-webhook");

pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) objects: Vec<Value>,
}

impl Plan {
    pub(super) fn make(namespace: &str, options: Options) -> Result<Self, Problem> {
        mover_flags::check(&options.controller_args).map_err(|why| {
            Problem::other(why).with_remedy("Correct it in --controller-arg: nothing was changed.")
        })?;
        let mut objects = match options.mode {
            Mode::Engine => backup_deploy::once(namespace).map_err(|error| impossible(&error))?,
            Mode::Guard => Vec::new(),
        };
        let mut programs =
            backup_deploy::programs(namespace, &options).map_err(|error| impossible(&error))?;
        objects.append(&mut programs);
        let noted =
            serde_json::to_string(&options).map_err(|error| Problem::other(error.to_string()))?;
        for object in objects.iter_mut().filter(|object| id(object) == NOTED_ON) {
            object["metadata"]["annotations"][OPTIONS_ANNOTATION] = json!(noted);
        }
        Ok(Self { options, objects })
    }

    pub(super) fn of_stage(&self, stage: Stage) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |object| kind(id(object).0).is_some_and(|kind| kind.stage == stage))
    }

    /// Names of the planned objects of a kind.
    pub(super) fn names(&self, kind: &str) -> Vec<&str> {
        self.objects
            .iter()
            .map(id)
            .filter(|(found, _)| *found == kind)
            .map(|(_, name)| name)
            .collect()
    }

    /// The version to be installed: the tag of the images.
    pub(super) fn version(&self) -> &str {
        let deployment = self.objects.iter().find(|object| id(object) == NOTED_ON);
        deployment.map_or("", |deployment| super::objects::version_of(deployment))
    }
}

fn impossible(error: &DeployError) -> Problem {
    Problem::other(error.to_string())
}

/// Prints objects, for a dry run.
pub(crate) fn show(
    objects: &[Value],
    output: Option<Output>,
    terminal: &mut Terminal,
) -> CommandResult {
    let text = match output {
        None => name_lines(objects, " (dry run)"),
        Some(Output::Name) => name_lines(objects, ""),
        Some(Output::Yaml) => {
            let documents: Result<Vec<String>, Problem> = objects
                .iter()
                .map(|object| json::object(object, Output::Yaml))
                .collect();
            documents?.join("---\n")
        }
        Some(form) => json::object(&json::Document::list(&json!({ "items": objects })), form)?,
    };
    terminal.data(&text)?;
    Ok(Exit::Done)
}

/// The names of objects, one a line.
fn name_lines(objects: &[Value], suffix: &str) -> String {
    objects
        .iter()
        .map(|object| full_name_of(object) + suffix + "\n")
        .collect()
}
