//! The EtcdBackup controller as the manager runs it.

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_backup::{Deps, Reconciler};
use etcd_operator_runtime::apply::Applier;
use etcd_operator_runtime::clock::FrozenClock;
use etcd_operator_runtime::controller::Controller;
use etcd_operator_runtime::echo::Echoes;
use etcd_operator_runtime::events;
use etcd_operator_runtime::fence::Leadership;
use etcd_operator_runtime::informer::{Informers, Scope, Selection, keep_all};
use etcd_operator_runtime::metrics::Metrics;
use etcd_operator_runtime::report::Reporter;
use etcd_operator_testkit::golden::{NAMESPACE, NOW};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

/// Reconciles until it is dropped.
pub async fn operate(client: kube::Client) {
    let clock = FrozenClock::shared(NOW.parse().expect("a time"));
    let leadership = Leadership::always(clock.clone());
    let metrics = Metrics::new("0.0.0", "golden");
    let (recorder, publisher) = events::channel(
        client.clone(),
        "golden",
        leadership.clone(),
        clock.clone(),
        metrics.clone(),
    );
    let mut informers = Informers::new(client.clone(), clock.clone(), metrics.clone());
    let scope = || Selection::from(Scope::Namespaces([NAMESPACE.to_owned()].into()));
    let backups = informers.add::<EtcdBackup>(scope(), keep_all);
    let clusters = informers.add::<EtcdCluster>(scope(), keep_all);
    let restores = informers.add::<EtcdRestore>(scope(), keep_all);
    let jobs = informers.add::<Job>(scope(), keep_all);
    let pods = informers.add::<Pod>(scope(), keep_all);
    let applier = Applier::new(client, "etcd-operator/backup", leadership.clone());
    let function = Reconciler::new(Deps {
        backups: backups.store(),
        clusters: clusters.store(),
        restores: restores.store(),
        jobs: jobs.store(),
        pods: pods.store(),
        reporter: Reporter::new(applier.clone().noting(Echoes::default()), recorder, clock.clone()),
        applier,
        scope: ScopeRule::Namespaced,
        installation: "golden".to_owned(),
        default_repository: DefaultRepository::default(),
        operator_image: Ok("registry.example.com/etcd-operator:0.1.0".to_owned()),
        job_slots: etcd_operator_backup::JobSlots::new(4),
        clock: clock.clone(),
    })
    .function();
    let mut controller = Controller::builder("backup", clock, metrics).objects(backups.store());
    for gate in [
        backups.synced(),
        clusters.synced(),
        restores.synced(),
        jobs.synced(),
        pods.synced(),
    ] {
        controller = controller.gate(&gate);
    }
    let wakeup = controller.wakeup();
    backups.sink(move |change| wakeup.push(change.key()));
    let shutdown = CancellationToken::new();
    let _ended = shutdown.clone().drop_guard();
    tokio::spawn(informers.run(shutdown.clone()));
    tokio::spawn(publisher.run(shutdown.clone()));
    controller.run(function, leadership, shutdown).await;
}
