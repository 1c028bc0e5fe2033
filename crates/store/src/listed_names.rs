//! The names in a resource list: the items a backup should hold, to be compared with its tarball.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{BufReader, Read},
};

use backup_core::drill::listed_namespace;
use flate2::read::MultiGzDecoder;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::{Contents, Location, StoreError, layout::RESOURCE_LIST};

/// Maximum size of a compressed list; larger ones are refused (bytes): a million names take about
/// 10 MiB.
const MAX_LIST: u64 = 64 * 1024 * 1024;

/// Maximum mean length of the names in a list (bytes), so that a text without an end cannot fill
/// memory. Usual names with their namespaces have 60.
const MAX_MEAN_NAME: u64 = 256;

/// A hash of each name in a list, of any type.
#[derive(Debug, Default)]
pub struct ListedNames(HashSet<u64>);

/// Items in a tarball that its list does not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedItems {
    pub count: usize,
    /// The path of one of these items.
    pub example: String,
}

fn hash(namespace: Option<&str>, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in namespace.into_iter().chain([name]) {
        part.hash(&mut hasher);
    }
    hasher.finish()
}

impl ListedNames {
    /// Adds an item. Errors: there are more than `max`.
    fn add(&mut self, item: &str, max: usize) -> Result<(), String> {
        let (namespace, name) = item
            .split_once('/')
            .map_or((None, item), |(namespace, name)| (Some(namespace), name));
        self.0.insert(hash(namespace, name));
        if self.0.len() > max {
            return Err(format!("it has more than {max} names"));
        }
        Ok(())
    }

