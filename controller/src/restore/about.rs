//! The item that a message, or an entry in the list of resources, is about.

/// An item, as messages name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}
