//! Translates the flags of a Velero server into flags of our controller. Pure.

use backup_core::{
    cron::Dialect,
    velero_flags::{CONTROLLERS, FEATURES, FlagSupport, flag_support},
};

use super::{
    consequence::{Consequence, Subject},
    server::{Flag, Server},
};
use crate::print::plain;

const ON: Subject = Subject("flags");
/// Values of flags that our manifests set in the same way.
const USUAL: [(&str, &[&str]); 2] = [
    ("metrics-address", &[":8085", "0.0.0.0:8085"]),
    ("plugin-dir", &["/plugins", "/plugins/"]),
];

/// The choices of an installation that follow from the flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Translation {
    pub(crate) features: Vec<String>,
    /// Flags of our controller.
    pub(crate) controller_args: Vec<String>,
    pub(crate) consequences: Vec<Consequence>,
}

impl Translation {
    pub(crate) fn of(server: &Server, namespace: &str) -> Self {
        let mut translation = Self::default();
        for flag in &server.flags {
            translation.add(flag, namespace);
        }
        // The other dialect is the default.
        if let Some(dialect @ Dialect::Netresearch) = server.dialect() {
            translation
                .controller_args
                .push(format!("--cron-dialect={dialect}"));
        }
        translation
    }

    fn add(&mut self, flag: &Flag, namespace: &str) {
        let shown = plain(&flag.to_string());
        let consequence = match flag_support(&flag.name) {
            None => ON
                .unknown(format!(
                    "{shown} is no flag of Velero that is known here, and is left out"
                ))
                .with_remedy("See what it does: velero server --help"),
            Some(FlagSupport::Same) => self.same(flag, &shown),
            Some(FlagSupport::Switch) => self.switch(flag, &shown),
            Some(FlagSupport::Installed) => installed(flag, &shown, namespace),
            Some(FlagSupport::Replaced(sentence)) => {
                ON.changes(format!("{shown} is left out: {sentence}"))
            }
            Some(FlagSupport::Missing(sentence)) => missing(flag, &shown, sentence),
        };
        self.consequences.push(consequence);
    }

    fn same(&mut self, flag: &Flag, shown: &str) -> Consequence {
        let value = flag.value.as_deref().unwrap_or_default();
        match flag.name.as_str() {
            "features" => {
                let names = Names::of(value, &FEATURES);
                self.features.extend(names.known.clone());
                names.consequence(shown, "unknown features change nothing in Velero, either")
            }
            "disable-controllers" => {
                let names = Names::of(value, &CONTROLLERS);
                if !names.known.is_empty() {
                    let list = names.known.join(",");
                    self.controller_args.push(format!("--{}={list}", flag.name));
                }
                names.consequence(
                    shown,
                    "they are parts of other controllers here, or do not exist",
                )
            }
            "client-page-size" if value == "0" => {
                ON.changes(format!("{shown} is left out: lists always come in pages"))
            }
            _ => {
                self.controller_args.push(flag.to_string());
                ON.stays(format!("{shown} is a flag of our controller, too"))
            }
        }
    }

    fn switch(&mut self, flag: &Flag, shown: &str) -> Consequence {
        if !flag.is_on() {
            return ON.stays(format!("{shown} is the default here, too"));
        }
        self.controller_args.push(format!("--{}", flag.name));
        ON.stays(format!("{shown} is a flag of our controller, too"))
    }
}

fn installed(flag: &Flag, shown: &str, namespace: &str) -> Consequence {
    let value = flag.value.as_deref().unwrap_or_default();
    let usual = USUAL.iter().find(|(name, _)| *name == flag.name);
    let is_usual = usual.is_some_and(|(_, values)| values.contains(&value))
        || (flag.name == "namespace" && value == namespace);
    if is_usual {
        return ON.stays(format!("{shown} is what our manifests set"));
    }
    ON.changes(format!(
        "{shown} is left out: our manifests set this flag, or need none"
    ))
    .with_remedy("Another value takes an overlay (docs/operate/install.md#overlays).")
}

fn missing(flag: &Flag, shown: &str, sentence: &str) -> Consequence {
    if !flag.is_on() {
        return ON.stays(format!("{shown} is the default here, too"));
    }
    let remedy = if flag.name == "default-volumes-to-fs-backup" {
        "Volumes of CSI drivers: take snapshots and move their data (--snapshots, \
         --controller-arg=--default-snapshot-move-data). Others: keep Velero for them."
    } else {
        "Stop writes to all volumes of a group by a pre hook, or keep Velero for them."
    };
    ON.lost(format!("{shown} does not exist here: {sentence}"), remedy)
}

