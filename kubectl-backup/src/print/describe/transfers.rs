//! Transfers of volume data on the describe screen.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::{
    print::{Style, Tone, human, seconds, size, took},
    view::{
        stored::operations::OperationView,
        transfer::{TransferRate, TransferView},
    },
};

/// Whether a transfer is listed that tells more about a running operation.
pub(super) fn tell_about(transfers: &[TransferView], operation: &OperationView) -> bool {
    !operation.has_ended() && transfers.iter().any(|one| one.name == operation.id)
}

/// "1 of 3 ended, 1 failed, 6.2 GiB of 10.0 GiB"; `None` if all are complete, which the other lines
/// say.
pub(super) fn summary(all: &[TransferView]) -> Option<String> {
    if all.iter().all(|one| one.tone == Tone::Good) {
        return None;
    }
    let ended = all.iter().filter(|one| one.has_ended()).count();
    let failed = all.iter().filter(|one| one.tone == Tone::Bad).count();
    let mut text = format!("{ended} of {} ended", all.len());
    if failed > 0 {
        let _ = write!(text, ", {failed} failed");
    }
    let sum = |bytes: fn(&TransferView) -> i64| {
        all.iter()
            .fold(0_i64, |sum, one| sum.saturating_add(bytes(one)))
    };
    let amount = amount(sum(|one| one.done), sum(|one| one.total));
    if !amount.is_empty() {
        let _ = write!(text, ", {amount}");
    }
    Some(text)
}

/// A line about a transfer: what is done, how fast, and what it waits for or why it failed, which is
/// `message`.
pub(super) fn line(transfer: &TransferView, message: &str, now: Timestamp, style: Style) -> String {
    let TransferView {
        claim,
        phase,
        tone,
        node,
        ..
    } = transfer;
    let mut parts = vec![phase.clone()];
    parts.extend((transfer.attempt > 1).then(|| format!("attempt {}", transfer.attempt)));
    if transfer.has_ended() {
        parts.extend(ended(transfer));
    } else {
        parts.extend(running(transfer, now));
        parts.extend((!node.is_empty()).then(|| format!("on node {node}")));
    }
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    };
    format!(
        "{} {claim}  {}{message}",
        style.tone(*tone, tone.sign()),
        parts.join(", ")
    )
}

/// "1.2 GiB of 5.0 GiB", "24.0 MiB a second", "about 3m left".
fn running(transfer: &TransferView, now: Timestamp) -> Vec<String> {
    let TransferView { done, total, .. } = *transfer;
    let mut parts = Vec::new();
    parts.extend(Some(amount(done, total)).filter(|text| !text.is_empty()));
    if let Some(TransferRate {
        bytes_per_second,
        seconds_left,
    }) = transfer.speed(now)
    {
        parts
            .extend((bytes_per_second > 0).then(|| format!("{} a second", size(bytes_per_second))));
        parts.extend(seconds_left.map(|left| format!("about {} left", human(left))));
    }
    parts
}

/// "5.0 GiB", "120.0 MiB new", "1234 files", "took 2m3s".
fn ended(transfer: &TransferView) -> Vec<String> {
    let TransferView {
        done,
        new_bytes,
        files,
        started,
        completed,
        ..
    } = transfer;
    let mut parts = Vec::new();
    parts.extend((*done > 0).then(|| size(bytes(*done))));
    parts.extend(new_bytes.map(|new| format!("{} new", size(bytes(new)))));
    parts.extend(files.map(|count| format!("{count} files")));
    parts.extend(
        started
            .zip(*completed)
            .map(|(start, end)| format!("took {}", took(seconds(start, end)))),
    );
    parts
}

/// "1.2 GiB of 5.0 GiB", "1.2 GiB", or empty.
fn amount(done: i64, total: i64) -> String {
    match (done, total) {
        (..=0, ..=0) => String::new(),
        (_, ..=0) => size(bytes(done)),
        _ => format!("{} of {}", size(bytes(done)), size(bytes(total))),
    }
}

fn bytes(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
