//! One watch: list, then follow, then resume or list again, for as long as the process lives.
//!
//! Every wait has a bound, and no answer of the API server ends the loop.

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

use super::decode::{Decoded, Line, Page, version_of};
use super::{Shared, Timing, Watched};
use crate::clock::SharedClock;
use crate::gate::State;
use crate::jitter::Jitter;
use crate::store::Malformed;

/// Objects per page of a list.
const PAGE: u32 = 500;

/// A page of more bytes than this is not read to its end but asked for again with fewer objects on it, so that large
/// objects cost time and not memory.
const PAGE_BYTES: u64 = 16 << 20;

/// How many times fewer.
const FEWER: u32 = 8;

/// So many failed watches in a row, and the version they start from is given up.
const RESUMES: u32 = 3;

/// A watch that ends sooner, without an event, has failed.
const TOO_SHORT: Duration = Duration::from_secs(1);

pub(super) struct Reflector<K> {
    pub(super) client: Client,
    pub(super) clock: SharedClock,
    pub(super) timing: Timing,
    pub(super) jitter: Jitter,
    pub(super) shared: Arc<Shared<K>>,
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) trim: fn(&mut K),
}

/// How a watch ended.
enum End {
    /// The server closed it, as it does after a while.
    Closed,
    /// The version it started from is too old, or the kind is gone: list again.
    Expired(String),
    /// Anything else: go on from the last version seen.
    Failed(String),
}

