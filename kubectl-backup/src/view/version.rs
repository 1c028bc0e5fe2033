//! Versions, as data.

use serde::Serialize;

use crate::fetched::Fetched;

/// What `version -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionView {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) client: &'static str,
    /// Of the controller; nothing where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<Fetched<ControllerView>>,
    /// Of the API server; nothing where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_server: Option<Fetched<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerView {
    pub(crate) version: String,
    pub(crate) plugins: usize,
}

impl VersionView {
    pub(crate) fn is_complete(&self) -> bool {
        self.controller.as_ref().is_none_or(|part| part.known().is_some())
            && self.api_server.as_ref().is_none_or(|part| part.known().is_some())
    }

    pub(crate) fn text(&self) -> String {
        let controller = self.controller.as_ref().map(|part| match part {
            Fetched::Known(known) => format!("{}  (plugins: {})", known.version, known.plugins),
            Fetched::Missing { unavailable } => format!("unavailable: {unavailable}"),
        });
        let api_server = self.api_server.as_ref().map(|part| match part {
            Fetched::Known(version) => version.clone(),
            Fetched::Missing { unavailable } => format!("unavailable: {unavailable}"),
        });
        [("Client", Some(self.client.to_owned())), ("Controller", controller), ("API server", api_server)]
            .into_iter()
            .filter_map(|(title, text)| text.map(|text| format!("{title:<12}{text}\n")))
            .collect()
    }
}