    /// Finds the items whose names are not in the list. Reads paths from local disk. Errors: that
    /// disk fails.
    pub fn missing_of(&self, contents: &Contents) -> Result<Option<UnlistedItems>, StoreError> {
        let mut found: Option<UnlistedItems> = None;
        for group_resource in contents.types() {
            for item in contents.items(&group_resource) {
                if self
                    .0
                    .contains(&hash(contents.namespace_of(item), &contents.name_of(item)?))
                {
                    continue;
                }
                match &mut found {
                    Some(found) => found.count += 1,
                    None => {
                        found = Some(UnlistedItems {
                            count: 1,
                            example: contents.path_of(item)?,
                        });
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Location {
    /// Reads the names of the items of a backup; `None` if there is no list.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is no list, or has more than `max` names, or
    /// names far longer than usual.
    pub async fn listed_names(
        &self,
        backup: &str,
        max: usize,
    ) -> Result<Option<ListedNames>, StoreError> {
        let mut names = ListedNames::default();
        let is_there = self
            .read_listed(backup, max, &mut |_, item| names.add(item, max))
            .await?;
        Ok(is_there.then_some(names))
    }

    /// Reads the namespaces of the items of a backup; `None` if there is no list.
    ///
    /// Errors: as [`Self::listed_names`].
    pub async fn listed_namespaces(
        &self,
        backup: &str,
        max: usize,
    ) -> Result<Option<BTreeSet<String>>, StoreError> {
        let mut namespaces = BTreeSet::new();
        let add = &mut |kind: &str, item: &str| {
            if let Some(namespace) = listed_namespace(kind, item)
                && !namespaces.contains(namespace)
            {
                namespaces.insert(namespace.to_owned());
            }
            Ok::<(), String>(())
        };
        let is_there = self.read_listed(backup, max, add).await?;
        Ok(is_there.then_some(namespaces))
    }

    /// Reads the list of a backup. Returns whether there is one.
    async fn read_listed(
        &self,
        backup: &str,
        max: usize,
        each: &mut (dyn FnMut(&str, &str) -> Result<(), String> + Send),
    ) -> Result<bool, StoreError> {
        let key = self.layout().backup(backup)?.file(RESOURCE_LIST);
        let Some(bytes) = self.get_small(&key, MAX_LIST).await? else {
            return Ok(false);
        };
        let unpacked =
            MultiGzDecoder::new(&bytes[..]).take(MAX_MEAN_NAME.saturating_mul(max as u64));
        let read = read_list(unpacked, &mut |kind, item| each(kind, item));
        read.map_err(|error| {
            self.corrupt(
                &key,
                format!("it is no gzipped list of items, of at most {max}: {error}"),
            )
        })?;
        Ok(true)
    }
}

/// Called with the type of an item, as `<apiVersion>/<Kind>`, and its name, with the namespace
/// before it. An error ends the list.
pub(crate) type EachItem<'e> = dyn FnMut(&str, &str) -> Result<(), String> + 'e;

/// Reads an unpacked list to its end. Holds one name at a time.
pub(crate) fn read_list(unpacked: impl Read, each: &mut EachItem<'_>) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(unpacked));
    List { each }.deserialize(&mut json)?;
    json.end()
}

/// An object of lists, by type; `null` is an empty one.
struct List<'l, 'e> {
    each: &'l mut EachItem<'e>,
}

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lists of names by type")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(kind) = map.next_key::<String>()? {
            map.next_value_seed(Names {
                kind: &kind,
                each: &mut *self.each,
            })?;
        }
        Ok(())
    }
}

/// The list of one type; `null` is an empty one.
struct Names<'l, 'e> {
    kind: &'l str,
    each: &'l mut EachItem<'e>,
}

impl<'de> DeserializeSeed<'de> for Names<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(name) = list.next_element::<String>()? {
            (self.each)(self.kind, &name).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Limits,
        testing::{collected, memory, put},
    };

    #[tokio::test]
    async fn what_a_list_does_not_name_is_found() {
        let location = memory("");
        let key = "backups/b/b-resource-list.json.gz";
        let pending = collected(&location, "u", false).await.unwrap();
        let backup = crate::testing::backup("u", backup_core::api::BackupPhase::Completed);
        pending
            .commit(&crate::testing::no_files(), &backup)
            .await
            .unwrap()
            .publish()
            .await
            .unwrap();
        let contents = location.read_contents("b", Limits::DEFAULT).await.unwrap();
        let unlisted = UnlistedItems {
            count: 1,
            example: "resources/pods/namespaces/ns/one.json".to_owned(),
        };
        for (list, expected) in [
            (r#"{"v1/Pod":["ns/one","ns/two"]}"#, None),
            (r#"{"v1/Pod":["ns/two"],"v1/Node":null}"#, Some(&unlisted)),
            (r#"{"v1/Pod":["one"]}"#, Some(&unlisted)),
            ("null", Some(&unlisted)),
        ] {
            put(
                &location,
                key,
                &crate::gzip::member(list.as_bytes()).unwrap(),
            )
            .await;
            let names = location.listed_names("b", 2).await.unwrap().unwrap();
            assert_eq!(
                names.missing_of(&contents).unwrap().as_ref(),
                expected,
                "{list}"
            );
        }
        for bad in [
            r#"{"v1/Pod":["a","b","c"]}"#,
            r#"{"v1/Pod":["a"]"#,
            r#"{"v1/Pod":[1]}"#,
            "",
        ] {
            put(
                &location,
                key,
                &crate::gzip::member(bad.as_bytes()).unwrap(),
            )
            .await;
            assert_eq!(
                location.listed_names("b", 2).await.unwrap_err().category(),
                "corrupt",
                "{bad}"
            );
        }
        assert!(location.listed_names("other", 2).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_namespaces_of_the_items_are_read() {
        let location = memory("");
        let list = r#"{"apps/v1/Deployment":["shop/web","db/db"],"v1/Namespace":["empty","shop"],"v1/Node":["n"],"v1/Pod":null}"#;
        let list = crate::gzip::member(list.as_bytes()).unwrap();
        put(&location, "backups/b/b-resource-list.json.gz", &list).await;
        let namespaces = location.listed_namespaces("b", 100).await.unwrap();
        let names = ["db", "empty", "shop"].map(str::to_owned);
        assert_eq!(namespaces, Some(names.into()));
        let none = location.listed_namespaces("other", 100).await.unwrap();
        assert_eq!(none, None);
    }

    /// The compressed list is small, but the name would be in memory as a whole.
    #[tokio::test]
    async fn a_name_that_is_far_longer_than_names_are_is_refused() {
        let location = memory("");
        let list = format!(r#"{{"v1/Pod":["{}"]}}"#, "x".repeat(2 << 20));
        let list = crate::gzip::member(list.as_bytes()).unwrap();
        put(&location, "backups/b/b-resource-list.json.gz", &list).await;
        let error = location.listed_names("b", 1_000).await.unwrap_err();
        assert_says!(error, "b-resource-list.json.gz");
    }
}
