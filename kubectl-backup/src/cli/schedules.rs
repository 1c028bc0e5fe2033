//! `schedules`: listing is the default.

use clap::{Args, Subcommand};

use super::{
    BackupSpecArgs, DocumentOutput, DryRun, EXIT_CODES, FileArgs, GetArgs, ObjectArgs, ObjectOutput,
    SelectionArgs, WaitArgs,
};

const EXAMPLES: &str = "\
Examples:
  # All schedules, and when each runs next
  kubectl backup schedules

  # Every night, kept for a month
  kubectl backup schedules create nightly --schedule=@daily --include-namespaces=shop --ttl=720h

  # Leave out what comes, and go on later
  kubectl backup schedules pause nightly";

#[derive(Args, Debug)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct SchedulesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SchedulesCommand>,
}

/// What to do with schedules.
#[derive(Subcommand, Debug)]
pub(crate) enum SchedulesCommand {
    /// List schedules (the default), with their next runs
    #[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
    Get(GetArgs),
    /// Show one schedule: when it runs, what came of its last backups
    Describe(ScheduleArgs),
    /// Create a schedule
    Create(Box<ScheduleCreateArgs>),
    /// Make no backups until further notice
    #[command(after_help = format!("{PAUSE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Pause(PauseArgs),
    /// Make backups again
    #[command(after_help = format!("{UNPAUSE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Unpause(UnpauseArgs),
    /// Make a backup now, as the schedule would
    Trigger(TriggerArgs),
    /// Delete schedules; their backups stay
    Delete(ScheduleDeleteArgs),
}

const GET_EXAMPLES: &str = "\
Examples:
  # All schedules, with the next three runs of each
  kubectl backup schedules get -o wide

  # One of them, as it is stored
  kubectl backup schedules get nightly -o yaml";

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  # When does it run, and what came of it?
  kubectl backup schedules describe nightly

  # The same for a program: a versioned document
  kubectl backup schedules describe nightly -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{DESCRIBE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct ScheduleArgs {
    /// Name
    pub(crate) name: String,
    /// Print a document of kubectl-backup/v1 with times in RFC 3339: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  # Every night, kept for a month
  kubectl backup schedules create nightly --schedule=@daily --include-namespaces=shop --ttl=720h

  # Make a manifest for Git
  kubectl backup schedules create nightly --schedule=@daily --dry-run=client -o yaml > nightly.yaml";

#[derive(Args, Debug)]
#[command(after_help = format!("{CREATE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct ScheduleCreateArgs {
    /// Name of the schedule [default: as in the manifest]
    pub(crate) name: Option<String>,
    /// When, as a cron expression: '0 3 * * *', @daily, '@every 6h', 'TZ=Europe/Paris 0 3 * * *'
    #[arg(long, value_name = "CRON", required_unless_present = "file")]
    pub(crate) schedule: Option<String>,
    /// Create it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Make no backup for a time that has come already
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) skip_immediately: Option<bool>,
    /// Whether the Backups go when the schedule is deleted
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_owner_references_in_backup: Option<bool>,
    #[command(flatten)]
    pub(crate) template: BackupSpecArgs,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Store nothing: client only checks here, server asks the cluster
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<ObjectOutput>,
}

const PAUSE_EXAMPLES: &str = "\
Examples:
  # Make no more backups
  kubectl backup schedules pause nightly

  # Of two schedules
  kubectl backup schedules pause nightly weekly";

const UNPAUSE_EXAMPLES: &str = "\
Examples:
  # Go on; the latest run that was missed is made up for
  kubectl backup schedules unpause nightly

  # Go on with the next run
  kubectl backup schedules unpause nightly --skip-immediately";

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Don't make up for what was missed
    #[arg(long)]
    pub(crate) skip_immediately: bool,
}

const TRIGGER_EXAMPLES: &str = "\
Examples:
  # A backup now, beside those at their times
  kubectl backup schedules trigger nightly

  # In a script: wait for its end
  kubectl backup schedules trigger nightly --wait --timeout=1h";

#[derive(Args, Debug)]
#[command(after_help = format!("{TRIGGER_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct TriggerArgs {
    /// Name of the schedule
    pub(crate) name: String,
    /// Print the backup: json, yaml or name
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<ObjectOutput>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

const DELETE_EXAMPLES: &str = "\
Examples:
  # Delete a schedule, after a question
  kubectl backup schedules delete nightly

  # In a script
  kubectl backup schedules delete nightly --yes";

#[derive(Args, Debug)]
#[command(after_help = format!("{DELETE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct ScheduleDeleteArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Don't ask
    #[arg(short, long, visible_alias = "confirm")]
    pub(crate) yes: bool,
}
