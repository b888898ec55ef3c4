//! Metrics of the operator, in the text formats of `OpenMetrics` and Prometheus.
//!
//! Labels have few values: controllers, kinds, error classes and results. Object names are labels only of metrics that are
//! computed from the existing objects at every scrape ([`Figure`]).

mod computed;
mod format;
mod page;
mod process;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::error::Class;
use computed::Computed;
pub(crate) use format::Format;
pub(crate) use page::MetricsPage;
use process::ProcessMetrics;

pub use computed::Figure;

/// The beginning of every name, except of the metrics about the process.
const PREFIX: &str = "etcd_operator_";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    controller: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    commit: &'static str,
}

fn duration_histogram() -> Histogram {
    Histogram::new([0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0])
}

/// The metrics registry of one process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ResultLabels, Counter>,
    durations: Family<ControllerLabel, Histogram>,
    errors: Family<ClassLabels, Counter>,
    panics: Family<ControllerLabel, Counter>,
    queue_depth: Family<ControllerLabel, Gauge>,
    watch_restarts: Family<KindLabel, Counter>,
    store_objects: Family<KindLabel, Gauge>,
    malformed_objects: Family<KindLabel, Gauge>,
    leader: Gauge,
    lease_transitions: Counter,
    events_dropped: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Creates a registry with all metrics of this crate at zero.
    pub fn new(version: &'static str, commit: &'static str) -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::default())),
            reconciles: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            errors: Family::default(),
            panics: Family::default(),
            queue_depth: Family::default(),
            watch_restarts: Family::default(),
            store_objects: Family::default(),
            malformed_objects: Family::default(),
            leader: Gauge::default(),
            lease_transitions: Counter::default(),
            events_dropped: Counter::default(),
        };
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version, commit }).set(1);
        metrics.register("build_info", "Version and commit of this build", build);
        metrics.register_all();
        metrics.registry().register_collector(Box::new(ProcessMetrics));
        metrics
    }

    fn register_all(&self) {
        let Self {
            registry: _,
            reconciles,
            durations,
            errors,
            panics,
            queue_depth,
            watch_restarts,
            store_objects,
            malformed_objects,
            leader,
            lease_transitions,
            events_dropped,
        } = self;
        self.register("reconciles", "Finished reconciles by result", reconciles.clone());
        self.register(
            "reconcile_duration_seconds",
            "Time a reconcile took",
            durations.clone(),
        );
        self.register(
            "reconcile_errors",
            "Failed reconciles by class of error",
            errors.clone(),
        );
        self.register("reconcile_panics", "Reconciles that panicked", panics.clone());
        self.register(
            "queue_depth",
            "Objects waiting to be reconciled now",
            queue_depth.clone(),
        );
        self.register(
            "watch_restarts",
            "Watches restarted after an error",
            watch_restarts.clone(),
        );
        self.register("store_objects", "Objects in the store", store_objects.clone());
        self.register(
            "malformed_objects",
            "Objects that could not be decoded",
            malformed_objects.clone(),
        );
        self.register("leader", "1 while this process leads", leader.clone());
        self.register(
            "lease_transitions",
            "Times this process took the lease",
            lease_transitions.clone(),
        );
        self.register(
            "events_dropped",
            "Events not sent, for rate or room",
            events_dropped.clone(),
        );
    }

    /// Registers a metric of another crate. Its name gets the prefix `etcd_operator_`.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry().register(format!("{PREFIX}{name}"), help, metric);
    }

    /// Registers a gauge whose values are computed from the existing objects at every scrape. Its name gets the prefix
    /// `etcd_operator_`.
    pub fn register_computed(
        &self,
        name: &'static str,
        help: &'static str,
        figures: impl Fn() -> Vec<Figure> + Send + Sync + 'static,
    ) {
        let name = format!("{PREFIX}{name}");
        let computed = Computed { name, help, figures };
        self.registry().register_collector(Box::new(computed));
    }

    /// Renders all metrics as `OpenMetrics` text. It blocks, as it goes through all stores and reads `/proc`: scrapes are
    /// served by `MetricsPage`.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        text::encode(&mut page, &self.registry()).expect("writing into a string does not fail");
        page
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reconciled(&self, controller: &'static str, duration: Duration, error: Option<Class>) {
        let result = if error.is_some() { "error" } else { "success" };
        self.reconciles
            .get_or_create(&ResultLabels { controller, result })
            .inc();
        self.durations
            .get_or_create(&ControllerLabel { controller })
            .observe(duration.as_secs_f64());
        if let Some(class) = error {
            self.errors
                .get_or_create(&ClassLabels {
                    controller,
                    class: class.label(),
                })
                .inc();
        }
    }

    pub(crate) fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ControllerLabel { controller }).inc();
    }

    pub(crate) fn queue_depth(&self, controller: &'static str, depth: usize) {
        self.queue_depth
            .get_or_create(&ControllerLabel { controller })
            .set(gauge(depth));
    }

    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts
            .get_or_create(&KindLabel {
                kind: kind.to_owned(),
            })
            .inc();
    }

    pub(crate) fn stored(&self, kind: &str, objects: usize, malformed: usize) {
        self.store_objects
            .get_or_create(&KindLabel {
                kind: kind.to_owned(),
            })
            .set(gauge(objects));
        self.malformed_objects
            .get_or_create(&KindLabel {
                kind: kind.to_owned(),
            })
            .set(gauge(malformed));
    }

    pub(crate) fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    pub(crate) fn lease_taken(&self) {
        self.lease_transitions.inc();
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use crate::clock::{Clock as _, SystemClock};

    use super::*;

    fn object() -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("shop".to_owned());
        object.metadata.name = Some("orders".to_owned());
        object
    }

    #[test]
    fn a_computed_metric_is_evaluated_at_every_scrape() {
        let metrics = Metrics::new("1.2.3", "abc");
        let size = Arc::new(std::sync::atomic::AtomicI64::new(7));
        let scraped = Arc::clone(&size);
        metrics.register_computed("backup_size_bytes", "Size", move || {
            let size = scraped.load(std::sync::atomic::Ordering::Relaxed);
            vec![Figure::of("backup", &object(), size)]
        });
        let line =
            |value| format!(r#"etcd_operator_backup_size_bytes{{namespace="shop",backup="orders"}} {value}"#);
        assert!(metrics.encode().contains(&line(7)), "{}", metrics.encode());
        size.store(8, std::sync::atomic::Ordering::Relaxed);
        assert!(metrics.encode().contains(&line(8)), "{}", metrics.encode());
    }

    #[test]
    fn values_about_parts_of_an_object_differ_by_additional_labels() {
        let metrics = Metrics::new("1.2.3", "abc");
        metrics.register_computed("cluster_members", "Members", || {
            let members = |value| Figure::of("cluster", &object(), value);
            vec![
                members(3).with("role", "voter").with("health", "healthy"),
                members(1).with("role", "learner"),
            ]
        });
        let page = metrics.encode();
        for line in [
            r#"etcd_operator_cluster_members{namespace="shop",cluster="orders",role="voter",health="healthy"} 3"#,
            r#"etcd_operator_cluster_members{namespace="shop",cluster="orders",role="learner"} 1"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{page}");
        }
    }

    /// The value of a metric without labels.
    fn value(page: &str, name: &str) -> f64 {
        let mut lines = page
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = lines.next().unwrap_or_else(|| panic!("no {name} in\n{page}"));
        value.parse().expect("a number")
    }

    #[test]
    fn metrics_about_the_process_have_plausible_values() {
        let page = Metrics::new("1.2.3", "abc").encode();
        let now = SystemClock.now().as_duration().as_secs_f64();
        let age = now - value(&page, "process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(value(&page, "process_cpu_seconds_total") >= 0.0);
        assert!(value(&page, "process_threads") >= 1.0);
        let resident = value(&page, "process_resident_memory_bytes");
        assert!(resident > 100_000.0, "{resident}");
        assert!(value(&page, "process_virtual_memory_bytes") >= resident);
        let open = value(&page, "process_open_fds");
        assert!((3.0..=value(&page, "process_max_fds")).contains(&open), "{open}");
    }

    #[test]
    fn every_metric_is_exposed_under_its_published_name() {
        let metrics = Metrics::new("1.2.3", "abc");
        metrics.reconciled("cluster", Duration::from_millis(30), Some(Class::Conflict));
        metrics.panicked("cluster");
        metrics.queue_depth("cluster", 3);
        metrics.watch_restarted("Pod");
        metrics.stored("Pod", 9, 1);
        metrics.leading(true);
        metrics.event_dropped();
        let page = metrics.encode();
        for line in [
            r#"etcd_operator_build_info{version="1.2.3",commit="abc"} 1"#,
            r#"etcd_operator_reconciles_total{controller="cluster",result="error"} 1"#,
            r#"etcd_operator_reconcile_errors_total{controller="cluster",class="conflict"} 1"#,
            r#"etcd_operator_reconcile_panics_total{controller="cluster"} 1"#,
            r#"etcd_operator_reconcile_duration_seconds_count{controller="cluster"} 1"#,
            r#"etcd_operator_queue_depth{controller="cluster"} 3"#,
            r#"etcd_operator_watch_restarts_total{kind="Pod"} 1"#,
            r#"etcd_operator_store_objects{kind="Pod"} 9"#,
            r#"etcd_operator_malformed_objects{kind="Pod"} 1"#,
            "etcd_operator_leader 1",
            "etcd_operator_lease_transitions_total 0",
            "etcd_operator_events_dropped_total 1",
            "# EOF",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} not in\n{page}");
        }
    }
}
