//! The page of metrics as the HTTP server serves it: computed outside the async threads, once at a time, and kept for a
//! second. Concurrent scrapes thus cost one computation, and none delays the renewal of the lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinError;

use super::format::to_prometheus;
use super::{Format, Metrics};
use crate::clock::SharedClock;

/// How long a computed page is served again.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The last computed page; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    metrics: Metrics,
    clock: SharedClock,
    last: Arc<Mutex<Option<ComputedPage>>>,
}

#[derive(Debug)]
struct ComputedPage {
    open_metrics: Arc<str>,
    prometheus: Arc<str>,
    computed_at: Duration,
}

impl ComputedPage {
    fn text(&self, format: Format) -> Arc<str> {
        match format {
            Format::OpenMetrics => Arc::clone(&self.open_metrics),
            Format::Prometheus => Arc::clone(&self.prometheus),
        }
    }
}

impl MetricsPage {
    pub(crate) fn new(metrics: Metrics, clock: SharedClock) -> Self {
        Self {
            metrics,
            clock,
            last: Arc::default(),
        }
    }

    /// The page in a format, at most a second old. Fails if a metric panics.
    pub(crate) async fn text(&self, format: Format) -> Result<Arc<str>, JoinError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        let is_fresh = |page: &&ComputedPage| self.clock.elapsed() < page.computed_at + MAX_AGE;
        if let Some(page) = last.as_ref().filter(is_fresh) {
            return Ok(page.text(format));
        }
        let (metrics, clock) = (self.metrics.clone(), Arc::clone(&self.clock));
        // The computation holds the lock, so that a client that disconnects does not let a second one start.
        let compute = move || {
            let open_metrics = metrics.encode();
            let page = ComputedPage {
                prometheus: to_prometheus(&open_metrics).into(),
                open_metrics: open_metrics.into(),
                computed_at: clock.elapsed(),
            };
            let text = page.text(format);
            *last = Some(page);
            text
        };
        tokio::task::spawn_blocking(compute).await
    }
}
