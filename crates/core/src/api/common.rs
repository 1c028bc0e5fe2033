//! Pieces that several kinds share.

use std::collections::BTreeMap;

use super::kind::{api_part, api_struct, string_enum};

api_struct! {
    /// Labels and annotations that a template hands to what is made from it.
    TemplateMetadata {
        /// Labels of the object made from the template.
        labels?: Option<BTreeMap<String, String>>,
        /// Annotations of the object made from the template.
        annotations?: Option<BTreeMap<String, String>>,
    }
}

api_part! {
    /// A reference to an object in the same namespace.
    LocalReference {
        /// API group; none is the core group.
        api_group?: Option<String>,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    }
}

api_part! {
    /// A key of a Secret in the same namespace.
    SecretKey {
        /// Name of the Secret.
        #[serde(default)]
        name: String,
        /// Key in the Secret.
        key: String,
        /// Whether the Secret or key may be absent.
        optional?: Option<bool>,
    }
}

api_struct! {
    /// Counts of hooks that ran.
    HookStatus {
        /// Hooks that were started.
        hooks_attempted?: i64,
        /// Hooks that failed.
        hooks_failed?: i64,
    }
}

string_enum! {
    /// What a failing hook does to its item.
    HookErrorMode {
        /// The failure is recorded, and the item is processed further.
        Continue = "Continue",
        Fail = "Fail",
    }
}
