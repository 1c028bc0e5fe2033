//! Finds the user's home folder, as kubectl does.

use std::path::{Path, PathBuf};

use crate::Terminal;

/// The home folder; `None` if the environment names none.
pub(crate) fn home(terminal: &Terminal) -> Option<PathBuf> {
    home_of(cfg!(windows), |name| terminal.var(name), Path::exists)
}

/// As in client-go (`util/homedir/homedir.go`). `$HOME`; on Windows the first of `%HOME%`,
/// `%HOMEDRIVE%%HOMEPATH%` and `%USERPROFILE%` that has a kubeconfig, else of `%HOME%`,
/// `%USERPROFILE%` and `%HOMEDRIVE%%HOMEPATH%` the first that exists, else the first that is set.
/// Whether a folder is writable does not matter: nothing is written there.
fn home_of(
    is_windows: bool,
    var: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let home = var("HOME").map(PathBuf::from);
    if !is_windows {
        return home;
    }
    let profile = var("USERPROFILE").map(PathBuf::from);
    let on_drive = var("HOMEDRIVE")
        .zip(var("HOMEPATH"))
        .map(|(drive, path)| PathBuf::from(drive + &path));
    let configured = [&home, &on_drive, &profile]
        .into_iter()
        .flatten()
        .find(|folder| exists(&folder.join(".kube").join("config")))
        .cloned();
    let set: Vec<PathBuf> = [home, profile, on_drive].into_iter().flatten().collect();
    configured.or_else(|| {
        set.iter()
            .find(|folder| exists(folder))
            .or(set.first())
            .cloned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_the_one_that_kubectl_takes() {
        let all = "HOME=/h USERPROFILE=/u HOMEDRIVE=/d HOMEPATH=/p";
        let rows: [(bool, &str, &[&str], Option<&str>); 13] = [
            (false, all, &[], Some("/h")),
            (
                false,
                "USERPROFILE=/u HOMEDRIVE=/d HOMEPATH=/p",
                &["/u"],
                None,
            ),
            (true, "", &[], None),
            (true, all, &[], Some("/h")),
            (true, "USERPROFILE=/u", &[], Some("/u")),
            (true, "HOMEDRIVE=/d HOMEPATH=/p", &[], Some("/d/p")),
            (true, "HOMEDRIVE=/d", &[], None),
            (
                true,
                "USERPROFILE=/u HOMEDRIVE=/d HOMEPATH=/p",
                &[],
                Some("/u"),
            ),
            // If a folder does not exist, the next one that does.
            (true, all, &["/u", "/d/p"], Some("/u")),
            (true, all, &["/d/p"], Some("/d/p")),
            // A kubeconfig counts more than an existing folder; then the drive comes before the
            // profile.
            (true, all, &["/h", "/u", "/u/.kube/config"], Some("/u")),
            (
                true,
                all,
                &["/h", "/u/.kube/config", "/d/p/.kube/config"],
                Some("/d/p"),
            ),
            (
                true,
                all,
                &["/h/.kube/config", "/d/p/.kube/config"],
                Some("/h"),
            ),
        ];
        for (is_windows, variables, there, expected) in rows {
            let var = |name: &str| {
                let mut all = variables.split(' ').filter_map(|one| one.split_once('='));
                all.find(|(known, _)| *known == name)
                    .map(|(_, value)| value.to_owned())
            };
            let found = home_of(is_windows, var, |path| {
                there.iter().any(|one| Path::new(one) == path)
            });
            assert_eq!(
                found,
                expected.map(PathBuf::from),
                "windows: {is_windows}, {variables}, {there:?}"
            );
        }
    }
}
