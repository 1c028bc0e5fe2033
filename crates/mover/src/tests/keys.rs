//! Rotation of the password.

use std::sync::atomic::Ordering;

use super::*;

const NEXT: &str = "battery staple";

impl World {
    fn keys(&self) -> Vec<String> {
        let mut keys = self.runtime.block_on(self.store.keys());
        keys.retain(|key| key.contains("/keys/"));
        keys
    }

    /// Whether this password opens the repository.
    fn opens(&self, password: &str) -> bool {
        let _entered = self.runtime.enter();
        let opened = self.repository_with(password).open(&Job::default());
        match opened {
            Ok(()) => true,
            Err(MoverError::WrongPassword { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn add_key(&self, password: &str, other: &str) -> Result<(), MoverError> {
        let _entered = self.runtime.enter();
        let other = Password::new(other);
        let repository = self.repository_with(password);
        repository.add_key(&other, &Job::default())
    }

    fn remove_keys(&self, password: &str, other: &str) -> Result<(), MoverError> {
        let _entered = self.runtime.enter();
        let other = Password::new(other);
        let repository = self.repository_with(password);
        repository.remove_keys(&other, &Job::default())
    }
}

#[test]
fn a_password_is_replaced_and_data_of_both_times_is_read() {
    let world = World::new();
    world.write("file", noise(1, 1 << 20));
    let snapshot = world.save();
    for _ in 0..2 {
        world.add_key(PASSWORD, NEXT).unwrap();
        assert_eq!(world.keys().len(), 2, "a repetition adds no key");
    }
    assert!(world.opens(PASSWORD) && world.opens(NEXT));
    for _ in 0..2 {
        world.remove_keys(NEXT, PASSWORD).unwrap();
        assert_eq!(world.keys().len(), 1);
    }
    assert!(!world.opens(PASSWORD) && world.opens(NEXT));
    let target = tempfile::tempdir().unwrap();
    let request = RestoreRequest {
        snapshot,
        target: target.path().to_owned(),
        existing: ExistingFiles::Refuse,
    };
    let _entered = world.runtime.enter();
    let repository = world.repository_with(NEXT);
    repository.restore(&request, &Job::default()).unwrap();
    assert_same(world.source.path(), target.path());
}

#[test]
fn a_repository_that_only_the_other_password_opens_gets_a_key_before_one_is_removed() {
    let world = World::new();
    world.add_key(NEXT, PASSWORD).unwrap();
    assert!(world.opens(PASSWORD) && world.opens(NEXT));
    let world = World::new();
    world.remove_keys(NEXT, PASSWORD).unwrap();
    assert!(!world.opens(PASSWORD) && world.opens(NEXT));
}

#[test]
fn keys_of_other_passwords_are_kept() {
    let world = World::new();
    world.add_key(PASSWORD, "of the user").unwrap();
    world.add_key(PASSWORD, NEXT).unwrap();
    world.remove_keys(NEXT, PASSWORD).unwrap();
    assert!(world.opens("of the user"));
    assert_eq!(world.keys().len(), 2);
}

#[test]
fn with_one_password_for_both_the_removal_of_its_keys_is_refused() {
    let world = World::new();
    world.add_key(PASSWORD, PASSWORD).unwrap();
    let error = world.remove_keys(PASSWORD, PASSWORD).unwrap_err();
    assert_eq!(error.category(), "config");
    assert!(error.to_string().contains("no key was removed"), "{error}");
    assert!(world.opens(PASSWORD));
    assert_eq!(world.keys().len(), 1);
}

#[test]
fn two_wrong_passwords_change_nothing() {
    let world = World::new();
    let before = world.keys();
    for error in [
        world.add_key("a", "b").unwrap_err(),
        world.remove_keys("a", "b").unwrap_err(),
    ] {
        assert_eq!(error.category(), "wrong_password");
    }
    assert_eq!(world.keys(), before);
}

#[test]
fn a_store_that_fails_is_an_error_and_no_wrong_password() {
    let mut world = World::new();
    world.limits.retry_budget = std::time::Duration::ZERO;
    world.store.outages.store(100, Ordering::SeqCst);
    let error = world.remove_keys(NEXT, PASSWORD).unwrap_err();
    assert_eq!(error.category(), "store");
    world.store.outages.store(0, Ordering::SeqCst);
    assert!(world.opens(PASSWORD));
}
