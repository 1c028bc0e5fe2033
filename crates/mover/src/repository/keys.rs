//! The keys of a repository. Each is the master key, encrypted with one password, so a password is
//! replaced without touching data: a key of the new one is added, and later the keys of the old one
//! are removed. Each step can be repeated after a crash.

use backup_core::{data_movement::PASSWORD_VARIABLE, repository_records::OTHER_PASSWORD_VARIABLE};
use rustic_core::{FileType, KeyOptions};

use super::{Job, Password, Repository, errors::OrMoverError as _, layout::key, session::Session};
use crate::MoverError;

pub(super) fn open(repository: &Repository, job: &Job) -> Result<(), MoverError> {
    Session::new(repository, job, None).open().map(drop)
}

pub(super) fn add(repository: &Repository, other: &Password, job: &Job) -> Result<(), MoverError> {
    let other = with_password(repository, other);
    if !opens_or_gets_key(repository, &other, job)? {
        // Its own password opens the repository; the other one may lack a key.
        opens_or_gets_key(&other, repository, job)?;
    }
    Ok(())
}

/// Makes the password of `repository` open it, by a key that is added with the password of
/// `helper`. Returns whether a key was added.
fn opens_or_gets_key(
    repository: &Repository,
    helper: &Repository,
    job: &Job,
) -> Result<bool, MoverError> {
    let session = Session::new(repository, job, None);
    match session.open() {
        Ok(_) => return Ok(false),
        Err(MoverError::WrongPassword { .. }) => {}
        Err(error) => return Err(error),
    }
    let opened = Session::new(helper, job, None).open()?;
    opened
        .add_key(&repository.password.0, &KeyOptions::default())
        .ours(session.url())?;
    // The new key is only relied on after it has opened the repository.
    session.open()?;
    Ok(true)
}

pub(super) fn remove(
    repository: &Repository,
    other: &Password,
    job: &Job,
) -> Result<(), MoverError> {
    if repository.password.0 == other.0 {
        let detail = format!(
            "it is the same password as {PASSWORD_VARIABLE}, so no key was removed: name the password whose keys are to be \
             removed"
        );
        return Err(MoverError::config(OTHER_PASSWORD_VARIABLE, detail));
    }
    let other = with_password(repository, other);
    opens_or_gets_key(repository, &other, job)?;
    let session = Session::new(repository, job, None);
    let other = Session::new(&other, job, None);
    for id in session.keys()? {
        job.stop.check()?;
        // A key that opens with both is kept.
        if other.opens_with(id)? && !session.opens_with(id)? {
            session.objects.delete(&key(FileType::Key, &id))?;
        }
    }
    session.open().map(drop)
}

fn with_password(repository: &Repository, password: &Password) -> Repository {
    Repository {
        password: password.clone(),
        ..repository.clone()
    }
}
