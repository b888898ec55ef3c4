//! The library that all controllers of the operator are built on. It is independent of etcd.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`informer`], [`store`] | one watch per kind for the whole process, and the cache it fills |
//! | [`wakeup`], [`queue`], [`controller`] | from a changed object to a reconcile: keys, back-off, tasks |
//! | [`lease`], [`leader`], [`fence`] | leader election: decisions, calls, and the permit before every write |
//! | [`apply`], [`drift`] | fenced writes with a timeout, skipped when nothing would change |
//! | [`echo`] | recognizes own status writes that the watch returns, so that they wake no controller |
//! | [`latest`] | the newest state of an object, where the informer's store lags behind own writes |
//! | [`events`] | Kubernetes Events, best effort |
//! | [`report`] | the result of a reconcile, in the status and as an Event |
//! | [`elsewhere`] | Events on objects that another installation of the operator controls |
//! | [`job_end`] | whether a Job has ended although the node of its last pod is lost |
//! | [`error`] | error classes: back-off, condition reason, metric label |
//! | [`gate`], [`liveness`] | whether the process is ready, and whether its loops make progress |
//! | [`health`], [`metrics`] | the HTTP server for probes, metrics |
//! | [`clock`], [`jitter`] | the only sources of time and randomness |
//! | [`client`], [`key`] | the client for the API server, and object keys |
//!
//! `queue`, `lease`, `drift`, `echo`, `job_end` and `store` are free of IO, clock and randomness.
//!
//! A minimal controller:
//!
//! ```
//! use etcd_operator_runtime::clock::SharedClock;
//! use etcd_operator_runtime::controller::Controller;
//! use etcd_operator_runtime::fence::Leadership;
//! use etcd_operator_runtime::informer::{InformerPanicked, Informers, Scope, keep_all};
//! use etcd_operator_runtime::metrics::Metrics;
//! use etcd_operator_runtime::queue::Wake;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use tokio_util::sync::CancellationToken;
//!
//! async fn run(
//!     client: kube::Client,
//!     clock: SharedClock,
//!     metrics: Metrics,
//!     leadership: Leadership,
//!     shutdown: CancellationToken,
//! ) -> Result<(), InformerPanicked> {
//!     let mut informers = Informers::new(client, clock.clone(), metrics.clone());
//!     let maps = informers.add::<ConfigMap>(Scope::All, keep_all);
//!
//!     let controller = Controller::builder("example", clock, metrics).gate(&maps.synced()).concurrency(8);
//!     let wake = controller.wakeup();
//!     maps.sink(move |change| wake.push(change.key()));
//!
//!     let store = maps.store();
//!     let reconcile = move |key| {
//!         let map = store.get(&key);
//!         async move { Ok::<_, kube::Error>(if map.is_some() { Wake::OnChange } else { Wake::Never }) }
//!     };
//!     tokio::spawn(controller.run(reconcile, leadership, shutdown.clone()));
//!     informers.run(shutdown).await
//! }
//! ```

pub mod apply;
pub mod client;
pub mod clock;
pub mod controller;
pub mod drift;
pub mod echo;
pub mod elsewhere;
pub mod error;
pub mod events;
#[cfg(test)]
mod fake;
pub mod fence;
pub mod gate;
pub mod health;
pub mod informer;
pub mod jitter;
pub mod job_end;
pub mod key;
pub mod latest;
pub mod leader;
pub mod lease;
pub mod liveness;
pub mod metrics;
pub mod queue;
pub mod report;
pub mod store;
pub mod wakeup;
