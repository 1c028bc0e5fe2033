//! `ls` and `cat`: the contents of a backup, read through the API server.

pub(super) mod search;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use backup_core::selection::ObjectName;
use serde::Serialize;

use super::{diff::hide_values, prelude::*, verify};
use crate::{
    cli::{CatArgs, LsArgs},
    print::table,
    stored::archive::{self, ArchiveIndex, ItemName},
    type_names::TypeQuery,
};

fn item_name(text: &str) -> Result<ObjectName<'_>, Problem> {
    ObjectName::parse(text).ok_or_else(|| {
        Problem::usage(format!("{text:?} names no item"))
            .with_remedy("Name one as NAMESPACE/TYPE/NAME, or TYPE/NAME: shop/deployments/web")
    })
}

/// An item that the user has named, and the types that its type name may refer to.
struct ItemQuery<'a> {
    name: ObjectName<'a>,
    of_type: TypeQuery,
    /// Whether an item of this type was found.
    met: Cell<bool>,
}

impl<'a> ItemQuery<'a> {
    async fn new(session: &Session, name: ObjectName<'a>) -> Self {
        Self {
            name,
            of_type: TypeQuery::new(session, name.of_type).await,
            met: Cell::default(),
        }
    }

    fn is(&self, item: &ItemName) -> bool {
        if !self.of_type.is(&item.group_resource) {
            return false;
        }
        self.met.set(true);
        self.name.namespace == item.namespace.as_deref() && self.name.name == item.name
    }

    /// Whether the type exists in this cluster, or in the backups that were read.
    fn is_type_known(&self) -> bool {
        self.of_type.is_known() || self.met.get()
    }
}

/// The type does not exist: a different error from a type that lacks this item.
fn no_type(typed: &str, places: &str) -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        format!("no type is called {typed:?}, in this cluster or in {places}"),
    )
}

/// The output of `ls` for one place.
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
    /// Number of types in it; `None` unless it is a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<usize>,
    /// Number of items in it; `None` if it is an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<usize>,
}

/// Returns a backup that has a tarball.
async fn backup(session: &Session, verb: &str, name: &str) -> Result<Backup, Problem> {
    let backup = get_named::<Backup>(session, verb, name).await?;
    verify::has_files(&backup)?;
    Ok(backup)
}

