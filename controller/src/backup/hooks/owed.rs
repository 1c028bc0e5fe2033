//! Notes of what pods are owed: commands that undo what those before their backup have done.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Hook, Pod};

/// What one pod is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owed {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod: another one of this name is owed nothing.
    pub uid: String,
    /// The commands, in order.
    pub post: Vec<Hook>,
}

impl Owed {
    /// To a pod.
    pub fn new(pod: &Pod, post: &[Hook]) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            post: post.to_vec(),
        }
    }

    /// The note that it is owed from now on.
    pub fn note(&self) -> Value {
        json!({ "hooksOwed": self })
    }

    /// The note that it was paid.
    pub fn paid(&self) -> Value {
        json!({ "hooksPaid": self.uid })
    }

    /// What is still owed by all notes, in order. Notes about other things are passed over.
    ///
    /// # Errors
    /// If a note about hooks can't be understood: then nobody knows what is owed.
    pub fn of(notes: &[Value]) -> Result<Vec<Self>, serde_json::Error> {
        let mut owed: Vec<Self> = Vec::new();
        for note in notes {
            if let Some(one) = note.get("hooksOwed") {
                owed.push(serde_json::from_value(one.clone())?);
            }
            if let Some(uid) = note.get("hooksPaid").and_then(Value::as_str) {
                owed.retain(|one| one.uid != uid);
            }
        }
        Ok(owed)
    }

    /// Pods, as namespace and name, that had commands run around them already, by all notes.
    pub fn earlier(notes: &[Value]) -> Result<Vec<(String, String)>, serde_json::Error> {
        let mut pods = BTreeSet::new();
        for note in notes.iter().filter_map(|note| note.get("hooksOwed")) {
            let one: Self = serde_json::from_value(note.clone())?;
            pods.insert((one.namespace, one.pod));
        }
        Ok(pods.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn owed(uid: &str) -> Owed {
        let hook = Hook {
            source: "annotation".to_owned(),
            container: "c".to_owned(),
            command: vec!["thaw".to_owned()],
            fails: true,
            timeout: Duration::from_millis(1500),
        };
        Owed { namespace: "n".to_owned(), pod: format!("p-{uid}"), uid: uid.to_owned(), post: vec![hook] }
    }

    #[test]
    fn what_is_owed_and_not_paid_is_found_by_whoever_reads_the_notes() {
        let (a, b) = (owed("a"), owed("b"));
        let notes = [a.note(), json!({ "operation": 1 }), b.note(), a.paid()];
        assert_eq!(Owed::of(&notes).unwrap(), std::slice::from_ref(&b));
        assert_eq!(Owed::earlier(&notes).unwrap().len(), 2);
        assert_eq!(Owed::of(&[a.note(), a.paid(), a.note()]).unwrap(), [a], "owed anew in a later try");
        assert!(Owed::of(&[json!({ "hooksOwed": { "pod": "x" } })]).is_err());
    }
}
