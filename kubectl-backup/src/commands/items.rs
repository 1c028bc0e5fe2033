//! `ls` and `cat`: what is inside a backup, read through the API server.

pub(super) mod search;

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{api::download_request::DownloadTargetKind, selection::ObjectName};
use backup_store::{Contents, ItemRef, Limits, StoreError};
use serde::Serialize;

use super::{diff::hide_values, prelude::*, verify};
use crate::{
    cli::{CatArgs, LsArgs},
    print::table,
    stored::{StoredFile, piped},
};

/// Reads the tarball of a backup, which is kept in a temporary file.
pub(super) async fn contents(
    session: &Session,
    backup: &Backup,
    terminal: &mut Terminal,
) -> Result<Contents, Problem> {
    let file = StoredFile::of(DownloadTargetKind::BackupContents, &backup.metadata);
    let title = format!("the tarball of {}", backup.name_any());
    let work = move |source| Contents::index(&title, source, Limits::LOOSE);
    let (contents, _) = piped(session, &file, work, |line| terminal.say(line)).await?;
    contents.map_err(|error| unread(&error))
}

pub(super) fn unread(error: &StoreError) -> Problem {
    Problem::bad_file(error.to_string())
}

/// An item of a backup.
pub(super) struct Stored {
    /// `deployments.apps`.
    pub(super) group_resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) place: ItemRef,
}

pub(super) fn stored(contents: &Contents) -> Result<Vec<Stored>, Problem> {
    let mut all = Vec::new();
    for group_resource in contents.types() {
        for place in contents.items(&group_resource) {
            all.push(Stored {
                group_resource: group_resource.clone(),
                namespace: contents.namespace_of(place).map(str::to_owned),
                name: contents.name_of(place).map_err(|error| unread(&error))?,
                place: *place,
            });
        }
    }
    Ok(all)
}

fn item_name(text: &str) -> Result<ObjectName<'_>, Problem> {
    ObjectName::parse(text).ok_or_else(|| {
        Problem::usage(format!("{text:?} names no item"))
            .with_remedy("Name one as NAMESPACE/TYPE/NAME, or TYPE/NAME: shop/deployments/web")
    })
}

fn is(name: &ObjectName<'_>, item: &Stored) -> bool {
    name.namespace == item.namespace.as_deref()
        && name.name == item.name
        && is_type(name.of_type, &item.group_resource)
}

/// Whether a person means this type: `deployments.apps` by that, or by `deployments`, `deployment` or `Deployment`.
fn is_type(typed: &str, group_resource: &str) -> bool {
    let typed = typed.to_lowercase();
    let (typed, typed_group) =
        typed.split_once('.').map_or((typed.as_str(), None), |(name, group)| (name, Some(group)));
    let (plural, group) = group_resource.split_once('.').unwrap_or((group_resource, ""));
    typed_group.is_none_or(|typed| typed == group)
        && (typed == plural || plurals(typed).iter().any(|one| one == plural))
}

/// What a kind may be called in the plural.
fn plurals(kind: &str) -> Vec<String> {
    let mut all = vec![format!("{kind}s"), format!("{kind}es")];
    all.extend(kind.strip_suffix('y').map(|stem| format!("{stem}ies")));
    all
}

/// What `ls` has found at a place.
#[derive(Debug, PartialEq, Serialize)]
struct Listing {
    of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(skip)]
    headers: &'static [&'static str],
    items: Vec<ListedPlace>,
}

/// A namespace, a type, or an item.
#[derive(Debug, PartialEq, Serialize)]
struct ListedPlace {
    name: String,
    /// How many types are below it; none if it is no namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<usize>,
    /// How many items are below it; none if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<usize>,
}

/// Opens a backup by its name; `None`: a person interrupted.
async fn open(name: &str, terminal: &mut Terminal) -> Result<Option<Contents>, Problem> {
    let session = Session::connect(terminal).await?;
    let backup = session.get::<Backup>(name).await?;
    verify::has_files(&backup)?;
    tokio::select! {
        contents = contents(&session, &backup, terminal) => contents.map(Some),
        _ = tokio::signal::ctrl_c() => Ok(None),
    }
}

