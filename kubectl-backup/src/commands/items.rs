//! `ls` and `cat`: what is inside a backup, read through the API server.

pub(super) mod search;

use std::collections::{BTreeMap, BTreeSet};

use backup_core::selection::ObjectName;
use serde::Serialize;

use super::{diff::hide_values, prelude::*, verify};
use crate::{
    cli::{CatArgs, LsArgs},
    print::table,
    stored::archive::{self, ArchiveIndex, ItemName},
};

fn item_name(text: &str) -> Result<ObjectName<'_>, Problem> {
    ObjectName::parse(text).ok_or_else(|| {
        Problem::usage(format!("{text:?} names no item"))
            .with_remedy("Name one as NAMESPACE/TYPE/NAME, or TYPE/NAME: shop/deployments/web")
    })
}

fn is(name: &ObjectName<'_>, item: &ItemName) -> bool {
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

/// A backup that has a tarball.
async fn backup(session: &Session, name: &str) -> Result<Backup, Problem> {
    let backup = session.get::<Backup>(name).await?;
    verify::has_files(&backup)?;
    Ok(backup)
}

pub(super) async fn ls(args: LsArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let backup = backup(&session, &args.name).await?;
    let mut index = tokio::select! {
        index = ArchiveIndex::open(&session, &backup, terminal) => index?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    let listing = listing(&args.name, args.place.as_deref(), index.items().map(|item| Ok(item?.0)))?;
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

/// Keeps no more of the items than is listed.
fn listing(
    of: &str,
    place: Option<&str>,
    mut items: impl Iterator<Item = Result<ItemName, Problem>>,
) -> Result<Listing, Problem> {
    let (namespace, of_type) = match place.map(|place| place.split_once('/').unwrap_or((place, ""))) {
        None => (None, ""),
        Some((namespace, of_type)) => (Some(namespace), of_type),
    };
    let counted = |name, types, items| ListedPlace { name, types, items };
    let mut inside = BTreeMap::<String, (BTreeSet<String>, usize)>::new();
    let mut names = Vec::new();
    items.try_for_each(|item| {
        let ItemName { group_resource, namespace: of_item, name } = item?;
        let of_item = of_item.unwrap_or_else(|| ObjectName::CLUSTER.to_owned());
        if namespace.is_some_and(|namespace| of_item != namespace) {
            return Ok(());
        }
        let (below, of_type) = match (namespace, of_type) {
            (None, _) => (of_item, Some(group_resource)),
            (Some(_), "") => (group_resource, None),
            (Some(_), typed) => {
                names.extend(is_type(typed, &group_resource).then(|| counted(name, None, None)));
                return Ok(());
            }
        };
        let (types, items) = inside.entry(below).or_default();
        types.extend(of_type);
        *items += 1;
        Ok::<(), Problem>(())
    })?;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    let headers: &'static [&'static str] = match (namespace, of_type) {
        (None, _) => &["NAMESPACE", "TYPES", "ITEMS"],
        (Some(_), "") => &["TYPE", "ITEMS"],
        (Some(_), _) => &["NAME"],
    };
    let types = |types: &BTreeSet<String>| namespace.is_none().then_some(types.len());
    let inside = inside.into_iter().map(|(name, (of, items))| counted(name, types(&of), Some(items)));
    let items = inside.chain(names).collect();
    Ok(Listing { of: of.to_owned(), place: place.map(str::to_owned), headers, items })
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
    let session = Session::connect(terminal).await?;
    let backup = backup(&session, &args.name).await?;
    let found = tokio::select! {
        found = archive::object(&session, &backup, |item| is(&wanted, item), terminal) => found?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    let Some((item, mut object)) = found else {
        let place = wanted.namespace.unwrap_or(ObjectName::CLUSTER);
        let message = format!("backup {} has no {}", args.name, args.item);
        return Err(Problem::new(ProblemKind::NotFound, message)
            .with_remedy(format!("`kubectl backup ls {} {place}` lists what is there.", args.name)));
    };
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
