//! Lists and watches one kind in one namespace for the lifetime of the process, and resumes or relists after errors.
//!
//! Every wait has a timeout, and no response of the API server ends the loop.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncReadExt, TryStreamExt};
use http::header::{ACCEPT_ENCODING, HeaderValue};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Error};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::decode::{Decoded, Line, Page, bookmark_version};
use super::{Shared, Timing, Watched};
use crate::clock::SharedClock;
use crate::gate::State;
use crate::jitter::Jitter;
use crate::liveness::{Heartbeat, Liveness};
use crate::store::{Malformed, key_of};

/// Most objects per page of a list.
const PAGE_SIZE: u32 = 250;

/// A larger page is not read to its end but requested again with fewer objects, so that large objects cost time instead
/// of memory.
const MAX_PAGE_BYTES: u64 = 16 << 20;

/// How long processing may take between two waits. Beyond that the reflector hangs.
const MAX_PROCESSING: Duration = Duration::from_mins(1);

/// Longest delay after a failure.
const MAX_BACK_OFF: Duration = Duration::from_secs(15);

/// Divisor for the page size after a timeout or a page above [`MAX_PAGE_BYTES`]. A full page that needed less than this
/// fraction of both bounds doubles the page size.
const PAGE_REDUCTION: u32 = 8;

/// After this many failed pages, a list begins anew.
const MAX_PAGE_FAILURES: u32 = 3;

/// After this many failed watches in a row, the reflector lists again instead of resuming.
const MAX_RESUMES: u32 = 3;

/// A watch that ends sooner, without an event, counts as failed.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

/// Lists and watches one kind, in one namespace or in all, into the shared store.
pub(super) struct Reflector<K> {
    pub(super) client: Client,
    pub(super) clock: SharedClock,
    pub(super) timing: Timing,
    pub(super) jitter: Jitter,
    pub(super) liveness: Liveness,
    pub(super) shared: Arc<Shared<K>>,
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) trim: fn(&mut K),
}

/// Why a page was not answered.
struct PageError {
    why: String,
    /// Whether fewer objects may be answered: the API server, or a proxy before it, gave up in the middle.
    may_be_too_much: bool,
}

/// How a watch ended.
enum End {
    /// The server closed the watch, as it does after the timeout.
    Closed,
    /// The start version is too old, or the kind no longer exists: list again.
    Expired(String),
    /// Any other error: resume from the last version seen.
    Failed(String),
}

