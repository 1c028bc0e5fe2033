//! Versions, as data.

use serde::Serialize;

use super::part::Part;

/// What `version -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `Version`.
    pub kind: &'static str,
    /// Of this program.
    pub client: &'static str,
    /// Of the controller; nothing where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<Part<ControllerView>>,
    /// Of the API server; nothing where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server: Option<Part<String>>,
}

/// The controller, as it answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerView {
    /// Its version.
    pub version: String,
    /// How many plugins it offers, its own included.
    pub plugins: usize,
}

impl VersionView {
    /// Whether everything that was asked for is known.
    pub fn is_complete(&self) -> bool {
        self.controller.as_ref().is_none_or(|part| part.known().is_some())
            && self.api_server.as_ref().is_none_or(|part| part.known().is_some())
    }

    /// A line each.
    pub fn text(&self) -> String {
        let controller = self.controller.as_ref().map(|part| match part {
            Part::Known(known) => format!("{}  (plugins: {})", known.version, known.plugins),
            Part::Missing { unavailable } => format!("unavailable: {unavailable}"),
        });
        let api_server = self.api_server.as_ref().map(|part| match part {
            Part::Known(version) => version.clone(),
            Part::Missing { unavailable } => format!("unavailable: {unavailable}"),
        });
        [("Client", Some(self.client.to_owned())), ("Controller", controller), ("API server", api_server)]
            .into_iter()
            .filter_map(|(title, text)| text.map(|text| format!("{title:<12}{text}\n")))
            .collect()
    }
}
