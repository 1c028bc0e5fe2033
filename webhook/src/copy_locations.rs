//! Copies into a location that does not exist, or into that of the backup itself where it is the
//! default one and not named: a warning, as no copy is made. (Where both are named, the object is
//! refused.)

use std::time::Duration;

use backup_core::{
    restorability::{Place, Places},
    text::listed,
};
use backup_lock::observe::Objects;
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, Operation},
};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::schedules;

/// Time limit for the list of locations. Without an answer there is no warning.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of locations that a warning names; the others are counted.
const MAX_NAMES: usize = 3;

/// The warning about an object of this request.
pub(crate) async fn warning(
    objects: &Objects,
    request: &AdmissionRequest<DynamicObject>,
    deadline: Instant,
) -> Option<String> {
    let copies = newly_named(request);
    if copies.is_empty() {
        return None;
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let until = deadline.min(Instant::now() + READ_TIMEOUT);
    let read = timeout_at(until, objects.locations(namespace)).await.ok()?;
    let places = Places::of(&read.ok()??);
    let kind = &request.kind.kind;
    let own = own_location(kind, &request.object.as_ref()?.data);
    let problem = problem(&copies, own, &places)?;
    Some(format!("{kind} {namespace}/{} {problem}", request.name))
}

/// What is wrong with these locations of copies; `None` if nothing is.
fn problem(copies: &[String], own: Option<&str>, places: &Places) -> Option<String> {
    let absent: Vec<&str> = copies
        .iter()
        .map(String::as_str)
        .filter(|name| places.find(name) == Place::Gone)
        .collect();
    if !absent.is_empty() {
        let named = listed(&absent[..absent.len().min(MAX_NAMES)], absent.len());
        let (location, does) = match absent.len() {
            1 => ("location", "does"),
            _ => ("locations", "do"),
        };
        return Some(format!(
            "names copies in {location} {named}, which {does} not exist: no copy is made there"
        ));
    }
    let default = own.is_none().then(|| places.default_name()).flatten()?;
    let is_named = copies.iter().any(|name| name == default);
    is_named.then(|| {
        format!("names a copy in location {default}, which is the default one, so that of the backup itself: no copy is made there")
    })
}

/// The locations of copies that the object names, and did not name before the request.
fn newly_named(request: &AdmissionRequest<DynamicObject>) -> Vec<String> {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Vec::new();
    }
    let kind = &request.kind.kind;
    let before = request.old_object.as_ref();
    let before = before.map_or_else(Vec::new, |old| named(kind, &old.data));
    let now = request.object.as_ref();
    let mut now = now.map_or_else(Vec::new, |new| named(kind, &new.data));
    now.retain(|name| !before.contains(name));
    now
}

/// The locations of the copies that a Backup, or a Schedule with its template, names.
fn named(kind: &str, object: &Value) -> Vec<String> {
    let lists = if kind == schedules::KIND {
        &["/spec/copies", "/spec/template/copies"][..]
    } else {
        &["/spec/copies"][..]
    };
    let copies = lists.iter().filter_map(|path| object.pointer(path));
    let copies = copies.filter_map(Value::as_array).flatten();
    copies
        .filter_map(|copy| copy["location"].as_str().map(str::to_owned))
        .collect()
}

/// The location that the object names for the backup itself.
fn own_location<'a>(kind: &str, object: &'a Value) -> Option<&'a str> {
    let path = if kind == schedules::KIND {
        "/spec/template/storageLocation"
    } else {
        "/spec/storageLocation"
    };
    let name = object.pointer(path)?.as_str();
    name.filter(|name| !name.is_empty())
}
