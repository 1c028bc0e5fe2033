//! Commands that take several names.

use crate::{
    Terminal,
    cli::GlobalArgs,
    client::Session,
    error::{Exit, Problem},
};

/// Does it for each name; a failure does not keep the others from being tried. The worst of what came of them.
pub async fn each<F>(
    global: &GlobalArgs,
    names: &[String],
    terminal: &mut Terminal,
    mut run: F,
) -> Result<Exit, Problem>
where
    F: AsyncFnMut(&Session, &str, &mut Terminal) -> Result<Exit, Problem>,
{
    let session = Session::connect(global, terminal).await?;
    let mut worst = Ok(Exit::Done);
    for name in names {
        match run(&session, name, terminal).await {
            Ok(exit) => worst = worst.map(|before: Exit| before.max(exit)),
            Err(problem) => {
                if let Err(before) = std::mem::replace(&mut worst, Err(problem)) {
                    terminal.say(&format!("error: {before}"));
                }
            }
        }
    }
    worst
}
