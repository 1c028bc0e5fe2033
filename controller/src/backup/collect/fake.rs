//! An API server that serves lists from memory, for tests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use kube::Client;
use serde_json::{Value, json};

pub(crate) type Params = HashMap<String, String>;

/// What a request is answered with, instead of the list.
type Fault = dyn Fn(&str, &Params) -> Option<(u16, Value)> + Send + Sync;

/// Lists by path, what was asked for, and faults.
#[derive(Default)]
pub(crate) struct Api {
    lists: HashMap<String, Vec<Value>>,
    objects: HashMap<String, Value>,
    fault: Option<Box<Fault>>,
    /// Every request as path and query.
    pub(crate) asked: Mutex<Vec<(String, Params)>>,
}

impl Api {
    pub(crate) fn list(mut self, path: &str, items: Vec<Value>) -> Self {
        self.lists.insert(path.to_owned(), items);
        self
    }

    pub(crate) fn object(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    /// Answers with what `fault` says, where it says something.
    pub(crate) fn fault(
        mut self,
        fault: impl Fn(&str, &Params) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Self {
        self.fault = Some(Box::new(fault));
        self
    }

    pub(crate) fn client(self) -> (Client, Arc<Self>) {
        let api = Arc::new(self);
        let router: Router = Router::new().fallback(answer).with_state(Arc::clone(&api));
        (Client::new(router, "velero"), api)
    }

    /// The paths that were asked for, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }
}

/// An error as the API server writes it.
pub(crate) fn status(code: u16, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "x" }),
    )
}

async fn answer(State(api): State<Arc<Api>>, uri: Uri) -> Response {
    let path = uri.path().to_owned();
    // Of what is escaped, only the sign in selectors occurs here.
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let params: Params = pairs.map(|(key, value)| (key.to_owned(), value.replace("%3D", "="))).collect();
    api.asked.lock().unwrap().push((path.clone(), params.clone()));
    let (code, body) = api
        .fault
        .as_ref()
        .and_then(|fault| fault(&path, &params))
        .or_else(|| api.objects.get(&path).map(|object| (200, object.clone())))
        .or_else(|| api.lists.get(&path).map(|items| (200, page(items, &params))))
        .unwrap_or_else(|| status(404, "the server could not find the requested resource"));
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

/// Continue tokens are offsets. Selectors are of the form `key=value`.
fn page(items: &[Value], params: &Params) -> Value {
    let selected: Vec<&Value> = items
        .iter()
        .filter(|item| {
            params.get("labelSelector").is_none_or(|selector| {
                let (key, value) = selector.split_once('=').unwrap();
                item["metadata"]["labels"][key] == value
            })
        })
        .collect();
    let start: usize = params.get("continue").map_or(0, |token| token.parse().unwrap());
    let limit: usize = params["limit"].parse().unwrap();
    let end = selected.len().min(start + limit);
    let next = if end < selected.len() { end.to_string() } else { String::new() };
    json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": { "resourceVersion": "1", "continue": next, "remainingItemCount": selected.len() - end },
        "items": &selected[start..end],
    })
}
