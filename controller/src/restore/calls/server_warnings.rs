//! Warnings in the answers of the API server (`Warning: 299 - "..."`): for the log, each text once.

use backup_core::{
    api_warnings::{self, SeenWarnings},
    text::shortened,
};
use parking_lot::Mutex;

/// Longest warning (characters).
const MAX_TEXT: usize = 500;

#[derive(Debug, Default)]
pub(super) struct ServerWarnings(Mutex<SeenWarnings>);

impl ServerWarnings {
    /// Adds a `Warning` header of an answer. `subject` describes the request.
    pub(super) fn add(&self, header: &str, subject: &impl std::fmt::Display) {
        let Some(text) = api_warnings::text(header) else {
            return;
        };
        self.0.lock().add(shortened(&text, MAX_TEXT), |text| {
            format!("the API server, asked to {subject}, warns: {text}")
        });
    }

    pub(super) fn take(&self) -> Vec<String> {
        self.0.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api_warnings::MAX_WARNINGS;

    use super::*;

    #[test]
    fn each_warning_of_the_server_is_told_once() {
        let warnings = ServerWarnings::default();
        for header in [
            r#"299 - "unknown field \"spec.a\"""#,
            r#"299 - "unknown field \"spec.a\"""#,
            "299",
            "",
        ] {
            warnings.add(header, &"create pods");
        }
        let expected = r#"the API server, asked to create pods, warns: unknown field "spec.a""#;
        assert_eq!(
            (warnings.take(), warnings.take()),
            (vec![expected.to_owned()], Vec::new())
        );
        (0..100).for_each(|number| warnings.add(&format!("299 - \"{number}\""), &"x"));
        assert_eq!(warnings.take().len(), MAX_WARNINGS - 1);
    }
}