/// The names in the value of a flag.
struct Names {
    known: Vec<String>,
    unknown: Vec<String>,
}

impl Names {
    fn of(value: &str, all: &[&str]) -> Self {
        let names = value.split(',').map(str::trim);
        let (known, unknown) = names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .partition(|name| all.contains(&name.as_str()));
        Self { known, unknown }
    }

    fn consequence(&self, shown: &str, why: &str) -> Consequence {
        if self.unknown.is_empty() {
            return ON.stays(format!("{shown} is a flag of our controller, too"));
        }
        let unknown = plain(&self.unknown.join(", "));
        ON.changes(format!("of {shown}, {unknown} is left out: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::migrate::consequence::Effect;

    fn translated(flags: &[(&str, Option<&str>)], version: &str) -> Translation {
        let flags = flags.iter().map(|(name, value)| Flag {
            name: (*name).to_owned(),
            value: value.map(str::to_owned),
        });
        let server = Server {
            version: Some(version.to_owned()),
            flags: flags.collect(),
            ..Server::default()
        };
        Translation::of(&server, "velero")
    }

    #[test]
    fn each_flag_is_kept_left_out_or_lost() {
        for (name, value, args, effect, part) in [
            (
                "log-level",
                Some("debug"),
                &["--log-level=debug"][..],
                Effect::Stays,
                "too",
            ),
            (
                "default-backup-ttl",
                Some("240h"),
                &["--default-backup-ttl=240h"],
                Effect::Stays,
                "",
            ),
            ("restore-only", None, &["--restore-only"], Effect::Stays, ""),
            (
                "restore-only",
                Some("true"),
                &["--restore-only"],
                Effect::Stays,
                "",
            ),
            ("restore-only", Some("false"), &[], Effect::Stays, "default"),
            (
                "namespace",
                Some("velero"),
                &[],
                Effect::Stays,
                "our manifests",
            ),
            ("namespace", Some("other"), &[], Effect::Changes, "left out"),
            ("metrics-address", Some(":8085"), &[], Effect::Stays, ""),
            ("metrics-address", Some(":9000"), &[], Effect::Changes, ""),
            ("plugin-dir", Some("/plugins"), &[], Effect::Stays, ""),
            (
                "client-qps",
                Some("50"),
                &[],
                Effect::Changes,
                "API Priority and Fairness",
            ),
            (
                "client-page-size",
                Some("0"),
                &[],
                Effect::Changes,
                "in pages",
            ),
            (
                "client-page-size",
                Some("100"),
                &["--client-page-size=100"],
                Effect::Stays,
                "",
            ),
            (
                "uploader-type",
                Some("kopia"),
                &[],
                Effect::Changes,
                "left out",
            ),
            (
                "default-volumes-to-fs-backup",
                Some("true"),
                &[],
                Effect::Lost,
                "not done here",
            ),
            (
                "default-volumes-to-fs-backup",
                Some("false"),
                &[],
                Effect::Stays,
                "default",
            ),
            (
                "volume-group-snapshot-label-key",
                Some("a/b"),
                &[],
                Effect::Lost,
                "one by one",
            ),
            (
                "quantum",
                Some("1"),
                &[],
                Effect::Unknown,
                "no flag of Velero",
            ),
            (
                "disable-controllers",
                Some("gc,backup-repo"),
                &["--disable-controllers=gc"],
                Effect::Changes,
                "backup-repo is left out",
            ),
            (
                "disable-controllers",
                Some("backup-repo"),
                &[],
                Effect::Changes,
                "",
            ),
            (
                "features",
                Some("EnableCSI,Later"),
                &[],
                Effect::Changes,
                "Later is left out",
            ),
        ] {
            let found = translated(&[(name, value)], "v1.18.2");
            assert_eq!(found.controller_args, args, "{name}");
            let [only] = found.consequences.as_slice() else {
                panic!("{name}: {found:?}")
            };
            assert_eq!(only.effect, effect, "{only:?}");
            assert_says!(only.text, name, part);
        }
    }

    #[test]
    fn features_and_the_library_of_cron_expressions_are_chosen() {
        let features = [("features", Some("EnableCSI, EnableAPIGroupVersions"))];
        let found = translated(&features, "v1.18.3");
        assert_eq!(found.features, FEATURES);
        assert_eq!(found.controller_args, ["--cron-dialect=netresearch"]);
        assert_eq!(translated(&[], "v1.18.2").controller_args, [""; 0]);
    }
}
