//! Image layouts of the Open Container Initiative, in memory.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::archive::Tree;

pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Annotation of a manifest in the layout: its tag.
const TAG: &str = "org.opencontainers.image.ref.name";

/// SHA-256 in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Names a blob from within another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    /// `sha256:` and hexadecimal digits.
    pub(super) digest: String,
    pub(super) size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// Blobs, and the manifests among them that are found by tag or by what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: Vec<Descriptor>,
}

impl Layout {
    pub(super) fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let hash = sha256(&bytes);
        let descriptor = Descriptor {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{hash}"),
            size: bytes.len(),
            artifact_type: None,
            platform: None,
            annotations: BTreeMap::new(),
        };
        self.blobs.insert(hash, bytes);
        descriptor
    }

    pub(super) fn json(&mut self, media_type: &str, value: &Value) -> Descriptor {
        self.blob(media_type, value.to_string().into_bytes())
    }

    /// Gives a manifest a tag.
    pub(super) fn tag(&mut self, manifest: &Descriptor, tag: &str) {
        let mut entry = manifest.clone();
        entry.annotations.insert(TAG.to_owned(), tag.to_owned());
        self.manifests.push(entry);
    }

    /// Adds a document about a manifest, as a referrer of it.
    pub(super) fn refer(
        &mut self,
        subject: &Descriptor,
        media_type: &str,
        title: &str,
        document: Vec<u8>,
    ) {
        let config = self.json(EMPTY, &json!({}));
        let mut layer = self.blob(media_type, document);
        layer.annotations.insert(
            "org.opencontainers.image.title".to_owned(),
            title.to_owned(),
        );
        let mut manifest = self.json(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "artifactType": media_type,
                "config": config,
                "layers": [layer],
                "subject": {
                    "mediaType": subject.media_type,
                    "digest": subject.digest,
                    "size": subject.size,
                },
            }),
        );
        manifest.artifact_type = Some(media_type.to_owned());
        self.manifests.push(manifest);
    }

    /// The manifest with this tag.
    pub(super) fn tagged(&self, tag: &str) -> anyhow::Result<&Descriptor> {
        self.manifests
            .iter()
            .find(|manifest| manifest.annotations.get(TAG).map(String::as_str) == Some(tag))
            .with_context(|| format!("the layout has no manifest with the tag {tag}"))
    }

    /// Its files.
    pub(super) fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        tree.file("oci-layout", 0o644, version.to_string().into_bytes());
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": self.manifests,
        });
        tree.file("index.json", 0o644, index.to_string().into_bytes());
        for (hash, bytes) in &self.blobs {
            tree.file(&format!("blobs/sha256/{hash}"), 0o644, bytes.clone());
        }
        tree
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn bytes<'a>(layout: &'a Layout, digest: &str) -> &'a [u8] {
        &layout.blobs[digest.strip_prefix("sha256:").unwrap()]
    }

    /// The JSON of a blob.
    pub(crate) fn read(layout: &Layout, digest: &str) -> Value {
        serde_json::from_slice(bytes(layout, digest)).unwrap()
    }

    /// Descriptors anywhere in a document.
    fn descriptors(value: &Value, to: &mut Vec<(String, u64)>) {
        if let (Some(digest), Some(size)) = (value["digest"].as_str(), value["size"].as_u64()) {
            to.push((digest.to_owned(), size));
        }
        match value {
            Value::Array(all) => all.iter().for_each(|one| descriptors(one, to)),
            Value::Object(all) => all.values().for_each(|one| descriptors(one, to)),
            _ => {}
        }
    }

    /// Every descriptor names a blob of its size, from the index of the layout on.
    pub(crate) fn assert_complete(layout: &Layout) {
        let mut named = Vec::new();
        descriptors(&json!(layout.manifests), &mut named);
        let mut at = 0;
        while let Some((digest, size)) = named.get(at).cloned() {
            let bytes = bytes(layout, &digest);
            assert_eq!(bytes.len() as u64, size, "{digest}");
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                descriptors(&value, &mut named);
            }
            at += 1;
        }
    }

    #[test]
    fn a_referrer_names_its_subject_and_has_no_tag() {
        let mut layout = Layout::default();
        let index = layout.json(INDEX, &json!({ "schemaVersion": 2, "manifests": [] }));
        layout.tag(&index, "v1");
        layout.refer(&index, "application/x", "x.json", b"{}".to_vec());
        assert_complete(&layout);
        let referrer = &layout.manifests[1];
        assert_eq!(referrer.annotations, BTreeMap::new());
        let manifest = read(&layout, &referrer.digest);
        assert_eq!(manifest["subject"]["digest"], json!(index.digest));
        assert_eq!(manifest["artifactType"], "application/x");
        assert_eq!(layout.tagged("v1").unwrap().digest, index.digest);
        assert!(layout.tagged("v2").is_err());
    }

    #[test]
    fn a_digest_is_that_of_sha256() {
        assert_eq!(
            sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
