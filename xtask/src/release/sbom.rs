//! Lists of what programs are made of, in the format of CycloneDX.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{archive::Tree, facts::Facts, oci::sha256};

pub(super) const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// The crates of `cargo metadata` by ID.
struct Crates<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    /// Crates that a crate is linked with.
    links: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Crates<'a> {
    fn new(metadata: &'a Value) -> Self {
        let packages = items(&metadata["packages"])
            .map(|package| (text(&package["id"]), package))
            .collect();
        let links = items(&metadata["resolve"]["nodes"])
            .map(|node| {
                let linked = items(&node["deps"])
                    .filter(|link| is_linked(link))
                    .map(|link| text(&link["pkg"]));
                (text(&node["id"]), linked.collect())
            })
            .collect();
        Self { packages, links }
    }

    /// The package of the workspace with this name.
    fn own(&self, name: &str) -> Option<&'a str> {
        self.packages
            .iter()
            .find(|(_, package)| package["name"] == name && package["source"].is_null())
            .map(|(id, _)| *id)
    }

    /// A crate, and all that it is linked with.
    fn closure(&self, root: &'a str) -> BTreeSet<&'a str> {
        let mut all = BTreeSet::from([root]);
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            for next in self.links.get(id).into_iter().flatten().copied() {
                if all.insert(next) {
                    open.push(next);
                }
            }
        }
        all
    }

    fn component(&self, id: &str) -> anyhow::Result<Value> {
        let package = *self
            .packages
            .get(id)
            .with_context(|| format!("cargo metadata does not list {id}"))?;
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
        });
        if let Some(license) = package["license"].as_str() {
            let expression = license.replace('/', " OR ");
            component["licenses"] = json!([{ "expression": expression }]);
        }
        Ok(component)
    }
}

/// Crates for tests and for build scripts are not in the program.
fn is_linked(link: &Value) -> bool {
    items(&link["dep_kinds"]).any(|kind| kind["kind"].is_null())
}

fn purl(package: &Value) -> String {
    let version = text(&package["version"]).replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", text(&package["name"]))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The list of a program: its crates by `cargo metadata`, and the files that its images have beside
/// it, by architecture.
pub(super) fn sbom(
    facts: &Facts,
    program: &str,
    metadata: &Value,
    systems: &BTreeMap<String, Tree>,
) -> anyhow::Result<Value> {
    let crates = Crates::new(metadata);
    let root = crates
        .own(program)
        .with_context(|| format!("cargo metadata has no package {program}"))?;
    let closure = crates.closure(root);
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for id in &closure {
        let component = crates.component(id)?;
        let name = text(&component["bom-ref"]).to_owned();
        let mut linked: Vec<_> = crates.links[id]
            .iter()
            .filter_map(|next| crates.packages.get(next))
            .map(|package| purl(package))
            .collect();
        linked.sort();
        dependencies.insert(name.clone(), linked);
        components.insert(name, component);
    }
    let own = purl(crates.packages[root]);
    let mut own_component = components.remove(&own).context("no own component")?;
    own_component["type"] = json!("application");
    for (architecture, tree) in systems {
        for (path, bytes) in tree.files() {
            let name = format!("linux/{architecture}:/{path}");
            let file = json!({
                "type": "file",
                "bom-ref": name,
                "name": name,
                "hashes": [{ "alg": "SHA-256", "content": sha256(bytes) }],
            });
            components.insert(name, file);
        }
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": facts.timestamp()?, "component": own_component },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies
            .into_iter()
            .map(|(name, linked)| json!({ "ref": name, "dependsOn": linked }))
            .collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program with a crate that it is linked with, one of its build script, and one that nothing
    /// of it uses.
    pub(crate) fn metadata(program: &str) -> Value {
        let package = |id: &str, name: &str, source: Option<&str>| {
            json!({
                "id": id, "name": name, "version": "1.0.0+x", "source": source,
                "license": "MIT/Apache-2.0",
            })
        };
        let link = |to: &str, kind: Option<&str>| json!({ "pkg": to, "dep_kinds": [{ "kind": kind, "target": null }] });
        let registry = Some("registry+https://example.com");
        json!({
            "packages": [
                package("own", program, None),
                package("a", "linked", registry),
                package("b", "of-builds", registry),
                package("c", "of-others", registry),
                package("d", "below", registry),
            ],
            "resolve": { "nodes": [
                { "id": "own", "deps": [link("a", None), link("b", Some("build"))] },
                { "id": "a", "deps": [link("d", None)] },
                { "id": "b", "deps": [] },
                { "id": "c", "deps": [] },
                { "id": "d", "deps": [] },
            ] },
        })
    }

    #[test]
    fn a_list_has_what_a_program_is_linked_with_and_the_files_of_its_images() {
        let mut tree = Tree::default();
        tree.file("lib/libc.so.6", 0o755, Vec::new());
        let systems = BTreeMap::from([("amd64".to_owned(), tree)]);
        let list = sbom(&Facts::of_tests(), "p", &metadata("p"), &systems).unwrap();
        let names: Vec<_> = items(&list["components"])
            .map(|one| text(&one["bom-ref"]))
            .collect();
        assert_eq!(
            names,
            [
                "linux/amd64:/lib/libc.so.6",
                "pkg:cargo/below@1.0.0%2Bx",
                "pkg:cargo/linked@1.0.0%2Bx",
            ]
        );
        assert_eq!(list["metadata"]["component"]["name"], "p");
        assert_eq!(
            list["components"][1]["licenses"],
            json!([{ "expression": "MIT OR Apache-2.0" }])
        );
        assert_eq!(
            list["dependencies"][1],
            json!({
                "ref": "pkg:cargo/linked@1.0.0%2Bx",
                "dependsOn": ["pkg:cargo/below@1.0.0%2Bx"],
            })
        );
    }

    #[test]
    fn a_program_that_cargo_does_not_know_has_no_list() {
        assert!(sbom(&Facts::of_tests(), "q", &metadata("p"), &BTreeMap::new()).is_err());
    }
}
