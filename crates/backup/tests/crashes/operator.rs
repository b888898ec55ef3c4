//! The controller as the manager runs it. A gate before the API server can kill it before and after every call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::names::{APP_BACKUP_VALUE, LABEL_APP, LABEL_BACKUP};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_backup::{Deps, JobSlots, Reconciler, trim};
use etcd_operator_runtime::apply::Applier;
use etcd_operator_runtime::clock::{SharedClock, TestClock};
use etcd_operator_runtime::controller::Controller;
use etcd_operator_runtime::echo::Echoes;
use etcd_operator_runtime::events;
use etcd_operator_runtime::fence::Leadership;
use etcd_operator_runtime::informer::{Informer, Informers, Scope, Selection, Watched, keep_all};
use etcd_operator_runtime::metrics::Metrics;
use etcd_operator_runtime::report::Reporter;
use etcd_operator_testkit::fake::FakeService;
use etcd_operator_testkit::gate::{Gate, Side};
use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// The deadline of a reconcile: shorter than that of a call, so that a test can have either pass.
const DEADLINE: Duration = Duration::from_secs(5);

/// The API server behind the gate.
#[derive(Clone)]
struct Gated {
    inner: FakeService,
    gate: Gate,
}

impl Service<Request<Body>> for Gated {
    type Response = <FakeService as Service<Request<Body>>>::Response;
    type Error = <FakeService as Service<Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let is_list = request.method() == Method::GET && !request.uri().path().contains("/etcdbackups/");
            if is_list {
                this.gate.while_open().await;
                return this.inner.call(request).await;
            }
            let call = request.method().to_string();
            this.gate.pass(&call, Side::Before).await;
            let answer = this.inner.call(request).await;
            this.gate.pass(&call, Side::After).await;
            answer
        })
    }
}

/// Starts an operator; it runs until the gate kills it.
pub(crate) fn start(service: FakeService, now: Timestamp, most_jobs: usize) -> Gate {
    let gate = Gate::open();
    let service = Gated {
        inner: service,
        gate: gate.clone(),
    };
    let client = kube::Client::new(service, "shop");
    tokio::spawn({
        let gate = gate.clone();
        async move {
            tokio::select! {
                biased;
                () = gate.dead() => {}
                () = operate(client, now, most_jobs) => {}
            }
        }
    });
    gate
}

async fn operate(client: kube::Client, now: Timestamp, most_jobs: usize) {
    let clock: SharedClock = Arc::new(TestClock::starting_at(now));
    let leadership = Leadership::always(clock.clone());
    let metrics = Metrics::new("0.0.0", "test");
    let (recorder, publisher) = events::channel(
        client.clone(),
        "operator",
        leadership.clone(),
        clock.clone(),
        metrics.clone(),
    );
    let mut informers = Informers::new(client.clone(), clock.clone(), metrics.clone());
    let scope = Scope::Namespaces(["shop".to_owned()].into());
    let labelled = || scope.clone().labelled(format!("{LABEL_APP}={APP_BACKUP_VALUE}"));
    let backups = informers.add::<EtcdBackup>(Selection::from(scope.clone()), keep_all);
    let clusters = informers.add::<EtcdCluster>(Selection::from(scope.clone()), keep_all);
    let restores = informers.add::<EtcdRestore>(Selection::from(scope.clone()), keep_all);
    let jobs = informers.add::<Job>(labelled(), trim::job);
    let pods = informers.add::<Pod>(labelled(), keep_all);
    let own_writes = Echoes::default();
    let applier = Applier::new(client, "etcd-operator/backup", leadership.clone());
    let job_slots = JobSlots::new(most_jobs);
    let function = Reconciler::new(Deps {
        backups: backups.store(),
        clusters: clusters.store(),
        restores: restores.store(),
        jobs: jobs.store(),
        pods: pods.store(),
        reporter: Reporter::new(
            applier.clone().noting(own_writes.clone()),
            recorder,
            clock.clone(),
        ),
        applier,
        scope: ScopeRule::Namespaced,
        installation: "simulated".to_owned(),
        default_repository: DefaultRepository::default(),
        operator_image: Ok("etcd-operator:test".to_owned()),
        job_slots: job_slots.clone(),
        clock: clock.clone(),
    })
    .function();
    let controller = Controller::builder("backup", clock, metrics)
        .gate(&backups.synced())
        .gate(&clusters.synced())
        .gate(&restores.synced())
        .gate(&jobs.synced())
        .gate(&pods.synced())
        .concurrency(4)
        .deadline(DEADLINE)
        .objects(backups.store());
    let wake = controller.wakeup();
    backups.sink(move |change| {
        if !own_writes.is_own(change) {
            wake.push(change.key());
        }
    });
    let (wake, store) = (controller.wakeup(), backups.store());
    restores.sink(move |change| {
        for key in Reconciler::pruning(&store, &change.key()) {
            wake.push(key);
        }
    });
    job_slots.wake_with(controller.wakeup());
    wake_owner(&jobs, &controller);
    wake_owner(&pods, &controller);
    let shutdown = CancellationToken::new();
    let _shutdown_guard = shutdown.clone().drop_guard();
    tokio::spawn(informers.run(shutdown.clone()));
    tokio::spawn(publisher.run(shutdown.clone()));
    controller.run(function, leadership, shutdown).await;
}

/// Reconciles the EtcdBackup in the label of an object whenever the object changes.
fn wake_owner<K: Watched>(dependents: &Informer<K>, owners: &Controller) {
    let wake = owners.wakeup();
    dependents.sink(move |change| {
        let labels = change.object().and_then(|object| object.meta().labels.as_ref());
        if let Some(owner) = labels.and_then(|labels| labels.get(LABEL_BACKUP)) {
            wake.push(change.key().beside(owner));
        }
    });
}