pub(super) async fn ls(args: LsArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let backup = backup(&session, "ls", &args.name).await?;
    let mut index = tokio::select! {
        index = ArchiveIndex::open(&session, &backup, terminal) => index?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    let typed = args
        .place
        .as_deref()
        .and_then(|place| place.split_once('/'))
        .map(|(_, of_type)| of_type);
    let of_type = match typed.filter(|typed| !typed.is_empty()) {
        Some(typed) => Some(TypeQuery::new(&session, typed).await),
        None => None,
    };
    let met = Cell::new(false);
    let items = index.items().map(|item| {
        let item = item?.0;
        met.set(
            met.get()
                || of_type
                    .as_ref()
                    .is_some_and(|of_type| of_type.is(&item.group_resource)),
        );
        Ok(item)
    });
    let listing = listing(&args.name, args.place.as_deref(), of_type.as_ref(), items)?;
    if let Some(place) = &args.place
        && listing.items.is_empty()
    {
        if let Some(of_type) = &of_type
            && let Some(typed) = typed
            && !met.get()
            && !of_type.is_known()
        {
            let namespace = place.split('/').next().unwrap_or_default();
            return Err(
                no_type(typed, &format!("backup {}", args.name)).with_remedy(format!(
                    "`kubectl backup ls {} {namespace}` lists the types in {namespace}.",
                    args.name
                )),
            );
        }
        return Err(Problem::new(
            ProblemKind::NotFound,
            format!("backup {} has nothing in {place}", args.name),
        )
        .with_remedy(format!(
            "`kubectl backup ls {}` lists its namespaces.",
            args.name
        )));
    }
    json::show_list(
        "BackupListing",
        &listing,
        &args.output,
        terminal,
        || listing.names(),
        |_, _| Ok(listing.rows(!args.output.no_headers)?),
    )?;
    Ok(Exit::Done)
}

/// Builds the listing, keeping only the entries that are shown.
fn listing(
    of: &str,
    place: Option<&str>,
    wanted: Option<&TypeQuery>,
    mut items: impl Iterator<Item = Result<ItemName, Problem>>,
) -> Result<Listing, Problem> {
    let (namespace, of_type) = match place.map(|place| place.split_once('/').unwrap_or((place, "")))
    {
        None => (None, ""),
        Some((namespace, of_type)) => (Some(namespace), of_type),
    };
    let mut inside = BTreeMap::<String, (BTreeSet<String>, usize)>::new();
    let mut names = Vec::new();
    items.try_for_each(|item| {
        let ItemName {
            group_resource,
            namespace: of_item,
            name,
        } = item?;
        let of_item = of_item.unwrap_or_else(|| ObjectName::CLUSTER.to_owned());
        if namespace.is_some_and(|namespace| of_item != namespace) {
            return Ok(());
        }
        let (below, of_type) = match (namespace, of_type) {
            (None, _) => (of_item, Some(group_resource)),
            (Some(_), "") => (group_resource, None),
            (Some(_), _) => {
                let is_wanted = wanted.is_some_and(|wanted| wanted.is(&group_resource));
                if is_wanted {
                    names.push(ListedPlace {
                        name,
                        types: None,
                        items: None,
                    });
                }
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
    let inside = inside
        .into_iter()
        .map(|(name, (types, items))| ListedPlace {
            name,
            types: namespace.is_none().then_some(types.len()),
            items: Some(items),
        });
    let items = inside.chain(names).collect();
    Ok(Listing {
        of: of.to_owned(),
        place: place.map(str::to_owned),
        headers,
        items,
    })
}

impl Listing {
    fn rows(&self, with_headers: bool) -> std::io::Result<String> {
        let rows = self.items.iter().map(ListedPlace::row);
        table(self.headers, with_headers, rows)
    }

    /// The names of the entries, one on each line.
    fn names(&self) -> String {
        self.items
            .iter()
            .fold(String::new(), |all, one| all + &one.name + "\n")
    }
}

impl ListedPlace {
    fn row(&self) -> Vec<String> {
        let counts = [self.types, self.items]
            .into_iter()
            .flatten()
            .map(|count| count.to_string());
        std::iter::once(plain(&self.name)).chain(counts).collect()
    }
}

pub(super) async fn cat(args: CatArgs, terminal: &mut Terminal) -> CommandResult {
    let name = item_name(&args.item)?;
    let session = Session::connect(terminal).await?;
    let backup = backup(&session, "cat", &args.name).await?;
    let wanted = ItemQuery::new(&session, name).await;
    let found = tokio::select! {
        found = archive::object(&session, &backup, |item| wanted.is(item), terminal) => found?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    let Some((item, mut object)) = found else {
        let place = name.namespace.unwrap_or(ObjectName::CLUSTER);
        if !wanted.is_type_known() {
            return Err(
                no_type(name.of_type, &format!("backup {}", args.name)).with_remedy(format!(
                    "`kubectl backup ls {} {place}` lists the types there.",
                    args.name
                )),
            );
        }
        let message = format!("backup {} has no {}", args.name, args.item);
        return Err(
            Problem::new(ProblemKind::NotFound, message).with_remedy(format!(
                "`kubectl backup ls {} {place}` lists what is there.",
                args.name
            )),
        );
    };
    if item.group_resource == "secrets" && !args.show_secrets {
        hide_values(&mut object);
        terminal.say("The values of the Secret are hidden; --show-secrets shows them.");
    }
    terminal.data(&json::object(&Value::Object(object), args.output)?)?;
    Ok(Exit::Done)
}
