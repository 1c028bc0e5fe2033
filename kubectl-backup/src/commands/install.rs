//! `install` and `upgrade`: run checks, then apply definitions, rights, policies and programs, and
//! the registrations once a webhook can answer. Each step is a server-side apply, so that it can be
//! repeated.
//!
//! 1. An installation reads what the cluster has ([`facts`]) and chooses by it what no flag gives
//!    ([`choices`]). An upgrade keeps what was chosen.
//! 2. The checks ([`preflight`]) change nothing. A failed check ends the command; a dry run ends
//!    here, too.
//! 3. Each stage is applied in the order of [`Stage::ALL`]. After a crash the applied objects
//!    remain; `upgrade` continues, or `install` if no program exists yet.
//! 4. Objects that the last version had and this one has not are removed, if this command applied
//!    them.
//! 5. The command waits for the webhook and then registers it: until then creations pass as before.
//! 6. The command waits for the controller, and sends the webhook a request that it has to refuse.

mod choices;
mod facts;
mod findings;
pub(super) mod objects;
mod plan;
mod platform;
mod preflight;
mod readiness;
mod snapshots;

use std::collections::BTreeMap;

use backup_deploy::{Mode, Options, PROGRAMS, Stage};
use tokio::time::Instant;

use self::{
    choices::{Choices, choose},
    objects::{Installation, Outcome, installed},
    plan::Plan,
    preflight::ClusterState,
    snapshots::Decision,
};
use super::{
    doctor::{schedules::all_read_otherwise, webhook},
    finding::Finding,
    poll::{Look, Polled, in_vain, poll},
    prelude::*,
};
use crate::{
    cli::{DryRun, InstallArgs, RolloutArgs, UpgradeArgs},
    client::installation_namespace,
    print::Tone,
};

const SCHEDULES: &str = "schedules.velero.io";

pub(super) async fn install(args: InstallArgs, terminal: &mut Terminal) -> CommandResult {
    if args.rollout.dry_run == Some(DryRun::Client) {
        let namespace = installation_namespace(terminal);
        let options = args.choice.over(Options::default());
        terminal.say(&choices::without_cluster(&options));
        return plan::show(
            &Plan::make(&namespace, options)?.objects,
            args.rollout.output,
            terminal,
        );
    }
    let session = Session::connect(terminal).await?;
    objects::check_home(&session).await?;
    if let Some(before) = installed(&session).await? {
        before.check_tool(&session.namespace)?;
        let version = before.version;
        let message = format!(
            "an installation, {version}, is in namespace {} already",
            session.namespace
        );
        return Err(
            Problem::other(message).with_remedy("Change or repair it: kubectl backup upgrade")
        );
    }
    let mode = args.choice.mode.unwrap_or_default();
    let volumes = snapshots::observe(&session, mode, terminal.now()).await;
    let facts = facts::read(&session, snapshots::possible(&volumes)).await;
    let Choices { options, findings } = choose(&args.choice, &facts, &session.namespace);
    terminal.say(&format!(
        "Chosen for {}; a flag overrides each choice:",
        session.server
    ));
    show(&findings, terminal);
    let volumes = snapshots::of_claims(&volumes, &options);
    let plan = Plan::make(&session.namespace, options)?;
    let exit = roll_out(
        &session,
        &plan,
        volumes,
        args.replace_definitions,
        args.rollout,
        terminal,
    )
    .await?;
    let is_installed = exit == Exit::Done && args.rollout.dry_run.is_none();
    if is_installed && plan.options.mode == Mode::Engine {
        terminal
            .say("Next, name a bucket: kubectl backup locations create. Check all: kubectl backup doctor");
    }
    Ok(exit)
}

