//! Watches: from the history of the store to a stream of lines. Changes nothing in the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use tokio::time::Instant;

use super::Shared;
use super::read::{selector_of, version_of};
use super::request::{Ask, Content, served, shown};
use super::selector::Selector;
use super::status_error::{Cause, Failure};
use super::store::{Change, State};
use super::stored::Stored;
use crate::signal::Listener;

const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
const LONGEST: u64 = 1800;

/// One open watch.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    changes: Listener,
    ask: Ask,
    selector: Selector,
    /// Everything up to here was delivered.
    cursor: u64,
    /// The version the client asked to start from.
    start: u64,
    cuts: u64,
    /// Lines to be delivered.
    pending: VecDeque<Bytes>,
    end: Instant,
    bookmark: Option<Instant>,
    over: bool,
}

fn event(kind: &str, object: &Content) -> Bytes {
    let object = object.text();
    let mut line = Vec::with_capacity(object.len() + 40);
    for part in [
        b"{\"type\":\"",
        kind.as_bytes(),
        b"\",\"object\":",
        &object,
        b"}\n",
    ] {
        line.extend_from_slice(part);
    }
    Bytes::from(line)
}

impl Watcher {
    /// Opens a watch; what is wrong with the request itself is a failure, what is wrong with the version an event.
    pub(crate) fn open(shared: &Arc<Shared>, ask: Ask) -> Result<Self, Failure> {
        let selector = selector_of(&ask)?;
        let seconds = ask
            .query
            .get("timeoutSeconds")
            .and_then(|text| text.parse().ok())
            .unwrap_or(LONGEST);
        let bookmarks = ask.query.flag("allowWatchBookmarks");
        let initial = ask.query.get("sendInitialEvents").map(|text| text == "true");
        let matching = ask.query.get("resourceVersionMatch");
        let invalid = |cause: Cause| Failure::invalid("meta.k8s.io", "ListOptions", "", vec![cause]);
        if initial.is_some() && matching != Some("NotOlderThan") {
            return Err(invalid(Cause::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )));
        }
        if initial.is_none() && matching.is_some() {
            return Err(invalid(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )));
        }
        let asked = version_of(ask.query.get("resourceVersion").unwrap_or("0"))?;
        let now = Instant::now();
        let mut watcher = Watcher {
            changes: shared.changed.subscribe(),
            shared: Arc::clone(shared),
            selector,
            cursor: asked,
            start: asked,
            cuts: 0,
            pending: VecDeque::new(),
            end: now + Duration::from_secs(seconds),
            bookmark: bookmarks.then(|| now + BOOKMARK_EVERY),
            over: false,
            ask,
        };
        let state = shared.state();
        watcher.cuts = state.cuts;
        if asked == 0 || initial == Some(true) {
            watcher.start_with_state(&state, initial == Some(true));
        } else if asked < state.compacted {
            watcher.expire(&state);
        }
        drop(state);
        Ok(watcher)
    }

    fn start_with_state(&mut self, state: &State, mark_end: bool) {
        let version = state.held.unwrap_or(state.version);
        for (_, object) in state.at_version(&self.ask.kind, &self.ask.route.namespace, version) {
            if self.selector.matches(&object) {
                self.pending.push_back(event("ADDED", &self.show(&object)));
            }
        }
        self.cursor = version;
        if mark_end && self.bookmark.is_some() {
            self.pending.push_back(self.bookmark_event(true));
        }
    }

    fn expire(&mut self, state: &State) {
        let failure = Failure::expired(format!(
            "too old resource version: {} ({})",
            self.cursor, state.compacted
        ));
        self.pending
            .push_back(event("ERROR", &Content::Made(failure.body())));
        self.over = true;
    }

    fn show(&self, object: &Arc<Stored>) -> Content {
        shown(&self.ask.kind, object, self.ask.partial)
    }

    fn bookmark_event(&self, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }

        let (api_version, kind) = if self.ask.partial {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned())
        } else {
            (self.ask.kind.api_version(), self.ask.kind.kind.clone())
        };
        let bookmark = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        event("BOOKMARK", &Content::Made(bookmark))
    }

    fn translate(&self, change: &Change) -> Option<Bytes> {
        let concerns = change.key.storage == self.ask.kind.storage
            && (self.ask.route.namespace.is_empty() || change.key.namespace == self.ask.route.namespace);
        if !concerns {
            return None;
        }
        let seen = |object: &Option<Arc<Stored>>| {
            object
                .as_ref()
                .is_some_and(|object| self.selector.matches(object))
        };
        let (kind, object) = match (seen(&change.before), seen(&change.after)) {
            (false, true) => ("ADDED", change.after.as_ref()?),
            (true, true) => ("MODIFIED", change.after.as_ref()?),
            (true, false) => return self.gone(change),
            (false, false) => return None,
        };
        Some(event(kind, &self.show(object)))
    }

    /// The last that is seen of an object, carrying the version of the change that took it away.
    fn gone(&self, change: &Change) -> Option<Bytes> {
        let last = change.last.as_ref().or(change.before.as_ref())?;
        let version = change.version.to_string();
        if last["metadata"]["resourceVersion"] == *version {
            return Some(event("DELETED", &self.show(last)));
        }
        let mut last = served(&self.ask.kind, last, self.ask.partial);
        last["metadata"]["resourceVersion"] = json!(version);
        Some(event("DELETED", &Content::Made(last)))
    }

    /// Takes from the history what is new.
    fn advance(&mut self) {
        let shared = Arc::clone(&self.shared);
        let state = shared.state();
        if state.cuts != self.cuts {
            self.over = true;
            return;
        }
        let until = state.held.unwrap_or(state.version);
        if self.cursor < state.compacted && state.held.is_none() {
            self.expire(&state);
            return;
        }
        let first = state
            .history
            .partition_point(|change| change.version <= self.cursor);
        for change in state.history[first..]
            .iter()
            .take_while(|change| change.version <= until)
        {
            self.pending.extend(self.translate(change));
        }
        self.cursor = self.cursor.max(until);
    }

    async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.changes.update();
            self.advance();
            if !self.pending.is_empty() || self.over {
                continue;
            }
            let last_bookmark = self.end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.end);
            let wake = self.bookmark.map_or(self.end, |at| at.min(last_bookmark));
            let changed = tokio::select! {
                biased;
                changed = self.changes.changed() => changed.is_ok(),
                () = tokio::time::sleep_until(wake.min(self.end)) => false,
            };
            if changed {
                continue;
            }
            let now = Instant::now();
            if now >= self.end {
                self.over = true;
            } else if self.bookmark.is_some() {
                // Nothing to tell a client that is where it started.
                if self.cursor > self.start {
                    self.pending.push_back(self.bookmark_event(false));
                }
                let next = now + BOOKMARK_EVERY;
                self.bookmark = (now < last_bookmark).then_some(next);
            }
        }
    }

    /// The watch as the lines of a response body.
    pub(crate) fn lines(self) -> impl Stream<Item = Bytes> + Send {
        futures::stream::unfold(self, |mut watcher| async move {
            let line = watcher.next_line().await?;
            Some((line, watcher))
        })
    }
}
