//! What a plugin says when it can't do what it was asked to: words only, as Velero's framework has one code for all errors.

/// Why a plugin did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PluginFault {
    /// A sentence that names the plugin.
    pub text: String,
    /// What kind of fault it is.
    pub fault: Fault,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It may pass by itself.
    Passing,
    /// The plugin will say the same next time.
    Lasting,
    /// What was uploaded is not there any more, or not as it was.
    Lost,
}

impl From<PluginFault> for object_store::Error {
    fn from(fault: PluginFault) -> Self {
        match fault.fault {
            Fault::Lost => Self::NotFound { path: String::new(), source: fault.into() },
            _ => Self::Generic { store: "plugin", source: fault.into() },
        }
    }
}

/// What stands before the status of a store's answer, in the words of the clients of AWS, Google and Azure.
const STATUS: [&str; 3] = ["StatusCode: ", "googleapi: Error ", "RESPONSE "];

/// What is different in each answer: it would change the status of whatever waits for the store with every try.
const PASSING: [&str; 2] = ["RequestID: ", "HostID: "];

impl PluginFault {
    /// What a plugin said, if an error is of one.
    pub(crate) fn of(error: &object_store::Error) -> Option<&Self> {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            if let Some(fault) = error.downcast_ref() {
                return Some(fault);
            }
            cause = error.source();
        }
        None
    }

    /// The status of the store's answer, where its words are known.
    pub(crate) fn status(&self) -> Option<u16> {
        let after = STATUS.iter().find_map(|words| Some(self.text.split_once(words)?.1))?;
        after.get(..3)?.parse().ok()
    }

    /// The same words each time.
    pub(crate) fn steady(&self) -> String {
        let mut text = self.text.clone();
        for words in PASSING {
            if let Some((before, after)) = text.split_once(words) {
                let rest = after.split_once(", ").map_or("", |(_, rest)| rest);
                text = format!("{before}{rest}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWS: &str = "the plugin says: operation error S3: PutObject, https response error StatusCode: 403, RequestID: \
                       17A2B3, HostID: 88, api error AccessDenied: Access Denied.";

    fn fault(text: &str) -> PluginFault {
        PluginFault { text: text.to_owned(), fault: Fault::Passing }
    }

    #[test]
    fn the_status_of_an_answer_is_found() {
        for (text, status) in [
            (AWS, Some(403)),
            ("googleapi: Error 404: No such object: b/k, notFound", Some(404)),
            ("PUT https://a/b\n---\nRESPONSE 409: 409 Conflict\nERROR CODE: X", Some(409)),
            ("no space left on device", None),
            ("StatusCode: 4", None),
            ("StatusCode: äöü", None),
        ] {
            assert_eq!(fault(text).status(), status, "{text}");
        }
    }

    #[test]
    fn the_words_are_the_same_each_time() {
        let first = fault(AWS).steady();
        assert_eq!(first, fault(&AWS.replace("17A2B3", "99").replace("HostID: 88", "HostID: 7=/x")).steady());
        assert!(first.ends_with("StatusCode: 403, api error AccessDenied: Access Denied."), "{first}");
    }

    #[test]
    fn a_fault_is_found_in_an_error_of_the_store() {
        let error = object_store::Error::from(fault("x"));
        assert_eq!(PluginFault::of(&error), Some(&fault("x")));
        assert_eq!(PluginFault::of(&object_store::Error::Generic { store: "S3", source: "x".into() }), None);
    }
}