pub(super) async fn ls(args: LsArgs, terminal: &mut Terminal) -> CommandResult {
    let Some(contents) = open(&args.name, terminal).await? else { return Ok(Exit::Interrupted) };
    let listing = listing(&args.name, args.place.as_deref(), &stored(&contents)?);
    if let (Some(place), true) = (&args.place, listing.items.is_empty()) {
        return Err(Problem::new(
            ProblemKind::NotFound,
            format!("backup {} has nothing in {place}", args.name),
        )
        .with_remedy(format!("`kubectl backup ls {}` lists its namespaces.", args.name)));
    }
    let names = || listing.items.iter().fold(String::new(), |all, one| all + &one.name + "\n");
    json::show_list("BackupListing", ("items", &listing), &args.output, terminal, names, |_, _| {
        Ok(listing.rows(!args.output.no_headers)?)
    })?;
    Ok(Exit::Done)
}

fn listing(of: &str, place: Option<&str>, items: &[Stored]) -> Listing {
    let (namespace, of_type) = match place.map(|place| place.split_once('/').unwrap_or((place, ""))) {
        None => (None, ""),
        Some((namespace, of_type)) => (Some(namespace), of_type),
    };
    let place_of = |item: &Stored| item.namespace.clone().unwrap_or_else(|| ObjectName::CLUSTER.to_owned());
    let inside = items.iter().filter(|item| namespace.is_none_or(|namespace| place_of(item) == namespace));
    let (headers, items): (&'static [&'static str], _) = match (namespace, of_type) {
        (None, _) => {
            let mut all: BTreeMap<String, (BTreeSet<&str>, usize)> = BTreeMap::new();
            for item in inside {
                let (types, items) = all.entry(place_of(item)).or_default();
                types.insert(&item.group_resource);
                *items += 1;
            }
            let listed = |(name, (types, items)): (String, (BTreeSet<&str>, usize))| ListedPlace {
                name,
                types: Some(types.len()),
                items: Some(items),
            };
            (&["NAMESPACE", "TYPES", "ITEMS"], all.into_iter().map(listed).collect())
        }
        (Some(_), "") => {
            let mut all: BTreeMap<&str, usize> = BTreeMap::new();
            inside.for_each(|item| *all.entry(&item.group_resource).or_default() += 1);
            let listed = |(name, items): (&str, usize)| ListedPlace {
                name: name.to_owned(),
                types: None,
                items: Some(items),
            };
            (&["TYPE", "ITEMS"], all.into_iter().map(listed).collect())
        }
        (Some(_), typed) => {
            let of_it = inside.filter(|item| is_type(typed, &item.group_resource));
            let mut names: Vec<String> = of_it.map(|item| item.name.clone()).collect();
            names.sort();
            let listed = |name| ListedPlace { name, types: None, items: None };
            (&["NAME"], names.into_iter().map(listed).collect())
        }
    };
    Listing { of: of.to_owned(), place: place.map(str::to_owned), headers, items }
}

impl Listing {
    fn rows(&self, with_headers: bool) -> std::io::Result<String> {
        let row = |one: &ListedPlace| {
            let counts = [one.types, one.items].into_iter().flatten().map(|count| count.to_string());
            std::iter::once(plain(&one.name)).chain(counts).collect()
        };
        table(self.headers, with_headers, self.items.iter().map(row))
    }
}

pub(super) async fn cat(args: CatArgs, terminal: &mut Terminal) -> CommandResult {
    let wanted = item_name(&args.item)?;
    let Some(contents) = open(&args.name, terminal).await? else { return Ok(Exit::Interrupted) };
    let all = stored(&contents)?;
    let Some(item) = all.iter().find(|item| is(&wanted, item)) else {
        let place = wanted.namespace.unwrap_or(ObjectName::CLUSTER);
        let message = format!("backup {} has no {}", args.name, args.item);
        return Err(Problem::new(ProblemKind::NotFound, message)
            .with_remedy(format!("`kubectl backup ls {} {place}` lists what is there.", args.name)));
    };
    let mut object = contents.object(&item.place).map_err(|error| unread(&error))?;
    if item.group_resource == "secrets" && !args.show_secrets {
        hide_values(&mut object);
        terminal.say("The values of the Secret are hidden; --show-secrets shows them.");
    }
    terminal.data(&json::object(&Value::Object(object), args.output)?)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_what_people_call_them() {
        for typed in ["deployments.apps", "deployments", "deployment", "Deployment", "deployment.apps"] {
            assert!(is_type(typed, "deployments.apps"), "{typed}");
        }
        assert!(is_type("networkpolicy", "networkpolicies.networking.k8s.io"));
        assert!(is_type("ingress", "ingresses.networking.k8s.io") && is_type("endpoints", "endpoints"));
        for typed in ["deployments.extensions", "deploy", "", "deployments.apps.x"] {
            assert!(!is_type(typed, "deployments.apps"), "{typed}");
        }
    }
}
