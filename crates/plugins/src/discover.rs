//! Finds the plugin binaries of a folder.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Maximum depth of nested folders that are searched.
const MAX_DEPTH: usize = 16;

/// All executable files of a folder and its subfolders, sorted by path; empty if there is no such
/// folder (Velero `pkg/plugin/clientmgmt/process/registry.go`, v1.18). Links are followed, as an
/// installation may put links there.
pub(crate) fn executables(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    match look(folder, MAX_DEPTH, &mut found) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
            return Ok(Vec::new());
        }
        result => result?,
    }
    found.sort();
    Ok(found)
}

fn look(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // The data folder of a Kubernetes volume; links beside it lead to its files.
        if entry.file_name().as_encoded_bytes().starts_with(b"..") {
            continue;
        }
        let path = entry.path();
        // A broken link is skipped.
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            if depth > 0 {
                look(&path, depth - 1, found)?;
            }
        } else if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            found.push(path);
        } else {
            tracing::debug!(file = %path.display(), "not executable: no plugin");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_at_any_depth_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        file("b", 0o755);
        file("a/deep/c", 0o700);
        file("README", 0o644);
        file("..data/b", 0o755);
        std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("link"))
            .unwrap();
        let names: Vec<_> = executables(folder.path())
            .unwrap()
            .iter()
            .map(|path| {
                path.strip_prefix(folder.path())
                    .unwrap()
                    .display()
                    .to_string()
            })
            .collect();
        assert_eq!(names, ["a/deep/c", "b"]);
    }

    #[test]
    fn no_folder_has_no_plugins() {
        assert!(
            executables(Path::new("/there/is/no/such/folder"))
                .unwrap()
                .is_empty()
        );
    }
}
