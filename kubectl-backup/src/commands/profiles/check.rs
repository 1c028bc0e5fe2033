//! `profiles check`: whether the programs accept profile files. For pipelines: it needs no cluster.

use backup_core::profile::{Profile, ProfileSet};

use crate::{
    cli::CheckProfilesArgs,
    commands::{prelude::*, spec},
};

pub(crate) fn run(args: &CheckProfilesArgs, terminal: &mut Terminal) -> CommandResult {
    let mut files = Vec::new();
    for path in &args.files {
        let text = spec::read(path, terminal).map_err(|error| {
            Problem::other(format!("cannot read {}: {error}", path.display()))
                .with_remedy("Check the path; - is stdin.")
        })?;
        files.push((path.display().to_string(), text));
    }
    let named = files
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()));
    let ProfileSet { profiles, refused } = Profile::with_files(named);
    let built_in = Profile::builtin();
    for Profile {
        name,
        group,
        backup,
        restore,
        ..
    } in profiles
        .iter()
        .filter(|profile| !built_in.contains(profile))
    {
        let kinds = format!("{} and {} of {group}", backup.kind, restore.kind);
        terminal.data(&format!("{name}: can be used for {kinds}\n"))?;
    }
    for profile in &refused {
        terminal.say(&format!(
            "{}: cannot be used: {}",
            plain(&profile.name),
            plain(&profile.error.to_string())
        ));
    }
    Ok(if refused.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
