use sha2::{Digest as _, Sha256};

use super::*;
use crate::tarball::{Entry, Member, Place, places};

/// The members, and the position of each item by its name.
fn found(archive: &[u8]) -> (Vec<Member>, Vec<(String, Place)>) {
    let mut all = Vec::new();
    let members = places("a tarball", archive, |entry, place| {
        if let Entry::Item { name, .. } = entry {
            all.push(((*name).to_owned(), place));
        }
        Ok(())
    });
    (members.unwrap(), all)
}

#[tokio::test]
async fn an_item_is_read_from_the_members_that_hold_it_and_no_others() {
    // Of all sizes up to more than a member, and of bytes that hardly compress.
    let items: Vec<Item> = (0..60_u8)
        .map(|number| {
            let hashes =
                (0..u32::from(number) * 1500).flat_map(|at| Sha256::digest(at.to_le_bytes()));
            let bytes: Vec<u8> = std::iter::once(number).chain(hashes).collect();
            Item::new(
                "configmaps",
                Some("shop"),
                &format!("item-{number}"),
                &bytes,
            )
        })
        .collect();
    let archive = written(&memory(""), &items).await;
    let (members, all) = found(&archive);
    assert!(
        members.len() > 50 && all.len() == items.len(),
        "{} {}",
        members.len(),
        all.len()
    );
    for ((name, place), item) in all.iter().zip(&items) {
        let (first, end) = place.members(&members);
        let from = usize::try_from(first.stored).unwrap();
        let to = end.map_or(archive.len(), |end| usize::try_from(end).unwrap());
        assert_eq!(
            place.read(&archive[from..to], first).unwrap(),
            item.json,
            "{name}"
        );
        let needed = 3 * 1024 * 1024 + item.json.len();
        assert!(
            to - from < needed,
            "{name}: {} bytes for {}",
            to - from,
            item.json.len()
        );
        assert!(
            item.json.len() < 1000
                || place
                    .read(&archive[from..to - 1_500_000.min(to - from)], first)
                    .is_err()
        );
    }
}

#[test]
fn an_archive_of_one_member_is_read_from_its_beginning() {
    let tar = {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, json) in [
            ("resources/pods/namespaces/a/x.json", "1"),
            ("./resources/pods/cluster/y.json", "23"),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(json.len() as u64);
            builder
                .append_data(&mut header, path, json.as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap()
    };
    let archive = gzip::member(&tar).unwrap();
    let (members, all) = found(&archive);
    assert_eq!(members, [Member::default()]);
    let read = |place: &Place| {
        place
            .read(archive.as_slice(), place.members(&members).0)
            .unwrap()
    };
    assert_eq!(
        all.iter().map(|(_, place)| read(place)).collect::<Vec<_>>(),
        [b"1".to_vec(), b"23".to_vec()]
    );
    // A damaged archive is refused as a whole, and an impossible size is not read.
    assert!(places("a tarball", &archive[..archive.len() - 9], |_, _| Ok(())).is_err());
    let beyond = Place {
        offset: 0,
        size: u64::MAX,
    };
    assert!(beyond.read(archive.as_slice(), Member::default()).is_err());
}
