//! A Backup or Schedule that names a copy in the location of the backup itself: a warning, as that
//! copy is never made. A location that is not named is not known here; `doctor` checks that.

use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, Operation},
};
use serde_json::Value;

use crate::schedules;

/// The warning about an object of this request; `None` if the object was so before.
pub(crate) fn warning(request: &AdmissionRequest<DynamicObject>) -> Option<String> {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return None;
    }
    let kind = &request.kind.kind;
    let location = own_location(kind, request.object.as_ref()?)?;
    let old = request.old_object.as_ref();
    if old.and_then(|old| own_location(kind, old)) == Some(location.clone()) {
        return None;
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    Some(format!(
        "{kind} {namespace}/{} names a copy in location {location}, where the backup itself is stored: no copy is made there",
        request.name
    ))
}

/// The location that stores the backup and is named for a copy of it, too.
fn own_location(kind: &str, object: &DynamicObject) -> Option<String> {
    let object = &object.data;
    let (location, lists) = if kind == schedules::KIND {
        (
            "/spec/template/storageLocation",
            &["/spec/copies", "/spec/template/copies"][..],
        )
    } else {
        ("/spec/storageLocation", &["/spec/copies"][..])
    };
    let own = object.pointer(location)?.as_str()?;
    let lists = lists.iter().filter_map(|path| object.pointer(path));
    let mut copies = lists.filter_map(Value::as_array).flatten();
    let is_named = copies.any(|copy| copy["location"].as_str() == Some(own));
    (is_named && !own.is_empty()).then(|| own.to_owned())
}
