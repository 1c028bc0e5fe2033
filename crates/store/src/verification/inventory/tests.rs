use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use super::*;
use crate::tarball::MAX_TOTAL;

/// The names of ConfigMaps in a list.
type List<'a> = &'a [&'a str];

const NO_ITEMS: List<'static> = &[];
const KIND: &str = "v1/ConfigMap";

fn tarball(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap()
}

const VERSION: (&str, &str) = ("metadata/version", "1.1.0\n");
const PLAIN: &str = "resources/configmaps/namespaces/shop/a.json";
const PREFERRED: &str = "resources/configmaps/v1-preferredversion/namespaces/shop/a.json";
const OTHER: &str = "resources/configmaps/v1beta1/namespaces/shop/a.json";
const ITEM: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"},"data":{"b":"c"}}"#;

/// The inventory of this tarball and this list, and the findings.
fn compared(tarball: &[u8], list: List<'_>, results: &Results) -> (String, Vec<String>) {
    let mut inventory = Inventory::new(true, 10);
    for item in list {
        inventory.add_listed(KIND, item).unwrap();
    }
    inventory.read("b.tar.gz", tarball, MAX_TOTAL).unwrap();
    let excused = error_words(results);
    let needs_names = inventory.needs_names();
    for item in list {
        inventory.compare(KIND, item, &excused);
    }
    let named = inventory.missing.count + inventory.half.count;
    assert!(needs_names || named == 0);
    (inventory.summary(), inventory.findings())
}

fn findings(files: &[(&str, &str)], list: List<'_>) -> Vec<String> {
    compared(&tarball(files), list, &Results::default()).1
}

#[test]
fn a_tarball_of_the_listed_items_has_no_findings() {
    for files in [
        vec![VERSION, (PLAIN, ITEM), (PREFERRED, ITEM)],
        // Not the preferred version.
        vec![VERSION, (OTHER, ITEM)],
        vec![
            VERSION,
            (PLAIN, ITEM),
            (PREFERRED, ITEM),
            (OTHER, ITEM),
            ("notes/of/somebody", "?"),
        ],
        // Saved again after its operation ended.
        vec![
            VERSION,
            (PLAIN, ITEM),
            (PREFERRED, ITEM),
            (PLAIN, ITEM),
            (PREFERRED, ITEM),
        ],
        // The first layout had no versions.
        vec![("metadata/version", "1"), (PLAIN, ITEM)],
    ] {
        let (summary, findings) = compared(&tarball(&files), &["shop/a"], &Results::default());
        assert_eq!(findings, Vec::<String>::new(), "{files:?}");
        assert_eq!(summary, "1 item of 1 type");
    }
}

#[test]
fn whatever_does_not_agree_is_told_with_its_name() {
    let whole = [VERSION, (PLAIN, ITEM), (PREFERRED, ITEM)];
    for (files, list, expected) in [
        (
            whole.to_vec(),
            &["shop/a", "shop/z"][..],
            "v1/ConfigMap shop/z is listed and not in it",
        ),
        (
            whole.to_vec(),
            NO_ITEMS,
            "v1/ConfigMap shop/a is in it and not listed",
        ),
        (
            vec![VERSION, (PLAIN, ITEM)],
            &["shop/a"][..],
            "v1/ConfigMap shop/a is there in one of its two forms only",
        ),
        (
            vec![VERSION, (PREFERRED, ITEM)],
            &["shop/a"][..],
            "v1/ConfigMap shop/a is there in one of its two forms only",
        ),
        (
            whole[1..].to_vec(),
            &["shop/a"][..],
            "it does not say which version its layout has (metadata/version)",
        ),
        (
            vec![
                VERSION,
                ("resources/configmaps/v1/namespaces/other/a.json", ITEM),
            ],
            &["other/a"][..],
            "v1/ConfigMap other/a lies at the path of another",
        ),
        (
            vec![VERSION, (OTHER, &ITEM[..40])],
            NO_ITEMS,
            "shop/a: EOF while parsing a string at line 1 column 40 is no JSON of an object",
        ),
    ] {
        assert_eq!(findings(&files, list), [expected]);
    }
}

#[test]
fn many_names_are_counted() {
    let names = ["1", "2", "3", "4", "5", "6", "7"];
    let expected = "v1/ConfigMap 1, v1/ConfigMap 2, v1/ConfigMap 3, v1/ConfigMap 4, v1/ConfigMap 5 and 2 more are listed and not in it";
    assert_eq!(findings(&[VERSION], &names), [expected]);
}

#[test]
fn what_an_error_of_the_backup_names_may_be_missing() {
    let results: Results = serde_json::from_value(
        json!({ "errors": { "namespaces": { "shop": ["resource: /configmaps name: /web-0 message: /Error backing up item."] } } }),
    )
    .unwrap();
    let found = |name: &str| compared(&tarball(&[VERSION]), &[name], &results).1;
    assert_eq!(found("shop/web-0"), Vec::<String>::new());
    assert_eq!(
        found("shop/web"),
        ["v1/ConfigMap shop/web is listed and not in it"]
    );
}

#[test]
fn a_tarball_that_is_cut_anywhere_cannot_be_read() {
    let whole = tarball(&[VERSION, (PLAIN, ITEM), (PREFERRED, ITEM)]);
    for end in 0..whole.len() {
        let mut inventory = Inventory::new(false, 10);
        let read = inventory.read("b.tar.gz", &whole[..end], MAX_TOTAL);
        let error = read.unwrap_err().to_string();
        assert!(
            error.starts_with("b.tar.gz cannot be used: entry "),
            "{end}: {error}"
        );
    }
}

#[test]
fn without_a_list_halves_are_counted_and_nothing_is_missing() {
    let mut inventory = Inventory::new(false, 10);
    let archive = tarball(&[VERSION, (PLAIN, ITEM)]);
    inventory.read("b.tar.gz", &archive[..], MAX_TOTAL).unwrap();
    assert_eq!(
        inventory.findings(),
        ["1 item is there in one of its two forms only"]
    );
}

#[test]
fn more_items_than_the_maximum_are_refused_from_either_side() {
    let mut inventory = Inventory::new(true, 1);
    inventory.add_listed(KIND, "shop/z").unwrap();
    assert_says!(
        inventory.add_listed(KIND, "shop/y").unwrap_err(),
        "--restore-max-items"
    );
    let mut inventory = Inventory::new(true, 1);
    inventory.add_listed(KIND, "shop/z").unwrap();
    let archive = tarball(&[VERSION, (PLAIN, ITEM)]);
    let read = inventory.read("b.tar.gz", &archive[..], MAX_TOTAL);
    assert_says!(read.unwrap_err(), "b.tar.gz", "--restore-max-items");
}