impl<K: Watched> Reflector<K> {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.follow_for_ever() => {}
        }
    }

    async fn follow_for_ever(&self) {
        // In a row, without a watch that got anywhere between them: a good list alone proves nothing.
        let mut failures: u32 = 0;
        loop {
            match self.list().await {
                Ok(version) => {
                    let (why, progress) = self.follow(version).await;
                    debug!(kind = self.shared.kind, "listing again: {why}");
                    failures = if progress { 0 } else { failures + 1 };
                    // The first time, the version may have been too old and nothing else wrong.
                    if failures > 1 {
                        self.pause(failures - 1).await;
                    }
                }
                Err(why) => {
                    // Told once, not at every try.
                    if self
                        .shared
                        .stand(self.namespace.as_ref(), State::Waiting(why.clone()))
                    {
                        warn!(kind = self.shared.kind, namespace = self.namespace, "{why}");
                    }
                    failures += 1;
                    self.pause(failures).await;
                }
            }
        }
    }

    /// Reads everything there is into the store; returns the version to watch from.
    async fn list(&self) -> Result<String, String> {
        let mut params = ListParams {
            label_selector: self.labels.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut listed = Vec::new();
        let mut tokens = BTreeSet::new();
        loop {
            let answer = timeout(self.timing.list, self.page(&params)).await;
            let late = || format!("no answer to a list within {:?}", self.timing.list);
            let Some(text) = answer.map_err(|_| late())?? else {
                params.limit = params.limit.map(|limit| (limit / FEWER).max(1));
                continue;
            };
            let page: Page<'_> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
            listed.extend(page.items().filter_map(|decoded| self.take_in(decoded)));
            let more = page.metadata.more.filter(|token| !token.is_empty());
            if more.is_none() {
                let version = page
                    .metadata
                    .resource_version
                    .filter(|version| !version.is_empty());
                let version = version.ok_or_else(|| "a list without a version".to_owned())?;
                self.shared
                    .update(|store| store.replace(self.namespace.as_deref(), listed));
                if self.shared.stand(self.namespace.as_ref(), State::Ready) {
                    info!(
                        kind = self.shared.kind,
                        objects = self.shared.store.len(),
                        "store is filled"
                    );
                }
                return Ok(version);
            }
            if more.iter().any(|token| !tokens.insert(token.clone())) {
                return Err("the API server sends the same page of a list again".to_owned());
            }
            params.continue_token = more;
        }
    }

    /// Reads one page; `None` if it is too large and could be smaller.
    async fn page(&self, params: &ListParams) -> Result<Option<Vec<u8>>, String> {
        let mut request = self.request().list(params).map_err(|error| error.to_string())?;
        // What is compressed does not show how large it is.
        plainly(&mut request);
        let answer = self.client.request_stream(request).await;
        let answer = answer.map_err(|error| Self::explain(&error))?;
        let bound = match params.limit {
            Some(1) => u64::MAX,
            _ => PAGE_BYTES + 1,
        };
        let mut text = Vec::new();
        let read = pin!(answer.take(bound)).read_to_end(&mut text).await;
        let read = read.map_err(|error| error.to_string())?;
        Ok((u64::try_from(read).unwrap_or(u64::MAX) < bound).then_some(text))
    }

    /// Follows changes from `version` on, across as many watches as it takes; returns why it could not go on, and
    /// whether any of the watches got anywhere.
    async fn follow(&self, mut version: String) -> (String, bool) {
        let mut failures = 0;
        let mut progress = false;
        loop {
            let started = self.clock.elapsed();
            let from = version.clone();
            let why = match self.watch(&mut version).await {
                End::Expired(why) => {
                    self.shared.metrics.watch_restarted(&self.shared.kind);
                    return (why, progress || version != from);
                }
                End::Closed if version != from || self.clock.elapsed() >= started + TOO_SHORT => {
                    failures = 0;
                    progress = true;
                    continue;
                }
                End::Closed => "closed at once".to_owned(),
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
            self.pause(failures).await;
            if failures >= RESUMES {
                return (why, progress);
            }
        }
    }

    /// One watch; `version` moves on with every event.
    async fn watch(&self, version: &mut String) -> End {
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
        // A server that compresses each event by itself sends what the client's decoder ends at the first of.
        plainly(&mut request);
        let lines = match timeout(self.timing.start, self.client.request_stream(request)).await {
            Ok(Ok(stream)) => stream.lines(),
            Ok(Err(error)) => return Self::ended_by(&error),
            Err(_) => return End::Failed(format!("no answer to a watch within {:?}", self.timing.start)),
        };
        let mut lines = pin!(lines);
        let quiet = self.timing.watch + self.timing.idle;
        loop {
            let line = match timeout(quiet, lines.try_next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return End::Closed,
                Ok(Err(error)) => return End::Failed(error.to_string()),
                Err(_) => return End::Failed(format!("nothing heard for {quiet:?}")),
            };
            if let Some(end) = self.heed(&line, version) {
                return end;
            }
        }
    }

    /// Takes one line of a watch in; `version` moves on with it. Says so if the watch ends here.
    fn heed(&self, line: &str, version: &mut String) -> Option<End> {
        let Line { what, object } = match serde_json::from_str(line) {
            Ok(line) => line,
            // Cut off in the middle.
            Err(error) if error.is_eof() => return Some(End::Closed),
            Err(error) => {
                return Some(match serde_json::from_str::<Status>(line) {
                    Ok(status) => Self::ended_by(&Error::Api(status.boxed())),
                    Err(_) => End::Failed(format!("not a line of a watch: {error}")),
                });
            }
        };
        match what.as_str() {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let object = Decoded::of(object);
                advance(version, object.resource_version());
                if let Some(object) = self.take_in(object) {
                    self.shared.update(|store| match what.as_str() {
                        "DELETED" => store.delete(object),
                        _ => store.apply(object),
                    });
                }
                None
            }
            "BOOKMARK" => {
                advance(version, version_of(object));
                None
            }
            "ERROR" => Some(match serde_json::from_str::<Status>(object.get()) {
                Ok(status) => Self::ended_by(&Error::Api(status.boxed())),
                Err(error) => End::Failed(format!("an error that cannot be read: {error}")),
            }),
            other => Some(End::Failed(format!("an event of an unknown type: {other}"))),
        }
    }

    fn take_in(&self, decoded: Decoded<K>) -> Option<Result<K, Malformed>> {
        let taken = decoded.trimmed(self.trim);
        if taken.is_none() {
            warn!(kind = self.shared.kind, "an object without a name was left out");
        }
        taken
    }

    fn request(&self) -> Request {
        Request::new(K::url_path(&(), self.namespace.as_deref()))
    }

    fn ended_by(error: &Error) -> End {
        match error {
            Error::Api(status) if matches!(status.code, 404 | 410) || status.reason == "Expired" => {
                End::Expired(Self::explain(error))
            }
            _ => End::Failed(Self::explain(error)),
        }
    }

    fn explain(error: &Error) -> String {
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

    async fn pause(&self, failures: u32) {
        tokio::time::sleep(back_off(failures, self.jitter.unit())).await;
    }
}

/// Asks for an answer that is not compressed.
fn plainly(request: &mut http::Request<Vec<u8>>) {
    let identity = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, identity);
}

fn advance(version: &mut String, to: Option<String>) {
    if let Some(to) = to.filter(|to| !to.is_empty()) {
        *version = to;
    }
}

/// Half a second, doubling up to fifteen, of which jitter takes up to half: many managers must not come back at once.
fn back_off(failures: u32, jitter: f64) -> Duration {
    let full = Duration::from_millis(500 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(15));
    full.mul_f64(1.0 - jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_fifteen_seconds() {
        let pauses: Vec<_> = (1..8).map(|n| back_off(n, 0.0).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert_eq!(back_off(1, 1.0), Duration::from_millis(250));
    }
}