pub(super) async fn upgrade(args: UpgradeArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let namespace = &session.namespace;
    objects::check_home(&session).await?;
    let Some(before) = installed(&session).await? else {
        return Err(Problem::other(format!("nothing is installed in namespace {namespace}")).with_remedy(
            "Install it (kubectl backup install), or choose the installation's namespace with -n.",
        ));
    };
    before.check_tool(namespace)?;
    let mut options = args
        .choice
        .over(options_of(&before, args.choice.mode, namespace)?);
    let decision = if args.choice.decides_on_snapshots() {
        Decision::Flag
    } else {
        Decision::Kept
    };
    let volumes = snapshots::observe(&session, options.mode, terminal.now()).await;
    let headline = match options.mode {
        Mode::Engine => snapshots::decide(&snapshots::possible(&volumes), &mut options, decision),
        Mode::Guard => None,
    };
    let of_claims = snapshots::of_claims(&volumes, &options);
    let volumes: Vec<Finding> = headline.into_iter().chain(of_claims).collect();
    let plan = Plan::make(namespace, options)?;
    if args.rollout.dry_run == Some(DryRun::Client) {
        show(&volumes, terminal);
        return plan::show(&plan.objects, args.rollout.output, terminal);
    }
    terminal.say(&format!(
        "from {} to {} in namespace {namespace}",
        before.version,
        plan.version()
    ));
    roll_out(&session, &plan, volumes, false, args.rollout, terminal).await
}

/// The options of the installation. To take over an installation that another tool made, the user
/// has to name its mode.
fn options_of(
    before: &Installation,
    mode: Option<Mode>,
    namespace: &str,
) -> Result<Options, Problem> {
    if mode.is_some_and(|mode| mode != before.mode) {
        let mode = before.mode.as_str();
        let other = if before.mode == Mode::Engine {
            Mode::Guard.as_str()
        } else {
            Mode::Engine.as_str()
        };
        let message = format!(
            "the installation in namespace {namespace} is of mode {mode}: an upgrade does not change that"
        );
        return Err(Problem::other(message).with_remedy(format!(
            "Remove it and install the other; objects and ledgers stay: kubectl backup uninstall, then kubectl backup \
             install --mode={other}"
        )));
    }
    match (&before.options, mode) {
        (Some(options), _) => Ok(options.clone()),
        (None, Some(mode)) => Ok(Options { mode, ..Options::default() }),
        (None, None) => Err(Problem::other(format!(
            "the installation in namespace {namespace} was not made by this command, so what was chosen is not known"
        ))
        .with_remedy(format!(
            "Go on with the tool that made it (kubectl apply -k, helm upgrade), or name all that you want: kubectl backup \
             upgrade --mode={} ...",
            before.mode.as_str()
        ))),
    }
}

async fn roll_out(
    session: &Session,
    plan: &Plan,
    volumes: Vec<Finding>,
    replace_definitions: bool,
    args: RolloutArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let observed = preflight::observe(session, plan).await?;
    let mut found = findings::judge(plan, &observed, replace_definitions, &session.namespace);
    if plan.options.mode == Mode::Engine
        && observed
            .get("CustomResourceDefinition", SCHEDULES)
            .is_some()
    {
        found.extend(all_read_otherwise(session, terminal.now()).await);
    }
    found.extend(volumes);
    let is_good = show(&found, terminal);
    if args.dry_run.is_some() {
        let exit = plan::show(&plan.objects, args.output, terminal)?;
        return Ok(if is_good { exit } else { Exit::Failed });
    }
    if !is_good {
        terminal.say("Nothing was changed.");
        return Ok(Exit::Failed);
    }
    let deadline = Instant::now() + args.timeout.as_std();
    for stage in [Stage::Once, Stage::Rights, Stage::Policies, Stage::Programs] {
        apply(session, plan, stage, &observed, terminal).await?;
        if stage == Stage::Once
            && let Err(exit) = established(session, plan, deadline, terminal).await?
        {
            let text = in_vain(
                exit,
                "the API server does not serve the definitions",
                args.timeout,
            );
            terminal.say(&format!("{text}; go on with kubectl backup upgrade"));
            return Ok(exit);
        }
    }
    for name in objects::prune(session, &plan.objects).await? {
        terminal.say(&format!("removed, as this version has it no more: {name}"));
    }
    let done = format!(
        "{} {} in namespace {}",
        plan.version(),
        plan.options.mode.as_str(),
        session.namespace
    );
    if !args.wait {
        apply(session, plan, Stage::Registrations, &observed, terminal).await?;
        terminal.data(&format!("installed: {done}\n"))?;
        terminal.say("Until the webhook is ready, creations of Backups and Restores are refused.");
        return Ok(Exit::Done);
    }
    let [webhook, controller] = PROGRAMS;
    for program in [webhook, controller] {
        let waited = readiness::until_ready(session, program, deadline, terminal).await?;
        if let Err(exit) = waited {
            terminal.say(&not_ready(exit, program, program == webhook, args.timeout));
            return Ok(exit);
        }
        if program == webhook {
            apply(session, plan, Stage::Registrations, &observed, terminal).await?;
        }
    }
    let (answers, waited) = answers(session, deadline, terminal).await?;
    if !show(&answers, terminal) {
        return Ok(Exit::Failed);
    }
    if let Err(exit) = waited {
        terminal.say(&in_vain(exit, "the webhook has not answered", args.timeout));
        return Ok(exit);
    }
    terminal.data(&format!("installed: {done}\n"))?;
    Ok(Exit::Done)
}

