//! Damaged messages, lines and answers of plugins.

use backup_testkit::Fuzz;
use prost::Message as _;
use serde_json::{Map, Value, json};

use crate::{
    action, backup_item, catalog, handshake, lines,
    log_line::Reader,
    restore_item,
    wire::{self, restore},
};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
const NAME: &str = "example.io/p";

/// Decodes the bytes as each type of answer, and interprets the answers.
fn read(bytes: &[u8]) -> String {
    let item = json!({ "metadata": { "name": "a" } });
    let sent = item.to_string().into_bytes();
    let mut words = Vec::new();
    let mut say = |what: Result<String, String>| words.push(what.unwrap_or_else(|error| error));
    if let Ok(answer) = wire::ExecuteResponse::decode(bytes) {
        assert_eq!(
            wire::ExecuteResponse::decode(&*answer.encode_to_vec()).as_ref(),
            Ok(&answer)
        );
        say(backup_item::read(&sent, &item, answer)
            .map(|output| format!("{}", output.item.is_some())));
    }
    if let Ok(answer) = restore::ExecuteResponse::decode(bytes) {
        let object: Map<String, Value> = item.as_object().cloned().unwrap_or_default();
        say(restore_item::read(NAME, &sent, &object, answer)
            .map(|output| format!("{:?}", output.wait)));
    }
    if let Ok(answer) = wire::ProgressResponse::decode(bytes) {
        let progress = answer.progress.map(action::progress_of);
        say(Ok(progress
            .map(|progress| format!("{:?} {:?}", progress.completed, progress.started))
            .unwrap_or_default()));
    }
    if let Ok(answer) = wire::ListPluginsResponse::decode(bytes) {
        say(Ok(answer
            .plugins
            .iter()
            .map(|plugin| catalog::is_name(&plugin.name).to_string())
            .collect()));
    }
    if let Ok(answer) = wire::RelatedItems::decode(bytes) {
        say(action::ids(answer.related_items).map(|ids| ids.len().to_string()));
    }
    words.join(" ")
}

#[test]
fn any_message_is_an_answer_or_is_refused() {
    let id = wire::ResourceIdentifier {
        group: "apps".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "n".to_owned(),
        name: "d".to_owned(),
    };
    let executed = wire::ExecuteResponse {
        item: br#"{"metadata":{"name":"b"}}"#.to_vec(),
        additional_items: vec![id.clone()],
        operation_id: "o".to_owned(),
        post_operation_items: vec![id],
    };
    let time = wire::Time {
        seconds: 1_700_000_000,
        nanos: 5,
    };
    let progress = wire::OperationProgress {
        completed: true,
        err: "e".to_owned(),
        n_completed: 3,
        n_total: 7,
        operation_units: "bytes".to_owned(),
        description: "d".to_owned(),
        started: Some(time),
        updated: Some(time),
    };
    let skipped = restore::ExecuteResponse {
        skip_restore: true,
        wait_for_additional_items: true,
        additional_items_ready_timeout: Some(wire::Time {
            seconds: i64::MAX,
            nanos: i32::MIN,
        }),
        ..restore::ExecuteResponse::default()
    };
    let seeds = vec![
        executed.encode_to_vec(),
        wire::ProgressResponse {
            progress: Some(progress),
        }
        .encode_to_vec(),
        skipped.encode_to_vec(),
    ];
    Fuzz::new(FOLDER, "messages", seeds).run(read);
}

#[test]
fn any_line_of_a_plugin_is_read() {
    let seeds: [&[u8]; 4] = [
        b"1|2|unix|/tmp/plugin1|grpc|\n",
        br#"{"@level":"info","@message":"m","level":"info","error":"e"}"#,
        b"panic: oh\n\ngoroutine 1 [running]:\n",
        b"[WARN] careful\r\n",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Fuzz::new(FOLDER, "lines", seeds.map(<[u8]>::to_vec).to_vec()).run(|bytes| {
        let (mut source, mut reader, mut words) = (bytes, Reader::default(), Vec::new());
        while let Some(line) = runtime.block_on(lines::next(&mut source)).unwrap() {
            // Each invalid byte becomes a character of three bytes.
            assert!(
                line.len() <= 3 * lines::MAX_LINE_BYTES,
                "{} bytes",
                line.len()
            );
            words.push(format!(
                "{:?} {}",
                reader.read(&line).level,
                handshake::address(&line).is_ok()
            ));
        }
        words.truncate(5);
        words.join(" ")
    });
}
