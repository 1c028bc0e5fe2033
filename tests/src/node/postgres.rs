//! An image with PostgreSQL, made of the packages of this machine.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{
    Node,
    images::{Images, copy_into, libraries_of, run},
    import,
};

/// The image: the server and its tools in `PATH`, a shell, and the user [`POSTGRES_USER`].
pub const POSTGRES: &str = "postgres:tests";
/// Id of user and group of the server, which does not run as root.
pub const POSTGRES_USER: u32 = 999;

/// Folder with the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Folder with the other files of each version.
const SHARED: &str = "/usr/share/postgresql";
const PROGRAMS: [&str; 7] = [
    "initdb",
    "pg_amcheck",
    "pg_checksums",
    "pg_ctl",
    "pg_isready",
    "postgres",
    "psql",
];
/// Libraries that the server loads by itself.
const LOADED: [&str; 3] = ["amcheck.so", "dict_snowball.so", "plpgsql.so"];

/// The newest version of PostgreSQL of which this machine has all that the image needs.
pub fn postgres_version() -> Option<String> {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let names = versions.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|version| files_of(version).iter().all(|file| file.exists()))
        .max_by_key(|version| version.parse::<u32>().unwrap_or_default())
}

fn files_of(version: &str) -> Vec<PathBuf> {
    let folder = Path::new(VERSIONS).join(version);
    let programs = PROGRAMS.map(|name| folder.join("bin").join(name));
    let loaded = LOADED.map(|name| folder.join("lib").join(name));
    programs.into_iter().chain(loaded).collect()
}

impl Node {
    /// Gives the node the image [`POSTGRES`], of this version.
    pub async fn import_postgres(&self, version: &str) -> anyhow::Result<()> {
        let images = Images::in_folder(&self.folder().join("images"));
        import(&images.postgres(version).await?).await
    }
}

impl Images {
    async fn postgres(&self, version: &str) -> anyhow::Result<PathBuf> {
        let root = self.context(POSTGRES)?;
        let mut files = BTreeSet::new();
        for file in files_of(version) {
            files.extend(libraries_of(&file).await?);
            files.insert(file);
        }
        for file in files {
            copy_into(&root, &file)?;
        }
        for folder in ["bin", "etc", "tmp", "usr/share/postgresql"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        run("chmod", &[Path::new("1777"), &root.join("tmp")]).await?;
        let shared = Path::new(SHARED).join(version);
        let copy = root.join("usr/share/postgresql");
        run("cp", &[Path::new("-a"), &shared, &copy]).await?;
        // The server runs commands by a shell.
        std::fs::copy("/usr/bin/busybox", root.join("bin/busybox"))?;
        symlink("busybox", root.join("bin/sh"))?;
        std::fs::write(
            root.join("etc/passwd"),
            format!("postgres:x:{POSTGRES_USER}:{POSTGRES_USER}::/tmp:/bin/sh\n"),
        )?;
        let recipe = format!(
            "COPY . /\nENV PATH={VERSIONS}/{version}/bin:/bin\nENTRYPOINT [\"/bin/busybox\"]\n"
        );
        self.bare_image(POSTGRES, &recipe).await
    }
}
