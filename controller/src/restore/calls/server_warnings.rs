//! What the API server warns of in its answers (`Warning: 299 - "..."`): for the log, each text once.

use std::collections::HashSet;

use backup_core::text::{shortened, warning};
use parking_lot::Mutex;

/// Warnings that are remembered; others are left out.
const MAX_WARNINGS: usize = 64;
/// Longest warning (characters).
const MAX_TEXT: usize = 500;

#[derive(Debug, Default)]
pub(super) struct ServerWarnings(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: HashSet<String>,
    new: Vec<String>,
}

impl ServerWarnings {
    /// Adds a header of the answer to a request. `subject` is what the request was to do.
    pub(super) fn add(&self, header: &str, subject: &impl std::fmt::Display) {
        let Some(text) = warning(header) else { return };
        let text = shortened(&text, MAX_TEXT);
        let mut inner = self.0.lock();
        if inner.seen.len() < MAX_WARNINGS && inner.seen.insert(text.clone()) {
            inner.new.push(format!("the API server, asked to {subject}, warns: {text}"));
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_of_the_server_is_told_once() {
        let warnings = ServerWarnings::default();
        for header in
            [r#"299 - "unknown field \"spec.a\"""#, r#"299 - "unknown field \"spec.a\"""#, "299", ""]
        {
            warnings.add(header, &"create pods");
        }
        let expected = r#"the API server, asked to create pods, warns: unknown field "spec.a""#;
        assert_eq!((warnings.take(), warnings.take()), (vec![expected.to_owned()], Vec::new()));
        (0..100).for_each(|number| warnings.add(&format!("299 - \"{number}\""), &"x"));
        assert_eq!(warnings.take().len(), MAX_WARNINGS - 1);
    }
}