impl<K: Watched> Reflector<K> {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let heartbeat = self.start_heartbeat();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.list_and_watch_forever(&heartbeat) => {}
        }
    }

    fn start_heartbeat(&self) -> Heartbeat {
        let kind = &self.shared.kind;
        let name = match &self.namespace {
            Some(namespace) => format!("the watch of {kind} in namespace {namespace}"),
            None => format!("the watch of {kind}"),
        };
        self.liveness.start(name, self.max_silence())
    }

    /// Longest time between two heartbeats: the longest wait, and the processing after it.
    fn max_silence(&self) -> Duration {
        let Timing {
            list,
            start,
            watch,
            idle,
        } = self.timing;
        list.max(start).max(watch + idle).max(MAX_BACK_OFF) + MAX_PROCESSING
    }

    async fn list_and_watch_forever(&self, heartbeat: &Heartbeat) {
        let mut page_size = PAGE_SIZE;
        // Consecutive failures. A successful list does not reset them, only a watch that makes progress does.
        let mut failures: u32 = 0;
        loop {
            match self.list(&mut page_size, heartbeat).await {
                Ok(version) => {
                    let (why, progress) = self.follow(version, heartbeat).await;
                    debug!(kind = self.shared.kind, "listing again: {why}");
                    failures = if progress { 0 } else { failures + 1 };
                    // No back-off after the first failure: the version may simply have been too old.
                    if failures > 1 {
                        self.back_off(failures - 1, heartbeat).await;
                    }
                }
                Err(why) => {
                    self.report_problem(&why);
                    failures += 1;
                    self.back_off(failures, heartbeat).await;
                }
            }
        }
    }

    /// Reports why the store is not synced. Logged once per problem, not at every attempt.
    fn report_problem(&self, why: &str) {
        let state = State::Waiting(why.to_owned());
        if self.shared.set_watch_state(self.namespace.as_ref(), state) {
            warn!(kind = self.shared.kind, namespace = self.namespace, "{why}");
        }
    }

    /// Lists all objects into the store, page by page, and then removes the objects that no page contained. Returns the
    /// version to watch from.
    ///
    /// `page_size` is what the API server could answer so far. It shrinks when it cannot, and is kept for the next list.
    async fn list(&self, page_size: &mut u32, heartbeat: &Heartbeat) -> Result<String, String> {
        let mut params = ListParams {
            label_selector: self.labels.clone(),
            ..ListParams::default()
        };
        let mut listed = BTreeSet::new();
        let mut tokens = BTreeSet::new();
        // Larger pages than this were not answered while this list was read.
        let mut largest = PAGE_SIZE;
        let mut failures = 0;
        loop {
            heartbeat.beat(self.max_silence());
            params.limit = Some(*page_size);
            let started = self.clock.elapsed();
            let Ok(answer) = timeout(self.timing.list, self.page(&params)).await else {
                let bound = self.timing.list;
                let why = format!("the API server did not answer a list within {bound:?}");
                if *page_size == 1 {
                    return Err(why);
                }
                self.report_problem(&why);
                *page_size = reduced(*page_size);
                largest = *page_size;
                continue;
            };
            let body = match answer {
                Ok(Some(body)) => body,
                Ok(None) => {
                    *page_size = reduced(*page_size);
                    continue;
                }
                Err(error) => {
                    if error.may_be_too_much {
                        *page_size = reduced(*page_size);
                        largest = *page_size;
                    }
                    failures += 1;
                    let can_go_on = error.may_be_too_much && !listed.is_empty();
                    if !can_go_on || failures > MAX_PAGE_FAILURES {
                        return Err(error.why);
                    }
                    self.report_problem(&error.why);
                    self.back_off(failures, heartbeat).await;
                    continue;
                }
            };
            let page: Page<'_> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            let objects: Vec<_> = page.items().filter_map(|decoded| self.trim(decoded)).collect();
            listed.extend(objects.iter().map(key_of));
            self.shared.update(|store| store.apply_page(objects));
            failures = 0;
            let continue_token = page.metadata.continue_token.filter(|token| !token.is_empty());
            let Some(continue_token) = continue_token else {
                let version = page
                    .metadata
                    .resource_version
                    .filter(|version| !version.is_empty());
                let version = version
                    .ok_or_else(|| "the API server sent a list without a resourceVersion".to_owned())?;
                self.shared
                    .update(|store| store.retain_listed(self.namespace.as_deref(), &listed));
                if self.shared.set_watch_state(self.namespace.as_ref(), State::Ready) {
                    info!(
                        kind = self.shared.kind,
                        objects = self.shared.store.len(),
                        "store synced"
                    );
                }
                return Ok(version);
            };
            // A further page follows, so this one was full.
            if self.is_easy(self.clock.elapsed().saturating_sub(started), body.len()) {
                *page_size = page_size.saturating_mul(2).min(largest);
            }
            if !tokens.insert(continue_token.clone()) {
                return Err("the API server repeats pages of a list".to_owned());
            }
            params.continue_token = Some(continue_token);
        }
    }

    /// Whether a page was far below the bounds of time and size.
    fn is_easy(&self, duration: Duration, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        duration < self.timing.list / PAGE_REDUCTION && bytes < MAX_PAGE_BYTES / u64::from(PAGE_REDUCTION)
    }

    /// Reads one page; `None` if it is too large and can be requested with fewer objects.
    async fn page(&self, params: &ListParams) -> Result<Option<Vec<u8>>, PageError> {
        let mut request = self.request().list(params).map_err(|error| PageError {
            why: error.to_string(),
            may_be_too_much: false,
        })?;
        // The size limit applies to the uncompressed response.
        disable_compression(&mut request);
        let answer = self.client.request_stream(request).await;
        let answer = answer.map_err(|error| PageError {
            why: Self::describe_error(&error),
            may_be_too_much: matches!(&error, Error::Api(status) if status.code >= 500),
        })?;
        let bound = match params.limit {
            Some(1) => u64::MAX,
            _ => MAX_PAGE_BYTES + 1,
        };
        let mut body = Vec::new();
        let read = pin!(answer.take(bound)).read_to_end(&mut body).await;
        let read = read.map_err(|error| PageError {
            why: error.to_string(),
            may_be_too_much: true,
        })?;
        Ok((u64::try_from(read).unwrap_or(u64::MAX) < bound).then_some(body))
    }

    /// Watches from `version` on and resumes as long as possible. Returns why it stopped, and whether any watch made
    /// progress.
    async fn follow(&self, mut version: String, heartbeat: &Heartbeat) -> (String, bool) {
        let mut failures = 0;
        let mut progress = false;
        loop {
            let started = self.clock.elapsed();
            let from = version.clone();
            let why = match self.watch(&mut version, heartbeat).await {
                End::Expired(why) => {
                    self.shared.metrics.watch_restarted(&self.shared.kind);
                    return (why, progress || version != from);
                }
                End::Closed if version != from || self.clock.elapsed() >= started + MIN_WATCH_DURATION => {
                    failures = 0;
                    progress = true;
                    continue;
                }
                End::Closed => "the API server closed the watch immediately".to_owned(),
                End::Failed(why) => why,
            };
            self.shared.metrics.watch_restarted(&self.shared.kind);
            debug!(
                kind = self.shared.kind,
                namespace = self.namespace,
                "watch failed: {why}"
            );
            if version != from {
                failures = 0;
                progress = true;
            }
            failures += 1;
            self.back_off(failures, heartbeat).await;
            if failures >= MAX_RESUMES {
                return (why, progress);
            }
        }
    }

    /// Runs one watch. Advances `version` with every event.
    async fn watch(&self, version: &mut String, heartbeat: &Heartbeat) -> End {
        let seconds = u32::try_from(self.timing.watch.as_secs())
            .unwrap_or(u32::MAX)
            .max(1);
        let params = WatchParams {
            label_selector: self.labels.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let mut request = match self.request().watch(&params, version) {
            Ok(request) => request,
            Err(error) => return End::Failed(error.to_string()),
        };
        // Some servers compress every event separately; the client's decoder would stop after the first one.
        disable_compression(&mut request);
        heartbeat.beat(self.max_silence());
        let lines = match timeout(self.timing.start, self.client.request_stream(request)).await {
            Ok(Ok(stream)) => stream.lines(),
            Ok(Err(error)) => return Self::end_of_error(&error),
            Err(_) => {
                return End::Failed(format!(
                    "the API server did not answer a watch within {:?}",
                    self.timing.start
                ));
            }
        };
        let mut lines = pin!(lines);
        let silence = self.timing.watch + self.timing.idle;
        loop {
            heartbeat.beat(self.max_silence());
            let line = match timeout(silence, lines.try_next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return End::Closed,
                Ok(Err(error)) => return End::Failed(error.to_string()),
                Err(_) => return End::Failed(format!("no event for {silence:?}")),
            };
            if let Some(end) = self.process_event(&line, version) {
                return end;
            }
        }
    }

    /// Processes one event of a watch and advances `version`. Returns how the watch ended, if it did.
    fn process_event(&self, line: &str, version: &mut String) -> Option<End> {
        let Line { event_type, object } = match serde_json::from_str(line) {
            Ok(line) => line,
            // A truncated event.
            Err(error) if error.is_eof() => return Some(End::Closed),
            Err(error) => {
                return Some(match serde_json::from_str::<Status>(line) {
                    Ok(status) => Self::end_of_error(&Error::Api(status.boxed())),
                    Err(_) => End::Failed(format!("an invalid watch event: {error}")),
                });
            }
        };
        match event_type.as_str() {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let object = Decoded::decode(object);
                advance(version, object.resource_version());
                if let Some(object) = self.trim(object) {
                    self.shared.update(|store| match event_type.as_str() {
                        "DELETED" => store.delete(object),
                        _ => store.apply(object),
                    });
                }
                None
            }
            "BOOKMARK" => {
                advance(version, bookmark_version(object));
                None
            }
            "ERROR" => Some(match serde_json::from_str::<Status>(object.get()) {
                Ok(status) => Self::end_of_error(&Error::Api(status.boxed())),
                Err(error) => End::Failed(format!("an undecodable error event: {error}")),
            }),
            other => Some(End::Failed(format!("a watch event of unknown type {other}"))),
        }
    }

    /// Removes the fields that no controller reads. `None`, with a warning, for an object without a name.
    fn trim(&self, decoded: Decoded<K>) -> Option<Result<K, Malformed>> {
        let trimmed = decoded.trim(self.trim);
        if trimmed.is_none() {
            warn!(kind = self.shared.kind, "skipped an object without a name");
        }
        trimmed
    }

    fn request(&self) -> Request {
        Request::new(K::url_path(&(), self.namespace.as_deref()))
    }

    /// How a watch ends with this error: `Expired` for 404, 410 and that reason, after which only a new list helps.
    fn end_of_error(error: &Error) -> End {
        match error {
            Error::Api(status) if matches!(status.code, 404 | 410) || status.reason == "Expired" => {
                End::Expired(Self::describe_error(error))
            }
            _ => End::Failed(Self::describe_error(error)),
        }
    }

    /// Why the API server refuses a list or watch, for the readiness page and the log.
    fn describe_error(error: &Error) -> String {
        let Error::Api(status) = error else {
            return error.to_string();
        };
        let (plural, group) = (K::plural(&()), K::group(&()));
        match status.code {
            404 if group.contains('.') && !group.ends_with(".k8s.io") => {
                format!("waiting for CustomResourceDefinition {plural}.{group}")
            }
            404 => format!("the API server does not serve {plural}"),
            401 | 403 => format!(
                "waiting for permission to list and watch {plural}: {}",
                status.message
            ),
            _ => format!("{} ({})", status.message, status.code),
        }
    }

    async fn back_off(&self, failures: u32, heartbeat: &Heartbeat) {
        heartbeat.beat(self.max_silence());
        tokio::time::sleep(back_off_delay(failures, self.jitter.unit())).await;
    }
}

/// The page size after a page that the API server could not answer.
const fn reduced(page_size: u32) -> u32 {
    let reduced = page_size / PAGE_REDUCTION;
    if reduced == 0 { 1 } else { reduced }
}

/// Requests an uncompressed response.
fn disable_compression(request: &mut http::Request<Vec<u8>>) {
    let identity = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, identity);
}

/// Moves the version on. An absent or empty one does not count.
fn advance(version: &mut String, to: Option<String>) {
    if let Some(to) = to.filter(|to| !to.is_empty()) {
        *version = to;
    }
}

/// 0.5 s, doubling up to 15 s. Jitter takes away up to half, so that many managers do not reconnect at once.
fn back_off_delay(failures: u32, jitter: f64) -> Duration {
    let full = Duration::from_millis(500 << failures.saturating_sub(1).min(5)).min(MAX_BACK_OFF);
    full.mul_f64(1.0 - jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_fifteen_seconds() {
        let pauses: Vec<_> = (1..8).map(|n| back_off_delay(n, 0.0).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert_eq!(back_off_delay(1, 1.0), Duration::from_millis(250));
    }
}
