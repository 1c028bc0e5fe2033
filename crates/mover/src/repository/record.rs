//! What a snapshot's description says about its volume.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::volume::{Attributes, ExtendedAttribute, Moment};

/// The only format there is.
const FORMAT: u32 = 1;

/// What the format of restic has no place for, as JSON in the snapshot's description: restic keeps
/// and ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeRecord {
    format: u32,
    pub(super) kind: VolumeKind,
    /// The attributes of the root folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<RootRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum VolumeKind {
    Folder,
    Block,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RootRecord {
    mode: u32,
    uid: u32,
    gid: u32,
    modified: Moment,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extended: Vec<ExtendedRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExtendedRecord {
    name: String,
    /// In Base64.
    value: String,
}

impl VolumeRecord {
    pub(super) fn folder(root: &Attributes) -> Self {
        // Names that are not UTF-8 do not exist in practice: the kernel's name spaces are ASCII.
        let extended = root.extended.iter().map(|attribute| ExtendedRecord {
            name: attribute.name.to_string_lossy().into_owned(),
            value: BASE64_STANDARD.encode(&attribute.value),
        });
        Self {
            format: FORMAT,
            kind: VolumeKind::Folder,
            root: Some(RootRecord {
                mode: root.mode,
                uid: root.uid,
                gid: root.gid,
                modified: root.modified,
                extended: extended.collect(),
            }),
        }
    }

    pub(super) fn block() -> Self {
        Self {
            format: FORMAT,
            kind: VolumeKind::Block,
            root: None,
        }
    }

    /// Reads a description; `None` if it is not ours, as in a snapshot of restic.
    pub(super) fn read(description: Option<&str>) -> Option<Self> {
        let record: Self = serde_json::from_str(description?).ok()?;
        (record.format == FORMAT).then_some(record)
    }

    pub(super) fn text(&self) -> String {
        // Never fails: there are only strings and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn root(&self) -> Option<Attributes> {
        let root = self.root.as_ref()?;
        let extended = root.extended.iter().map(|attribute| ExtendedAttribute {
            name: attribute.name.clone().into(),
            value: BASE64_STANDARD.decode(&attribute.value).unwrap_or_default(),
        });
        Some(Attributes {
            mode: root.mode,
            uid: root.uid,
            gid: root.gid,
            modified: root.modified,
            extended: extended.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_survives_its_description() {
        let root = Attributes {
            mode: 0o2700,
            uid: 999,
            gid: 998,
            modified: Moment {
                seconds: -1,
                nanoseconds: 5,
            },
            extended: vec![ExtendedAttribute {
                name: "system.posix_acl_access".into(),
                value: vec![0, 255, 1],
            }],
        };
        let text = VolumeRecord::folder(&root).text();
        let record = VolumeRecord::read(Some(&text)).unwrap();
        assert_eq!(record.root(), Some(root));
        assert_eq!(record.kind, VolumeKind::Folder);
    }

    #[test]
    fn other_descriptions_are_left_alone() {
        for text in [
            None,
            Some("my snapshot"),
            Some("{\"format\":2,\"kind\":\"folder\"}"),
        ] {
            assert_eq!(VolumeRecord::read(text), None);
        }
    }
}