fn not_ready(exit: Exit, program: &str, is_webhook: bool, timeout: GoDuration) -> String {
    let what = in_vain(exit, &format!("{program} is not ready"), timeout);
    let registered = if is_webhook {
        "; the webhook is not registered by this run"
    } else {
        ""
    };
    format!("{what}{registered}\n  Correct what is wrong, and go on: kubectl backup upgrade")
}

/// Shows findings. Returns whether none of them is `bad`.
fn show(findings: &[Finding], terminal: &mut Terminal) -> bool {
    let style = terminal.err_style();
    for finding in findings {
        terminal.talk_raw(&finding.lines(style));
    }
    findings.iter().all(|finding| finding.tone != Tone::Bad)
}

/// Applies the objects of a stage, and prints the outcome of each.
async fn apply(
    session: &Session,
    plan: &Plan,
    stage: Stage,
    observed: &ClusterState,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let mut counts = BTreeMap::<Outcome, usize>::new();
    for object in plan.of_stage(stage) {
        let outcome = objects::apply(session, object, observed.found(object)).await?;
        *counts.entry(outcome).or_default() += 1;
    }
    if !counts.is_empty() {
        let counts: Vec<String> = counts
            .iter()
            .map(|(outcome, count)| format!("{count} {}", outcome.as_str()))
            .collect();
        terminal.say(&format!("… {:<23}{}", stage.as_str(), counts.join(", ")));
    }
    Ok(())
}

/// Waits until the API server serves the definitions.
async fn established(
    session: &Session,
    plan: &Plan,
    deadline: Instant,
    terminal: &mut Terminal,
) -> Result<Polled<()>, Problem> {
    let names = plan.names("CustomResourceDefinition");
    let left = deadline.saturating_duration_since(Instant::now());
    poll(session, terminal, left, async |_: &mut Terminal| {
        for name in &names {
            if !objects::is_established(session, name).await? {
                return Ok(Look::Same);
            }
        }
        Ok(Look::Found(()))
    })
    .await
}

/// Sends the webhook test requests until it refuses them: it adds its authority to the registration
/// within seconds. Returns the last findings, and how the wait ended.
async fn answers(
    session: &Session,
    deadline: Instant,
    terminal: &mut Terminal,
) -> Result<(Vec<Finding>, Polled<()>), Problem> {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut last = Vec::new();
    let waited = poll(session, terminal, left, async |_: &mut Terminal| {
        last = webhook::answers(session).await?;
        let is_good = last.iter().all(|finding| finding.tone != Tone::Bad);
        Ok(if is_good { Look::Found(()) } else { Look::Same })
    })
    .await?;
    Ok((last, waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_keeps_the_mode_and_guesses_nothing() {
        let chosen = Options {
            mode: Mode::Guard,
            replicas: Some(3),
            ..Options::default()
        };
        for (options, is, given, expected) in [
            (Some(&chosen), Mode::Guard, None, Ok(3)),
            (Some(&chosen), Mode::Guard, Some(Mode::Guard), Ok(3)),
            (
                Some(&chosen),
                Mode::Guard,
                Some(Mode::Engine),
                Err("--mode=engine"),
            ),
            (None, Mode::Engine, Some(Mode::Guard), Err("--mode=guard")),
            (None, Mode::Engine, Some(Mode::Engine), Ok(0)),
            (None, Mode::Engine, None, Err("--mode=engine")),
        ] {
            let before = Installation {
                options: options.cloned(),
                mode: is,
                version: "v0".to_owned(),
                is_of_helm: false,
            };
            let found = options_of(&before, given, "velero")
                .map(|options| options.replicas.unwrap_or(0))
                .map_err(|problem| problem.remedy.unwrap_or_default());
            match expected {
                Ok(replicas) => assert_eq!(found.unwrap(), replicas),
                Err(remedy) => assert!(found.unwrap_err().contains(remedy), "{remedy}"),
            }
        }
    }
}
