//! `schedules`: listing is the default.

use backup_core::keep::{MAX_PERIODS, Rule};
use clap::{Args, Subcommand, builder::RangedI64ValueParser};

use super::{
    AftercareFlags, BackupSpecArgs, DeletionArgs, DescribeOneArgs, DocumentArgs, DryRun, FileArgs,
    GetArgs, ObjectArgs, Output, ScheduledDrillFlags, SelectionArgs, WaitArgs, output::FormParser,
};

#[derive(Subcommand, Debug)]
pub(crate) enum SchedulesCommand {
    /// List schedules (the default), with their next runs
    Get(GetArgs),
    /// Show one schedule: when it runs, what came of its last backups
    Describe(DescribeOneArgs),
    /// Create a schedule
    Create(Box<ScheduleCreateArgs>),
    /// Change a schedule: when it runs, and what its next backups are like
    Set(Box<ScheduleSetArgs>),
    /// Show which backups of a schedule are kept beyond their ttl, why and until when; set the rules
    Keep(KeepArgs),
    /// Pause schedules: they make no backups until they are resumed
    Pause(SelectionArgs),
    /// Resume paused schedules
    Unpause(UnpauseArgs),
    /// Make a backup now, as the schedule would
    Trigger(TriggerArgs),
    /// Delete schedules; their backups stay
    Delete(DeletionArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ScheduleCreateArgs {
    /// Name of the schedule [default: as in the manifest]
    pub(crate) name: Option<String>,
    /// When, as a cron expression: '0 3 * * *', @daily, '@every 6h', 'TZ=Europe/Paris 0 3 * * *'
    #[arg(long, value_name = "CRON", required_unless_present = "file")]
    pub(crate) schedule: Option<String>,
    /// Create it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Do not run at once; wait for the next scheduled time
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) skip_immediately: Option<bool>,
    /// Whether the Backups are deleted with the schedule
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_owner_references_in_backup: Option<bool>,
    #[command(flatten)]
    pub(crate) aftercare: AftercareFlags,
    #[command(flatten)]
    pub(crate) keep: KeepFlags,
    #[command(flatten)]
    pub(crate) drill: ScheduledDrillFlags,
    #[command(flatten)]
    pub(crate) template: BackupSpecArgs,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Create nothing: client validates locally, server sends a dry run
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
}

/// Which good backups of a schedule are kept beyond their ttl.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What is kept beyond its ttl")]
pub(crate) struct KeepFlags {
    /// Number of newest good backups to keep; 0 takes the rule away
    #[arg(long = "keep-last", value_name = "N", value_parser = periods())]
    pub(crate) last: Option<i64>,
    /// Number of hours that have a good backup, of which to keep the newest one each
    #[arg(long = "keep-hourly", value_name = "N", value_parser = periods())]
    pub(crate) hourly: Option<i64>,
    /// The same for days
    #[arg(long = "keep-daily", value_name = "N", value_parser = periods())]
    pub(crate) daily: Option<i64>,
    /// The same for weeks, which begin on Monday
    #[arg(long = "keep-weekly", value_name = "N", value_parser = periods())]
    pub(crate) weekly: Option<i64>,
    /// The same for months
    #[arg(long = "keep-monthly", value_name = "N", value_parser = periods())]
    pub(crate) monthly: Option<i64>,
    /// The same for years
    #[arg(long = "keep-yearly", value_name = "N", value_parser = periods())]
    pub(crate) yearly: Option<i64>,
}

impl KeepFlags {
    pub(crate) fn of(&self, rule: Rule) -> Option<i64> {
        match rule {
            Rule::Last => self.last,
            Rule::Hourly => self.hourly,
            Rule::Daily => self.daily,
            Rule::Weekly => self.weekly,
            Rule::Monthly => self.monthly,
            Rule::Yearly => self.yearly,
        }
    }
}

fn periods() -> RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=MAX_PERIODS)
}

#[derive(Args, Debug)]
pub(crate) struct KeepArgs {
    /// Name of the schedule
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) keep: KeepFlags,
    /// Change nothing: show what these rules, over those of the schedule, would keep. Without rules
    /// this is the default
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}

#[derive(Args, Debug, Default)]
pub(crate) struct ScheduleSetArgs {
    /// Name of the schedule
    pub(crate) name: String,
    /// When, as a cron expression: '0 3 * * *', @daily, '@every 6h', 'TZ=Europe/Paris 0 3 * * *'
    #[arg(long, value_name = "CRON")]
    pub(crate) schedule: Option<String>,
    /// Whether the Backups are deleted with the schedule
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_owner_references_in_backup: Option<bool>,
    #[command(flatten)]
    pub(crate) aftercare: AftercareFlags,
    #[command(flatten)]
    pub(crate) keep: KeepFlags,
    #[command(flatten)]
    pub(crate) drill: ScheduledDrillFlags,
    #[command(flatten)]
    pub(crate) template: BackupSpecArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Skip the runs missed while paused
    #[arg(long)]
    pub(crate) skip_immediately: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TriggerArgs {
    /// Name of the schedule
    pub(crate) name: String,
    /// Print the backup: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}
