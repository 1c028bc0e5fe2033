//! To whom a history's objects belong: where they are, and how they are sent.

use serde_json::{Value, json};

use super::{
    faults::Point,
    plan::{Create, How, Kind, NAMESPACES, Setting, namespace},
};
use crate::{install::NAMESPACE, percona, sibling};

/// Namespace of the second installation.
pub(crate) const SECOND: &str = "second-velero";
/// Annotation by which the kit identifies a creation behind the API server.
pub(crate) const ATTEMPT: &str = "history/attempt";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Objects of our installation, whose engine the kit plays.
    Ours,
    /// Objects of two installations with real controllers.
    Installations {
        /// Whether their restores take long.
        slow: bool,
    },
    /// Objects of a guarded operator, which starts every object that it sees.
    Operators {
        /// Number of the database cluster that they are for.
        cluster: usize,
    },
}

/// Number of database clusters: each is used by one history at a time.
pub(crate) const CLUSTERS: u8 = 8;
/// One history in this many is about a guarded operator.
const GUARDED_EVERY: u64 = 6;

/// Whether the restores of real controllers take long in this history.
pub(crate) fn is_slow(number: u64) -> bool {
    number % 3 == 1
}

/// The namespace of the installation to which an object of this name belongs: every second name is
/// of the second one.
pub(crate) fn installation(name: &str) -> &'static str {
    if name.get(9..10) == Some("1") {
        SECOND
    } else {
        NAMESPACE
    }
}

impl Whose {
    /// The owner of a history's objects.
    pub(crate) fn of(number: u64, setting: Setting) -> Self {
        if setting.guarded && number % GUARDED_EVERY == GUARDED_EVERY / 2 {
            let cluster = number / GUARDED_EVERY % u64::from(CLUSTERS);
            Self::Operators {
                cluster: usize::try_from(cluster).unwrap_or_default(),
            }
        } else if setting.controllers {
            Self::Installations {
                slow: is_slow(number),
            }
        } else {
            Self::Ours
        }
    }

    /// The Completed backup of each installation that is the source of restores, with one namespace
    /// for each of a history's.
    pub(crate) fn source(slow: bool) -> &'static str {
        if slow { "slow" } else { "quick" }
    }

    /// Whether their creations may have this fault. A second webhook that denies would also deny
    /// each change of state if the object were stored without it, and the operator would make no
    /// progress.
    pub(crate) fn can_meet(&self, fault: Point) -> bool {
        fault != Point::SiblingDenies || !matches!(self, Self::Operators { .. })
    }

    /// The path of the collection with an object of this name.
    pub(crate) fn path(&self, kind: Kind, name: &str) -> String {
        let plural = kind.plural();
        let ours = |home| format!("/apis/velero.io/v1/namespaces/{home}/{plural}");
        match self {
            Self::Ours => ours(NAMESPACE),
            Self::Installations { .. } => ours(installation(name)),
            Self::Operators { .. } => {
                let (version, home) = (percona::VERSION, percona::NAMESPACE);
                format!("/apis/{version}/namespaces/{home}/perconaservermysql{plural}")
            }
        }
    }

    /// The object to send. `attempt` is how the kit identifies it later.
    pub(crate) fn body(&self, create: &Create, prefix: &str, attempt: u64) -> Value {
        let name = &create.object.name;
        let mut annotations = json!({ ATTEMPT: attempt.to_string() });
        if create.fault == Some(Point::SiblingDenies) {
            // A little later than our claim needs; the checker verifies whether it was later.
            annotations[sibling::ANNOTATION] = json!("delay-60,403");
        }
        let field = if create.how == How::Generate {
            "generateName"
        } else {
            "name"
        };
        let (version, kind) = match self {
            Self::Operators { .. } => (
                percona::VERSION,
                format!("PerconaServerMySQL{}", create.object.kind),
            ),
            _ => ("velero.io/v1", create.object.kind.to_string()),
        };
        json!({ "apiVersion": version, "kind": kind, "spec": self.spec(create, prefix),
            "metadata": { field: name, "annotations": annotations } })
    }

    fn spec(&self, create: &Create, prefix: &str) -> Value {
        let (restore, area) = (create.object.kind == Kind::Restore, create.object.area);
        let mut names: Vec<String> = (0..NAMESPACES)
            .filter(|index| area.0 & 1 << index != 0)
            .map(|index| namespace(prefix, index))
            .collect();
        match self {
            Self::Operators { cluster } => {
                return json!({ "clusterName": format!("cluster-{cluster}") });
            }
            Self::Installations { slow } if restore => {
                let source = Self::source(*slow);
                let from = |name: &String| format!("{source}-{}", &name[prefix.len()..]);
                // Existing items get the label of this restore, which shows who wrote them.
                return json!({ "backupName": source, "existingResourcePolicy": "update",
                    "includedNamespaces": names.iter().map(from).collect::<Vec<_>>(),
                    "namespaceMapping": names.iter().map(|name| (from(name), json!(name))).collect::<Value>() });
            }
            Self::Ours | Self::Installations { .. } => {}
        }
        if names.len() == NAMESPACES {
            names = vec![format!("{prefix}*")];
        }
        if !restore {
            return json!({ "includedNamespaces": names, "includedResources": ["configmaps"] });
        }
        // A backup of this name may exist: then it cannot be deleted meanwhile.
        let mut spec = json!({ "includedNamespaces": names, "backupName": format!("{prefix}b{}", area.0 & 1) });
        // A restore writes to the targets of its mapping.
        if names.len() == 2 {
            let from = format!("{prefix}mapped");
            spec["includedNamespaces"] = json!([&names[0], from]);
            spec["namespaceMapping"] = json!({ &from: &names[1] });
        }
        spec
    }
}
