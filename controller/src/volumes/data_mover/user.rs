//! The user of a pod with `backup-mover` that does not run as root.

use backup_core::{labels::MOVER_USER_ANNOTATION, text::shortened};

/// Largest id of a user or group that Kubernetes accepts.
const MAX_ID: u32 = i32::MAX.unsigned_abs();
/// Maximum length of a wrong annotation in a message (characters).
const MAX_SHOWN_CHARS: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoverUser {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl MoverUser {
    /// For pods without a volume. The image names the same user.
    pub(super) const UNPRIVILEGED: Self = Self {
        user: 65_532,
        group: 65_532,
    };

    /// Reads [`MOVER_USER_ANNOTATION`]. Errors: a sentence on what is wrong with it.
    pub(super) fn of_annotation(text: &str) -> Result<Self, String> {
        let mut ids = text.splitn(2, ':').map(id);
        let user = ids.next().flatten().filter(|user| *user > 0);
        let group = ids.next().unwrap_or(user);
        user.zip(group)
            .map(|(user, group)| Self { user, group })
            .ok_or_else(|| {
                format!(
                    "annotation {MOVER_USER_ANNOTATION} of the claim is {:?}: expected the id of a \
                     user other than 0, or USER:GROUP, such as 1000:1000; correct it, or remove it \
                     for user 0",
                    shortened(text, MAX_SHOWN_CHARS)
                )
            })
    }
}

fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= MAX_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_number_other_than_0_with_a_group_or_without() {
        for (text, user, group) in [
            ("1000", 1000, 1000),
            ("1000:0", 1000, 0),
            ("1:2147483647", 1, 2_147_483_647),
        ] {
            let expected = MoverUser { user, group };
            assert_eq!(MoverUser::of_annotation(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "0",
            "0:0",
            "root",
            "-1",
            "1000:",
            ":1000",
            "1000:1000:1000",
            "2147483648",
        ] {
            let error = MoverUser::of_annotation(text).unwrap_err();
            assert!(error.contains("1000:1000"), "{text}: {error}");
        }
    }
}
