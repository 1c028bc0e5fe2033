//! The output of `get`: a row for each object, or the objects as they are stored.

use std::{cmp::Ordering, collections::BTreeMap};

use kube::core::TypeMeta;

use crate::{
    cli::{GetArgs, Output},
    commands::prelude::*,
    print::{Style, Tone, json::Document, table},
    view::{Columns, KindTable, table_kind, unreadable_warning},
};

/// The objects to be printed, in the requested form.
pub(crate) struct Lines<'a> {
    args: &'a GetArgs,
    table: &'a KindTable,
    now: Timestamp,
    style: Style,
    /// Whether they are shown in the order of their arrival.
    is_in_order: bool,
    all: Vec<Line>,
}

pub(crate) struct Line {
    name: String,
    namespace: String,
    /// The row, if rows are printed.
    row: Option<Vec<String>>,
    /// The object, if whole objects are printed.
    whole: Option<Value>,
    /// Why the object cannot be decoded, and what to do; not shown yet.
    warning: Option<String>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(args: &'a GetArgs, table: &'a KindTable, terminal: &Terminal) -> Self {
        Self {
            args,
            table,
            now: terminal.now(),
            style: terminal.out_style(),
            is_in_order: false,
            all: Vec::new(),
        }
    }

    /// Shows the lines in the order in which they are added.
    pub(crate) fn in_order(self) -> Self {
        Self {
            is_in_order: true,
            ..self
        }
    }

    pub(crate) const fn args(&self) -> &'a GetArgs {
        self.args
    }

    pub(crate) const fn table(&self) -> &'a KindTable {
        self.table
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn take(&mut self, object: DynamicObject) {
        let line = self.line(object, None);
        self.all.push(line);
    }

    pub(crate) fn set(&mut self, all: Vec<Line>) {
        self.all = all;
    }

    /// The line of an object; `status` replaces the object's own status.
    pub(crate) fn line(&self, mut object: DynamicObject, status: Option<&str>) -> Line {
        // Items of a list may lack their type. Managed fields are left out, as kubectl does.
        let resource = &self.table.resource;
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        object.metadata.managed_fields = None;
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        let value = serde_json::to_value(object).unwrap_or_default();
        let (row, whole, warning) = match self.args.output.form {
            Output::Table | Output::Wide => {
                let (row, warning) = self.row(&value, &name, &namespace, status);
                (Some(row), None, warning)
            }
            Output::Name => (None, None, None),
            Output::Json | Output::Yaml => (None, Some(self.document(value)), None),
        };
        Line {
            name,
            namespace,
            row,
            whole,
            warning,
        }
    }

    fn document(&self, stored: Value) -> Value {
        match self.table.document {
            Some(document) => document(&stored),
            None => stored,
        }
    }

    /// The row of an object, and why the object cannot be decoded.
    fn row(
        &self,
        value: &Value,
        name: &str,
        namespace: &str,
        status: Option<&str>,
    ) -> (Vec<String>, Option<String>) {
        let KindTable {
            resource,
            word,
            columns,
            places,
            row: row_of,
            ..
        } = self.table;
        let (mut row, warning) = match row_of(value, places.as_ref(), self.now, self.style) {
            Ok(row) => (row, None),
            Err(error) => {
                let warning =
                    unreadable_warning(word, resource, namespace, name, &error.to_string());
                (self.table.unreadable(name), Some(warning))
            }
        };
        if let Some(status) = status {
            row[columns.status] = self.style.tone(Tone::Busy, status);
        }
        row.truncate(self.columns());
        if self.args.list.all_namespaces {
            row.insert(0, namespace.to_owned());
        }
        if self.args.show_labels {
            let labels = value["metadata"]["labels"].as_object().map(label_list);
            row.push(labels.unwrap_or_else(|| "<none>".to_owned()));
        }
        (row, warning)
    }

    fn columns(&self) -> usize {
        let Columns {
            headers, narrow, ..
        } = self.table.columns;
        if self.args.output.is_wide() {
            headers.len()
        } else {
            narrow
        }
    }

    fn headers(&self) -> Vec<&str> {
        let mut headers = self.table.columns.headers[..self.columns()].to_vec();
        if self.args.list.all_namespaces {
            headers.insert(0, "NAMESPACE");
        }
        if self.args.show_labels {
            headers.push("LABELS");
        }
        headers
    }

    /// Shows each decoding problem once.
    pub(crate) fn warn(&mut self, terminal: &mut Terminal) {
        for warning in self.all.iter_mut().filter_map(|line| line.warning.take()) {
            terminal.say(&warning);
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Problem> {
        if !self.is_in_order {
            self.all.sort_by(order);
        }
        let whole: Vec<&Value> = self
            .all
            .iter()
            .filter_map(|line| line.whole.as_ref())
            .collect();
        let form = self.args.output.form;
        match form {
            Output::Name => Ok(self
                .all
                .iter()
                .map(|line| self.name_of(&line.name))
                .collect()),
            Output::Table | Output::Wide => self.rows(!self.args.output.no_headers),
            Output::Json | Output::Yaml => match (self.args.names.len(), whole.as_slice()) {
                (1, [one]) => json::object(one, form),
                (1, []) => Ok(String::new()),
                (_, all) => json::object(&Document::list(&BTreeMap::from([("items", all)])), form),
            },
        }
    }

    /// Like `text`, for output that `next` continues: whole objects are printed one after the other
    /// instead of as a list.
    pub(crate) fn begin(&mut self) -> Result<String, Problem> {
        if self.all.iter().all(|line| line.whole.is_none()) {
            return self.text();
        }
        self.all.sort_by(order);
        self.all
            .iter()
            .filter_map(|line| line.whole.as_ref())
            .map(|value| self.one_of_many(value))
            .collect()
    }

    fn one_of_many(&self, value: &Value) -> Result<String, Problem> {
        let form = self.args.output.form;
        let mark = if form == Output::Yaml { "---\n" } else { "" };
        Ok(mark.to_owned() + &json::object(value, form)?)
    }

    fn rows(&self, with_headers: bool) -> Result<String, Problem> {
        Ok(table(
            &self.headers(),
            with_headers,
            self.all.iter().filter_map(|line| line.row.clone()),
        )?)
    }

    /// The output for one changed object, in the columns of the output that `text` returned.
    pub(crate) fn next(
        &mut self,
        object: DynamicObject,
        status: Option<&str>,
    ) -> Result<String, Problem> {
        let line = self.line(object, status);
        if let Some(value) = &line.whole {
            return self.one_of_many(value);
        }
        if line.row.is_none() {
            return Ok(self.name_of(&line.name));
        }
        // The last rows determine the width of the columns.
        self.all
            .drain(..self.all.len().saturating_sub(MAX_RULER_ROWS));
        self.all.push(line);
        Ok(self
            .rows(true)?
            .lines()
            .last()
            .map(|line| format!("{line}\n"))
            .unwrap_or_default())
    }

    fn name_of(&self, name: &str) -> String {
        let resource = &self.table.resource;
        format!(
            "{}.{}/{name}\n",
            resource.kind.to_lowercase(),
            resource.group
        )
    }
}

/// Number of earlier rows that determine column widths: one or two screens.
const MAX_RULER_ROWS: usize = 100;

/// Labels as `key=value`, separated by commas.
fn label_list(labels: &serde_json::Map<String, Value>) -> String {
    let labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| plain(&format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    labels.join(",")
}

/// Compares by namespace, then by name.
fn order(a: &Line, b: &Line) -> Ordering {
    a.namespace
        .cmp(&b.namespace)
        .then_with(|| table_kind::order(&a.name, &b.name))
}
