//! The items of a tarball, in a temporary file: they are compared only when all of them were read.

use std::{
    fs::File,
    io::{BufWriter, Read, Write as _},
    os::unix::fs::FileExt as _,
};

use backup_actions::restore::json::Object;
use backup_store::{
    StoreError,
    tarball::{Entry, MAX_TOTAL, walk},
};

use crate::error::Problem;

pub(super) struct Stored {
    /// `deployments.apps`.
    pub(super) group_resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    offset: u64,
    length: usize,
}

pub(super) struct Contents {
    file: File,
    pub(super) items: Vec<Stored>,
}

/// Reads a tarball to its end. Errors: it cannot be read; the local disk is full.
pub(super) fn read(name: &str, source: impl Read) -> Result<Contents, StoreError> {
    let full = |error: std::io::Error| StoreError::Io {
        action: "write a temporary file".to_owned(),
        detail: error.to_string(),
    };
    let file = tempfile::tempfile().map_err(full)?;
    let mut writer = BufWriter::new(file.try_clone().map_err(full)?);
    let (mut items, mut offset) = (Vec::new(), 0);
    walk(&format!("the tarball of {name}"), source, MAX_TOTAL, |entry, json| {
        if let Entry::Item { group_resource, namespace, name } = *entry {
            writer.write_all(json).map_err(full)?;
            items.push(Stored {
                group_resource: group_resource.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                offset,
                length: json.len(),
            });
            offset += json.len() as u64;
        }
        Ok(())
    })?;
    writer.flush().map_err(full)?;
    Ok(Contents { file, items })
}

impl Contents {
    pub(super) fn object(&self, item: &Stored) -> Result<Object, Problem> {
        let mut json = vec![0; item.length];
        let read = self.file.read_exact_at(&mut json, item.offset);
        read.map_err(|error| Problem::other(format!("cannot read a temporary file: {error}")))?;
        let Stored { group_resource, name, .. } = item;
        serde_json::from_slice(&json).map_err(|error| {
            Problem::bad_file(format!("{group_resource} {name:?} is no object of Kubernetes: {error}"))
        })
    }
}
