//! What every controller of the operator stands on.
//!
//! | module | what for |
//! | --- | --- |
//! | [`informer`], [`store`] | one watch per kind for the whole process, and the read-only copy it fills |
//! | [`wakeup`], [`queue`], [`controller`] | from a change to a reconcile: keys, back-off, tasks |
//! | [`lease`], [`leader`], [`fence`] | who may write: the decision, the calls, the permit before every write |
//! | [`apply`], [`drift`] | writes that are fenced, bounded, and left out when nothing would change |
//! | [`echo`] | own status writes that the watch brings back, and that wake nobody |
//! | [`events`] | events for people, best effort |
//! | [`report`] | what a controller found, in the status and as an Event |
//! | [`elsewhere`] | objects of another installation, which are left alone and told so |
//! | [`error`] | classes of errors: back-off, condition reason, metric label |
//! | [`gate`], [`health`], [`metrics`] | what is waited for, and the pages that tell |
//! | [`clock`], [`jitter`] | time and chance, here and nowhere else |
//! | [`client`], [`key`] | the connection, and names of objects |
//!
//! `queue`, `lease`, `drift`, `echo` and `store` decide without IO, clock or chance. Nothing here knows what etcd is.
//!
//! A controller put together:
//!
//! ```
//! use etcd_operator_runtime::clock::SharedClock;
//! use etcd_operator_runtime::controller::Controller;
//! use etcd_operator_runtime::fence::Leadership;
//! use etcd_operator_runtime::informer::{Broken, Informers, Scope, keep_all};
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
//! ) -> Result<(), Broken> {
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
pub mod key;
pub mod latest;
pub mod leader;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod report;
pub mod store;
pub mod wakeup;
