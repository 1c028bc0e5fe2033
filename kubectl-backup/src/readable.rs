//! A list item that is skipped if it cannot be decoded, so that it does not hide the others.

use std::borrow::Cow;

use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// For lists whose undecodable items are ignored silently. Unlike kube's `DeserializeGuard` it
/// builds no JSON tree of each object first.
#[derive(Clone, Debug)]
pub(crate) struct Readable<K> {
    pub(crate) object: Option<K>,
    /// Empty; the trait for list items requires it.
    meta: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self {
            object: serde_json::from_str(raw.get()).ok(),
            meta: ObjectMeta::default(),
        })
    }
}

impl<K: Resource> Resource for Readable<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
