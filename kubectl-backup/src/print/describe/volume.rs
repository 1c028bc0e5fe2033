//! A volume on the describe screen: how its data was saved or restored.

use crate::{
    print::{Style, Tone},
    view::stored::volumes::VolumeView,
};

pub(super) fn line(volume: &VolumeView, style: Style) -> String {
    let VolumeView {
        claim,
        method,
        succeeded,
        size,
        new_bytes,
        handle,
        skipped,
        ..
    } = volume;
    let tone = match (skipped, succeeded) {
        (None, Some(false)) => Tone::Bad,
        (Some(_), _) => Tone::Warn,
        _ => Tone::Good,
    };
    let failed = match tone {
        Tone::Bad if volume.is_incomplete() => " incomplete",
        Tone::Bad if volume.is_restored => ", not restored",
        Tone::Bad => " failed",
        _ => "",
    };
    let outcome = if let Some(why) = skipped {
        if why.is_empty() {
            "without its data".to_owned()
        } else {
            format!("without its data: {why}")
        }
    } else if method.is_empty() {
        format!("by other means{failed}")
    } else {
        format!("{method}{failed}")
    };
    let mut parts = vec![outcome];
    parts.extend(
        u64::try_from(*size)
            .ok()
            .filter(|size| *size > 0)
            .map(crate::print::size),
    );
    let new = new_bytes.and_then(|new| u64::try_from(new).ok());
    parts.extend(new.map(|new| format!("{} new", crate::print::size(new))));
    parts.extend((!handle.is_empty()).then(|| handle.clone()));
    format!(
        "{} {claim}  {}",
        style.tone(tone, tone.sign()),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_that_wrote_nothing_is_not_incomplete() {
        let shown = |method: &str, handle: &str, size: i64| {
            let entry = serde_json::json!({"pvcNamespace": "shop", "pvcName": "data", method: "CSISnapshot",
                "snapshotDataMoved": true, "result": "failed", "snapshotDataMovementInfo": {
                    "dataMover": "backup-mover", "snapshotHandle": handle, "size": size}});
            let volume: VolumeView = serde_json::from_value(entry).unwrap();
            line(&volume, Style::new(false))
        };
        let refused = shown("restoreMethod", "", 0);
        assert!(
            refused.ends_with("shop/data  moved CSI snapshot, not restored"),
            "{refused}"
        );
        for (method, handle, expected) in [
            ("restoreMethod", "k1", "snapshot incomplete, 2.0 KiB"),
            ("backupMethod", "k1", "snapshot incomplete, 2.0 KiB"),
            ("backupMethod", "", "snapshot failed, 2.0 KiB"),
        ] {
            let line = shown(method, handle, 2048);
            assert!(line.contains(expected), "{line}");
        }
    }
}
