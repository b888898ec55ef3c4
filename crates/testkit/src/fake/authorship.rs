//! Who a request writes as, and noting it in the object.

use serde_json::Value;

use super::event_form;
use super::kind::Kind;
use super::ownership::{self, Operation, Owners, Writer};
use super::request::Ask;
use super::store::State;

/// The top-level fields a write to this part of a kind cannot touch.
fn ignored_by(kind: &Kind, subresource: &str) -> &'static [&'static str] {
    match subresource {
        "" if kind.status => &["status"],
        "status" if kind.custom => &["metadata", "spec"],
        "status" => &["spec"],
        _ => &[],
    }
}

impl State {
    /// The writer of a request.
    pub(crate) fn writer<'a>(
        &self,
        ask: &'a Ask,
        operation: Operation,
        now: &'a str,
        version: &'a str,
    ) -> Writer<'a> {
        Writer {
            manager: &ask.manager,
            operation,
            subresource: &ask.route.subresource,
            api_version: version,
            now,
            ignored: ignored_by(&ask.kind, &ask.route.subresource),
            is_named: self.names_owners,
        }
    }

    /// Gives what an ordinary write changed to its writer. Fields are named as the version of the request names them.
    /// Returns who owns what then.
    pub(crate) fn note_writer(&self, ask: &Ask, live: &Value, owners: &Owners, object: &mut Value) -> Owners {
        if !self.names_owners && ask.route.subresource == "status" {
            return owners.clone();
        }
        // The scale subresource drops the time of its own entry.
        let now = if ask.route.subresource == "scale" {
            String::new()
        } else {
            self.stamp()
        };
        let version = ask.kind.api_version();
        let writer = self.writer(ask, Operation::Update, &now, &version);
        if ask.kind.group == "events.k8s.io" {
            let (mut before, mut after) = (live.clone(), object.clone());
            event_form::from_stored(&mut before);
            event_form::from_stored(&mut after);
            let owners = ownership::after_update(&ask.kind.schema, &before, owners, &mut after, &writer);
            object["metadata"]["managedFields"] = after["metadata"]["managedFields"].take();
            owners
        } else {
            ownership::after_update(&ask.kind.schema, live, owners, object, &writer)
        }
    }
}
