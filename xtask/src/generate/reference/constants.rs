//! Labels, annotations and finalizers, by the constants that name them.

use anyhow::{bail, ensure};

/// One of them, with what its constant's comment says.
struct DocumentedConstant {
    key: String,
    text: String,
}

/// A table of those in these sources, ours after Velero's.
pub(super) fn table(sources: &[String]) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for source in sources {
        all.extend(known(source)?);
    }
    ensure!(!all.is_empty(), "no constant was found");
    all.sort_by(|a, b| a.key.cmp(&b.key));
    let rows = all
        .into_iter()
        .map(|DocumentedConstant { key, text }| [format!("`{key}`"), text]);
    Ok(super::table(["key", "what it is"], rows))
}

fn known(source: &str) -> anyhow::Result<Vec<DocumentedConstant>> {
    let mut all = Vec::new();
    let mut comment = String::new();
    for line in source
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
    {
        if let Some(more) = line.strip_prefix("///") {
            comment += more;
            continue;
        }
        let text = std::mem::take(&mut comment);
        let Some((name, value)) = line
            .strip_prefix("pub const ")
            .and_then(|rest| rest.split_once(": &str = "))
        else {
            continue;
        };
        if text.is_empty() {
            bail!("the constant {name} has no comment that says what it is");
        }
        let key = value.trim_end_matches(';').trim_matches('"').to_owned();
        // Other names, such as those of Secrets and variables, have no prefix.
        if !key.contains('/') {
            continue;
        }
        all.push(DocumentedConstant {
            key,
            text: without_links(text.trim()),
        });
    }
    Ok(all)
}

/// Leaves out links to the source, and the brackets around them.
fn without_links(text: &str) -> String {
    let mut rest = text.to_owned();
    while let Some(start) = rest.find(" ([`")
        && let Some(length) = rest[start..].find(')')
    {
        rest.replace_range(start..=start + length, "");
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_links_and_other_names_are_left_out() {
        let source = "/// Label of a pod ([`crate::x`]).\npub const B: &str = \"b/c\";\n\n/// Our annotation,\n\
             /// any value.\npub const A: &str = \"a/b\";\nconst PRIVATE: &str =
             /// \"x\";\n/// Name of a Secret.\npub const S: &str = \"secret\";\n#[cfg(test)]\npub const T: &str = \"t\";\n";
        let table = table(&[source.to_owned()]).unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `a/b` | Our annotation, any value. |",
                "| `b/c` | Label of a pod. |"
            ]
        );
    }

    #[test]
    fn a_constant_without_a_comment_is_refused() {
        let refused = table(&["pub const A: &str = \"a/b\";\n".to_owned()]).unwrap_err();
        assert!(refused.to_string().contains('A'), "{refused}");
    }
}
